//! `pumice`: one binary for the whole platform.
//!
//! Wiring and flags only; what things do lives in the crates.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admission;
mod api;
mod apiserver;
mod args;
mod backup;
mod ca;
mod certificates;
mod credentials;
mod data_dir;
mod descriptors;
mod down;
mod fleet;
mod forbidden_tenants;
mod history;
mod image;
mod install;
mod logging;
mod node;
mod output;
mod parts;
mod password_command;
mod process;
mod restore;
mod room;
mod scheduler;
mod set_aside;
mod standalone;
mod status;
mod tenant;
mod up;
mod vcctl;

use std::process::ExitCode;

use crate::args::vcctl::slurm;
use crate::args::{AdmissionCommand, Cli, Command, ControllersCommand, HistoryCommand, NodeCommand};
use clap::Parser;

/// Objects are many small values that one thread makes and another frees, which the system's allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    pumice_linux::files::fail_writes_beyond_the_limit();
    // The shim is started hundreds of times: no parsing, no logging, no runtime before it.
    let mut words = std::env::args_os();
    if words.next().is_some_and(|called| slurm::is_known(&called)) {
        return vcctl::called(slurm::Called::parse().program);
    }
    if words.next().is_some_and(|word| word == "shim") {
        return pumice_shim::shim_main(words);
    }
    let result = match Cli::parse().command {
        Command::Up(args) => up::up(*args),
        Command::Down(args) => down::down(&args),
        Command::Status(args) => return status::status(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Ca(command) => ca::run(&command),
        Command::ApiServer(args) => apiserver::run(&args),
        Command::Scheduler(command) => return scheduler::run(&command),
        Command::Controllers(ControllersCommand::Run(args)) => standalone::controllers(&args),
        Command::Fleet(command) => fleet::run(&command),
        Command::History(HistoryCommand::Run(args)) => history::run(&args),
        Command::Admission(AdmissionCommand::Run(args)) => admission::run(&args),
        Command::Admission(AdmissionCommand::Policies(args)) => output::print(&args.text()),
        Command::Image(command) => image::run(command),
        Command::Node(NodeCommand::Run(args)) => node::run(&args),
        Command::Node(NodeCommand::List(args)) => set_aside::list(&args),
        Command::Node(NodeCommand::RemoveSetAside(args)) => set_aside::remove(&args),
        Command::Node(NodeCommand::Simulated(args)) => standalone::simulated_nodes(args),
        Command::Node(NodeCommand::Why { api, named }) => return vcctl::node_why(&api, &named),
        Command::Node(NodeCommand::Drain(args)) => return vcctl::drain(&args),
        Command::Node(NodeCommand::Undrain { api, named }) => return vcctl::undrain(&api, &named),
        Command::Reserve(args) => return vcctl::reserve(&args),
        Command::Tenant(args) => return tenant::run(*args),
        Command::Crds => install::definitions(),
        Command::Roles(args) => install::roles(&args),
        Command::Links { dir } => vcctl::links(dir.as_deref()),
        Command::Vcctl(group) => return vcctl::run(group),
        Command::Shim { args } => return pumice_shim::shim_main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::fail(&error, 1),
    }
}

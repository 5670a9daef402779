//! Researchers' verbs: parse, do, print, exit with the code that scripts rely on.
//!
//! Wiring only; what a verb does is in `pumice-jobs`. Nothing asynchronous starts before the flags
//! and manifests are read and found good.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod commands;
mod environment;
mod failure;
mod log_printer;
mod output;
mod terminal;
mod view;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if args::completion::answer() {
        return ExitCode::SUCCESS;
    }
    let args = args::Cli::parse();
    let verb = args.command.taking_flags();
    let exit = match commands::run(args) {
        Ok(exit) => exit,
        Err(failure) => {
            failure.print(verb);
            failure.exit()
        }
    };
    ExitCode::from(exit.code())
}

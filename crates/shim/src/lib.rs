//! The shim: one small process per pod that outlives the platform.
//!
//! It starts the pod's containers, keeps their output, restarts them by policy, obeys `stop.json`
//! and writes down how everything ended. Invariant: single-threaded and without a runtime, so that
//! it may fork at any time; it talks through files, and through sockets with clients that are attached. Started by the agent through
//! `shim_main`.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod attach;
mod attached;
mod backoff;
mod capabilities;
pub mod capability_set;
pub mod control;
pub mod discarded;
pub mod ephemeral;
pub mod exec;
pub mod filter_file;
mod fork;
pub mod format;
mod hostmounts;
mod init;
mod journal;
pub mod logs;
mod namespaces;
mod network;
pub mod newer;
mod output;
pub mod own_users;
mod pod_init;
mod probe;
mod process;
mod program;
pub mod remove;
pub mod report;
mod rootfs;
mod signals;
pub mod spec;
pub mod starter;
pub mod status;
mod supervisor;
mod syscall_filter;
mod terminal;
pub mod user_namespace;
pub mod users_files;

use std::ffi::{CString, OsString};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::unistd::{ForkResult, setsid};
use pumice_units::with_causes;

use control::ShimProcess;
use journal::journal;
use starter::Order;
use supervisor::{ShimError, Supervisor};

use pumice_linux::{cpu_turns, huge_pages};

/// Flag that asks whether this user can isolate pods without root; a folder to try it in follows.
pub const PROBE: &str = "--probe";

/// Word that asks for a user namespace, which is there until standard input ends; any folder follows.
pub const USERS: &str = "show-user-namespace";

/// Runs the shim of the pod directory that is the last of `args` (the hidden `shim POD_DIR`).
///
/// Returns at once in the calling process, with the shim detached in a session of its own; the exit
/// code says whether it got that far. Must be called before any thread or runtime is started.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    // Process 1 of a container is a copy of this process, and a container may look into that one.
    program::close_all_but_streams();
    take_name();
    huge_pages::allow_in_shim();
    // Nothing but speed depends on it.
    let _ = cpu_turns::take_turns_as_usual();
    let asks = |word: &str| args.iter().any(|arg| arg == word);
    if asks(user_namespace::INSIDE)
        && let Err(error) = user_namespace::enter_given()
    {
        journal(&error.to_string());
        return ExitCode::FAILURE;
    }
    let (probes, shows_users) = (asks(PROBE), asks(USERS));
    let (executes, removes, starts) = (asks(exec::EXEC), asks(remove::REMOVE), asks(starter::START_SHIMS));
    let (counts, takes) = (asks(users_files::COUNT), asks(users_files::TAKE));
    let group = args.iter().position(|arg| arg == users_files::GIVE_TO_GROUP);
    let group = group.and_then(|word| args.get(word + 1)).map(|group| group.to_string_lossy().into_owned());
    let Some(dir) = args.into_iter().last().map(PathBuf::from).filter(|dir| dir.is_absolute()) else {
        journal("usage: shim POD_DIR (an absolute path); meant to be started by the node agent");
        return ExitCode::from(2);
    };
    if shows_users {
        return match own_users::show() {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    if probes {
        return match probe::run(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                journal(&error.to_string());
                ExitCode::FAILURE
            }
        };
    }
    if removes {
        return remove::run(&dir);
    }
    if counts {
        return users_files::count(&dir);
    }
    if takes {
        return users_files::take(&dir);
    }
    if let Some(group) = group {
        return users_files::give_to_group(&group, &dir);
    }
    if executes {
        return match run_beside(&dir) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                journal(&format!("can't run another program in {}: {error}", dir.display()));
                ExitCode::FAILURE
            }
        };
    }
    let detached = if starts { start_shims() } else { detach(&dir) };
    match detached {
        Ok(Detached::Caller) => ExitCode::SUCCESS,
        Ok(Detached::Shim { supervisor, lock: _lock }) => match supervisor.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                journal(&format!("shim failed: {}", with_causes(&error)));
                ExitCode::FAILURE
            }
        },
        Err(text) => {
            journal(&text);
            ExitCode::FAILURE
        }
    }
}

/// Is copied for each pod until the agent ends; a copy is a shim.
fn start_shims() -> Result<Detached, String> {
    match starter::serve() {
        Ok(None) => Ok(Detached::Caller),
        Ok(Some(Order { dir, mut report })) => match control::lock(&dir) {
            Ok(lock) => become_shim(&dir, lock, &mut report),
            Err(error) => {
                let text = not_started(&dir, &error);
                let _ = report.write_all(text.as_bytes());
                Err(text)
            }
        },
        Err(error) => Err(format!("can't start shims: {error}")),
    }
}

/// The kernel named this process after the descriptor that it was started from; people look for the program.
fn take_name() {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name).and_then(|name| CString::new(name.as_bytes()).ok());
    if let Some(name) = name {
        // Nothing but what people read depends on it.
        let _ = nix::sys::prctl::set_name(&name);
    }
}

enum Detached {
    /// The process that was started; the shim is its child.
    Caller,
    /// The shim, with the lock that says it lives.
    Shim { supervisor: Box<Supervisor>, lock: fs::File },
}

/// Runs another program in a container of `dir`, by a child that has one thread and a session of its own.
fn run_beside(dir: &Path) -> std::io::Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned()?;
    match fork::fork()? {
        ForkResult::Parent { .. } => Ok(()),
        ForkResult::Child => {
            let begun = setsid().map_err(std::io::Error::from).and_then(|_| std::env::set_current_dir("/"));
            if begun.is_ok() {
                exec::serve(dir, socket);
            }
            fork::exit(i32::from(begun.is_err()))
        }
    }
}

/// Leaves the session, the process group and the parent that started us. The parent ends once the shim has all that it
/// needs, so that a start that failed for want of room on the disk can be tried again; else the text says why. That includes
/// what the pod's containers share: the kernel makes networks one by one, and who starts pods is to have no more of them in the
/// making than it means to. Nothing that a pod can hold up is waited for.
#[allow(unsafe_code)]
fn detach(dir: &Path) -> Result<Detached, String> {
    let failed = |error: std::io::Error| not_started(dir, &error);
    let lock = control::lock(dir).map_err(failed)?;
    let (mut outcome, mut report) = std::io::pipe().map_err(failed)?;
    // SAFETY: contract of `shim_main`: no other thread runs, so the child goes on as usual.
    match unsafe { nix::unistd::fork() }.map_err(|errno| failed(errno.into()))? {
        ForkResult::Parent { .. } => {
            drop((report, lock));
            let mut text = String::new();
            outcome.read_to_string(&mut text).map_err(failed)?;
            starter::outcome(&text, dir).map(|()| Detached::Caller)
        }
        ForkResult::Child => {
            drop(outcome);
            become_shim(dir, lock, &mut report)
        }
    }
}

fn become_shim(dir: &Path, lock: fs::File, report: &mut impl Write) -> Result<Detached, String> {
    let stands = stand(dir);
    let said = stands.as_ref().err().map_or(starter::STANDS, String::as_str);
    // A parent that is gone asks no more.
    let _ = report.write_all(said.as_bytes());
    match stands {
        Ok(Some(supervisor)) => Ok(Detached::Shim { supervisor: Box::new(supervisor), lock }),
        Ok(None) => fork::exit(0),
        // Who has started it tells.
        Err(_) => fork::exit(1),
    }
}

fn not_started(dir: &Path, error: &std::io::Error) -> String {
    format!("can't start the shim of {}: {error}", dir.display())
}

/// Becomes a process by itself that others can find; nothing is left to do for a pod that has run before.
fn stand(dir: &Path) -> Result<Option<Supervisor>, String> {
    let failed = |error: std::io::Error| not_started(dir, &error);
    setsid().map_err(|errno| failed(errno.into()))?;
    std::env::set_current_dir("/").map_err(failed)?;
    ShimProcess::of_self().write(dir).map_err(failed)?;
    match Supervisor::open(dir.to_owned()) {
        Ok(mut supervisor) => {
            supervisor.prepare();
            Ok(Some(supervisor))
        }
        Err(error @ ShimError::RanAlready) => {
            journal(&error.to_string());
            Ok(None)
        }
        Err(error) => Err(format!("can't start the shim: {}", with_causes(&error))),
    }
}

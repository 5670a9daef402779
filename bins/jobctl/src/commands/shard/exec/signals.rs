//! A command as a child: how it ends, and the signals that reach this process meanwhile.
//!
//! Invariant: a signal that comes while a command runs reaches it; one that comes between two commands waits for the next.

use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;

use crate::failure::Failure;
use crate::terminal;

/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// Of those, the ones that ask for the end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// How a command ended.
pub struct Ended {
    /// The code a shell would give.
    pub code: u8,
    /// The signal that killed it.
    pub killed_by: Option<i32>,
    /// Why it did not start; empty if it did.
    pub problem: String,
    /// The signal that asked this process to end meanwhile.
    pub asked_to_end: Option<Signal>,
}

/// The signals of this process, taken one by one instead of by handlers.
pub struct Signals {
    taken: SigSet,
    /// What was blocked before, which commands begin with.
    before: SigSet,
}

impl Signals {
    /// From here on they wait until they are taken. Must be called before there is a second thread, which would get them.
    pub fn block() -> Result<Signals, Failure> {
        let taken: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
        let before = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals");
        Ok(Signals { taken, before: before.map_err(Failure::Machine)? })
    }

    /// Becomes the command. Comes back only if it can't be started, and says why.
    pub fn become_command(&self, mut command: Command) -> Ended {
        self.unblock_in(&mut command);
        Ended::not_started(&command.exec(), &command)
    }

    /// Lets a command begin with the signals that this process began with: what is blocked is inherited.
    #[allow(unsafe_code)]
    fn unblock_in(&self, command: &mut Command) {
        let before = self.before;
        // SAFETY: between fork and exec this makes one system call on memory of its own and takes no lock: pthread_sigmask
        // is async-signal-safe, and its error is a number.
        unsafe {
            command.pre_exec(move || before.thread_set_mask().map_err(Into::into));
        }
    }

    /// Runs a command to its end and passes signals on to it.
    pub fn run(&self, mut command: Command) -> Result<Ended, Failure> {
        self.unblock_in(&mut command);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Ended::not_started(&error, &command)),
        };
        let mut asked_to_end = None;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for a command").map_err(Failure::Machine)? {
                return Ok(Ended::of(status, asked_to_end));
            }
            let signal = self.taken.wait().context("cannot wait for signals").map_err(Failure::Machine)?;
            if signal != Signal::SIGCHLD {
                pass_on(&child, signal);
            }
            if ENDING.contains(&signal) {
                asked_to_end = Some(signal);
            }
        }
    }
}

impl Ended {
    fn of(status: ExitStatus, asked_to_end: Option<Signal>) -> Ended {
        let killed_by = status.signal();
        let code = status.code().or(killed_by.map(|signal| 128 + signal)).unwrap_or(255);
        Ended { code: u8::try_from(code).unwrap_or(255), killed_by, problem: String::new(), asked_to_end }
    }

    /// Says why a program didn't start, with the code a shell would give.
    fn not_started(error: &std::io::Error, command: &Command) -> Ended {
        let problem = format!("cannot start {}: {error}", command.get_program().display());
        terminal::say(&problem);
        let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
        Ended { code, killed_by: None, problem, asked_to_end: None }
    }
}

/// The child has not been waited for, so its number is still its own.
fn pass_on(child: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have just ended.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

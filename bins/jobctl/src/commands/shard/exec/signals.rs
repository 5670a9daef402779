//! A command as a child: how it ends, and the signals that reach this process meanwhile.
//!
//! Whoever ends a pod signals this process's whole group, or this process alone. So a command has a group of its own, to which only
//! this process passes signals on. Invariant: each signal reaches all of a command, and once; one that comes between two commands
//! waits for the next. What a command that died of a signal leaves in its group has time to end as well.

use std::io::{ErrorKind, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
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
        // On a terminal it must stay in the group that may read from it, and which the terminal signals itself.
        let own_group = !std::io::stdin().is_terminal();
        if own_group {
            command.process_group(0);
        }
        // What a command leaves behind becomes a child of this process, which so learns of its end.
        prctl::set_child_subreaper(true).context("cannot adopt orphans").map_err(Failure::Machine)?;
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Ended::not_started(&error, &command)),
        };
        let pid = i32::try_from(child.id()).context("a command has no pid").map_err(Failure::Machine)?;
        let mut running = Running { pid: Pid::from_raw(pid), own_group, ended: None };
        let mut asked_to_end = None;
        loop {
            running.reap()?;
            if let Some(status) = running.ended
                && !(asked_to_end.is_some_and(|signal| died_of(status, signal)) && running.has_left_some())
            {
                return Ok(Ended::of(status, asked_to_end));
            }
            let signal = self.taken.wait().context("cannot wait for signals").map_err(Failure::Machine)?;
            if signal != Signal::SIGCHLD {
                running.pass_on(signal);
            }
            if ENDING.contains(&signal) {
                asked_to_end = Some(signal);
            }
        }
    }

    /// Dies of a signal as a command did, so that who waits for this process knows that nobody has caught it. Comes back where
    /// that can't be: the first process of a container doesn't die of what it has no handler for.
    pub fn die_of(&self, signal: Signal) {
        if self.before.thread_set_mask().is_ok() {
            let _ = raise(signal);
        }
    }
}

/// A command that was started.
struct Running {
    pid: Pid,
    /// Whether its group is its own.
    own_group: bool,
    ended: Option<WaitStatus>,
}

impl Running {
    /// Takes the ends of all that have ended, the command's orphans among them.
    fn reap(&mut self) -> Result<(), Failure> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(status) if status.pid() == Some(self.pid) => self.ended = Some(status),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for a command").map_err(Failure::Machine),
            }
        }
    }

    /// Whether somebody of its group is still there.
    fn has_left_some(&self) -> bool {
        self.own_group && killpg(self.pid, None).is_ok()
    }

    /// Its number is its own for as long as it was not waited for, and its group's for as long as somebody is in it.
    fn pass_on(&self, signal: Signal) {
        // It may have just ended.
        let _ = match (self.own_group, self.ended) {
            (true, _) => killpg(self.pid, signal),
            (false, None) => kill(self.pid, signal),
            (false, Some(_)) => Ok(()),
        };
    }
}

fn died_of(status: WaitStatus, signal: Signal) -> bool {
    matches!(status, WaitStatus::Signaled(_, by, _) if by == signal)
}

impl Ended {
    fn of(status: WaitStatus, asked_to_end: Option<Signal>) -> Ended {
        let (code, killed_by) = match status {
            WaitStatus::Exited(_, code) => (code, None),
            WaitStatus::Signaled(_, signal, _) => (128 + signal as i32, Some(signal as i32)),
            _ => (255, None),
        };
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

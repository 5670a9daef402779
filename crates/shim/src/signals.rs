//! What process 1 of a container does while its program runs: passes signals on, reaps, and waits for those whom a stop gave time.
//!
//! A stop is a signal from the shim. It goes to the program's process group, for a shell would sit on it until its child ends.
//! A program that then exits has ended the container, as in Kubernetes. One that was killed by that very signal said nothing of
//! those it had started, who got the signal too: they have the rest of the grace, whose end is the shim's to bring about.
//!
//! Invariant: no process gets a signal twice from here. One outside the program's group gets it when the process that could have
//! passed it on has died of it. What is left when process 1 ends, the kernel kills (or, without a pid namespace of its own, this code).

use std::collections::BTreeSet;
use std::fs::File;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgid, getppid};

use super::report::Report;
use pumice_linux::procfs;

/// Returns when the container is over; how its program ended is reported before.
pub(super) fn attend(program: Pid, signals: &SignalFd, report: &File, has_own_processes: bool) {
    let mut container = Container { program, report, stop: None, stage: Stage::Running, reached: BTreeSet::new() };
    // From within a pid namespace the shim has no pid: it is 0, which nobody inside can be.
    let shim = getppid();
    while container.stage != Stage::Over {
        let Ok(Some(info)) = signals.read_signal() else { continue };
        let number = i32::try_from(info.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            Ok(Signal::SIGCHLD) => container.reap(),
            Ok(signal) => {
                if i32::try_from(info.ssi_pid) == Ok(shim.as_raw()) {
                    container.stop = Some(signal);
                }
                container.pass_on(signal);
            }
            // Real-time signals mean something to their own program only.
            Err(_) => {}
        }
    }
    if !has_own_processes {
        kill_leftovers();
    }
}

/// How far a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    /// The program has died of the stop; others have not.
    Outlived,
    /// Nothing is left, or nothing that is waited for.
    Over,
}

struct Container<'a> {
    program: Pid,
    report: &'a File,
    /// The signal by which the shim has asked for the end.
    stop: Option<Signal>,
    stage: Stage,
    /// Processes outside the program's group that got that signal.
    reached: BTreeSet<i32>,
}

impl Container<'_> {
    fn pass_on(&self, signal: Signal) {
        // Before it has a group it is alone; once it was reaped its number may be another's.
        if killpg(self.program, signal).is_err() && self.stage == Stage::Running {
            let _ = kill(self.program, signal);
        }
    }

    /// Takes the ends of all that have ended.
    fn reap(&mut self) {
        let mut died_of_stop = false;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(ended) => {
                    let of_stop = matches!(ended, WaitStatus::Signaled(_, signal, _) if Some(signal) == self.stop);
                    died_of_stop |= of_stop;
                    if ended.pid() == Some(self.program)
                        && let Some(end) = Report::of(ended)
                    {
                        // At once: process 1 may be killed before the others have ended.
                        end.send(self.report);
                        self.stage = if of_stop { Stage::Outlived } else { Stage::Over };
                    }
                }
                Err(nix::Error::EINTR) => {}
                // Nobody is left, the program included.
                Err(_) => {
                    self.stage = Stage::Over;
                    break;
                }
            }
        }
        if died_of_stop && self.stage == Stage::Outlived {
            self.reach_orphans();
        }
    }

    /// Sends the stop to those who have become process 1's own children and were not in the program's group.
    fn reach_orphans(&mut self) {
        let Some(stop) = self.stop else { return };
        for pid in procfs::children(std::process::id().cast_signed()) {
            let process = Pid::from_raw(pid);
            if getpgid(Some(process)) != Ok(self.program) && self.reached.insert(pid) {
                let _ = kill(process, stop);
            }
        }
    }
}

/// Rounds of killing what a program without a pid namespace of its own left behind.
const KILL_ROUNDS: u32 = 50;

fn kill_leftovers() {
    for _ in 0..KILL_ROUNDS {
        let left = procfs::descendants(std::process::id().cast_signed());
        if left.is_empty() {
            return;
        }
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        while matches!(waitpid(None, Some(WaitPidFlag::WNOHANG)), Ok(status) if status != WaitStatus::StillAlive) {}
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

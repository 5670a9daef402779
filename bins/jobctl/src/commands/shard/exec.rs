//! `jobctl shard exec`: the command once for each record of a pod, one after the other.
//!
//! Invariant: a record that fails stops no other; a signal to end stops all that have not begun. A pod of one record becomes
//! the command, so nothing stands between it and its signals. The exit code is that of the first record that failed.

use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};

use anyhow::Context;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;
use pumice_jobs::Exit;
use pumice_jobs::shards::{Record, Template};

use super::{Slice, outside};
use crate::failure::Failure;
use crate::terminal;

/// Signals that are passed on to the command.
const PASSED_ON: [Signal; 6] =
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
/// Of those, the ones that ask for the end.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// Failed records named.
const KEYS_SHOWN: usize = 20;

/// Runs the words for each record.
pub fn run(slice: &Slice, words: &[String]) -> Result<Exit, Failure> {
    let template = Template::new(words, &slice.plan.shards().names()).map_err(|error| outside(error.to_string()))?;
    if slice.records.len() == 1 {
        let record = slice.record(slice.records.start)?;
        let mut command = command(slice, &template, &record)?;
        // Comes back only if there is no such program.
        return Ok(Exit::Own(not_started(&command.exec(), &command)));
    }
    let signals = Signals::block()?;
    let mut failed: Vec<(String, u8)> = Vec::new();
    for index in slice.records.clone() {
        let record = slice.record(index)?;
        let ended = signals.run(command(slice, &template, &record)?)?;
        if ended.code != 0 {
            failed.push((record.key, ended.code));
        }
        if let Some(signal) = ended.asked_to_end {
            let left = slice.records.end - index - 1;
            terminal::say(&format!("ended by {signal}; {left} records of this pod did not begin"));
            // All that began may have succeeded; the pod has not.
            let own = 128 + u8::try_from(signal as i32).unwrap_or_default();
            return Ok(match (failed.first(), left) {
                (Some((_, code)), _) => Exit::Own(*code),
                (None, 0) => Exit::Success,
                (None, _) => Exit::Own(own),
            });
        }
    }
    let Some((_, first)) = failed.first() else { return Ok(Exit::Success) };
    let named: Vec<_> = failed.iter().take(KEYS_SHOWN).map(|(key, code)| format!("{key} (exit code {code})")).collect();
    let more = failed.len().saturating_sub(KEYS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    terminal::say(&format!("{} of {} records failed: {}{more}", failed.len(), slice.records.len(), named.join(", ")));
    Ok(Exit::Own(*first))
}

fn command(slice: &Slice, template: &Template, record: &Record) -> Result<Command, Failure> {
    let words = template.fill(record).map_err(|error| outside(error.to_string()))?;
    let (program, arguments) = words.split_first().ok_or_else(|| outside("no command after --".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(slice.variables(record));
    Ok(command)
}

/// Says why a program didn't start, and gives the code a shell would.
fn not_started(error: &std::io::Error, command: &Command) -> u8 {
    terminal::say(&format!("cannot start {}: {error}", command.get_program().display()));
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

/// How a command ended.
struct Ended {
    code: u8,
    /// The signal that asked this process to end meanwhile.
    asked_to_end: Option<Signal>,
}

/// The signals of this process, taken one by one instead of by handlers.
struct Signals {
    taken: SigSet,
    /// What was blocked before, which commands begin with.
    before: SigSet,
}

impl Signals {
    /// From here on they wait until they are taken.
    fn block() -> Result<Signals, Failure> {
        let taken: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
        let before = taken.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals");
        Ok(Signals { taken, before: before.map_err(Failure::Machine)? })
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
    fn run(&self, mut command: Command) -> Result<Ended, Failure> {
        self.unblock_in(&mut command);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Ok(Ended { code: not_started(&error, &command), asked_to_end: None }),
        };
        let mut asked_to_end = None;
        loop {
            if let Some(status) = child.try_wait().context("cannot wait for a command").map_err(Failure::Machine)? {
                return Ok(Ended { code: code(status), asked_to_end });
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

/// The child has not been waited for, so its number is still its own.
fn pass_on(child: &Child, signal: Signal) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have just ended.
        let _ = kill(Pid::from_raw(pid), signal);
    }
}

/// The code a shell would give.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    u8::try_from(code).unwrap_or(255)
}

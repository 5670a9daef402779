//! `jobctl shard exec`: the command once for each record of a pod, one after the other.
//!
//! Invariant: a record that fails stops no other; a signal to end stops all that have not begun. Where results are recorded, what is
//! done already is not run again. Where none are, a pod of one record becomes the command, so nothing stands between it and its
//! signals. The exit code is that of the first record that failed; where that died of a signal to end, this process does, too.

mod recording;
mod signals;

use std::process::Command;

use nix::sys::signal::Signal;
use pumice_jobs::Exit;
use pumice_jobs::shards::{Record, Template};

use self::recording::Recording;
use self::signals::Signals;
use super::{Purpose, Slice, outside};
use crate::commands::Session;
use crate::failure::Failure;
use crate::terminal;

/// How many failed records the last line names.
const KEYS_SHOWN: usize = 20;

/// Runs the words for each record that is left.
pub fn run(session: &Session, words: &[String]) -> Result<Exit, Failure> {
    let signals = Signals::block()?;
    let slice = Slice::of_this_pod(session, Purpose::Running)?;
    let template = Template::new(words, &slice.plan.shards().names()).map_err(|error| outside(error.to_string()))?;
    let mut recording = Recording::open(&slice)?;
    let ended = run_each(&slice, &template, &signals, recording.as_mut());
    // Also where something failed: what was done before that stays done.
    let stored = recording.as_mut().map_or(Ok(()), Recording::flush);
    let end = ended?;
    stored?;
    // Its folder goes before this process does.
    drop(recording);
    if let Some(signal) = end.of_signal {
        signals.die_of(signal);
    }
    Ok(end.exit)
}

/// How a pod's records came to their end.
struct End {
    exit: Exit,
    /// The signal to end that a record died of, and this process with it.
    of_signal: Option<Signal>,
}

impl End {
    fn exit(exit: Exit) -> End {
        End { exit, of_signal: None }
    }
}

fn run_each(
    slice: &Slice,
    template: &Template,
    signals: &Signals,
    mut recording: Option<&mut Recording>,
) -> Result<End, Failure> {
    let left = match &recording {
        Some(recording) => recording.left(),
        None => slice.records.clone().collect(),
    };
    if let (None, [index]) = (&recording, left.as_slice()) {
        let command = command(slice, template, &slice.record(*index)?)?;
        return Ok(End::exit(Exit::Own(signals.become_command(command).code)));
    }
    if left.is_empty() {
        terminal::say("nothing is left to do: all records of this pod are done");
    }
    let mut failed: Vec<(String, u8)> = Vec::new();
    for (done, index) in (1..).zip(&left) {
        let record = slice.record(*index)?;
        let mut command = command(slice, template, &record)?;
        if let Some(recording) = &recording {
            recording.begin(&record, &mut command)?;
        }
        let ended = signals.run(command)?;
        let told = match &mut recording {
            Some(recording) => recording.end(&record, &ended)?,
            None => Some(ended.code),
        };
        if let Some(code) = told.filter(|code| *code != 0) {
            failed.push((record.key.clone(), code));
        }
        if let Some(signal) = ended.asked_to_end {
            let left = left.len() - done;
            let open = if told.is_none() { format!("{} is left open, and ", record.key) } else { String::new() };
            terminal::say(&format!("ended by {signal}; {open}{left} records of this pod did not begin"));
            // All that began may have succeeded; the pod has not.
            let own = 128 + u8::try_from(signal as i32).unwrap_or_default();
            let exit = match (failed.first(), left, told) {
                (Some((_, code)), ..) => Exit::Own(*code),
                (None, 0, Some(_)) => Exit::Success,
                (None, _, None) if ended.code != 0 => Exit::Own(ended.code),
                (None, ..) => Exit::Own(own),
            };
            let died = ended.killed_by == Some(signal as i32) && exit == Exit::Own(own);
            return Ok(End { exit, of_signal: died.then_some(signal) });
        }
    }
    let Some((_, first)) = failed.first() else { return Ok(End::exit(Exit::Success)) };
    // Of a pod's only record its own last words say it all.
    if slice.records.len() == 1 {
        return Ok(End::exit(Exit::Own(*first)));
    }
    let named: Vec<_> = failed.iter().take(KEYS_SHOWN).map(|(key, code)| format!("{key} (exit code {code})")).collect();
    let more = failed.len().saturating_sub(KEYS_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    terminal::say(&format!("{} of {} records failed: {}{more}", failed.len(), left.len(), named.join(", ")));
    Ok(End::exit(Exit::Own(*first)))
}

fn command(slice: &Slice, template: &Template, record: &Record) -> Result<Command, Failure> {
    let words = template.fill(record).map_err(|error| outside(error.to_string()))?;
    let (program, arguments) = words.split_first().ok_or_else(|| outside("no command after --".to_owned()))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(slice.variables(record));
    Ok(command)
}

//! What a shell shows when the user presses Tab: verbs and flags, and names that only the platform knows.
//!
//! The script of `jobctl completion` has the shell start this program with [`ASKED`] set and the command line behind `--`.
//! Invariant: such a run answers within [`LIMIT`], says nothing on standard error, brings up no platform and ends with 0;
//! what can't be found out is no name. The command line is read only here and only for where to look: its namespace and platform.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::{ArgMatches, CommandFactory, FromArgMatches};
use clap_complete::Shell;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::{CompleteEnv, Shells};
use pumice_api::batch::JobPhase;
use pumice_jobs::Exit;
use pumice_jobs::job::state::State;
use pumice_jobs::lookup::completions::{self, Kind};
use pumice_jobs::platform::contexts;

use super::{Cli, Global, Session};
use crate::environment;
use crate::failure::Failure;

/// Set by the script where a shell asks; its value names the shell.
const ASKED: &str = "_JOBCTL_COMPLETE";
/// Nobody waits longer for a list of names.
const LIMIT: Duration = Duration::from_secs(2);

/// Answers a shell that asks, and says whether one did.
pub fn answer() -> bool {
    // Every start of the program comes by here.
    if std::env::var_os(ASKED).is_none() {
        return false;
    }
    let environment = CompleteEnv::with_factory(Cli::command).var(ASKED);
    // What is wrong with a line that is being typed is nothing to tell of.
    environment.try_complete(std::env::args_os(), environment::read().directory.as_deref()).unwrap_or(true)
}

/// The script that makes a shell ask. It starts this program by the name or the path that it was started by itself.
pub fn script(shell: Shell) -> Result<String, Failure> {
    let program = std::env::args_os().next().map(PathBuf::from).filter(|path| path.components().count() > 1);
    let program = program.map_or_else(|| Ok("jobctl".into()), std::path::absolute);
    let mut script = Vec::new();
    let write = |program: PathBuf| match Shells::builtins().completer(&shell.to_string()) {
        Some(asks) => asks.write_registration(ASKED, "jobctl", "jobctl", &program.to_string_lossy(), &mut script),
        None => Err(std::io::Error::other(format!("no script for {shell}"))),
    };
    program.and_then(write).map_err(|error| Failure::Machine(error.into()))?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Jobs, of those that the verb makes sense for; they may be written as `job/NAME`.
pub fn jobs() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let front = if typed.to_str().is_some_and(|typed| typed.starts_with("job/")) { "job/" } else { "" };
        let suspended = State::Phase(JobPhase::Aborted);
        let states = match verb().as_str() {
            "cancel" => vec![State::Active, suspended],
            "suspend" => vec![State::Active],
            "resume" => vec![suspended],
            "retry" | "delete" => vec![State::Ended],
            "shell" | "notebook" => vec![State::Phase(JobPhase::Running)],
            _ => Vec::new(),
        };
        found(&Kind::Jobs(states), typed, front)
    })
}

pub fn queues() -> ArgValueCompleter {
    of(Kind::Queues)
}

pub fn zones() -> ArgValueCompleter {
    of(Kind::Zones)
}

pub fn namespaces() -> ArgValueCompleter {
    of(Kind::Namespaces)
}

pub fn priorities() -> ArgValueCompleter {
    of(Kind::Priorities)
}

/// What `queue` and `node` are about.
pub fn of_verb() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let kind = if verb() == "node" { Kind::Nodes } else { Kind::Queues };
        found(&kind, typed, "")
    })
}

/// Names of the user's contexts; paths where one is begun.
pub fn contexts() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let Some(begin) = typed.to_str().filter(|begin| !begin.contains('/')) else {
            return PathCompleter::any().complete(typed);
        };
        let contexts = contexts::file(&environment::read().target).and_then(|file| contexts::read(&file));
        let names = contexts.map(|known| known.contexts.into_keys().collect::<Vec<String>>()).unwrap_or_default();
        names.into_iter().filter(|name| name.starts_with(begin)).map(CompletionCandidate::new).collect()
    })
}

fn of(kind: Kind) -> ArgValueCompleter {
    ArgValueCompleter::new(move |typed: &OsStr| found(&kind, typed, ""))
}

/// What the platform has that begins with what was typed after `front`.
fn found(kind: &Kind, typed: &OsStr, front: &str) -> Vec<CompletionCandidate> {
    let Some(begin) = typed.to_str().and_then(|typed| typed.strip_prefix(front)) else { return Vec::new() };
    let (kind, begin) = (kind.clone(), begin.to_owned());
    let (give, take) = mpsc::channel();
    // A name server, or a program that hands out tokens, can hold up a thread for longer than the limit.
    std::thread::spawn(move || give.send(ask(kind, begin)));
    let names = take.recv_timeout(LIMIT).unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(format!("{front}{name}"))).collect()
}

fn ask(kind: Kind, begin: String) -> Vec<String> {
    let global = line().and_then(|line| Global::from_arg_matches(&line).ok());
    let Some(mut global) = global else { return Vec::new() };
    // It may be the word that is being typed.
    global.namespace = global.namespace.filter(|name| !name.is_empty());
    let session = Session { global, surroundings: environment::read() };
    let mut names = Vec::new();
    let asked = session.talk(|connection| {
        let names = &mut names;
        async move {
            *names = completions::names(&connection, &kind, &begin).await?;
            Ok(Exit::Success)
        }
    });
    // Whatever failed, the user is typing: nothing is known then, and nothing said.
    asked.map_or_else(|_| Vec::new(), |_| names)
}

/// The verb that was typed.
fn verb() -> String {
    line().as_ref().and_then(ArgMatches::subcommand_name).unwrap_or_default().to_owned()
}

/// What can be made of the command line as it is.
fn line() -> Option<ArgMatches> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    Cli::command().ignore_errors(true).try_get_matches_from(words).ok()
}

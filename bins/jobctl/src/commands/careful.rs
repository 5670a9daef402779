//! Saying which jobs a command would change, asking where it are many, and saying what came of each.
//!
//! Invariant: nothing is asked where nobody can answer (no terminal); a script that names a pattern means it.

use std::io::{BufRead, IsTerminal, Write};

use pumice_jobs::job::JobRef;
use pumice_jobs::{Error, Exit};
use serde_json::Value;

use crate::args::{Careful, Form};
use crate::failure::Failure;
use crate::output;
use crate::terminal;

/// Jobs that are changed without a question.
const UNASKED_MAX: usize = 10;
/// How many jobs a question names before it only counts.
const NAMES_SHOWN: usize = 10;

/// What to do about the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    GoOn,
    Leave,
}

/// Prints the jobs if that is all, and asks whether to go on if they are many.
pub fn ask(verb: &str, jobs: &[JobRef], careful: &Careful) -> Result<Verdict, Failure> {
    if careful.dry_run {
        match careful.output {
            None => output::text(&format!("would {}\n", preview(verb, jobs)))?,
            Some(form) => print(jobs, form)?,
        }
        return Ok(Verdict::Leave);
    }
    let answers = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if jobs.len() > UNASKED_MAX && !careful.yes && answers {
        let mut stderr = std::io::stderr().lock();
        // Without an answer nothing happens, also when the question can't be written.
        let _ = write!(stderr, "{}? [y/N] ", preview(verb, jobs)).and_then(|()| stderr.flush());
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::Machine(error.into()))?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            terminal::say("nothing was changed");
            return Ok(Verdict::Leave);
        }
    }
    Ok(Verdict::GoOn)
}

/// `cancel 37 jobs: a, b, ... and 27 more`.
fn preview(verb: &str, jobs: &[JobRef]) -> String {
    let names: Vec<&str> = jobs.iter().take(NAMES_SHOWN).map(|job| job.name.as_str()).collect();
    let more = match jobs.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let noun = if jobs.len() == 1 { "job" } else { "jobs" };
    format!("{verb} {} {noun}: {}{more}", jobs.len(), names.join(", "))
}

/// Prints the jobs as `job/NAME`.
pub fn print(jobs: &[JobRef], form: Form) -> Result<(), Failure> {
    let ids = jobs.iter().map(|job| format!("job/{}", job.name));
    match form {
        Form::Json | Form::Yaml => output::object(&ids.map(Value::from).collect(), form),
        Form::Table | Form::Wide | Form::Name => output::text(&ids.map(|id| id + "\n").collect::<String>()),
    }
}

/// What came of many jobs. The first failure is told at the end, with what to do about it; the others are told when they come.
#[derive(Default)]
pub struct Outcomes {
    failed: Option<Error>,
}

impl Outcomes {
    /// Says what came of a job.
    pub fn take(&mut self, job: &JobRef, outcome: Result<String, Error>) {
        match outcome {
            Ok(sentence) => terminal::say(&sentence),
            Err(error) if self.failed.is_none() => self.failed = Some(error),
            Err(error) => terminal::say(&format!("job {}: {}", job.name, pumice_jobs::error::sentence(&error))),
        }
    }

    /// The exit code of all.
    pub fn exit(self) -> Result<Exit, Failure> {
        self.failed.map_or(Ok(Exit::Success), |error| Err(error.into()))
    }
}

/// Does what is asked for; false after Ctrl-C, which ends the wait for it and not what was asked for.
pub async fn unless_interrupted(work: impl Future<Output = ()>, jobs: &[JobRef]) -> bool {
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            terminal::say("interrupted: this no longer waits; what was asked for still happens");
            let flag = jobs.first().map(JobRef::namespace_flag).unwrap_or_default();
            terminal::say(&format!("next:  jobctl list{flag}"));
            false
        }
        () = work => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_counts_and_names_ten() {
        let jobs =
            |n: usize| (0..n).map(|i| JobRef { namespace: "n".into(), name: format!("j{i}") }).collect::<Vec<_>>();
        assert_eq!(preview("cancel", &jobs(1)), "cancel 1 job: j0");
        assert_eq!(preview("cancel", &jobs(2)), "cancel 2 jobs: j0, j1");
        assert_eq!(
            preview("suspend", &jobs(37)),
            "suspend 37 jobs: j0, j1, j2, j3, j4, j5, j6, j7, j8, j9 and 27 more"
        );
    }
}

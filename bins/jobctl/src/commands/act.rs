//! `jobctl cancel`, `suspend` and `resume`: bring jobs to where they are wanted.

use pumice_jobs::job::{JobEnd, JobRef};
use pumice_jobs::lifecycle::{DesiredState, StateChange, set_desired_state_of_all};
use pumice_jobs::{Exit, lookup};

use super::Session;
use super::careful::{self, Outcomes, Verdict, ask, unless_interrupted};
use crate::args::ActArgs;
use crate::failure::Failure;
use crate::terminal;

/// Does it to each job and says what came of it; the first failure decides the exit code.
pub fn run(session: &Session, args: &ActArgs, desired: DesiredState) -> Result<Exit, Failure> {
    session.attend(|connection| async move {
        let jobs = lookup::find(&connection, &args.jobs.filter(), terminal::now()).await?;
        if ask(desired.verb(), &jobs, &args.careful)? == Verdict::Leave {
            return Ok(Exit::Success);
        }
        if let Some(form) = args.careful.output {
            careful::print(&jobs, form)?;
        }
        let mut outcomes = Outcomes::default();
        let acting = set_desired_state_of_all(&connection, &jobs, desired, !args.no_wait, |job, outcome| {
            outcomes.take(job, outcome.map(|change| sentence(job, desired, change)));
        });
        if unless_interrupted(acting, &jobs).await { outcomes.exit() } else { Ok(Exit::Interrupted) }
    })
}

/// What came of it, for people.
pub fn sentence(job: &JobRef, desired: DesiredState, change: StateChange) -> String {
    let name = &job.name;
    match (desired, change) {
        (DesiredState::Resume, StateChange::AlreadyEnded(end)) => {
            format!(
                "job {name} has {}: there is nothing to resume; jobctl retry {name} submits it anew",
                past(end.word())
            )
        }
        (_, StateChange::AlreadyEnded(end)) => format!("job {name} had already {}", past(end.word())),
        (_, StateChange::AlreadyGoesOn) => format!("job {name} is not suspended"),
        (DesiredState::Resume, StateChange::AlreadyEnding) => {
            format!("job {name} is ending: there is nothing to resume")
        }
        (_, StateChange::AlreadyEnding) => format!("job {name} is ending already"),
        (DesiredState::Cancel, StateChange::Requested) => format!("job {name} is being cancelled"),
        (DesiredState::Suspend, StateChange::Requested) => format!("job {name} is being suspended"),
        (DesiredState::Resume, StateChange::Requested) => format!("job {name} is being resumed"),
        (DesiredState::Cancel, StateChange::Ended(end @ JobEnd::Terminated))
        | (DesiredState::Suspend, StateChange::Ended(end @ JobEnd::Aborted)) => {
            format!("job {name} {}", end.word())
        }
        (_, StateChange::Ended(JobEnd::Deleted)) => format!("job {name} was deleted meanwhile"),
        (DesiredState::Cancel | DesiredState::Suspend, StateChange::Ended(end)) => {
            let wished = if desired == DesiredState::Cancel { "cancelled" } else { "suspended" };
            format!("job {name} has {} before it could be {wished}", past(end.word()))
        }
        (DesiredState::Resume, StateChange::Ended(end)) => format!("job {name} has {}", past(end.word())),
        (_, StateChange::GoesOn) => format!("job {name} goes on"),
    }
}

/// "had already completed", but "had already been suspended".
fn past(word: &str) -> String {
    match word {
        "completed" | "failed" => word.to_owned(),
        other => format!("been {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_what_happened() {
        let job = JobRef { namespace: "default".into(), name: "x".into() };
        for (desired, change, text) in [
            (DesiredState::Cancel, StateChange::Ended(JobEnd::Terminated), "job x terminated"),
            (DesiredState::Cancel, StateChange::AlreadyEnded(JobEnd::Completed), "job x had already completed"),
            (DesiredState::Suspend, StateChange::AlreadyEnded(JobEnd::Aborted), "job x had already been suspended"),
            (DesiredState::Suspend, StateChange::Ended(JobEnd::Aborted), "job x suspended"),
            (
                DesiredState::Cancel,
                StateChange::Ended(JobEnd::Completed),
                "job x has completed before it could be cancelled",
            ),
            (
                DesiredState::Suspend,
                StateChange::Ended(JobEnd::Terminated),
                "job x has been terminated before it could be suspended",
            ),
            (DesiredState::Cancel, StateChange::Ended(JobEnd::Deleted), "job x was deleted meanwhile"),
            (DesiredState::Cancel, StateChange::AlreadyEnding, "job x is ending already"),
            (DesiredState::Resume, StateChange::AlreadyEnding, "job x is ending: there is nothing to resume"),
            (DesiredState::Resume, StateChange::GoesOn, "job x goes on"),
            (DesiredState::Resume, StateChange::AlreadyGoesOn, "job x is not suspended"),
            (
                DesiredState::Resume,
                StateChange::AlreadyEnded(JobEnd::Failed),
                "job x has failed: there is nothing to resume; jobctl retry x submits it anew",
            ),
        ] {
            assert_eq!(sentence(&job, desired, change), text);
        }
    }
}

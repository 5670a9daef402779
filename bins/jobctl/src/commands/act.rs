//! `jobctl cancel`, `suspend` and `resume`: bring jobs to where they are wanted.

use pumice_jobs::job::{JobEnd, JobRef};
use pumice_jobs::lifecycle::{Acted, Wish, act_on_all};
use pumice_jobs::{Exit, lookup};

use super::Session;
use super::careful::{self, Outcomes, Verdict, ask, unless_interrupted};
use crate::args::ActArgs;
use crate::failure::Failure;
use crate::terminal;

/// Does it to each job and says what came of it; the first failure decides the exit code.
pub fn run(session: &Session, args: &ActArgs, wish: Wish) -> Result<Exit, Failure> {
    session.attend(|connection| async move {
        let jobs = lookup::pick(&connection, &args.jobs.filter(), terminal::now()).await?;
        if ask(wish.verb(), &jobs, &args.careful)? == Verdict::Leave {
            return Ok(Exit::Success);
        }
        if let Some(form) = args.careful.output {
            careful::print(&jobs, form)?;
        }
        let mut outcomes = Outcomes::default();
        let acting = act_on_all(&connection, &jobs, wish, !args.no_wait, |job, outcome| {
            outcomes.take(job, outcome.map(|acted| sentence(job, wish, acted)));
        });
        if unless_interrupted(acting, &jobs).await { outcomes.exit() } else { Ok(Exit::Interrupted) }
    })
}

/// What came of it, for people.
pub fn sentence(job: &JobRef, wish: Wish, acted: Acted) -> String {
    let name = &job.name;
    match (wish, acted) {
        (Wish::Resume, Acted::AlreadyEnded(end)) => {
            format!(
                "job {name} has {}: there is nothing to resume; jobctl retry {name} submits it anew",
                past(end.word())
            )
        }
        (_, Acted::AlreadyEnded(end)) => format!("job {name} had already {}", past(end.word())),
        (_, Acted::AlreadyGoesOn) => format!("job {name} is not suspended"),
        (Wish::Resume, Acted::AlreadyEnding) => format!("job {name} is ending: there is nothing to resume"),
        (_, Acted::AlreadyEnding) => format!("job {name} is ending already"),
        (Wish::Cancel, Acted::Asked) => format!("job {name} is being cancelled"),
        (Wish::Suspend, Acted::Asked) => format!("job {name} is being suspended"),
        (Wish::Resume, Acted::Asked) => format!("job {name} is being resumed"),
        (Wish::Cancel, Acted::Ended(end @ JobEnd::Terminated))
        | (Wish::Suspend, Acted::Ended(end @ JobEnd::Aborted)) => {
            format!("job {name} {}", end.word())
        }
        (_, Acted::Ended(JobEnd::Deleted)) => format!("job {name} was deleted meanwhile"),
        (Wish::Cancel | Wish::Suspend, Acted::Ended(end)) => {
            let wished = if wish == Wish::Cancel { "cancelled" } else { "suspended" };
            format!("job {name} has {} before it could be {wished}", past(end.word()))
        }
        (Wish::Resume, Acted::Ended(end)) => format!("job {name} has {}", past(end.word())),
        (_, Acted::GoesOn) => format!("job {name} goes on"),
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
        for (wish, acted, text) in [
            (Wish::Cancel, Acted::Ended(JobEnd::Terminated), "job x terminated"),
            (Wish::Cancel, Acted::AlreadyEnded(JobEnd::Completed), "job x had already completed"),
            (Wish::Suspend, Acted::AlreadyEnded(JobEnd::Aborted), "job x had already been suspended"),
            (Wish::Suspend, Acted::Ended(JobEnd::Aborted), "job x suspended"),
            (Wish::Cancel, Acted::Ended(JobEnd::Completed), "job x has completed before it could be cancelled"),
            (Wish::Suspend, Acted::Ended(JobEnd::Terminated), "job x has been terminated before it could be suspended"),
            (Wish::Cancel, Acted::Ended(JobEnd::Deleted), "job x was deleted meanwhile"),
            (Wish::Cancel, Acted::AlreadyEnding, "job x is ending already"),
            (Wish::Resume, Acted::AlreadyEnding, "job x is ending: there is nothing to resume"),
            (Wish::Resume, Acted::GoesOn, "job x goes on"),
            (Wish::Resume, Acted::AlreadyGoesOn, "job x is not suspended"),
            (
                Wish::Resume,
                Acted::AlreadyEnded(JobEnd::Failed),
                "job x has failed: there is nothing to resume; jobctl retry x submits it anew",
            ),
        ] {
            assert_eq!(sentence(&job, wish, acted), text);
        }
    }
}

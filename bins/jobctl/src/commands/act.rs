//! `jobctl cancel`, `suspend` and `resume`: bring jobs to where they are wanted.

use pumice_jobs::act::{Acted, Wish, act_on_all};
use pumice_jobs::select::JobRef;
use pumice_jobs::{Exit, pick};

use super::Session;
use super::careful::{self, Verdict, ask};
use crate::args::ActArgs;
use crate::failure::Failure;
use crate::terminal;

/// Does it to each job and says what came of it; the first failure decides the exit code.
pub fn run(session: &Session, args: &ActArgs, wish: Wish) -> Result<Exit, Failure> {
    session.attend(|connection| async move {
        let jobs = pick::pick(&connection, &args.jobs.filter(), terminal::now()).await?;
        if ask(wish.verb(), &jobs, &args.careful)? == Verdict::Leave {
            return Ok(Exit::Success);
        }
        if let Some(form) = args.careful.output {
            careful::print(&jobs, form)?;
        }
        let mut failed = None;
        let acting = act_on_all(&connection, &jobs, wish, !args.no_wait, |job, outcome| match outcome {
            Ok(acted) => terminal::say(&sentence(job, wish, acted)),
            // The first one is told at the end, with what to do about it.
            Err(error) if failed.is_none() => failed = Some(error),
            Err(error) => terminal::say(&format!("job {}: {}", job.name, pumice_jobs::error::sentence(&error))),
        });
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => {
                terminal::say("interrupted: this no longer waits; what was asked for still happens");
                terminal::say(&format!("next:  jobctl list{}", namespace_flag(&jobs)));
                return Ok(Exit::Interrupted);
            }
            () = acting => {}
        }
        failed.map_or(Ok(Exit::Success), |error| Err(error.into()))
    })
}

fn namespace_flag(jobs: &[JobRef]) -> String {
    jobs.first().map(JobRef::namespace_flag).unwrap_or_default()
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
        (Wish::Cancel, Acted::Asked) => format!("job {name} is being cancelled"),
        (Wish::Suspend, Acted::Asked) => format!("job {name} is being suspended"),
        (Wish::Resume, Acted::Asked) => format!("job {name} is being resumed"),
        (_, Acted::Ended(end)) => format!("job {name} {}", end.word()),
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
    use pumice_jobs::outcome::JobEnd;

    #[test]
    fn people_are_told_what_happened() {
        let job = JobRef { namespace: "default".into(), name: "x".into() };
        for (wish, acted, text) in [
            (Wish::Cancel, Acted::Ended(JobEnd::Terminated), "job x terminated"),
            (Wish::Cancel, Acted::AlreadyEnded(JobEnd::Completed), "job x had already completed"),
            (Wish::Suspend, Acted::AlreadyEnded(JobEnd::Aborted), "job x had already been suspended"),
            (Wish::Suspend, Acted::Ended(JobEnd::Aborted), "job x suspended"),
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

//! `jobctl cancel`: end jobs.

use pumice_jobs::cancel::{Cancelled, cancel};
use pumice_jobs::{Exit, select};

use super::Session;
use crate::args::CancelArgs;
use crate::failure::Failure;
use crate::terminal;

/// Ends each job; one that ended before is said to have.
pub fn run(session: &Session, args: &CancelArgs) -> Result<Exit, Failure> {
    session.talk(|connection| async move {
        for selector in &args.jobs {
            let job = select::resolve(&connection, selector).await?;
            let outcome = tokio::select! {
                biased;
                _ = tokio::signal::ctrl_c() => {
                    terminal::say(&format!("job {} is being cancelled; this no longer waits for it", job.name));
                    return Ok(Exit::Interrupted);
                }
                outcome = cancel(&connection, &job, !args.no_wait) => outcome?,
            };
            terminal::say(&match outcome {
                Cancelled::AlreadyEnded(end) => format!("job {} had already {}", job.name, past(end.word())),
                Cancelled::Asked => format!("job {} is being cancelled", job.name),
                Cancelled::Ended(end) => format!("job {} {}", job.name, end.word()),
            });
        }
        Ok(Exit::Success)
    })
}

/// "had already completed", but "had already been suspended".
fn past(word: &str) -> String {
    match word {
        "completed" | "failed" => word.to_owned(),
        other => format!("been {other}"),
    }
}

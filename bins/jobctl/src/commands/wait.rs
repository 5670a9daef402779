//! `jobctl wait`: until jobs end.

use std::time::Duration;

use pumice_jobs::job::{JobRef, exit_of_end};
use pumice_jobs::monitor::RunEvent;
use pumice_jobs::{Connection, Exit, lookup};

use super::attended::Attended;
use super::{Session, results};
use crate::args::WaitArgs;
use crate::failure::Failure;
use crate::terminal;

/// Waits for each job; the first code that isn't 0 wins.
pub fn run(session: &Session, args: &WaitArgs) -> Result<Exit, Failure> {
    session.attend(|connection| async move {
        let deadline = args.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
        let mut exit = Exit::Success;
        for job in lookup::find(&connection, &args.jobs.filter(), terminal::now()).await? {
            let waiting = wait(session, &connection, &job);
            let own = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline, waiting).await {
                    Ok(own) => own?,
                    Err(_) => return Ok(timed_out(&job, args.timeout.unwrap_or_default())),
                },
                None => waiting.await?,
            };
            if own == Exit::Interrupted {
                return Ok(own);
            }
            if exit == Exit::Success {
                exit = own;
            }
        }
        Ok(exit)
    })
}

fn timed_out(job: &JobRef, timeout: Duration) -> Exit {
    terminal::say(&format!("job {} has not ended within {} s", job.name, timeout.as_secs_f64()));
    terminal::say(&format!("next:  jobctl why {}{}", job.name, job.namespace_flag()));
    Exit::TimedOut
}

async fn wait(session: &Session, connection: &Connection, job: &JobRef) -> Result<Exit, Failure> {
    let mut attended = Attended::new(session, connection, job, None, false)?;
    while let Some(event) = attended.next().await? {
        let RunEvent::Ended(ending) = event else { continue };
        let exit = exit_of_end(&ending.job, ending.end);
        if exit != Exit::Success {
            terminal::say(&format!("job {} {}", job.name, ending.end.word()));
        }
        if let Some(told) = results::shortfall(connection, &ending.job).await {
            terminal::say(&format!("job {}: {told}", job.name));
        }
        if exit != Exit::Success {
            if let Some(failure) = ending.failures.first() {
                terminal::say(&failure.sentence());
            }
            terminal::say(&format!("next:  jobctl logs {}{}", job.name, job.namespace_flag()));
        }
        return Ok(exit);
    }
    Ok(Exit::Interrupted)
}

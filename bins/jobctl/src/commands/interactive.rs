//! A new job of one pod that a person works in: what `shell` and `notebook` share.

use pumice_jobs::interactive::InteractiveError;
use pumice_jobs::interactive::container_choice::{self, ContainerChoice, RunningContainer};
use pumice_jobs::interactive::program::TIME_MAX;
use pumice_jobs::job::JobRef;
use pumice_jobs::monitor::RunEvent;
use pumice_jobs::submit::Submitted;
use pumice_jobs::{Connection, Exit};

use super::attended::Attended;
use super::work::Submission;
use super::{Session, run};
use crate::args::{JobArgs, Work};
use crate::failure::Failure;
use crate::terminal;

/// The job of these flags, with a pod that runs `argv` and ends after [`TIME_MAX`] if they don't say when.
pub fn submission(
    session: &Session,
    verb: &'static str,
    flags: &JobArgs,
    argv: Vec<String>,
    dry_run: bool,
) -> Result<Submission, Failure> {
    let several = [
        ("--array", flags.array.is_some()),
        ("--days", flags.days.is_some()),
        ("--params", flags.params.is_some()),
        ("--replicas", flags.replicas.is_some()),
        ("--gang", flags.gang.is_some()),
        ("--min-available", flags.min_available.is_some()),
        ("--max-parallel", flags.max_parallel.is_some()),
        ("--min-success", flags.min_success.is_some()),
    ];
    if let Some((flag, _)) = several.into_iter().find(|(_, given)| *given) {
        return Err(Failure::Usage {
            message: format!("a job to work in has one pod, and {flag} is for several"),
            next: format!("jobctl {verb} --help"),
        });
    }
    let defaults = JobArgs { name_stem: Some(verb.to_owned()), timeout: Some(TIME_MAX), ..JobArgs::default() };
    let flags = flags.clone().over(defaults);
    Submission::read(session, &Work { files: Vec::new(), dry_run, script: Vec::new(), argv, flags })
}

/// Submits it, and says its name where that was made up.
pub async fn submit(session: &Session, connection: &Connection, submission: &Submission) -> Result<JobRef, Failure> {
    let named = matches!(submission, Submission::Job { named: true, .. });
    let say = |one: &Submitted| {
        if !session.global.no_progress && !named {
            terminal::say(&format!("{} {}", one.reference(), one.effect.word()));
        }
    };
    let submitted = submission.send(connection, say).await?;
    let job = submitted.iter().find_map(Submitted::job);
    job.ok_or_else(|| Failure::Machine(anyhow::anyhow!("the server took the job and gave none back")))
}

/// Waits until its pod runs, and says meanwhile why it doesn't; the code to end with if it never will, or nobody waits any more.
pub async fn running(
    session: &Session,
    connection: &Connection,
    job: &JobRef,
) -> Result<Result<RunningContainer, Exit>, Failure> {
    let mut attended = Attended::new(session, connection, job, None, false)?;
    while let Some(event) = attended.next().await? {
        match event {
            RunEvent::State(state) if state.status.running > 0 => {
                match container_choice::find(connection, job, &ContainerChoice::default()).await {
                    // It has ended meanwhile; what comes next says how.
                    Err(error) if matches!(error.downcast_ref(), Some(InteractiveError::NotRunning { .. })) => {}
                    found => {
                        attended.terminal.finish();
                        return Ok(Ok(found?));
                    }
                }
            }
            RunEvent::Ended(ending) => return Ok(Err(run::conclude(connection, job, &ending, true).await?)),
            _ => {}
        }
    }
    Ok(Err(Exit::Interrupted))
}

//! Ending, suspending and resuming a job: a Command for the job controller, then waiting until it has taken effect.
//!
//! Invariant: a job that is already where it is wanted is left alone. A Command given while a job restarts is lost by
//! Volcano's rules, so it is given again when the job comes back. Called by `jobctl cancel`, `suspend` and `resume`.

use futures::StreamExt;
use futures::stream;
use pumice_api::batch::{Action, Job, JobPhase};
use pumice_api::bus::Command;

use crate::command::{self, Reason};
use crate::connection::Connection;
use crate::error::Error;
use crate::outcome::{JobEnd, end_of};
use crate::select::{self, JobRef};
use crate::watch::{JobFollower, JobNews};

/// Commands given to one job before giving up on a job that restarts for ever.
const COMMANDS_MAX: u32 = 20;
/// Jobs waited for at the same time.
const AT_ONCE: usize = 32;

/// What is wanted of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It ends for good.
    Cancel,
    /// Its pods end; it can be resumed.
    Suspend,
    /// It goes on after a suspend.
    Resume,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acted {
    /// The job had ended before.
    AlreadyEnded(JobEnd),
    /// It was not suspended, so there is nothing to resume.
    AlreadyGoesOn,
    /// The Command was given; nobody waited.
    Asked,
    /// The job ended, or is suspended, in this way.
    Ended(JobEnd),
    /// The job goes on.
    GoesOn,
}

/// How a job stands to a wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It is so, or can't become so any more.
    Settled(JobEnd),
    /// It goes on.
    GoesOn,
    /// A Command is needed, or on its way.
    Open,
}

impl Wish {
    /// The verb of the command line.
    pub fn verb(self) -> &'static str {
        match self {
            Wish::Cancel => "cancel",
            Wish::Suspend => "suspend",
            Wish::Resume => "resume",
        }
    }

    /// The Command that asks for it.
    pub fn command(self, job: &Job) -> Command {
        let (action, word) = match self {
            Wish::Cancel => (Action::TerminateJob, "Cancelled"),
            Wish::Suspend => (Action::AbortJob, "Suspended"),
            Wish::Resume => (Action::ResumeJob, "Resumed"),
        };
        let metadata = &job.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let reason = Reason { word: word.to_owned(), sentence: format!("{} by jobctl", word.to_lowercase()) };
        command::command::<Job>((name, uid), namespace, action, reason)
    }

    fn standing(self, job: &Job) -> Standing {
        let end = end_of(job);
        let leaves = job.status.state.phase == Some(JobPhase::Aborting);
        match (self, end) {
            (Wish::Resume, Some(JobEnd::Aborted)) => Standing::Open,
            (_, Some(end)) => Standing::Settled(end),
            (Wish::Resume, None) if !leaves => Standing::GoesOn,
            _ => Standing::Open,
        }
    }
}

/// Brings a job where it is wanted. With `wait`, returns when it is there; dropping the future leaves the Command given.
pub async fn act(connection: &Connection, job: &JobRef, wish: Wish, wait: bool) -> Result<Acted, Error> {
    let object = select::get(connection, job).await?;
    let typed = select::typed(connection, &object)?;
    match wish.standing(&typed) {
        Standing::Settled(end) => return Ok(Acted::AlreadyEnded(end)),
        Standing::GoesOn => return Ok(Acted::AlreadyGoesOn),
        Standing::Open => {}
    }
    give(connection, job, wish, &typed).await?;
    if !wait {
        return Ok(Acted::Asked);
    }
    let (mut commands, mut lost) = (1, loses_commands(wish, &typed));
    let mut follower = JobFollower::new(connection.clone(), job.clone());
    loop {
        let now = match follower.next().await {
            Ok(JobNews::Now(now)) => now,
            Ok(JobNews::Gone) | Err(Error::NoJob { .. }) => return Ok(Acted::Ended(JobEnd::Deleted)),
            Ok(JobNews::Lost(_) | JobNews::Back) => continue,
            Err(error) => return Err(error),
        };
        match wish.standing(&now) {
            Standing::Settled(end) => return Ok(Acted::Ended(end)),
            Standing::GoesOn => return Ok(Acted::GoesOn),
            Standing::Open => {}
        }
        let loses = loses_commands(wish, &now);
        let came_back = lost && !loses && !is_ending(&now);
        if came_back && commands < COMMANDS_MAX {
            commands += 1;
            give(connection, job, wish, &now).await?;
        }
        lost = loses;
    }
}

/// Does it to many jobs, some at the same time, and tells of each when it is done. One job's failure stops no other.
pub async fn act_on_all(
    connection: &Connection,
    jobs: &[JobRef],
    wish: Wish,
    wait: bool,
    mut tell: impl FnMut(&JobRef, Result<Acted, Error>),
) {
    let mut acted =
        stream::iter(jobs).map(|job| async move { (job, act(connection, job, wish, wait).await) }).buffered(AT_ONCE);
    while let Some((job, outcome)) = acted.next().await {
        tell(job, outcome);
    }
}

async fn give(connection: &Connection, job: &JobRef, wish: Wish, typed: &Job) -> Result<(), Error> {
    command::give(connection, &wish.command(typed), &format!("{} job {}", wish.verb(), job.name)).await?;
    Ok(())
}

/// Whether a Command given now would come to nothing.
fn loses_commands(wish: Wish, job: &Job) -> bool {
    match job.status.state.phase {
        Some(JobPhase::Restarting) => true,
        // A job that is still being suspended does not hear that it shall go on.
        Some(JobPhase::Aborting) => wish == Wish::Resume,
        _ => false,
    }
}

fn is_ending(job: &Job) -> bool {
    matches!(job.status.state.phase, Some(JobPhase::Terminating | JobPhase::Aborting | JobPhase::Completing))
}

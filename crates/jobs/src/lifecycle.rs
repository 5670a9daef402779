//! Ending, suspending and resuming a job: a Command for the job controller, then waiting until it has taken effect.
//!
//! Invariant: a job that is already where it is wanted, or on its way there, is left alone. A Command given while a job restarts
//! is lost by Volcano's rules, so it is given again when the job comes back. Volcano's own controllers never end a suspended job:
//! that is noticed when they have taken the Command away, and said. Called by `jobctl cancel`, `suspend` and `resume`.

pub mod command;
mod delete;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream;
use pumice_api::batch::{Action, Job, JobPhase};
use pumice_api::bus::Command;
use pumice_api::names;
use serde_json::{Value, json};

use crate::error::Error;
use crate::job::{JobEnd, JobError, JobRef, end_of};
use crate::json::text_at;
use crate::lookup;
use crate::platform::call;
use crate::platform::connection::Connection;
use crate::platform::watch::{Collection, JobUpdate, JobWatch, Update, follow};

use command::{Reason, Subject};
pub use delete::{Deleted, Removal, delete, delete_all};

/// Commands given to one job before giving up on a job that restarts for ever.
const COMMANDS_MAX: u32 = 20;
/// Jobs waited for at the same time.
const AT_ONCE: usize = 32;

/// What is wanted of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredState {
    /// It ends for good.
    Cancel,
    /// Its pods end; it can be resumed.
    Suspend,
    /// It goes on after a suspend.
    Resume,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateChange {
    /// The job had ended before.
    AlreadyEnded(JobEnd),
    /// It was not suspended, so there is nothing to resume.
    AlreadyGoesOn,
    /// It was on its way to its end already, and nobody waited for that.
    AlreadyEnding,
    /// The Command was given; nobody waited.
    Requested,
    /// The job ended, or is suspended, in this way.
    Ended(JobEnd),
    /// The job goes on.
    GoesOn,
}

/// How far a job is from a desired state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transition {
    /// It is so, or can't become so any more.
    Settled(JobEnd),
    GoesOn,
    /// It is on its way to its end, which no Command changes.
    RunEnd,
    /// It is on its way to where it is wanted.
    Underway,
    /// A Command is needed, or on its way.
    CommandNeeded,
}

impl DesiredState {
    /// The verb of the command line.
    pub fn verb(self) -> &'static str {
        match self {
            DesiredState::Cancel => "cancel",
            DesiredState::Suspend => "suspend",
            DesiredState::Resume => "resume",
        }
    }

    /// The Command that asks for it.
    pub fn command(self, job: &Job) -> Command {
        let (action, word) = match self {
            DesiredState::Cancel => (Action::TerminateJob, "Cancelled"),
            DesiredState::Suspend => (Action::AbortJob, "Suspended"),
            DesiredState::Resume => (Action::ResumeJob, "Resumed"),
        };
        let metadata = &job.metadata;
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let reason = Reason { word: word.to_owned(), sentence: format!("{} by jobctl", word.to_lowercase()) };
        command::command::<Job>(Subject { namespace, name, uid }, action, reason)
    }

    fn transition(self, job: &Job) -> Transition {
        match (self, end_of(job)) {
            // What is suspended can still be ended, and can go on.
            (DesiredState::Cancel | DesiredState::Resume, Some(JobEnd::Aborted)) => return Transition::CommandNeeded,
            (_, Some(end)) => return Transition::Settled(end),
            (_, None) => {}
        }
        match (self, job.status.state.phase.as_ref()) {
            (_, Some(JobPhase::Terminating | JobPhase::Completing)) => Transition::RunEnd,
            (DesiredState::Suspend, Some(JobPhase::Aborting)) => Transition::Underway,
            (DesiredState::Cancel | DesiredState::Resume, Some(JobPhase::Aborting))
            | (DesiredState::Cancel | DesiredState::Suspend, _) => Transition::CommandNeeded,
            (DesiredState::Resume, _) => Transition::GoesOn,
        }
    }
}

/// Brings a job where it is wanted. With `wait`, returns when it is there; dropping the future leaves the Command given.
pub async fn set_desired_state(
    connection: &Connection,
    job: &JobRef,
    desired: DesiredState,
    wait: bool,
) -> Result<StateChange, Error> {
    let object = lookup::get(connection, job).await?;
    let typed = lookup::typed(connection, &object)?;
    let mut removal = CommandRemoval::None;
    match desired.transition(&typed) {
        Transition::Settled(end) => return Ok(StateChange::AlreadyEnded(end)),
        Transition::GoesOn => return Ok(StateChange::AlreadyGoesOn),
        Transition::RunEnd if !wait || desired == DesiredState::Resume => return Ok(StateChange::AlreadyEnding),
        Transition::RunEnd | Transition::Underway => {}
        Transition::CommandNeeded => {
            if desired == DesiredState::Resume {
                take_suspend_back(connection, job, &typed).await?;
            }
            let command = give(connection, job, desired, &typed).await?;
            if wait && desired == DesiredState::Cancel && is_suspended(&typed) {
                removal = CommandRemoval::Awaited(command_gone(connection.clone(), command));
            }
        }
    }
    if !wait {
        return Ok(StateChange::Requested);
    }
    let (mut commands, mut lost) = (1, loses_commands(desired, &typed));
    let mut follower = JobWatch::new(connection.clone(), job.clone());
    loop {
        let update = tokio::select! {
            biased;
            update = follower.next() => update,
            () = removal.happens() => {
                // Whoever obeys has written that down before the Command went.
                let now = lookup::typed(connection, &lookup::get(connection, job).await?)?;
                if is_suspended(&now) {
                    removal = CommandRemoval::Unheeded;
                }
                Ok(JobUpdate::Now(Box::new(now)))
            }
        };
        let now = match update {
            Ok(JobUpdate::Now(now)) => now,
            Ok(JobUpdate::Gone) => return Ok(StateChange::Ended(JobEnd::Deleted)),
            Err(error) if JobError::is_no_job(&error) => return Ok(StateChange::Ended(JobEnd::Deleted)),
            Ok(JobUpdate::Lost(_) | JobUpdate::Back) => continue,
            Err(error) => return Err(error),
        };
        match desired.transition(&now) {
            Transition::Settled(end) => return Ok(StateChange::Ended(end)),
            Transition::GoesOn => return Ok(StateChange::GoesOn),
            Transition::RunEnd | Transition::Underway | Transition::CommandNeeded => {}
        }
        if matches!(removal, CommandRemoval::Unheeded) && end_of(&now) == Some(JobEnd::Aborted) {
            return Err(JobError::StaysSuspended { name: job.name.clone(), flag: job.namespace_flag() }.into());
        }
        let loses = loses_commands(desired, &now);
        let came_back = lost && !loses && !is_ending(&now);
        if came_back && commands < COMMANDS_MAX {
            commands += 1;
            give(connection, job, desired, &now).await?;
        }
        lost = loses;
    }
}

/// Whether the controllers have taken a Command away.
enum CommandRemoval {
    /// It does not matter.
    None,
    /// They have not yet.
    Awaited(BoxFuture<'static, ()>),
    /// They have, and nothing came of it.
    Unheeded,
}

impl CommandRemoval {
    /// Waits until it happens, once. Cancellation safe.
    async fn happens(&mut self) {
        match self {
            CommandRemoval::Awaited(gone) => gone.await,
            CommandRemoval::None | CommandRemoval::Unheeded => std::future::pending().await,
        }
        *self = CommandRemoval::None;
    }
}

/// Waits until a Command is gone; for ever where that can't be seen.
fn command_gone(connection: Connection, command: Value) -> BoxFuture<'static, ()> {
    let [namespace, name] = ["/metadata/namespace", "/metadata/name"].map(|at| text_at(&command, at).to_owned());
    let path = format!("/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands");
    let one = Collection { path, labels: String::new(), fields: format!("metadata.name={name}") };
    async move {
        let mut update = follow::<Value>(connection, one);
        loop {
            match update.next().await {
                Some(Ok(Update::Gone(_))) => return,
                Some(Ok(Update::Snapshot(found))) if found.is_empty() => return,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => std::future::pending().await,
            }
        }
    }
    .boxed()
}

/// Does it to many jobs, some at the same time, and tells of each when it is done. One job's failure stops no other.
pub async fn set_desired_state_of_all(
    connection: &Connection,
    jobs: &[JobRef],
    desired: DesiredState,
    wait: bool,
    mut tell: impl FnMut(&JobRef, Result<StateChange, Error>),
) {
    let mut acted = stream::iter(jobs)
        .map(|job| async move { (job, set_desired_state(connection, job, desired, wait).await) })
        .buffered(AT_ONCE);
    while let Some((job, outcome)) = acted.next().await {
        tell(job, outcome);
    }
}

async fn give(connection: &Connection, job: &JobRef, desired: DesiredState, typed: &Job) -> Result<Value, Error> {
    Ok(command::give(connection, &desired.command(typed), &format!("{} job {}", desired.verb(), job.name)).await?)
}

/// Takes back a `suspend` of the job itself: with it, the job would be suspended again at once.
async fn take_suspend_back(connection: &Connection, job: &JobRef, typed: &Job) -> Result<(), Error> {
    let annotated = typed.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(names::SUSPEND));
    let patch = match typed.spec.suspend {
        Some(true) => json!({"spec": {"suspend": false}}),
        None if annotated => json!({"metadata": {"annotations": {(names::SUSPEND): null}}}),
        _ => return Ok(()),
    };
    call::merge(connection, &job.path(), &patch, &format!("resume job {}", job.name)).await?;
    Ok(())
}

/// Whether nothing of the job runs, or soon nothing will, until it is resumed.
fn is_suspended(job: &Job) -> bool {
    matches!(job.status.state.phase, Some(JobPhase::Aborting | JobPhase::Aborted))
}

/// Whether a Command given now would come to nothing.
fn loses_commands(desired: DesiredState, job: &Job) -> bool {
    match job.status.state.phase {
        Some(JobPhase::Restarting) => true,
        // A job that is still being suspended does not hear that it shall go on.
        Some(JobPhase::Aborting) => desired == DesiredState::Resume,
        _ => false,
    }
}

fn is_ending(job: &Job) -> bool {
    matches!(job.status.state.phase, Some(JobPhase::Terminating | JobPhase::Aborting | JobPhase::Completing))
}

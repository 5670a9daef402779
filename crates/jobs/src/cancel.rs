//! Ending a job: a Command for the job controller, then waiting until it has taken effect.
//!
//! Invariant: a job that ended is left alone. A Command given while a job restarts is lost by
//! Volcano's rules, so it is given again when the job comes back. Called by `jobctl cancel`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_api::batch::{Action, Job, JobPhase};
use pumice_api::bus::Command;
use serde_json::Value;

use crate::call::{self, CallError};
use crate::connection::Connection;
use crate::error::Error;
use crate::outcome::{JobEnd, end_of};
use crate::select::{self, JobRef};
use crate::watch::{JobFollower, JobNews};

/// Commands given to one job before giving up on a job that restarts for ever.
const COMMANDS_MAX: u32 = 20;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The job had ended before.
    AlreadyEnded(JobEnd),
    /// The Command was given; nobody waited.
    Asked,
    /// The job ended, in this way.
    Ended(JobEnd),
}

/// The Command that terminates a job.
pub fn command(job: &Job) -> Command {
    let metadata = &job.metadata;
    let name = metadata.name.clone().unwrap_or_default();
    let target = OwnerReference {
        api_version: "batch.volcano.sh/v1alpha1".to_owned(),
        kind: "Job".to_owned(),
        name: name.clone(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    Command {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-terminatejob-")),
            namespace: metadata.namespace.clone(),
            owner_references: Some(vec![target.clone()]),
            ..ObjectMeta::default()
        },
        action: Some(Action::TerminateJob),
        target: Some(target),
        reason: "Cancelled".to_owned(),
        message: "cancelled by jobctl".to_owned(),
    }
}

/// Terminates a job. With `wait`, returns when it has ended; dropping the future leaves the Command
/// given.
pub async fn cancel(connection: &Connection, job: &JobRef, wait: bool) -> Result<Cancelled, Error> {
    let object = select::get(connection, job).await?;
    let typed = select::typed(connection, &object)?;
    if let Some(end) = end_of(&typed) {
        return Ok(Cancelled::AlreadyEnded(end));
    }
    give(connection, job, &typed).await?;
    if !wait {
        return Ok(Cancelled::Asked);
    }
    let (mut commands, mut restarting) = (1, is_restarting(&typed));
    let mut follower = JobFollower::new(connection.clone(), job.clone());
    loop {
        let now = match follower.next().await {
            Ok(JobNews::Now(now)) => now,
            Ok(JobNews::Gone) | Err(Error::NoJob { .. }) => return Ok(Cancelled::Ended(JobEnd::Deleted)),
            Ok(JobNews::Lost(_) | JobNews::Back) => continue,
            Err(error) => return Err(error),
        };
        if let Some(end) = end_of(&now) {
            return Ok(Cancelled::Ended(end));
        }
        let came_back = restarting && !is_restarting(&now) && !is_ending(&now);
        if came_back && commands < COMMANDS_MAX {
            commands += 1;
            give(connection, job, &now).await?;
        }
        restarting = is_restarting(&now);
    }
}

async fn give(connection: &Connection, job: &JobRef, typed: &Job) -> Result<Value, Error> {
    let path = format!("/apis/bus.volcano.sh/v1alpha1/namespaces/{}/commands", job.namespace);
    let body = serde_json::to_value(command(typed))
        .map_err(|error| CallError::unreadable("write a command", connection.url(), error))?;
    Ok(call::create(connection, &path, &body, &format!("cancel job {}", job.name)).await?)
}

fn is_restarting(job: &Job) -> bool {
    job.status.state.phase == Some(JobPhase::Restarting)
}

fn is_ending(job: &Job) -> bool {
    matches!(job.status.state.phase, Some(JobPhase::Terminating | JobPhase::Aborting | JobPhase::Completing))
}

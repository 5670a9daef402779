//! What a Deployment's status says, and since when it makes no progress.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::{StepContext, available, replicas_of};
use crate::replica_set::whole_second;
use crate::workload::{Condition as _, WorkEvent, set_condition};

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const DONE: &str = "NewReplicaSetAvailable";
/// A deadline as large as this is none.
const NO_DEADLINE: i32 = i32::MAX;

/// What a condition says, to programs and to people.
struct ConditionText<'a> {
    reason: &'a str,
    message: String,
}

impl<'a> ConditionText<'a> {
    fn new(reason: &'a str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

fn status(set: &ReplicaSet) -> k8s_openapi::api::apps::v1::ReplicaSetStatus {
    set.status.clone().unwrap_or_default()
}

fn some(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count > 0)
}

/// The status with its numbers as they are now, and the conditions as they were.
fn counts(context: &StepContext<'_>) -> DeploymentStatus {
    let before = context.deployment.status.clone().unwrap_or_default();
    let sum = |count: fn(&ReplicaSet) -> i32| context.all().fold(0_i32, |sum, set| sum.saturating_add(count(set)));
    let serving = sum(available);
    DeploymentStatus {
        observed_generation: context.deployment.metadata.generation,
        replicas: some(sum(|set| status(set).replicas)),
        updated_replicas: some(context.new.map_or(0, |new| status(new).replicas)),
        ready_replicas: some(sum(|set| status(set).ready_replicas.unwrap_or(0))),
        available_replicas: some(serving),
        unavailable_replicas: some(sum(replicas_of).saturating_sub(serving)),
        terminating_replicas: Some(sum(|set| status(set).terminating_replicas.unwrap_or(0))),
        collision_count: before.collision_count,
        conditions: before.conditions,
    }
}

/// Whether all pods are of the new template and serve.
pub(super) fn is_complete(context: &StepContext<'_>) -> bool {
    completes(context, &counts(context))
}

fn completes(context: &StepContext<'_>, status: &DeploymentStatus) -> bool {
    let wanted = context.replicas();
    let all = [status.updated_replicas, status.replicas, status.available_replicas];
    context.new.is_some() && all.iter().all(|count| count.unwrap_or(0) == wanted)
}

/// Whether anything got better since the last status.
fn progresses(before: &DeploymentStatus, now: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
    now.updated_replicas > before.updated_replicas
        || old(now) < old(before)
        || now.ready_replicas > before.ready_replicas
        || now.available_replicas > before.available_replicas
}

/// The next status, and when to look again.
pub(super) fn next(context: &StepContext<'_>, events: &mut Vec<WorkEvent>) -> (DeploymentStatus, Option<Timestamp>) {
    let before = context.deployment.status.clone().unwrap_or_default();
    let mut next = counts(context);
    let mut conditions = next.conditions.take().unwrap_or_default();
    let least = context.replicas().saturating_sub(context.bounds().1);
    let available = next.available_replicas.unwrap_or(0) >= least;
    set(
        &mut conditions,
        context,
        AVAILABLE,
        available,
        match available {
            true => ConditionText::new("MinimumReplicasAvailable", "Deployment has minimum availability."),
            false => ConditionText::new("MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
        },
    );
    let wake_at = progress(context, &before, &next, &mut conditions, events);
    let failure = context
        .all()
        .flat_map(|set| set.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == REPLICA_FAILURE));
    match failure.last() {
        Some(failure) => {
            let message = failure.message.clone().unwrap_or_default();
            set(&mut conditions, context, REPLICA_FAILURE, true, ConditionText::new(failure.reason(), message));
        }
        None => conditions.retain(|one| one.type_ != REPLICA_FAILURE),
    }
    next.conditions = Some(conditions);
    (next, wake_at)
}

fn progress(
    context: &StepContext<'_>,
    before: &DeploymentStatus,
    next: &DeploymentStatus,
    conditions: &mut Vec<DeploymentCondition>,
    events: &mut Vec<WorkEvent>,
) -> Option<Timestamp> {
    let seconds = context.spec.progress_deadline_seconds.filter(|seconds| *seconds != NO_DEADLINE)?;
    let current = conditions.iter().find(|one| one.type_ == PROGRESSING).cloned();
    let reason = current.as_ref().map_or("", |one| one.reason());
    if context.is_paused() {
        if reason != TIMED_OUT {
            put(conditions, context, "Unknown", ConditionText::new("DeploymentPaused", "Deployment is paused"));
        }
        return None;
    }
    if reason == "DeploymentPaused" {
        put(conditions, context, "Unknown", ConditionText::new("DeploymentResumed", "Deployment is resumed"));
        return deadline(context, conditions, seconds);
    }
    let set_name = context.new.and_then(|new| new.metadata.name.as_deref());
    let subject = match set_name {
        Some(name) => format!("ReplicaSet \"{name}\""),
        None => format!("Deployment \"{}\"", context.name()),
    };
    let is_done = completes(context, next);
    // One that was done stays so while pods come and go, until it rolls or is resized.
    let was_done = reason == DONE
        && before.updated_replicas == next.updated_replicas
        && next.replicas == next.updated_replicas
        && context.old.iter().all(|set| replicas_of(set) == 0)
        && context.new.is_some_and(|new| replicas_of(new) == context.replicas());
    if is_done || was_done {
        if reason != DONE {
            let message = format!("{subject} has successfully progressed.");
            put(conditions, context, "True", ConditionText::new(DONE, message));
        }
        return None;
    }
    if current.is_none() && context.new.is_some() {
        let message = format!("Created new replica set \"{}\"", set_name.unwrap_or_default());
        put(conditions, context, "True", ConditionText::new("NewReplicaSetCreated", message));
    } else if progresses(before, next) || reason == DONE {
        let message = format!("{subject} is progressing.");
        let moved = DeploymentCondition {
            last_update_time: Some(whole_second(context.now)),
            ..condition(context, PROGRESSING, "True", ConditionText::new("ReplicaSetUpdated", message))
        };
        conditions.retain(|one| one.type_ != PROGRESSING);
        let kept = current.as_ref().filter(|old| old.status == "True");
        let since =
            kept.and_then(|old| old.last_transition_time.clone()).or_else(|| moved.last_transition_time.clone());
        conditions.push(DeploymentCondition { last_transition_time: since, ..moved });
    }
    let at = deadline(context, conditions, seconds)?;
    if at > context.now {
        return Some(at);
    }
    if reason != TIMED_OUT {
        let message = format!("{subject} has timed out progressing.");
        events.push(WorkEvent { is_warning: false, reason: TIMED_OUT, message: message.clone() });
        put(conditions, context, "False", ConditionText::new(TIMED_OUT, message));
    }
    None
}

/// When the time for progress is over.
fn deadline(context: &StepContext<'_>, conditions: &[DeploymentCondition], seconds: i32) -> Option<Timestamp> {
    let condition = conditions.iter().find(|one| one.type_ == PROGRESSING)?;
    let since = condition.last_update_time.as_ref().map_or(context.now, |time| time.0);
    since.checked_add(SignedDuration::from_secs(i64::from(seconds))).ok()
}

fn condition(context: &StepContext<'_>, kind: &str, status: &str, text: ConditionText<'_>) -> DeploymentCondition {
    let now = Some(whole_second(context.now));
    DeploymentCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(text.reason.to_owned()),
        message: Some(text.message),
        last_update_time: now.clone(),
        last_transition_time: now,
    }
}

fn put(conditions: &mut Vec<DeploymentCondition>, context: &StepContext<'_>, status: &str, text: ConditionText<'_>) {
    set_condition(conditions, condition(context, PROGRESSING, status, text));
}

fn set(
    conditions: &mut Vec<DeploymentCondition>,
    context: &StepContext<'_>,
    kind: &str,
    holds: bool,
    text: ConditionText<'_>,
) {
    let status = if holds { "True" } else { "False" };
    set_condition(conditions, condition(context, kind, status, text));
}

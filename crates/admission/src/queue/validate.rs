//! Which queues are refused.

use pumice_api::names::{DEFAULT_QUEUE, MAX_RUNNING_JOBS, ON_OOM, ROOT_QUEUE};
use pumice_api::scheduling::{Queue, QueueSpec, QueueState};
use pumice_machines::job::ScaleUp;
use pumice_objects::field::FieldError;

use super::{amounts, hierarchy_annotations, tree};
use crate::view::{View, children, name_of};
use crate::{Findings, Rules};

/// Judges a new queue, or a changed one beside what it was.
pub fn validate(queue: &Queue, old: Option<&Queue>, view: &dyn View, rules: &Rules, findings: &mut Findings) {
    amounts::validate(&queue.spec, findings);
    rule_of_jobs(queue, old, findings);
    max_running_jobs(queue, old, findings);
    if let Some(state) = queue.status.state.as_ref().filter(|state| !is_settable(state, old)) {
        let error = FieldError::invalid("status.state", state.as_str(), "queue state must be in [Open Closed]");
        findings.refuse(error.to_string());
    }
    let mut queues = view.queues();
    queues.retain(|other| name_of(other) != name_of(queue));
    hierarchy_annotations::validate(queue, &queues, findings);
    queues.push(queue.clone());
    if old.is_none_or(|old| old.spec.parent != queue.spec.parent) {
        tree::validate_parent(queue, &queues, rules, findings);
    }
    let resized = old.is_none_or(|old| amounts_of(&old.spec) != amounts_of(&queue.spec));
    if resized && old.is_some() && name_of(queue) == ROOT_QUEUE && rules.root_queue_protected {
        findings.refuse("root queue's resource attributes (capability, deserved, guarantee) cannot be modified");
    }
    if resized || old.is_some_and(|old| old.spec.parent != queue.spec.parent) {
        tree::validate_sums(queue, &queues, findings);
    }
}

/// The rule that jobs inherit, if it is new.
fn rule_of_jobs(queue: &Queue, old: Option<&Queue>, findings: &mut Findings) {
    if let Some(text) = new_annotation(queue, old, ON_OOM)
        && let Err(error) = ScaleUp::of_annotation(text)
    {
        findings.refuse(format!("annotation {ON_OOM} of queue {}: {error};", name_of(queue)));
    }
}

fn max_running_jobs(queue: &Queue, old: Option<&Queue>, findings: &mut Findings) {
    let text = new_annotation(queue, old, MAX_RUNNING_JOBS);
    if let Some(text) = text.filter(|text| text.parse::<u32>().is_err()) {
        let name = name_of(queue);
        findings.refuse(format!("annotation {MAX_RUNNING_JOBS} of queue {name}: {text:?} is no whole number from 0;"));
    }
}

/// The annotation, if it is not what it was.
fn new_annotation<'a>(queue: &'a Queue, old: Option<&Queue>, key: &str) -> Option<&'a str> {
    let before = old.and_then(|old| old.metadata.annotations.as_ref()?.get(key));
    queue.metadata.annotations.as_ref()?.get(key).filter(|text| Some(*text) != before).map(String::as_str)
}

/// Judges the removal of a queue.
pub fn validate_delete(queue: &Queue, view: &dyn View, rules: &Rules, findings: &mut Findings) {
    let name = name_of(queue);
    if name == DEFAULT_QUEUE || name == ROOT_QUEUE {
        return findings.refuse(format!("`{name}` queue can not be deleted"));
    }
    let count = children(&view.queues(), name).count();
    if count > 0 {
        findings.refuse(format!("queue {name} can not be deleted because it has {count} child queues"));
    }
    if rules.queue_with_pods_protected && tree::holds_pods(queue) {
        findings.refuse(format!("queue {name} cannot be deleted because it has allocated Pods"));
    }
}

/// A request may carry Open or Closed; a state that was there before is no wish.
fn is_settable(state: &QueueState, old: Option<&Queue>) -> bool {
    matches!(state, QueueState::Open | QueueState::Closed)
        || old.is_some_and(|old| old.status.state.as_ref() == Some(state))
}

fn amounts_of(spec: &QueueSpec) -> [amounts::Amounts; 3] {
    [&spec.capability, &spec.deserved, &spec.guarantee.resource].map(amounts::read)
}

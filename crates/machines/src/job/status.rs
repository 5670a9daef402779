//! The status that a step writes.
//!
//! Invariant: counts are those of the pod_counts; of a finished job, successes and failures never go down, even when its pods
//! are removed. A phase has at most one condition, the newest is last. Built by every branch of the machine.

pub(super) mod active_deadline;
pub(super) mod phase_rules;
pub(super) mod transitions;

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{Job, JobCondition, JobPhase, JobStatus, TaskState};
use pumice_units::GoDuration;

use crate::job::plan::{Effect, StatusChange};
use crate::job::plugin_objects;
use crate::job::pod_counts::PodCounts;
use crate::job::status::phase_rules::Verdict;

/// A status in the making.
pub(super) struct Draft<'a> {
    old: &'a JobStatus,
    created_at: Option<Timestamp>,
    pub next: JobStatus,
}

impl<'a> Draft<'a> {
    pub fn new(job: &'a Job, pod_counts: &PodCounts<'_>) -> Self {
        let old = &job.status;
        let mut next = old.clone();
        next.min_available = job.spec.min_available;
        let created_at = job.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let mut draft = Self { old, created_at, next };
        draft.count(pod_counts);
        draft
    }

    /// Tells the counts of a pod_counts.
    pub fn count(&mut self, pod_counts: &PodCounts<'_>) {
        let (next, counts) = (&mut self.next, &pod_counts.counts);
        next.pending = counts.pending;
        next.running = counts.running;
        next.succeeded = counts.succeeded;
        next.failed = counts.failed;
        next.unknown = counts.unknown;
        next.terminating = counts.terminating;
        next.task_status_count =
            pod_counts.tasks.iter().map(|task| (task.spec.name.clone(), task.counts.by_phase())).collect();
        next.task_status_count.retain(|_, state| !state.phase.is_empty());
        if self.old.state.phase.as_ref().is_some_and(JobPhase::is_finished) {
            keep_results(self.old, next);
        }
    }

    /// Gives a status that says nothing yet its first phase.
    pub fn begin(&mut self, now: Timestamp) {
        if self.next.state.phase.is_none() {
            self.enter(JobPhase::Pending, "", "", now);
        }
    }

    /// Explains the state, or takes back what it was explained by for this reason. Another reason stays.
    pub fn say(&mut self, reason: &str, message: Option<&String>) {
        let state = &mut self.next.state;
        let (free, ours) = (state.reason.is_empty(), state.reason == reason);
        if ours || free && message.is_some() {
            message.map_or("", |_| reason).clone_into(&mut state.reason);
            message.map_or("", String::as_str).clone_into(&mut state.message);
        }
    }

    pub fn goto(&mut self, verdict: &Verdict, now: Timestamp) {
        self.enter(verdict.phase.clone(), verdict.reason, &verdict.message, now);
    }

    /// Moves to a phase.
    pub fn enter(&mut self, phase: JobPhase, reason: &str, message: &str, now: Timestamp) {
        let state = &mut self.next.state;
        state.phase = Some(phase.clone());
        state.reason = reason.to_owned();
        state.message = message.to_owned();
        state.last_transition_time = Some(Time(now));
        self.next.conditions.retain(|condition| condition.status != phase);
        self.next.conditions.push(JobCondition { status: phase.clone(), last_transition_time: Some(Time(now)) });
        self.next.running_duration = match self.created_at {
            Some(created) if phase.is_finished() => {
                let seconds = now.duration_since(created).as_secs().max(0);
                Some(GoDuration::from_secs(seconds).to_string())
            }
            _ => None,
        };
    }

    /// The write, if anything differs.
    pub fn write(self, now: Timestamp) -> Option<Effect> {
        self.write_as(false, now)
    }

    /// The write before pods are deleted: had the status still counted them, they would be missed once they are gone.
    pub fn write_now(self, now: Timestamp) -> Option<Effect> {
        self.write_as(true, now)
    }

    fn write_as(mut self, must: bool, now: Timestamp) -> Option<Effect> {
        if self.next == *self.old {
            return None;
        }
        let finished = self.next.state.phase.as_ref().is_some_and(JobPhase::is_finished);
        if !finished && self.next.state == self.old.state {
            self.next.state.last_transition_time = Some(Time(now));
        }
        // A job without a status is read as one that is pending.
        let phase = |status: &JobStatus| status.state.phase.clone().unwrap_or(JobPhase::Pending);
        let decided = |status: &JobStatus| (status.state.reason.clone(), status.version, status.retry_count);
        let change = if phase(&self.next) != phase(self.old) {
            StatusChange::Phase
        } else if must
            || decided(&self.next) != decided(self.old)
            || !adds_plugins_at_most(&self.old.controlled_resources, &self.next.controlled_resources)
        {
            StatusChange::Decision
        } else {
            StatusChange::Counts
        };
        Some(Effect::WriteStatus { status: Box::new(self.next), change })
    }
}

/// Whether nothing but entries of plugins is new. Those come with the next write that there is: a job that is ended before it
/// gets them from its spec.
fn adds_plugins_at_most(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> bool {
    let kept = old.iter().all(|(key, value)| new.get(key) == Some(value));
    let mut added = new.keys().filter(|key| !old.contains_key(*key));
    kept && added.all(|key| key.starts_with(plugin_objects::PREFIX))
}

fn keep_results(old: &JobStatus, next: &mut JobStatus) {
    next.succeeded = next.succeeded.max(old.succeeded);
    next.failed = next.failed.max(old.failed);
    for (task, state) in &old.task_status_count {
        for (phase, count) in state.phase.iter().filter(|(phase, _)| matches!(phase.as_str(), "Succeeded" | "Failed")) {
            let kept = next
                .task_status_count
                .entry(task.clone())
                .or_insert_with(|| TaskState { phase: BTreeMap::new() })
                .phase
                .entry(phase.clone())
                .or_default();
            *kept = (*kept).max(*count);
        }
    }
}

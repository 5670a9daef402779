//! What has happened to a job, read off what exists.
//!
//! Invariant: a signal is raised as long as its cause is there, so a controller that was away misses none; acting on it
//! removes the cause (the pod is marked, or of an older version). Only a pod that vanished without a trace needs the
//! shell's help ([`Evicted`]); if it was counted in the status, its absence is found anyway.

use std::collections::BTreeSet;

use jiff::Timestamp;
use pumice_api::bus::Event;
use pumice_api::scheduling::PodGroupPhase;

use crate::job::JobView;
use crate::job::facts::{PodFacts, PodPhase};
use crate::job::pod_counts::{PodCounts, TaskCensus};
use crate::job::policy::{job_updated, pending_events};

/// Most vanished pods of a task told of in one step.
const VANISHED_MAX: usize = 10_000;

/// A pod that is gone although we did not delete it.
#[derive(Clone, Debug, PartialEq)]
pub struct Evicted {
    /// Name of its task.
    pub task: String,
    /// Index inside the task.
    pub index: i32,
    /// The job's `status.version` when it was made.
    pub version: i32,
    /// Its last phase; Failed for one that a kubelet refused would be wrong, such are no evictions.
    pub phase: PodPhase,
    /// When it was seen to be gone.
    pub at: Timestamp,
}

/// One event that policies may react to.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::job) struct Signal {
    pub event: Event,
    /// Since when; `None` = for an unknown time, so any delay is over.
    pub at: Option<Timestamp>,
    /// The task it is about; none for an event of the whole job.
    pub task: Option<String>,
    /// Index of the pod it is about.
    pub index: Option<i32>,
    /// Of the containers that failed.
    pub exit_codes: Vec<i32>,
}

impl Signal {
    /// All signals there are, in no particular order.
    pub fn gather(view: &JobView<'_>, pod_counts: &PodCounts<'_>, now: Timestamp) -> Vec<Self> {
        let version = view.job.status.version;
        let mut signals = Vec::new();
        for task in &pod_counts.tasks {
            for pod in task.slots.values().filter(|pod| pod.version >= version && is_news(pod)) {
                of_pod(task, pod, &mut signals);
            }
            signals.extend(task_completed(task, version));
            signals.extend(task_failed(task, version));
            vanished(view, task, &mut signals);
        }
        signals.extend(group_unknown(view));
        signals.extend(job_updated::signal(view.job, now));
        signals
    }

    /// The pod whose end this is about.
    pub fn ended_pod(&self) -> Option<(String, i32)> {
        match self.event {
            Event::OomKilled | Event::PodFailed | Event::PodEvicted => self.task.clone().zip(self.index),
            _ => None,
        }
    }

    fn pod(event: Event, task: &TaskCensus<'_>, index: i32, at: Option<Timestamp>) -> Self {
        Self { event, at, task: Some(task.spec.name.clone()), index: Some(index), exit_codes: Vec::new() }
    }
}

/// Whether a pod's end would be news: we don't make an end of it ourselves.
fn is_news(pod: &PodFacts) -> bool {
    pod.mark.is_none() && pod.refused.is_none()
}

fn of_pod(task: &TaskCensus<'_>, pod: &PodFacts, signals: &mut Vec<Signal>) {
    let ended = pod.ended_at.or(pod.terminating_since).or(pod.created_at);
    if !pod.killed.is_empty() {
        // The kubelet may have started it again.
        let at = if pod.phase == PodPhase::Failed { ended } else { pod.restarted_at.or(ended) };
        signals.push(Signal::pod(Event::OomKilled, task, pod.index, at));
    }
    match pod.phase {
        PodPhase::Failed => {
            let failed = Signal::pod(Event::PodFailed, task, pod.index, ended);
            signals.push(Signal { exit_codes: pod.exit_codes.clone(), ..failed });
        }
        PodPhase::Pending if pod.terminating_since.is_none() => {
            signals.push(Signal::pod(Event::PodPending, task, pod.index, pod.created_at));
            // A delayed PodEvicted policy waits for this successor to run.
            signals.extend(pod.evicted_at.map(|at| Signal::pod(Event::PodEvicted, task, pod.index, Some(at))));
        }
        _ => {}
    }
    if let Some(since) = pod.terminating_since {
        signals.push(Signal::pod(Event::PodEvicted, task, pod.index, Some(since)));
    }
}

fn task_completed(task: &TaskCensus<'_>, version: i32) -> Option<Signal> {
    if task.spec.replicas <= 0 || task.counts.succeeded < task.spec.replicas {
        return None;
    }
    let last = task.slots.values().filter(|pod| pod.version >= version).max_by_key(|pod| pod.ended_at);
    match last {
        Some(last) => Some(Signal::pod(Event::TaskCompleted, task, last.index, last.ended_at)),
        // None of them is there any more.
        None if task.slots.is_empty() => Some(Signal::pod(Event::TaskCompleted, task, 0, None)),
        None => None,
    }
}

fn task_failed(task: &TaskCensus<'_>, version: i32) -> Option<Signal> {
    let limit = match task.spec.max_retry {
        0 => 3,
        limit if limit < 0 => return None,
        limit => limit,
    };
    let live = || {
        task.slots.values().filter(|pod| {
            matches!(pod.phase, PodPhase::Running | PodPhase::Pending) && !pod.is_leaving() && pod.version >= version
        })
    };
    let restarts = live().fold(0_i32, |sum, pod| sum.saturating_add(pod.restarts));
    if restarts < limit {
        return None;
    }
    let worst = live().max_by_key(|pod| pod.restarts)?;
    Some(Signal::pod(Event::TaskFailed, task, worst.index, worst.restarted_at.or(worst.created_at)))
}

/// Pods that were seen to go, now or before, and pods that the status counted and that are not there.
fn vanished(view: &JobView<'_>, task: &TaskCensus<'_>, signals: &mut Vec<Signal>) {
    let status = &view.job.status;
    let name = &task.spec.name;
    let mut seen = BTreeSet::new();
    let remembered = pending_events::remembered(view.job);
    let mut tell = |index: i32, at: Timestamp| {
        if task.is_free(index) && seen.insert(index) {
            signals.push(Signal::pod(Event::PodEvicted, task, index, Some(at)));
        }
    };
    for (index, second) in remembered.of_task(name) {
        tell(index, Timestamp::from_second(second).unwrap_or(Timestamp::MAX));
    }
    for gone in view.evicted.iter().filter(|gone| &gone.task == name && gone.version >= status.version) {
        tell(gone.index, gone.at);
    }
    let counted = status.task_status_count.get(name).map_or(0, |state| {
        state.phase.values().fold(0_usize, |sum, count| sum.saturating_add(usize::try_from(*count).unwrap_or(0)))
    });
    let deficit = counted.saturating_sub(task.slots.len() + task.ended.len() + seen.len()).min(VANISHED_MAX);
    for index in task.missing().filter(|index| !seen.contains(index)).take(deficit) {
        signals.push(Signal::pod(Event::PodEvicted, task, index, None));
    }
}

fn group_unknown(view: &JobView<'_>) -> Option<Signal> {
    let status = &view.group?.status;
    if status.phase != Some(PodGroupPhase::Unknown) {
        return None;
    }
    let since = status.conditions.iter().filter_map(|condition| condition.last_transition_time.as_ref());
    let at = since.map(|time| time.0).max().or(view.job.status.state.last_transition_time.as_ref().map(|time| time.0));
    Some(Signal { event: Event::Unknown, at, task: None, index: None, exit_codes: Vec::new() })
}

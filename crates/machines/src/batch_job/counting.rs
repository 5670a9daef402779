//! Counting pods that have ended, each once.
//!
//! Invariant: numbers never go down; a uid leaves the status when its pod is held no more, and is added up in the same write.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};

use super::StepContext;
use super::failure_policy::{Action, judge};
use super::indexes::Indexes;
use crate::workload::{IndexFailures, OwnedPod, PodEffect, PodPhase};

/// Most uids in a status.
const UNCOUNTED_MAX: usize = 500;

/// What has ended, as the next status says it.
pub(super) struct Count {
    succeeded: usize,
    failed: usize,
    /// Uids whose pods are still held.
    uncounted_succeeded: BTreeSet<String>,
    uncounted_failed: BTreeSet<String>,
    pub completed: Indexes,
    pub failed_indexes: Indexes,
    /// Some ends are left for the next status.
    is_full: bool,
}

/// What was found among the pods that have ended.
#[derive(Default)]
pub(super) struct Counted {
    pub effects: Vec<PodEffect>,
    /// What a rule says that ends the Job.
    pub fails_job: Option<String>,
}

impl Count {
    /// What the status says, with those added up that are held no more.
    pub fn of(context: &StepContext<'_>, status: &JobStatus) -> Self {
        let number = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        let held: BTreeSet<&str> =
            context.own.iter().filter(|pod| pod.is_tracked).map(|pod| pod.uid.as_str()).collect();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (mut succeeded, mut failed) = (number(status.succeeded), number(status.failed));
        let sort = |uids: Option<Vec<String>>, total: &mut usize| {
            let (kept, free): (BTreeSet<String>, BTreeSet<String>) =
                uids.into_iter().flatten().partition(|uid| held.contains(uid.as_str()));
            *total += free.len();
            kept
        };
        let uncounted_succeeded = sort(uncounted.succeeded, &mut succeeded);
        let uncounted_failed = sort(uncounted.failed, &mut failed);
        let indexes = |text: &Option<String>| Indexes::read(text.as_deref().unwrap_or_default(), context.completions());
        Self {
            succeeded,
            failed,
            uncounted_succeeded,
            uncounted_failed,
            completed: indexes(&status.completed_indexes),
            failed_indexes: indexes(&status.failed_indexes),
            is_full: false,
        }
    }

    /// Takes in the ends that the status does not say yet.
    pub fn take_ends(&mut self, context: &StepContext<'_>) -> Counted {
        let mut counted = Counted::default();
        for pod in context.own.iter().filter(|pod| pod.is_tracked) {
            let known = self.uncounted_succeeded.contains(&pod.uid) || self.uncounted_failed.contains(&pod.uid);
            if known {
                counted.effects.push(PodEffect::Untrack(pod.id()));
                continue;
            }
            let is_success = pod.phase == PodPhase::Succeeded;
            if !is_success && !context.has_failed(pod) {
                continue;
            }
            if self.uncounted_succeeded.len() + self.uncounted_failed.len() >= UNCOUNTED_MAX {
                self.is_full = true;
                break;
            }
            if is_success {
                self.take_success(context, pod);
            } else {
                self.take_failure(context, pod, &mut counted);
            }
            counted.effects.push(PodEffect::Untrack(pod.id()));
        }
        counted
    }

    fn take_success(&mut self, context: &StepContext<'_>, pod: &OwnedPod) {
        if !context.is_indexed() {
            self.uncounted_succeeded.insert(pod.uid.clone());
        } else if let Some(index) = pod.index.filter(|index| *index < context.completions()) {
            self.completed.insert(index);
        }
    }

    fn take_failure(&mut self, context: &StepContext<'_>, pod: &OwnedPod, counted: &mut Counted) {
        let judged = judge(context, pod);
        if judged.action == Action::Ignore {
            return;
        }
        self.uncounted_failed.insert(pod.uid.clone());
        if judged.action == Action::FailJob {
            counted.fails_job.get_or_insert(judged.message);
        }
        let (Some(limit), Some(index)) = (context.spec.backoff_limit_per_index, pod.index) else { return };
        let failures = pod.index_failures.counted.saturating_add(1);
        let is_last = failures > limit || judged.action == Action::FailIndex;
        if is_last && index < context.completions() && !self.completed.contains(index) {
            self.failed_indexes.insert(index);
        }
    }

    /// How many have ended well.
    pub fn successes(&self, context: &StepContext<'_>) -> usize {
        if context.is_indexed() { self.completed.len() } else { self.succeeded + self.uncounted_succeeded.len() }
    }

    /// How many have failed.
    pub fn failures(&self) -> usize {
        self.failed + self.uncounted_failed.len()
    }

    /// Whether every end is added up.
    pub fn is_settled(&self) -> bool {
        self.uncounted_succeeded.is_empty() && self.uncounted_failed.is_empty() && !self.is_full
    }

    /// Whether an index needs no pod any more.
    pub fn is_done(&self, index: u32) -> bool {
        self.completed.contains(index) || self.failed_indexes.contains(index)
    }

    /// Puts the numbers into a status: what has ended, and the uids of what is not added up yet.
    pub fn write(&self, context: &StepContext<'_>, status: &mut JobStatus) {
        let number = |count: usize| Some(i32::try_from(count).unwrap_or(i32::MAX)).filter(|count| *count > 0);
        let uids =
            |uids: &BTreeSet<String>| Some(uids.iter().cloned().collect()).filter(|all: &Vec<_>| !all.is_empty());
        let text = |indexes: &Indexes| Some(indexes.to_string()).filter(|text| !text.is_empty());
        status.succeeded = number(if context.is_indexed() { self.completed.len() } else { self.succeeded });
        status.failed = number(self.failed);
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: uids(&self.uncounted_succeeded),
            failed: uids(&self.uncounted_failed),
        });
        if context.is_indexed() {
            status.completed_indexes = text(&self.completed);
            status.failed_indexes = text(&self.failed_indexes);
        }
    }
}

/// An index that has failed.
#[derive(Clone, Copy)]
pub(super) struct FailedIndex<'a> {
    pub failures: IndexFailures,
    /// The pod that failed last.
    pub last: &'a OwnedPod,
}

/// The indexes that have failed so far.
pub(super) fn failed_indexes<'a>(context: &'a StepContext<'a>) -> BTreeMap<u32, FailedIndex<'a>> {
    let mut failed: BTreeMap<u32, FailedIndex<'_>> = BTreeMap::new();
    for pod in context.own.iter().filter(|pod| context.has_failed(pod)) {
        let Some(index) = pod.index else { continue };
        let mut failures = pod.index_failures;
        let count = match judge(context, pod).action {
            Action::Ignore => &mut failures.ignored,
            _ => &mut failures.counted,
        };
        *count = count.saturating_add(1);
        let next = FailedIndex { failures, last: pod };
        let known = failed.entry(index).or_insert(next);
        if (failures.all(), pod.finished) > (known.failures.all(), known.last.finished) {
            *known = next;
        }
    }
    failed
}

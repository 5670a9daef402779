//! A workload as the simulator takes it: jobs in the order in which they come, whatever file or model they are from.
//!
//! Invariant: a [`Trace`] is sorted by the time of submission, begins at 0, and every job of it has a pod, runs for at
//! least a millisecond and can run on the nodes that it was fitted to. What was left out or mended to get there is
//! counted in its [`Notes`]. Made by the readers and the generators, read by every policy.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{NodeFacts, Resources};

/// Jobs of one trace; more than that is refused.
pub const JOBS_MAX: usize = 2_000_000;
/// Pods of one job; a job of more is left out.
pub const PODS_MAX: u32 = 100_000;
/// The longest time that a trace may name: 30 years. Whatever is later or longer is cut to it.
pub const TIME_MAX_MS: i64 = 30 * 366 * 86_400_000;

const DAY_MS: i64 = 86_400_000;

/// The queue of jobs that name none.
pub(crate) const DEFAULT_QUEUE: &str = "default";

/// A job as it is submitted: a gang of pods that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its name, unique in the trace.
    pub name: String,
    /// When it is submitted, in milliseconds since the beginning of the trace.
    pub submit_ms: i64,
    /// Who submits it; its namespace.
    pub user: Arc<str>,
    pub queue: Arc<str>,
    /// How many pods it has, all alike.
    pub pods: u32,
    /// How many of them start together or not at all, 1 to `pods`.
    pub min: u32,
    /// What each of its pods asks for: milli-cores for `cpu`, whole units for all else.
    pub requests: Arc<Resources>,
    /// How long its pods run if they are let, at least 1.
    pub run_ms: i64,
    /// How long they may run: what its user estimated, and what is enforced.
    pub limit_ms: Option<i64>,
    /// Its priority; 0 where it has none.
    pub priority: i32,
    /// Its pods may be victims.
    pub preemptable: bool,
    /// Jobs of one kind share it; empty where nothing is known of kinds.
    pub profile: Arc<str>,
    /// When it is to have ended, as `submit_ms`.
    pub deadline_ms: Option<i64>,
}

impl Job {
    /// How long it is on its nodes once it is started and let alone.
    pub fn held_ms(&self) -> i64 {
        self.limit_ms.map_or(self.run_ms, |limit| self.run_ms.min(limit))
    }

    /// What the user said of its time, or the truth where the user said nothing.
    pub fn estimate_ms(&self) -> i64 {
        self.limit_ms.unwrap_or(self.run_ms)
    }

    /// One of its pods' milli-cores.
    pub fn cpu_milli(&self) -> i64 {
        self.requests.get("cpu").copied().unwrap_or(0)
    }

    /// All its pods' milli-cores.
    pub fn cpu_milli_all(&self) -> i64 {
        self.cpu_milli().saturating_mul(i64::from(self.pods))
    }
}

/// What was done with records that are not as they should be, and how often.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct Notes(BTreeMap<Cow<'static, str>, u64>);

/// Kinds of notes on one trace; what comes then is counted as others.
const NOTES_MAX: usize = 100;

impl Notes {
    /// Counts one more record of this kind.
    pub fn count(&mut self, what: impl Into<Cow<'static, str>>) {
        self.add(what.into(), 1);
    }

    /// Counts all that others counted.
    pub fn extend(&mut self, others: Self) {
        others.0.into_iter().for_each(|(what, times)| self.add(what, times));
    }

    fn add(&mut self, what: Cow<'static, str>, times: u64) {
        let known = self.0.contains_key(&what) || self.0.len() < NOTES_MAX;
        let what = if known { what } else { "of other kinds".into() };
        *self.0.entry(what).or_default() += times;
    }

    /// What was noted, and how often, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(what, times)| (what.as_ref(), *times))
    }
}

/// A part of the time of a trace, in milliseconds from its first submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub from_ms: i64,
    pub to_ms: i64,
}

/// A workload that a policy is tried on: its jobs and the weights of its queues.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trace {
    /// Its jobs, the first to come first.
    pub jobs: Vec<Job>,
    /// Weights of its queues; a queue that is not named here weighs 1.
    pub queues: BTreeMap<Arc<str>, i32>,
    /// What was mended or left out.
    pub notes: Notes,
}

impl Trace {
    /// A trace of jobs in any order, at any time.
    pub fn new(mut jobs: Vec<Job>, queues: BTreeMap<Arc<str>, i32>, mut notes: Notes) -> Self {
        if !jobs.is_sorted_by_key(|job| job.submit_ms) {
            notes.count("not in the order of submission: sorted");
            jobs.sort_by_key(|job| job.submit_ms);
        }
        let first = jobs.first().map_or(0, |job| job.submit_ms);
        for job in &mut jobs {
            job.submit_ms = (job.submit_ms - first).clamp(0, TIME_MAX_MS);
            job.deadline_ms = job.deadline_ms.map(|deadline| deadline.saturating_sub(first));
            job.run_ms = job.run_ms.clamp(1, TIME_MAX_MS);
            job.limit_ms = job.limit_ms.map(|limit| limit.clamp(1, TIME_MAX_MS));
            job.min = job.min.clamp(1, job.pods.max(1));
        }
        Self { jobs, queues, notes }
    }

    /// Leaves out what was submitted in the first days, and what after the next ones.
    pub fn cut(&mut self, skip_days: u32, days: Option<u32>) {
        let from = i64::from(skip_days) * DAY_MS;
        let to = days.map_or(i64::MAX, |days| from.saturating_add(i64::from(days) * DAY_MS));
        self.jobs.retain(|job| (from..to).contains(&job.submit_ms));
        self.begin_anew();
    }

    /// The first job comes at the beginning.
    fn begin_anew(&mut self) {
        if self.jobs.first().is_some_and(|job| job.submit_ms > 0) {
            let trace = std::mem::take(self);
            *self = Self::new(trace.jobs, trace.queues, trace.notes);
        }
    }

    /// Leaves out the jobs that would never start on these nodes though they were all empty.
    pub fn fit(&mut self, nodes: &[NodeFacts]) {
        let kinds = kinds_of(nodes);
        let notes = &mut self.notes;
        self.jobs.retain(|job| {
            let fits = (1..=PODS_MAX).contains(&job.pods) && pods_at_once(&kinds, &job.requests, job.min);
            if !fits {
                notes.count("larger than the cluster: left out");
            }
            fits
        });
        self.begin_anew();
    }

    /// All queues that jobs name or that have a weight, with their weights.
    pub fn all_queues(&self) -> BTreeMap<Arc<str>, i32> {
        let mut all: BTreeMap<Arc<str>, i32> = self.jobs.iter().map(|job| (job.queue.clone(), 1)).collect();
        all.extend(self.queues.iter().map(|(queue, weight)| (queue.clone(), *weight)));
        all
    }
}

/// What nodes of one kind offer, and how many there are.
fn kinds_of(nodes: &[NodeFacts]) -> Vec<(&Resources, u64)> {
    let mut kinds: BTreeMap<&Resources, u64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !node.unschedulable) {
        *kinds.entry(&node.allocatable).or_default() += 1;
    }
    kinds.into_iter().collect()
}

/// Whether so many pods fit on the empty nodes.
fn pods_at_once(kinds: &[(&Resources, u64)], requests: &Resources, wanted: u32) -> bool {
    let room = kinds.iter().map(|(offered, nodes)| {
        let of = |name: &str, amount: i64| offered.get(name).copied().unwrap_or(0) / amount.max(1);
        let asked = requests.iter().filter(|(_, amount)| **amount > 0).map(|(name, amount)| of(name, *amount));
        let pods = asked.chain([of("pods", 1)]).min().unwrap_or(0);
        u64::try_from(pods).unwrap_or(0).saturating_mul(*nodes)
    });
    room.fold(0, u64::saturating_add) >= u64::from(wanted)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn cpu(milli: i64) -> Arc<Resources> {
        Arc::new([("cpu".to_owned(), milli)].into())
    }

    /// A job of one-core pods: name, submission, pods, run and limit in seconds.
    pub(crate) fn job(name: &str, submit: i64, pods: u32, run: i64, limit: i64) -> Job {
        Job {
            name: name.to_owned(),
            submit_ms: submit * 1_000,
            user: "u".into(),
            queue: DEFAULT_QUEUE.into(),
            pods,
            min: pods,
            requests: cpu(1_000),
            run_ms: run * 1_000,
            limit_ms: Some(limit * 1_000),
            priority: 0,
            preemptable: false,
            profile: "".into(),
            deadline_ms: None,
        }
    }

    pub(crate) fn trace(jobs: Vec<Job>) -> Trace {
        Trace::new(jobs, BTreeMap::new(), Notes::default())
    }

    #[test]
    fn a_trace_begins_at_zero_in_order_of_submission() {
        let trace = trace(vec![job("b", 20, 1, 0, 5), job("a", 10, 1, 5, -5)]);
        let of = |index: usize| (trace.jobs[index].name.as_str(), trace.jobs[index].submit_ms);
        assert_eq!((of(0), of(1)), (("a", 0), ("b", 10_000)));
        assert_eq!((trace.jobs[1].run_ms, trace.jobs[0].limit_ms), (1, Some(1)));
        assert_eq!(trace.notes.iter().count(), 1);
    }

    #[test]
    fn what_can_never_start_is_left_out() {
        let node = |cpu: i64| NodeFacts {
            allocatable: [("cpu".to_owned(), cpu), ("pods".to_owned(), 3)].into(),
            ..NodeFacts::default()
        };
        let nodes = [node(4_000), node(2_000), NodeFacts { unschedulable: true, ..node(64_000) }];
        let mut wide = job("wide", 0, 2, 1, 1);
        wide.requests = cpu(4_000);
        let elastic = Job { min: 1, ..wide.clone() };
        for (job, stays) in [
            (job("five", 0, 5, 1, 1), true),
            (job("six: three pods a node", 0, 6, 1, 1), false),
            (wide, false),
            (elastic, true),
            (job("none", 0, 0, 1, 1), false),
        ] {
            let name = job.name.clone();
            let mut one = trace(vec![job]);
            one.fit(&nodes);
            assert_eq!(one.jobs.len(), usize::from(stays), "{name}");
        }
    }
}

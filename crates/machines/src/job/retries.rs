//! Pods that failed and are made again under their index while the others run on: `retries` of a task.
//!
//! Invariant: such a retry costs the job none of its own and leaves its phase and its other pods alone. Each index has so many,
//! after which the policies decide; more memory goes first, and the loss of a node or an eviction costs nothing. First the pod
//! is marked, then the retry is counted, then the pod goes; a controller that stops in between goes on from there. Called at
//! each step, and for what pods are given.

pub(super) mod refused;

use std::collections::BTreeMap;

use jiff::Timestamp;
use pumice_api::batch::{Job, JobPhase, PodRetry};
use pumice_api::bus::Action;
use pumice_api::names::POD_RETRIES;

use crate::job::facts::{PodFacts, PodPhase};
use crate::job::plan::{Effect, Existing, Plan};
use crate::job::pod_counts::PodCounts;
use crate::job::remembered::TooLong;
use crate::job::remembered::index_counts::{self, IndexCounts};
use crate::job::restart::Mark;
use crate::job::restart::pause;
use crate::job::{JobView, Signal, StepContext, memory};
use crate::range_encoding::RangeEncoding;
use crate::task_numbers::RETRIES;

/// Member of the annotation that holds the entries.
const MEMBER: &str = "retries";
/// How often the index of a pod had been retried when the pod was made; annotation of a pod.
pub(super) const RETRIED: &str = "pumice.sh/retried";

/// The mark of a pod whose retry is counted.
const COUNTED: Mark = Mark { restart: 0, action: Action::RestartPod };

/// Numbers of retries, by task, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PodRetries(IndexCounts);

impl PodRetries {
    /// All that a job remembers, in its status or in its annotation.
    pub fn read(job: &Job) -> Self {
        let mut all = IndexCounts::default();
        for retries in [&job.status.pod_retries, &index_counts::annotated::<PodRetry>(job, POD_RETRIES, MEMBER)] {
            for retry in retries.iter().take(index_counts::ENTRIES_MAX) {
                all.take_in(&retry.task, "", &retry.indices);
            }
        }
        Self(all)
    }

    /// How often an index was retried.
    pub fn times(&self, task: &str, index: i32) -> i64 {
        self.0.times(task, "", index)
    }

    fn raise(&mut self, task: &str, times: &BTreeMap<i32, i64>) {
        self.0.raise(task, "", &RangeEncoding::from(times));
    }

    fn fit(self, job: &Job) -> Result<Self, TooLong> {
        self.0.fit(job).map(Self)
    }

    fn write(&self) -> Vec<PodRetry> {
        self.0.entries().map(|one| PodRetry { task: one.task.to_owned(), indices: one.indices }).collect()
    }
}

/// What is to be done about pods that failed.
#[derive(Default)]
pub(super) struct Decision {
    marks: BTreeMap<(String, i32), (Existing, Mark)>,
    /// All retries once these are made.
    next: PodRetries,
    /// Who is made again, and who can't be.
    records: Vec<Effect>,
}

/// Why pods are made again.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    /// Their nodes were lost or wanted them gone.
    Disrupted,
    Failed {
        exit_code: Option<i32>,
        times: i64,
        retries: i32,
    },
}

/// Looks for pods that failed and may be made again, but for those that get more memory.
pub(super) fn decide(
    view: &JobView<'_>,
    pod_counts: &PodCounts<'_>,
    phase: &JobPhase,
    memory: &memory::Decision,
) -> Decision {
    let job = view.job;
    let mut decision = Decision::default();
    if !memory::may_replace(job, phase) {
        return decision;
    }
    let is_news = |pod: &&PodFacts| {
        pod.phase == PodPhase::Failed
            && pod.mark.is_none()
            && pod.refused.is_none()
            && pod.version >= job.status.version
            && !memory.takes(&pod.task, pod.index)
    };
    let mut known = None;
    let mut told: BTreeMap<(&str, Cause), BTreeMap<i32, i64>> = BTreeMap::new();
    for task in &pod_counts.tasks {
        let Some(retries) = RETRIES.of(task.spec) else { continue };
        let name = task.spec.name.as_str();
        for pod in task.slots.values().copied().filter(is_news) {
            let known = known.get_or_insert_with(|| PodRetries::read(job));
            let (cause, mark) = if pod.disrupted {
                (Cause::Disrupted, Mark::read(None))
            } else if pod.retried < i64::from(retries) {
                // All pods of the task may count as retried since this one was made.
                let times = known.times(name, pod.index).max(pod.retried.saturating_add(1));
                (Cause::Failed { exit_code: pod.exit_codes.first().copied(), times, retries }, COUNTED)
            } else {
                continue;
            };
            told.entry((name, cause)).or_default().insert(pod.index, 1);
            decision.marks.insert((pod.task.clone(), pod.index), (pod.existing(), mark));
        }
    }
    let Some(mut next) = known else { return decision };
    for ((task, cause), indices) in &told {
        if let Cause::Failed { times, .. } = cause {
            next.raise(task, &indices.keys().map(|index| (*index, *times)).collect());
        }
    }
    match next.fit(job) {
        Ok(next) => decision.next = next,
        Err(_) => {
            decision.next = PodRetries::read(job);
            decision.marks.retain(|_, (_, mark)| *mark != COUNTED);
            told.retain(|(_, cause), _| *cause == Cause::Disrupted);
            let message = "the job can't remember more retries of its pods; other policies decide".to_owned();
            decision.records.push(Effect::warning("PodNotRetried", message));
        }
    }
    decision.records.extend(told.iter().map(|((task, cause), indices)| tell(job, task, cause, indices)));
    decision
}

impl Decision {
    /// Whether a retry answers this, so that no policy does.
    pub fn answers(&self, signal: &Signal) -> bool {
        !self.marks.is_empty() && signal.ended_pod().is_some_and(|place| self.marks.contains_key(&place))
    }
}

impl StepContext<'_> {
    /// Lets pods go that failed and are made again, once it is written down that they are.
    pub(super) fn retry_pods(&self) -> Option<Plan> {
        if let Some(next) = self.uncounted() {
            let retries = next.write();
            let annotate = index_counts::annotate(self.view.job, POD_RETRIES, MEMBER, &retries);
            let mut plan = self.set_aside(Vec::new(), Vec::new(), |status| status.pod_retries = retries);
            plan.stages.push(vec![annotate]);
            return Some(plan);
        }
        let decision = &self.retries;
        if decision.marks.is_empty() {
            return None;
        }
        let marks = decision.marks.values().cloned().map(|(pod, mark)| Effect::MarkPod { pod, mark }).collect();
        let retries = decision.next.write();
        Some(self.set_aside(marks, decision.records.clone(), |status| status.pod_retries = retries))
    }

    /// Retries of pods that are marked for one, which the job does not remember: we stopped before they were written, or the
    /// definitions are Volcano's and that part of the status was dropped.
    fn uncounted(&self) -> Option<PodRetries> {
        let marked = self.pod_counts.slots().filter(|pod| pod.mark.as_ref() == Some(&COUNTED));
        let mut marked = marked.peekable();
        if marked.peek().is_none() || !memory::may_replace(self.view.job, &self.phase) {
            return None;
        }
        let known = PodRetries::read(self.view.job);
        let mut by_task: BTreeMap<&str, BTreeMap<i32, i64>> = BTreeMap::new();
        for pod in marked {
            by_task.entry(&pod.task).or_default().insert(pod.index, pod.retried.saturating_add(1));
        }
        let mut next = known.clone();
        by_task.iter().for_each(|(task, times)| next.raise(task, times));
        next.fit(self.view.job).ok().filter(|next| *next != known)
    }

    /// Until when a pod that is retried stays: its successor comes after a pause, which is longer for each further retry.
    fn pause_ends_of(&self, pod: &PodFacts) -> Option<Timestamp> {
        if pod.mark.as_ref() != Some(&COUNTED) || !matches!(self.phase, JobPhase::Pending | JobPhase::Running) {
            return None;
        }
        let ended = pod.ended_at.or(pod.created_at)?;
        let wait = pause::wait(self.view.job, pod.retried.saturating_add(1));
        let due = ended.checked_add(wait).ok().filter(|due| *due > self.now)?;
        // A pod that ended in the future was on a node whose clock goes wrong.
        (due.duration_since(self.now) <= wait).then_some(due)
    }

    /// Whether a pod is not to be replaced yet.
    pub(super) fn pauses(&self, pod: &PodFacts) -> bool {
        self.pause_ends_of(pod).is_some()
    }

    /// When the first of those that pause is to be replaced.
    pub(super) fn pause_ends(&self) -> Option<Timestamp> {
        self.pod_counts.slots().filter_map(|pod| self.pause_ends_of(pod)).min()
    }
}

fn tell(job: &Job, task: &str, cause: &Cause, indices: &BTreeMap<i32, i64>) -> Effect {
    let pods = if indices.len() == 1 { "pod" } else { "pods" };
    let place = format!("task {task}, {pods} {}", RangeEncoding::from(indices).write());
    match cause {
        Cause::Disrupted => {
            let message = format!("{place}: lost with a node or evicted, and made again; that costs no retry");
            Effect::normal("PodReplaced", message)
        }
        Cause::Failed { exit_code, times, retries } => {
            let code = exit_code.map(|code| format!(" with exit code {code}")).unwrap_or_default();
            let wait = pause::wait(job, *times).as_secs();
            let wait = if wait > 0 { format!(" after {wait} s") } else { String::new() };
            Effect::normal(
                "PodRetried",
                format!("{place}: failed{code} and made again{wait} (retry {times} of {retries})"),
            )
        }
    }
}

//! Pods that were killed for want of memory, and are made again with more: the action ScaleUpMemory.
//!
//! Invariant: a raise costs the job no retry and leaves its phase and its other pods alone; it is bounded by the tries of the
//! pod's index and by the ceiling, after which the other policies decide. First the pod is marked, then the raise is written
//! down, then the pod goes; a controller that stops in between goes on from there. Called at each step, and for what pods
//! and their group ask for.

pub(super) mod learning;
pub(super) mod raises;
pub(super) mod scale_up;
pub(super) mod sizes;
pub(super) mod too_large;

use std::collections::BTreeMap;

use pumice_api::batch::{Job, JobPhase, LifecyclePolicy, TaskSpec};
use pumice_api::bus::{Action, Event};
use pumice_api::names::ON_OOM;
use pumice_units::Quantity;

use crate::job::facts::PodFacts;
use crate::job::memory::raises::Raises;
use crate::job::memory::scale_up::ScaleUp;
use crate::job::memory::sizes::Sizes;
use crate::job::plan::{Effect, Existing, Plan};
use crate::job::pod_counts::PodCounts;
use crate::job::restart::Mark;
use crate::job::status::phase_rules;
use crate::job::{JobView, Signal, StepContext};
use crate::range_encoding::RangeEncoding;

/// How often the containers of a pod were raised when it was made, `<container>=<times>`; annotation of a pod.
pub(super) const MEMORY_RAISED: &str = "pumice.sh/memory-raised";

/// What is to be done about pods killed for memory.
#[derive(Default)]
pub(super) struct Decision {
    raises: BTreeMap<(String, i32), Existing>,
    /// All raises once these are made.
    next: Raises,
    made: Vec<Effect>,
    /// Who gets nothing more, and why.
    pub refused: Vec<Effect>,
}

/// More memory for a container: the try `times` of `tries`, and bytes before and after. Its order is that of what is told.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Raise {
    task: String,
    container: String,
    times: i64,
    tries: i32,
    from: i64,
    to: i64,
}

/// A container that gets no more, and why.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Refused {
    task: String,
    container: String,
    why: Refusal,
}

/// Why a container gets no more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    NoAmount,
    Ceiling { bytes: i64 },
    Tries { tries: i32 },
    NoRoom,
}

/// Things said of pods, with the indices they are said of.
type ByIndex<T> = BTreeMap<T, BTreeMap<i32, i64>>;

/// Whether single pods may be made again in this phase.
pub(super) fn may_replace(job: &Job, phase: &JobPhase) -> bool {
    match phase {
        JobPhase::Pending | JobPhase::Running => true,
        // On the last retry nothing is restarted.
        JobPhase::Restarting => job.status.retry_count < phase_rules::max_retry(&job.spec),
        _ => false,
    }
}

/// Looks for pods killed for memory that a policy gives more.
pub(super) fn decide(view: &JobView<'_>, pod_counts: &PodCounts<'_>, phase: &JobPhase) -> Decision {
    let job = view.job;
    let is_news = |pod: &PodFacts| {
        !pod.killed.is_empty() && pod.mark.is_none() && pod.refused.is_none() && pod.version >= job.status.version
    };
    let mut decision = Decision::default();
    let mut killed = pod_counts.tasks.iter().flat_map(|task| task.slots.values().map(move |pod| (task.spec, *pod)));
    if !may_replace(job, phase) || !killed.any(|(_, pod)| is_news(pod)) {
        return decision;
    }
    let known = Sizes::read(job);
    let mut next = known.raises.clone();
    let mut made = ByIndex::<Raise>::new();
    let mut refused = ByIndex::<Refused>::new();
    for task in &pod_counts.tasks {
        let Some(rule) = rule_of(job, task.spec) else { continue };
        let mut times: BTreeMap<&str, BTreeMap<i32, i64>> = BTreeMap::new();
        for pod in task.slots.values().filter(|pod| is_news(pod)) {
            for container in &pod.killed {
                match raise(&rule, task.spec, pod, container, &known) {
                    Ok(raise) => {
                        times.entry(container).or_default().insert(pod.index, raise.times);
                        made.entry(raise).or_default().insert(pod.index, 1);
                        decision.raises.insert((pod.task.clone(), pod.index), pod.existing());
                    }
                    Err(why) => {
                        let one = Refused { task: pod.task.clone(), container: container.clone(), why };
                        refused.entry(one).or_default().insert(pod.index, 1);
                    }
                }
            }
        }
        times.iter().for_each(|(container, times)| next.raise(&task.spec.name, container, times));
    }
    match next.fit(job) {
        Ok(next) => decision.next = next,
        Err(_) => {
            decision.raises.clear();
            for (raise, indices) in std::mem::take(&mut made) {
                let one = Refused { task: raise.task, container: raise.container, why: Refusal::NoRoom };
                refused.insert(one, indices);
            }
        }
    }
    decision.made = made.iter().map(|(raise, indices)| tell(raise, indices)).collect();
    decision.refused = refused.iter().map(|(one, indices)| tell_refused(one, indices)).collect();
    decision
}

impl Decision {
    /// Whether a raise answers this, so that no other policy does.
    pub fn answers(&self, signal: &Signal) -> bool {
        !self.raises.is_empty() && signal.ended_pod().is_some_and(|place| self.raises.contains_key(&place))
    }

    /// Whether the pod at an index gets more.
    pub fn takes(&self, task: &str, index: i32) -> bool {
        !self.raises.is_empty() && self.raises.contains_key(&(task.to_owned(), index))
    }
}

fn raise(rule: &ScaleUp, task: &TaskSpec, pod: &PodFacts, container: &str, known: &Sizes) -> Result<Raise, Refusal> {
    let bytes = sizes::container(task, container).and_then(sizes::decisive).ok_or(Refusal::NoAmount)?;
    let bytes = known.start_of(task, container, rule, bytes);
    let before = pod.raised.iter().find(|(name, _)| name == container).map_or(0, |(_, times)| *times);
    // All pods of the task may have been raised since this one was made.
    let times = known.raises.times(&task.name, container, pod.index).max(before.saturating_add(1));
    let (from, to) = (rule.raised(bytes, before), rule.raised(bytes, times));
    if from >= to {
        return Err(Refusal::Ceiling { bytes: from });
    }
    if before >= i64::from(rule.tries()) {
        return Err(Refusal::Tries { tries: rule.tries() });
    }
    Ok(Raise { task: task.name.clone(), container: container.to_owned(), times, tries: rule.tries(), from, to })
}

/// The rule of a task: its own before the job's, an annotation before a policy. A job that says `off` has none at all.
pub fn rule_of(job: &Job, task: &TaskSpec) -> Option<ScaleUp> {
    let of_job = job.metadata.annotations.as_ref();
    if annotated(of_job) == Some(None) {
        return None;
    }
    let own = task.template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let of_task = rule_at(own, &task.policies);
    of_task.or_else(|| rule_at(of_job, &job.spec.policies)).flatten()
}

/// `Some(None)` where it says `off`.
fn annotated(annotations: Option<&BTreeMap<String, String>>) -> Option<Option<ScaleUp>> {
    annotations.and_then(|all| all.get(ON_OOM)).and_then(|text| ScaleUp::of_annotation(text).ok())
}

/// `Some(None)` where another action answers the event, or none is to.
fn rule_at(annotations: Option<&BTreeMap<String, String>>, policies: &[LifecyclePolicy]) -> Option<Option<ScaleUp>> {
    if let Some(annotated) = annotated(annotations) {
        return Some(annotated);
    }
    let listens = |rule: &&LifecyclePolicy| rule.event.iter().chain(&rule.events).any(|one| *one == Event::OomKilled);
    let rule = policies.iter().find(listens)?;
    if rule.action != Some(Action::ScaleUpMemory) {
        return Some(None);
    }
    ScaleUp::of_policy(rule.scale_up.as_ref()).ok().map(Some)
}

impl StepContext<'_> {
    /// Lets pods go that get more memory, once it is written down that they do.
    pub(super) fn raise_memory(&self) -> Option<Plan> {
        if let Some(next) = self.unwritten() {
            // First the status: where it is kept, it is to say so, wherever we stop.
            let mut plan = self.set_aside(Vec::new(), Vec::new(), |status| status.memory_raises = next.write());
            plan.stages.push(vec![next.annotate(self.view.job)]);
            return Some(plan);
        }
        let decision = &self.memory;
        if decision.raises.is_empty() {
            return None;
        }
        let mark = Mark { restart: 0, action: Action::ScaleUpMemory };
        let marks = decision.raises.values().cloned();
        let marks = marks.map(|pod| Effect::MarkPod { pod, mark: mark.clone() }).collect();
        let raises = decision.next.write();
        Some(self.set_aside(marks, decision.made.clone(), |status| status.memory_raises = raises))
    }

    /// Raises of pods that are marked for one, which the job does not remember: we stopped before they were written, or the
    /// definitions are Volcano's and that part of the status was dropped.
    fn unwritten(&self) -> Option<Raises> {
        let job = self.view.job;
        let is_ours = |pod: &PodFacts| {
            let action = pod.mark.as_ref().map(|mark| &mark.action);
            !pod.killed.is_empty() && action == Some(&Action::ScaleUpMemory)
        };
        if !self.pod_counts.slots().any(is_ours)
            || !matches!(self.phase, JobPhase::Pending | JobPhase::Running | JobPhase::Restarting)
        {
            return None;
        }
        let known = Sizes::read(job);
        let mut next = known.raises.clone();
        for task in &self.pod_counts.tasks {
            let Some(rule) = rule_of(job, task.spec) else { continue };
            for pod in task.slots.values().filter(|pod| is_ours(pod)) {
                for container in &pod.killed {
                    if let Ok(raise) = raise(&rule, task.spec, pod, container, &known) {
                        next.raise(&pod.task, container, &[(pod.index, raise.times)].into());
                    }
                }
            }
        }
        next.fit(job).ok().filter(|next| *next != known.raises)
    }
}

fn containers_text(task: &str, container: &str, indices: &BTreeMap<i32, i64>) -> String {
    let pods = if indices.len() == 1 { "pod" } else { "pods" };
    let runs = RangeEncoding::from(indices).write();
    format!("task {task}, {pods} {runs}: container {container} was killed for memory")
}

fn tell(raise: &Raise, indices: &BTreeMap<i32, i64>) -> Effect {
    let Raise { task, container, times, tries, from, to } = raise;
    let (from, to) = (Quantity::from_bytes(*from), Quantity::from_bytes(*to));
    let place = containers_text(task, container, indices);
    let message = format!("{place} and is started again with {to} instead of {from} (try {times} of {tries})");
    Effect::normal("MemoryRaised", message)
}

fn tell_refused(Refused { task, container, why }: &Refused, indices: &BTreeMap<i32, i64>) -> Effect {
    let why = match why {
        Refusal::NoAmount => "its template has no memory limit or request that could be raised".to_owned(),
        Refusal::Ceiling { bytes } => format!("it has all it may get, {}", Quantity::from_bytes(*bytes)),
        Refusal::Tries { tries } => format!("its memory was raised {tries} times, as often as it may be"),
        Refusal::NoRoom => "the job can't remember more raises".to_owned(),
    };
    let place = containers_text(task, container, indices);
    Effect::warning("MemoryNotRaised", format!("{place} and gets no more: {why}; other policies decide"))
}

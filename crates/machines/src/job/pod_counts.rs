//! A job's pods counted, by task and phase.
//!
//! Invariant: every pod is counted exactly once; a pod that is going away counts as terminating, whatever its phase. The
//! counts are of what exists or ended before it went, also after the job has ended. Taken at the start of each step.

pub(super) mod ended;

use std::collections::BTreeMap;

use pumice_api::batch::{Job, TaskSpec, TaskState};

use crate::job::facts::{PodFacts, PodPhase};
use crate::job::pods::scale_down;
use crate::job::remembered::Remembered;
use crate::task_numbers::{MAX_PARALLEL, at_once};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub pending: i32,
    pub running: i32,
    pub succeeded: i32,
    pub failed: i32,
    pub unknown: i32,
    pub terminating: i32,
}

impl Counts {
    fn of(&mut self, phase: PodPhase) -> &mut i32 {
        match phase {
            PodPhase::Pending => &mut self.pending,
            PodPhase::Running => &mut self.running,
            PodPhase::Succeeded => &mut self.succeeded,
            PodPhase::Failed => &mut self.failed,
            PodPhase::Unknown => &mut self.unknown,
        }
    }

    fn add(&mut self, pod: &PodFacts) {
        let count = if pod.is_leaving() { &mut self.terminating } else { self.of(pod.phase) };
        *count = count.saturating_add(1);
    }

    /// A pod that was counted by its phase is told to go.
    fn release(&mut self, pod: &PodFacts) {
        let count = self.of(pod.phase);
        *count = count.saturating_sub(1);
        self.terminating = self.terminating.saturating_add(1);
    }

    fn add_result(&mut self, phase: PodPhase) {
        let count = if phase == PodPhase::Succeeded { &mut self.succeeded } else { &mut self.failed };
        *count = count.saturating_add(1);
    }

    /// Pods that still occupy something.
    pub fn unfinished(&self) -> i32 {
        self.pending.saturating_add(self.running).saturating_add(self.unknown).saturating_add(self.terminating)
    }

    /// The counts as the status shows them for one task.
    pub fn by_phase(&self) -> TaskState {
        let all = [
            (PodPhase::Pending, self.pending),
            (PodPhase::Running, self.running),
            (PodPhase::Succeeded, self.succeeded),
            (PodPhase::Failed, self.failed),
            (PodPhase::Unknown, self.unknown),
        ];
        let some = all.into_iter().filter(|(_, count)| *count > 0);
        TaskState { phase: some.map(|(phase, count)| (phase.as_str().to_owned(), count)).collect() }
    }
}

/// One task and its pods.
#[derive(Clone)]
pub(super) struct TaskCensus<'a> {
    pub spec: &'a TaskSpec,
    /// Its indices may have holes: those that don't run leave first when it shrinks.
    pending_first: bool,
    /// Pods with an index below `replicas`, or as many that stay.
    pub slots: BTreeMap<i32, &'a PodFacts>,
    /// Results of pods with an index below `replicas` that ended and are gone.
    pub ended: BTreeMap<i32, PodPhase>,
    pub counts: Counts,
    /// Pods that have not ended, those beyond `replicas` too.
    unfinished: usize,
}

impl TaskCensus<'_> {
    /// Pods the gang needs of this task.
    pub fn min_available(&self) -> i32 {
        min_available(self.spec)
    }

    /// Indices below `replicas` that have no pod and no result. Ends with the last of them, so that where none is missing, which
    /// is nearly always, it costs nothing.
    pub fn missing(&self) -> impl Iterator<Item = i32> {
        let end = if self.pending_first { i32::MAX } else { self.spec.replicas.max(0) };
        (0..end).filter(|index| self.is_free(*index)).take(self.short_of())
    }

    /// How many pods or results there are too few.
    fn short_of(&self) -> usize {
        usize::try_from(self.spec.replicas).unwrap_or(0).saturating_sub(self.slots.len() + self.ended.len())
    }

    /// Those of the missing that are to be made now: the lowest, as far as `maxParallel` has room.
    pub fn next(&self) -> impl Iterator<Item = i32> {
        let most = MAX_PARALLEL.of(self.spec).map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0));
        self.missing().take(most.saturating_sub(self.unfinished))
    }

    /// Whether an index is wanted and has neither a pod nor a result.
    pub fn is_free(&self, index: i32) -> bool {
        let is_wanted = match self.pending_first {
            true => index >= 0 && self.short_of() > 0,
            false => (0..self.spec.replicas).contains(&index),
        };
        is_wanted && !self.slots.contains_key(&index) && !self.ended.contains_key(&index)
    }
}

/// All tasks of a job and their pods.
#[derive(Clone)]
pub(super) struct PodCounts<'a> {
    pub tasks: Vec<TaskCensus<'a>>,
    /// Pods of no task, or with an index at or above `replicas`.
    pub surplus: Vec<&'a PodFacts>,
    pub counts: Counts,
    /// Sum of the replicas of all tasks.
    pub replicas: i64,
}

impl<'a> PodCounts<'a> {
    pub fn take(job: &'a Job, pods: &'a BTreeMap<String, PodFacts>) -> Self {
        let mut tasks: Vec<_> = job
            .spec
            .tasks
            .iter()
            .map(|spec| TaskCensus {
                spec,
                pending_first: scale_down::pending_first(job, spec),
                slots: BTreeMap::new(),
                ended: BTreeMap::new(),
                counts: Counts::default(),
                unfinished: 0,
            })
            .collect();
        let by_name: BTreeMap<&str, usize> =
            job.spec.tasks.iter().enumerate().rev().map(|(position, task)| (task.name.as_str(), position)).collect();
        let mut surplus = Vec::new();
        let mut counts = Counts::default();
        let ordered = stay_first(&tasks, &by_name, pods);
        let mut place = |pod: &'a PodFacts| {
            let mut task = by_name.get(pod.task.as_str()).map(|position| &mut tasks[*position]);
            if let Some(task) = &mut task
                && !pod.has_ended()
            {
                task.unfinished += 1;
            }
            let stays = |task: &&mut TaskCensus<'a>| match task.pending_first {
                true => pod.index >= 0 && task.short_of() > 0 && !task.slots.contains_key(&pod.index),
                false => (0..task.spec.replicas).contains(&pod.index),
            };
            match task.filter(stays) {
                Some(task) => {
                    task.counts.add(pod);
                    counts.add(pod);
                    task.slots.insert(pod.index, pod);
                }
                None => {
                    // On its way out, so neither running nor failed for the job's rules.
                    counts.terminating = counts.terminating.saturating_add(1);
                    surplus.push(pod);
                }
            }
        };
        match ordered {
            Some(pods) => pods.into_iter().for_each(&mut place),
            None => pods.values().for_each(&mut place),
        }
        let replicas = job.spec.tasks.iter().map(|task| i64::from(task.replicas.max(0))).sum();
        Self { tasks, surplus, counts, replicas }
    }

    /// Counts pods that ended and are gone, too.
    pub fn with_ended(mut self, memory: &Remembered) -> Self {
        for task in &mut self.tasks {
            for (index, number) in memory.of_task(&task.spec.name) {
                if let Some(phase) = ended::result(number)
                    && task.is_free(index)
                {
                    task.ended.insert(index, phase);
                    task.counts.add_result(phase);
                    self.counts.add_result(phase);
                }
            }
        }
        self
    }

    /// Counts pods that are about to be deleted as terminating.
    pub fn releasing(mut self, goes: impl Fn(&PodFacts) -> bool) -> Self {
        for task in &mut self.tasks {
            for pod in task.slots.values().filter(|pod| !pod.is_leaving() && goes(pod)) {
                task.counts.release(pod);
                self.counts.release(pod);
            }
        }
        self
    }

    pub fn task(&self, name: &str) -> Option<&TaskCensus<'a>> {
        self.tasks.iter().find(|task| task.spec.name == name)
    }

    /// The pods that the spec asks for.
    pub fn slots(&self) -> impl Iterator<Item = &'a PodFacts> {
        self.tasks.iter().flat_map(|task| task.slots.values().copied())
    }

    /// Every pod, whatever its state.
    pub fn pods(&self) -> impl Iterator<Item = &'a PodFacts> {
        self.slots().chain(self.surplus.iter().copied())
    }
}

/// The pods in the order in which they take their places, where a task says who leaves first: of such those that stay come
/// first. Nothing where it is that of their names.
fn stay_first<'a>(
    tasks: &[TaskCensus<'_>],
    by_name: &BTreeMap<&str, usize>,
    pods: &'a BTreeMap<String, PodFacts>,
) -> Option<Vec<&'a PodFacts>> {
    if !tasks.iter().any(|task| task.pending_first) {
        return None;
    }
    let chooses = |pod: &&PodFacts| by_name.get(pod.task.as_str()).is_some_and(|task| tasks[*task].pending_first);
    let (mut chosen, mut all): (Vec<_>, Vec<_>) = pods.values().partition(chooses);
    scale_down::order(&mut chosen);
    all.extend(chosen);
    Some(all)
}

/// Pods the gang needs of a task: said by the user, or whole partitions, or all that may be there at once.
pub(super) fn min_available(task: &TaskSpec) -> i32 {
    let partitions = task.partition_policy.as_ref().filter(|policy| policy.min_partitions > 0);
    task.min_available
        .or_else(|| partitions.map(|policy| policy.min_partitions.saturating_mul(policy.partition_size)))
        .unwrap_or(at_once(task))
        .max(0)
}

//! Restarts, suspends and ends: everything that makes pods go.
//!
//! Invariant: what is decided is written down before a pod is deleted, so that a crash in between neither loses nor repeats
//! a restart. A kill of the whole job is written as a new `status.version`; pods of an older version are then known to be
//! on their way out. A restart of some pods is written on these pods first, with the number the restart will have.

pub(super) mod cleanup;
pub(super) mod pause;
pub(super) mod suspend;
pub(super) mod ttl;

use std::collections::BTreeMap;

use pumice_api::batch::{Job, JobPhase, JobStatus, TaskSpec};
use pumice_api::bus::Action;
use pumice_api::names;

use crate::job::facts::PodFacts;
use crate::job::plan::{Effect, Existing, Plan};
use crate::job::pod_counts::TaskCensus;
use crate::job::policy::Order;
use crate::job::policy::job_updated;
use crate::job::status::{active_deadline, phase_rules};
use crate::job::{StepContext, plugin_objects};
use crate::plugins;

/// A restart as it is written on the pods it takes away. One marked pod is enough to know all that must be marked.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The job's `retryCount` once the restart is counted; 0 = the mark says only that we delete the pod.
    pub restart: i32,
    /// RestartTask, RestartPod or RestartPartition; without a restart ScaleUpMemory, or RestartPod for a retry of this pod alone.
    pub action: Action,
}

impl Mark {
    /// Reads an annotation; anything else is a mark without a restart.
    pub fn read(text: Option<&str>) -> Self {
        let parts = text.and_then(|text| text.split_once('/'));
        let restart = parts.and_then(|(number, _)| number.parse().ok()).unwrap_or(0);
        Self { restart, action: Action::from(parts.map_or("", |(_, action)| action)) }
    }

    /// The value of the annotation, which [`Self::read`] understands.
    pub fn write(&self) -> String {
        format!("{}/{}", self.restart, self.action)
    }
}

/// `status.state.reason` of a restart of the whole job.
const RESTART_JOB: &str = "RestartJob";
/// `status.state.reason` of a restart that keeps the pods that ended.
const RESUME_JOB: &str = "ResumeJob";

/// Whether a restart of this `status.state.reason` is one of some pods, not of the whole job.
pub(super) fn restarts_some(reason: &str) -> bool {
    matches!(reason, "RestartTask" | "RestartPod" | "RestartPartition")
}

/// Which pods a restart takes away.
enum Scope {
    /// Those of an older version.
    Older,
    /// Those of an older version that have not ended.
    OlderUnfinished,
    /// Those that are marked.
    Marked,
}

/// The pods of one targeted restart.
struct Target {
    action: Action,
    task: String,
    index: i32,
}

impl Target {
    /// `None` for actions on whole jobs, and where the cause is about no pod.
    fn of(order: &Order) -> Option<Self> {
        if !matches!(order.action, Action::RestartTask | Action::RestartPod | Action::RestartPartition) {
            return None;
        }
        let cause = order.cause.as_ref()?;
        Some(Self { action: order.action.clone(), task: cause.task.clone()?, index: cause.index? })
    }
}

/// The pods of several targeted restarts. It is asked for each pod of a job of very many, all of which may have failed.
#[derive(Default)]
pub(super) struct Targets {
    tasks: BTreeMap<String, OfTask>,
}

/// Restarts in a task, with the place of each among all.
#[derive(Default)]
struct OfTask {
    whole: Option<(usize, Action)>,
    by_partition: BTreeMap<i32, (usize, Action)>,
    by_index: BTreeMap<i32, (usize, Action)>,
}

impl Targets {
    fn of(job: &Job, all: impl IntoIterator<Item = Target>) -> Self {
        let mut targets = Self::default();
        for (place, Target { action, task, index }) in all.into_iter().enumerate() {
            let spec = job.spec.tasks.iter().find(|spec| spec.name == task);
            let size = spec.and_then(partition_size);
            let of_task = targets.tasks.entry(task).or_default();
            let restart = (place, action.clone());
            match (action, size) {
                (Action::RestartPod, _) => drop(of_task.by_index.entry(index).or_insert(restart)),
                (Action::RestartPartition, Some(size)) => {
                    of_task.by_partition.entry(index / size).or_insert(restart);
                }
                // A task that is not split is one partition.
                _ => drop(of_task.whole.get_or_insert(restart)),
            }
        }
        targets
    }

    /// The first of the restarts that takes the pod at an index.
    fn restart(&self, task: &TaskSpec, index: i32) -> Option<&Action> {
        let of_task = self.tasks.get(&task.name)?;
        let by_partition = partition_size(task).and_then(|size| of_task.by_partition.get(&(index / size)));
        let all = [of_task.whole.as_ref(), by_partition, of_task.by_index.get(&index)];
        all.into_iter().flatten().min_by_key(|(place, _)| place).map(|(_, action)| action)
    }

    pub fn has(&self, task: &TaskSpec, index: i32) -> bool {
        self.restart(task, index).is_some()
    }
}

fn partition_size(task: &TaskSpec) -> Option<i32> {
    task.partition_policy.as_ref().map(|policy| policy.partition_size).filter(|size| *size > 0)
}

impl StepContext<'_> {
    /// Goes on with a restart that is marked on pods and not counted in the status: we were interrupted. Marks what is not
    /// marked yet, then counts it.
    pub(super) fn finish_restart(&self) -> Option<Plan> {
        if !matches!(self.phase, JobPhase::Pending | JobPhase::Running) {
            return None;
        }
        let next = self.view.job.status.retry_count.saturating_add(1);
        let marked = self.pod_counts.pods().filter_map(|pod| {
            let mark = pod.mark.as_ref().filter(|mark| mark.restart == next)?;
            Some(Target { action: mark.action.clone(), task: pod.task.clone(), index: pod.index })
        });
        let targets: Vec<Target> = marked.collect();
        let action = targets.first()?.action.clone();
        Some(self.restart_pods(&action, &Targets::of(self.view.job, targets), None))
    }

    pub(super) fn restart_job(&self, order: Option<&Order>) -> Plan {
        let restart = self.view.job.status.retry_count.saturating_add(1);
        // The last restart is none.
        let last = restart >= phase_rules::max_retry(&self.view.job.spec);
        let mut draft = self.draft_releasing(|_| !last);
        draft.next.version = draft.next.version.saturating_add(1);
        draft.next.retry_count = restart;
        self.note_plugins(&mut draft.next);
        job_updated::acted(self.view.job, &mut draft.next);
        draft.enter(JobPhase::Restarting, RESTART_JOB, &message(order), self.now);
        Plan::only(draft.write(self.now).into_iter().chain(record(order)).collect())
    }

    /// Restarts the pods that events are about: those of this order, and of all others that are due and want the same, for
    /// pods that fail together are one failure. An event without such pods restarts nothing and costs nothing.
    pub(super) fn restart_target(&self, order: &Order) -> Plan {
        if Target::of(order).is_none() {
            let mut plan = self.sync();
            let action = order.action.as_str();
            plan.prepend_records(vec![Effect::warning(
                "ActionWithoutTarget",
                format!("{action} is ignored: what it reacts to is about no single task; use RestartJob"),
            )]);
            return plan;
        }
        self.restart_pods(&order.action, &self.due_targets(), Some(order))
    }

    fn due_targets(&self) -> Targets {
        Targets::of(self.view.job, self.due.iter().filter_map(Target::of))
    }

    fn restart_pods(&self, action: &Action, targets: &Targets, order: Option<&Order>) -> Plan {
        let restart = self.view.job.status.retry_count.saturating_add(1);
        // The last restart is none: the job fails, and its pods stay for inspection.
        let last = restart >= phase_rules::max_retry(&self.view.job.spec);
        let marks = if last { Vec::new() } else { self.marks(targets, restart) };
        let none = Targets::default();
        let restarted = if last { &none } else { targets };
        let mut draft = self.draft_after(&marks, restarted);
        draft.next.retry_count = restart;
        self.note_plugins(&mut draft.next);
        draft.enter(JobPhase::Restarting, action.as_str(), &message(order), self.now);
        let write = draft.write(self.now).into_iter().chain(record(order)).collect();
        self.with_pending_events(targets, self.with_ended(restarted, Plan::stages(vec![marks, write])))
    }

    /// Marks for the pods of the targets that have none.
    fn marks(&self, targets: &Targets, restart: i32) -> Vec<Effect> {
        let mut marks = Vec::new();
        for task in &self.pod_counts.tasks {
            for pod in task.slots.values().filter(|pod| pod.mark.is_none()) {
                if let Some(action) = targets.restart(task.spec, pod.index) {
                    let mark = Mark { restart, action: action.clone() };
                    marks.push(Effect::MarkPod { pod: pod.existing(), mark });
                }
            }
        }
        marks
    }

    pub(super) fn begin_kill(&self, to: JobPhase, order: Option<&Order>) -> Plan {
        let reason = order.map_or("", |order| order.action.as_str());
        self.kill(to, reason, &message(order), record(order))
    }

    /// Takes all away that is unfinished, on the way to a phase, and tells why.
    pub(super) fn kill(&self, to: JobPhase, reason: &str, message: &str, told: Option<Effect>) -> Plan {
        let mut draft = self.draft_releasing(is_unfinished);
        draft.next.version = draft.next.version.saturating_add(1);
        self.note_plugins(&mut draft.next);
        job_updated::acted(self.view.job, &mut draft.next);
        active_deadline::forget(&mut draft.next);
        draft.enter(to, reason, message, self.now);
        self.with_ended(&Targets::default(), Plan::only(draft.write(self.now).into_iter().chain(told).collect()))
    }

    /// Notes what plugins may have made: whoever removes it must know, also if there was no write since.
    fn note_plugins(&self, next: &mut JobStatus) {
        let plugins = plugins::of_job(self.view.job).unwrap_or_default();
        next.controlled_resources.extend(plugin_objects::recorded(&plugins));
    }

    /// Unlike in Volcano, a resume costs no retry.
    pub(super) fn resume(&self) -> Plan {
        let mut draft = self.draft_releasing(|pod| !pod.has_ended());
        draft.next.version = draft.next.version.saturating_add(1);
        job_updated::acted(self.view.job, &mut draft.next);
        draft.enter(JobPhase::Restarting, RESUME_JOB, "", self.now);
        Plan::only(draft.write(self.now).into_iter().collect())
    }

    /// Restarting: delete what the restart takes away, then go on.
    pub(super) fn release(&self) -> Plan {
        let status = &self.view.job.status;
        let exhausted = status.retry_count >= phase_rules::max_retry(&self.view.job.spec);
        let scope = match status.state.reason.as_str() {
            reason if restarts_some(reason) => Scope::Marked,
            RESUME_JOB => Scope::OlderUnfinished,
            _ => Scope::Older,
        };
        if exhausted {
            return self.leave_restarting();
        }
        match scope {
            Scope::Marked => match self.join() {
                Some(plan) => plan,
                None => {
                    let kills = self.deletions(|pod| pod.mark.is_some());
                    self.with_pending_events(
                        &self.due_targets(),
                        self.with_ended(&Targets::default(), self.let_go(kills)),
                    )
                }
            },
            Scope::OlderUnfinished => {
                let kills = self.deletions(|pod| pod.version < status.version && !pod.has_ended());
                self.let_go(kills.into_iter().chain(self.delete_older_group()).collect())
            }
            Scope::Older => {
                let kills = self.deletions(|pod| pod.version < status.version);
                self.without_ended(self.let_go(kills.into_iter().chain(self.delete_older_group()).collect()))
            }
        }
    }

    fn let_go(&self, kills: Vec<Effect>) -> Plan {
        if kills.is_empty() { self.leave_restarting() } else { Plan::stages(vec![self.own_marks(), kills]) }
    }

    fn leave_restarting(&self) -> Plan {
        let mut draft = self.draft();
        let status = &self.view.job.status;
        let due = if status.state.reason == RESUME_JOB { None } else { pause::due(self.view.job) };
        let mut wake_at = None;
        match phase_rules::restarting(&self.view.job.spec, &self.pod_counts, status.retry_count) {
            Some(verdict) if verdict.phase == JobPhase::Pending && due.is_some_and(|due| due > self.now) => {
                wake_at = due;
            }
            Some(verdict) => self.conclude(&mut draft, &verdict),
            None => {}
        }
        Plan { wake_at, ..Plan::only(draft.write(self.now).into_iter().collect()) }
    }

    /// Takes pods that failed since the restart of others began into that restart, which costs no further retry.
    fn join(&self) -> Option<Plan> {
        let targets = self.due_targets();
        let marks = self.marks(&targets, self.view.job.status.retry_count);
        let restarts = |task: &TaskCensus<'_>| task.ended.keys().any(|index| targets.has(task.spec, *index));
        if marks.is_empty() && !self.pod_counts.tasks.iter().any(restarts) {
            return None;
        }
        let write = self.draft_after(&marks, &targets).write_now(self.now);
        let causes = self.due.iter().filter(|order| Target::of(order).is_some());
        let write = write.into_iter().chain(causes.filter_map(|order| record(Some(order))));
        Some(self.with_pending_events(&targets, self.with_ended(&targets, Plan::stages(vec![marks, write.collect()]))))
    }

    /// Marks pods that are made again by themselves, then writes down why; they go in a later step.
    pub(super) fn set_aside(&self, marks: Vec<Effect>, told: Vec<Effect>, note: impl FnOnce(&mut JobStatus)) -> Plan {
        let none = Targets::default();
        let mut draft = self.draft_after(&marks, &none);
        draft.begin(self.now);
        note(&mut draft.next);
        let write = draft.write_now(self.now).into_iter().chain(told).collect();
        self.with_pending_events(&none, self.with_ended(&none, Plan::stages(vec![marks, write])))
    }

    /// Marks for surplus and refused pods: once they are gone, or are wanted again before that, they were not evicted.
    pub(super) fn own_marks(&self) -> Vec<Effect> {
        let refused = self.pod_counts.slots().filter(|pod| pod.refused.is_some() && !self.rests(pod));
        let fresh = refused.chain(self.pod_counts.surplus.iter().copied());
        let fresh = fresh.filter(|pod| pod.mark.is_none() && pod.terminating_since.is_none());
        fresh.map(|pod| Effect::MarkPod { pod: pod.existing(), mark: Mark::read(None) }).collect()
    }

    /// Deletes surplus and refused pods, and those that `chosen` picks, unless they are being deleted already.
    pub(super) fn deletions(&self, chosen: impl Fn(&PodFacts) -> bool) -> Vec<Effect> {
        let refused = |pod: &PodFacts| pod.refused.is_some() && !self.rests(pod);
        let pods = self.pod_counts.slots().filter(|pod| refused(pod) || chosen(pod));
        let going = pods.chain(self.pod_counts.surplus.iter().copied()).filter(|pod| pod.terminating_since.is_none());
        going.map(|pod| Effect::DeletePod(pod.existing())).collect()
    }

    /// Version of the job that the group was made for; groups made by Volcano don't say.
    pub(super) fn group_version(&self) -> Option<i32> {
        let annotations = self.view.group?.metadata.annotations.as_ref()?;
        annotations.get(names::JOB_VERSION)?.parse().ok()
    }

    fn delete_older_group(&self) -> Option<Effect> {
        let current = self.group_version().is_some_and(|version| version >= self.view.job.status.version);
        if current { None } else { self.delete_group() }
    }

    pub(super) fn delete_group(&self) -> Option<Effect> {
        let metadata = &self.view.group?.metadata;
        if metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = metadata.name.clone()?;
        Some(Effect::DeleteGroup(Existing { name, uid: metadata.uid.clone().unwrap_or_default() }))
    }
}

/// Whether the end of a job takes the pod away.
pub(super) fn is_unfinished(pod: &PodFacts) -> bool {
    !pod.has_ended() || pod.mark.is_some()
}

fn message(order: Option<&Order>) -> String {
    order.map(Order::execute_message).unwrap_or_default()
}

fn record(order: Option<&Order>) -> Option<Effect> {
    order.filter(|order| order.cause.is_some()).map(|order| Effect::normal("ExecuteAction", order.execute_message()))
}

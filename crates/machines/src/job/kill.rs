//! Restarts, suspends and ends: everything that makes pods go.
//!
//! Invariant: what is decided is written down before a pod is deleted, so that a crash in between neither loses nor repeats
//! a restart. A kill of the whole job is written as a new `status.version`; pods of an older version are then known to be
//! on their way out. A restart of some pods is written on these pods first, with the number the restart will have.

use pumice_api::batch::{JobPhase, TaskSpec};
use pumice_api::bus::Action;
use pumice_api::names;

use super::events::Evicted;
use super::facts::PodFacts;
use super::plan::{Effect, Existing, Plan};
use super::policy::Order;
use super::{Scene, policy, rules};

/// A restart as it is written on the pods it takes away. One marked pod is enough to know all that must be marked.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The job's `retryCount` once the restart is counted; 0 = the mark says only that we delete the pod.
    pub restart: i32,
    /// RestartTask, RestartPod or RestartPartition.
    pub action: Action,
}

impl Mark {
    /// Reads an annotation; anything else is a mark without a restart.
    pub fn read(text: Option<&str>) -> Self {
        let parts = text.and_then(|text| text.split_once('/'));
        let restart = parts.and_then(|(number, _)| number.parse().ok()).unwrap_or(0);
        Self { restart, action: Action::from(parts.map_or("", |(_, action)| action)) }
    }

    /// The annotation's value.
    pub fn write(&self) -> String {
        format!("{}/{}", self.restart, self.action)
    }
}

/// `status.state.reason` of a restart of the whole job.
const RESTART_JOB: &str = "RestartJob";
/// `status.state.reason` of a restart that keeps the pods that ended.
const RESUME_JOB: &str = "ResumeJob";

/// Which pods a restart takes away.
enum Scope {
    /// Those of an older version.
    Older,
    /// Those of an older version that have not ended.
    OlderUnfinished,
    /// Those that are marked.
    Marked,
}

impl Scene<'_> {
    /// A restart that is marked on a pod and not counted in the status: we were interrupted.
    pub(super) fn unrecorded_restart(&self) -> Option<&PodFacts> {
        if !matches!(self.phase, JobPhase::Pending | JobPhase::Running) {
            return None;
        }
        let next = self.view.job.status.retry_count.saturating_add(1);
        self.census.pods().find(|pod| pod.mark.as_ref().is_some_and(|mark| mark.restart == next))
    }

    /// Goes on with an interrupted restart: marks what is not marked yet, then counts it.
    pub(super) fn finish_restart(&self, marked: &PodFacts) -> Plan {
        let action = marked.mark.as_ref().map_or(Action::RestartPod, |mark| mark.action.clone());
        self.restart_pods(&action, &marked.task, marked.index, None)
    }

    pub(super) fn restart_job(&self, order: Option<&Order>) -> Plan {
        let mut draft = self.draft();
        draft.next.version = draft.next.version.saturating_add(1);
        draft.next.retry_count = draft.next.retry_count.saturating_add(1);
        draft.enter(JobPhase::Restarting, RESTART_JOB, &message(order), self.now);
        Plan::only(draft.write(self.now).into_iter().chain(record(order)).collect())
    }

    /// Restarts the pods an event is about. An event without such pods restarts nothing and costs nothing.
    pub(super) fn restart_target(&self, order: &Order) -> Plan {
        let cause = order.cause.as_ref();
        let Some((task, index)) = cause.and_then(|cause| cause.task.as_deref().zip(cause.index)) else {
            let mut plan = self.sync();
            let action = order.action.as_str();
            plan.prepend_records(vec![Effect::warning(
                "ActionWithoutTarget",
                format!("{action} is ignored: what it reacts to is about no single task; use RestartJob"),
            )]);
            return plan;
        };
        self.restart_pods(&order.action, task, index, Some(order))
    }

    fn restart_pods(&self, action: &Action, task: &str, index: i32, order: Option<&Order>) -> Plan {
        let mut draft = self.draft();
        draft.next.retry_count = draft.next.retry_count.saturating_add(1);
        let restart = draft.next.retry_count;
        draft.enter(JobPhase::Restarting, action.as_str(), &message(order), self.now);
        // The last restart is none: the job fails, and its pods stay for inspection.
        let marks = match self.census.task(task) {
            Some(task) if restart < rules::max_retry(&self.view.job.spec) => task
                .slots
                .values()
                .filter(|pod| in_target(action, task.spec, index, pod.index) && pod.mark.is_none())
                .map(|pod| Effect::MarkPod { pod: pod.existing(), mark: Mark { restart, action: action.clone() } })
                .collect(),
            _ => Vec::new(),
        };
        let in_target = |gone: &Evicted| {
            let of_task = self.census.task(task).filter(|_| gone.task == task);
            of_task.is_some_and(|task| in_target(action, task.spec, index, gone.index))
        };
        let left = self.view.evicted.iter().filter(|gone| !in_target(gone) && self.asks_for_more(gone));
        Plan {
            evicted_left: left.cloned().collect(),
            ..Plan::stages(vec![marks, draft.write(self.now).into_iter().chain(record(order)).collect()])
        }
    }

    /// Whether a policy answers this eviction by more than a new pod, which comes anyway.
    fn asks_for_more(&self, gone: &Evicted) -> bool {
        let action = policy::on_eviction(&self.view.job.spec, gone);
        gone.version >= self.view.job.status.version
            && action.is_some_and(|action| !matches!(action, Action::RestartPod | Action::SyncJob))
    }

    pub(super) fn begin_kill(&self, to: JobPhase, order: Option<&Order>) -> Plan {
        let mut draft = self.draft();
        draft.next.version = draft.next.version.saturating_add(1);
        let reason = order.map_or("", |order| order.action.as_str()).to_owned();
        draft.enter(to, &reason, &message(order), self.now);
        Plan::only(draft.write(self.now).into_iter().chain(record(order)).collect())
    }

    /// Unlike in Volcano, a resume costs no retry.
    pub(super) fn resume(&self) -> Plan {
        let mut draft = self.draft();
        draft.next.version = draft.next.version.saturating_add(1);
        draft.enter(JobPhase::Restarting, RESUME_JOB, "", self.now);
        Plan::only(draft.write(self.now).into_iter().collect())
    }

    /// Restarting: delete what the restart takes away, then go on.
    pub(super) fn release(&self) -> Plan {
        let status = &self.view.job.status;
        let mut draft = self.draft();
        if status.retry_count < rules::max_retry(&self.view.job.spec) {
            let scope = match status.state.reason.as_str() {
                "RestartTask" | "RestartPod" | "RestartPartition" => Scope::Marked,
                RESUME_JOB => Scope::OlderUnfinished,
                _ => Scope::Older,
            };
            let mut kills = self.deletions(|pod| match scope {
                Scope::Older => pod.version < status.version,
                Scope::OlderUnfinished => pod.version < status.version && !pod.phase.is_finished(),
                Scope::Marked => pod.mark.is_some(),
            });
            if !matches!(scope, Scope::Marked) {
                kills.extend(self.delete_older_group());
            }
            if !kills.is_empty() {
                return Plan { evicted_left: self.view.evicted.to_vec(), ..Plan::only(kills) };
            }
        }
        if let Some(verdict) = rules::restarting(&self.view.job.spec, &self.census, status.retry_count) {
            draft.goto(&verdict, self.now);
        }
        let write = draft.write(self.now).into_iter().collect();
        Plan { evicted_left: self.view.evicted.to_vec(), ..Plan::only(write) }
    }

    /// Deletes surplus pods, and those that `chosen` picks, unless they are being deleted already.
    pub(super) fn deletions(&self, chosen: impl Fn(&PodFacts) -> bool) -> Vec<Effect> {
        let pods = self.census.tasks.iter().flat_map(|task| task.slots.values()).filter(|pod| chosen(pod));
        let going = pods.chain(&self.census.surplus).filter(|pod| pod.terminating_since.is_none());
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

/// Whether the pod at `candidate` is one of those that an action on the pod at `index` is about.
fn in_target(action: &Action, task: &TaskSpec, index: i32, candidate: i32) -> bool {
    match action {
        Action::RestartPod => candidate == index,
        Action::RestartPartition => match &task.partition_policy {
            Some(policy) if policy.partition_size > 0 => {
                candidate / policy.partition_size == index / policy.partition_size
            }
            // A task that is not split is one partition.
            _ => true,
        },
        _ => true,
    }
}

fn message(order: Option<&Order>) -> String {
    order.map(Order::execute_message).unwrap_or_default()
}

fn record(order: Option<&Order>) -> Option<Effect> {
    order.filter(|order| order.cause.is_some()).map(|order| Effect::normal("ExecuteAction", order.execute_message()))
}

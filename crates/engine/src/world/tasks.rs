//! Tasks (pods): their state, and what of it counts where. Rows change state only through `Tables::move_task`.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::inter_pod::{Change, Labels, Profile};
use crate::cluster::table::Keyed;
use crate::facts::{PodClaims, PodFacts, PodPhase};
use crate::ids::{ClassId, GroupId, NodeId, TimeMs};

/// Where a pod stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TaskState {
    /// No node yet.
    Pending,
    /// Given room inside this cycle; the group is not decided yet.
    Allocated,
    /// Waits for room that is being freed on its node. One that outlives its cycle is nominated: the room is kept for it.
    Pipelined,
    /// Decided: the bind is in flight.
    Binding,
    /// Bound, not running yet.
    Bound,
    Running,
    /// On its way out.
    Releasing,
    Succeeded,
    Failed,
    /// Its node does not answer.
    Unknown,
}

pub(crate) const STATES: usize = 10;

impl TaskState {
    /// Takes room on its node.
    pub(crate) fn holds_node(self) -> bool {
        !matches!(self, Self::Pending | Self::Pipelined | Self::Succeeded | Self::Failed)
    }

    /// Volcano's AllocatedStatus: has room and keeps it.
    pub(crate) fn is_allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }
}

impl TaskState {
    /// What a task in this state is on its node for other pods.
    pub(crate) fn presence(self) -> Change {
        let present = self.holds_node();
        let future = present && self != Self::Releasing || self == Self::Pipelined;
        Change { present: i32::from(present), future: i32::from(future) }
    }
}

/// What the engine knows of a pod.
#[derive(Debug)]
pub struct TaskRow {
    pub(crate) uid: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) name: Arc<str>,
    /// Absent for pods that are not ours.
    pub(crate) group: Option<GroupId>,
    /// Its row in the group's roles.
    pub(crate) role: u32,
    /// Its part of the group.
    pub(crate) sub_job: u32,
    /// Its labels, while its part may have to be worked out again.
    pub(crate) part_labels: Option<Arc<BTreeMap<String, String>>>,
    pub(crate) class: ClassId,
    pub(crate) labels: Labels,
    /// What it claims by name, if anything.
    pub(crate) claims: Option<Arc<PodClaims>>,
    /// What selections read of its labels.
    pub(crate) profile: Profile,
    pub(crate) state: TaskState,
    pub(crate) node: Option<NodeId>,
    pub(crate) gated: bool,
    /// Its only gate is its queue's.
    pub(crate) queue_gated: bool,
    /// Its queue took it: it counts there as promised until it has a node.
    pub(crate) gate_passed: bool,
    pub(crate) best_effort: bool,
    pub(crate) priority: i32,
    pub(crate) created: TimeMs,
    /// Since when its containers run.
    pub(crate) started: Option<TimeMs>,
    /// Since when it has a node.
    pub(crate) scheduled: Option<TimeMs>,
    /// May be a victim.
    pub(crate) preemptable: bool,
    /// Never makes victims.
    pub(crate) never_preempts: bool,
    pub(crate) of_daemon_set: bool,
    /// Its own priority class, where it names one.
    pub(crate) priority_class: Option<Arc<str>>,
    /// `status.nominatedNodeName`.
    pub(crate) nominated: Option<Arc<str>>,
    /// Annotations that plugins read, where it has any.
    pub(crate) annotations: Option<Arc<BTreeMap<String, String>>>,
    /// Its labels, where it asks for shared devices: rules about sharing read them.
    pub(crate) device_labels: Option<Arc<BTreeMap<String, String>>>,
    /// How long it may take to end after it was told to, where it says so.
    pub(crate) grace_ms: Option<i64>,
    /// While Pipelined past the cycle: when the nomination expires.
    pub(crate) nominated_until: TimeMs,
    /// Makes no victims before this time: a nomination of it has expired.
    pub(crate) no_nomination_before: TimeMs,
    /// Is no victim before this time: it could not be evicted.
    pub(crate) spared_until: TimeMs,
    /// It went before a reservation, to be gone by then; only as runs of its kind were.
    pub(crate) backfilled_until: Option<TimeMs>,
    /// We are evicting it.
    pub(crate) evicting: Option<Box<Evicting>>,
    /// Counted among the binds that are on their way to its node.
    pub(crate) in_flight: bool,
    /// The number at the end of a name of at least three parts.
    pub(crate) index: Option<u32>,
    /// Binds that failed in a row.
    pub(crate) attempts: u32,
    /// Not tried before this time.
    pub(crate) not_before: TimeMs,
    pub(crate) bind_error: Option<Arc<str>>,
    /// The class of the reason last written to the pod.
    pub(crate) noticed: Option<Arc<str>>,
}

/// An eviction that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Evicting {
    /// What it is, as far as it shows.
    pub(crate) was: TaskState,
    /// The group that gets its room, `namespace/name`.
    pub(crate) beneficiary: Option<Arc<str>>,
    /// It has been told to end.
    pub(crate) confirmed: bool,
}

impl Keyed for TaskRow {
    fn found_by(&self) -> &str {
        &self.uid
    }
}

impl TaskRow {
    /// As what its queue counts it.
    pub(crate) fn state_in_queue(&self) -> TaskState {
        if self.gate_passed && self.state == TaskState::Pending { TaskState::Pipelined } else { self.state }
    }
}

/// The state that a pod's own fields tell.
pub(crate) fn state_of(facts: &PodFacts) -> TaskState {
    match facts.phase {
        PodPhase::Succeeded => TaskState::Succeeded,
        PodPhase::Failed => TaskState::Failed,
        PodPhase::Unknown => TaskState::Unknown,
        _ if facts.terminating => TaskState::Releasing,
        PodPhase::Running => TaskState::Running,
        PodPhase::Pending if facts.node.is_some() => TaskState::Bound,
        PodPhase::Pending => TaskState::Pending,
    }
}

/// The index Volcano orders pods of a job by: the last `-` part of a name with three parts or more.
pub(crate) fn index_of(name: &str) -> Option<u32> {
    let (head, last) = name.rsplit_once('-')?;
    if head.contains('-') { last.parse().ok() } else { None }
}

/// What counts for a gang's minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Only pods that have room.
    Placed,
    /// Pending pods that ask for nothing, too: they find room wherever a node takes one more pod.
    WithBestEffort,
}

crate::save::saved! {
    TaskRow { uid, namespace, name, group, role, sub_job, part_labels, class, labels, claims, profile, state, node, gated, queue_gated, gate_passed, best_effort, priority, created, started, scheduled, preemptable, never_preempts, of_daemon_set, priority_class, nominated, annotations, device_labels, grace_ms, nominated_until as "fence_until", no_nomination_before as "no_fence_before", spared_until, backfilled_until as "pass_until", evicting, in_flight, index, attempts, not_before, bind_error, noticed };
    Evicting { was, beneficiary, confirmed };
}

crate::save::saved_enum!(TaskState {
    Pending,
    Allocated,
    Pipelined,
    Binding,
    Bound,
    Running,
    Releasing,
    Succeeded,
    Failed,
    Unknown
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_the_last_of_three_parts() {
        for (name, index) in [("job-worker-12", Some(12)), ("pod-1", None), ("a-b-c", None), ("plain", None)] {
            assert_eq!(index_of(name), index, "{name}");
        }
    }
}

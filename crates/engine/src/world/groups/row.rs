//! The row of a group: what it declares, how many of its pods are in each state, and why it waits.
//!
//! Invariant: `counts`, those of the roles and of the parts, follow the tasks' states. Changed by `Tables` only.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Members;
use crate::cluster::table::Keyed;
use crate::facts::{DependsOn, GroupPhase, GroupStatus, ObjectName, OwnerFacts, SubGroupPolicy, TopologySpec};
use crate::ids::{ClassId, NamespaceId, QueueId, TimeMs};
use crate::reasons::Failure;
use crate::resource_dims::Demand;
use crate::world::sub_jobs::SubJobs;
use crate::world::tasks::{STATES, TaskState};

/// Number of tasks in each state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(crate) struct Counts([u32; STATES]);

impl Counts {
    pub(crate) fn get(&self, state: TaskState) -> u32 {
        self.0[state as usize]
    }

    pub(crate) fn add(&mut self, state: TaskState, sign: i32) {
        let cell = &mut self.0[state as usize];
        *cell = cell.checked_add_signed(sign).expect("counts follow the tasks' states");
    }

    fn sum(&self, states: &[TaskState]) -> u32 {
        states.iter().map(|state| self.get(*state)).sum()
    }

    pub(crate) fn ready(&self) -> u32 {
        use TaskState::{Allocated, Binding, Bound, Running, Succeeded};
        self.sum(&[Allocated, Binding, Bound, Running, Succeeded])
    }

    /// Pods that wait for room that is being freed.
    pub(crate) fn pipelined(&self) -> u32 {
        self.get(TaskState::Pipelined)
    }

    pub(crate) fn valid(&self) -> u32 {
        self.ready() + self.pipelined() + self.get(TaskState::Pending)
    }

    pub(crate) fn all(&self) -> u32 {
        self.0.iter().sum()
    }
}

/// What the names of groups begin with that controllers make, by the uid of the pod or of its owner.
pub(crate) const MADE_PREFIX: &str = "podgroup-";

/// The condition of a group that was admitted although no present node fits it.
pub(crate) const AWAITS_NODES: &str = "AwaitsNodes";

/// Task names told apart in one group; pods of further names count for the first.
pub(crate) const ROLES_MAX: usize = 2048;

/// The tasks of one name inside a group.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) name: Arc<str>,
    /// How many of them must start together now: `declared_min`, but 0 as long as its pods can't be there.
    pub(crate) min: u32,
    /// `minTaskMember` of this name.
    pub(crate) declared_min: u32,
    /// How many pods it will have, where they are made only when other tasks run (`dependsOn`); else 0.
    pub(crate) made_later: u32,
    pub(crate) counts: Counts,
    /// Pending ones that ask for nothing.
    pub(crate) pending_best_effort: u32,
}

impl Role {
    fn new(name: Arc<str>) -> Self {
        let counts = Counts::default();
        Self { name, min: 0, declared_min: 0, made_later: 0, counts, pending_best_effort: 0 }
    }
}

/// Tasks that a group will have, before it has pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ShapePart {
    pub(crate) role: Arc<str>,
    pub(crate) class: ClassId,
    pub(crate) count: u32,
    pub(crate) depends_on: Option<Arc<DependsOn>>,
}

/// What a group's pods have been told last.
#[derive(Debug)]
pub(crate) struct Noticed {
    /// The group's shape version then: new pods are told, too.
    pub(crate) version: u64,
    pub(crate) class: Arc<str>,
    pub(crate) at: TimeMs,
}

/// Why a group waits, as a cycle found last. What groups have in common is kept once; what else there is to say follows
/// from the group's row.
#[derive(Debug)]
pub(crate) struct StoredReasons {
    /// Since when it waits at this stage.
    pub(crate) since: TimeMs,
    pub(crate) failure: Arc<Failure>,
}

/// A group: a PodGroup, or a bare pod alone.
#[derive(Debug)]
pub struct GroupRow {
    pub(crate) namespace: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    /// `namespace/name`, by which it is found.
    pub(crate) key: Arc<str>,
    pub(crate) uid: Arc<str>,
    /// Its PodGroup has been seen.
    pub(crate) known: bool,
    /// Made for one bare pod; needs no PodGroup.
    pub(crate) of_one: bool,
    pub(crate) queue: QueueId,
    /// Nobody named a queue for the pod that it was made for: it follows the namespace's.
    pub(crate) inherits_queue: bool,
    /// How many pods must start together now: `declared_min`, without those that can't be there yet.
    pub(crate) min_member: u32,
    /// `minMember`.
    pub(crate) declared_min: u32,
    /// How many pods all its tasks will have, where some of them depend on others; else 0.
    pub(crate) planned: u32,
    pub(crate) roles: Vec<Role>,
    pub(crate) min_resources: Option<Box<Demand>>,
    pub(crate) priority_class: Arc<str>,
    pub(crate) priority: i32,
    pub(crate) created: TimeMs,
    pub(crate) owner: Option<Box<OwnerFacts>>,
    pub(crate) phase: GroupPhase,
    pub(crate) tasks: Members,
    pub(crate) counts: Counts,
    pub(crate) pending_best_effort: u32,
    /// Releasing tasks that have a node.
    pub(crate) releasing_placed: u32,
    /// Requests of its tasks that have room and keep it, nominated room included, by dimension.
    pub(crate) allocated: Vec<i64>,
    /// Annotations that plugins read.
    pub(crate) annotations: BTreeMap<String, String>,
    /// Its pods may be victims: as its PodGroup says, if it does.
    pub(crate) preemptable: Option<bool>,
    pub(crate) topology: Option<Box<TopologySpec>>,
    /// What its runs are remembered under.
    pub(crate) run_profile: Arc<str>,
    /// When it is to have ended.
    pub(crate) deadline: Option<TimeMs>,
    /// It was told that it is expected to be late.
    pub(crate) reported_late: bool,
    /// Until when what `minResources` say beyond its pods is promised to it, unless more pods come; nothing where it is spent.
    pub(crate) sum_until: Option<TimeMs>,
    /// It was admitted although no present node fits it, so that its pods are seen: it is promised nothing.
    pub(crate) awaits_nodes: bool,
    pub(crate) sub_groups: Vec<SubGroupPolicy>,
    /// The parts that these make.
    pub(crate) sub_jobs: SubJobs,
    /// The HyperNode that its PodGroup's annotation names, as seen or written last.
    pub(crate) reported_hyper_node: Option<Arc<str>>,
    /// What was written last, or seen where nothing was.
    pub(crate) emitted: Option<Arc<GroupStatus>>,
    /// Since when it holds nodes and can't start, as far as a cycle has seen.
    pub(crate) partial_since: Option<TimeMs>,
    /// Its owner has ended: it wants no more pods.
    pub(crate) ended: bool,
    /// A write of the status is in flight.
    pub(crate) writing: bool,
    pub(crate) reasons: Option<StoredReasons>,
    /// How many pods a cycle that waited for more of them found last, and when it last found more than before.
    pub(crate) arrived: (usize, TimeMs),
    pub(crate) noticed: Option<Box<Noticed>>,
    /// Counts changes of what the group asks for.
    pub(crate) shape_version: u64,
}

impl Keyed for GroupRow {
    fn found_by(&self) -> &str {
        &self.key
    }
}

impl GroupRow {
    /// `namespace/name`.
    pub(crate) fn key(&self) -> ObjectName {
        (&self.key).into()
    }

    pub(crate) fn pending(&self) -> u32 {
        self.counts.get(TaskState::Pending)
    }

    /// It has its minimum, or others are leaving for it.
    pub(crate) fn is_coming(&self) -> bool {
        self.counts.ready() + self.counts.pipelined() >= self.min_member.max(1)
    }

    /// It has pods on nodes.
    pub(crate) fn has_placed(&self) -> bool {
        use TaskState::{Binding, Bound, Running};
        [Binding, Bound, Running].into_iter().any(|state| self.counts.get(state) > 0)
    }

    /// Some of its pods are bound, none has ever run, and those that are bound are too few to start. What a cycle only
    /// tries, and binds in flight, don't count.
    pub(super) fn holds_in_vain(&self) -> bool {
        use TaskState::{Bound, Failed, Releasing, Running, Succeeded, Unknown};
        let any_ran =
            [Running, Succeeded, Failed, Releasing, Unknown].into_iter().any(|state| self.counts.get(state) > 0);
        let bound = self.counts.get(Bound);
        self.exists() && !any_ran && bound > 0 && bound < self.min_member
    }

    /// It may have pods placed: its PodGroup is there, or it needs none.
    pub(crate) fn exists(&self) -> bool {
        self.known || self.of_one
    }

    /// Role minima count only where together they don't exceed the group's minimum (as in Volcano).
    pub(crate) fn role_minima_apply(&self) -> bool {
        minima_apply(self.min_member, self.roles.iter().map(|role| role.min))
    }

    pub(crate) fn role(&mut self, name: &Arc<str>) -> u32 {
        if let Some(at) = self.roles.iter().position(|role| role.name == *name) {
            return u32::try_from(at).expect("a group has fewer than 2^32 roles");
        }
        if self.roles.len() > ROLES_MAX {
            return 0;
        }
        // Most groups have one.
        if self.roles.is_empty() {
            self.roles.reserve_exact(1);
        }
        self.roles.push(Role::new(name.clone()));
        u32::try_from(self.roles.len() - 1).expect("a group has fewer than 2^32 roles")
    }
}

/// Whether these minima of roles count beside the group's.
pub(crate) fn minima_apply(group: u32, roles: impl Iterator<Item = u32>) -> bool {
    let total: u64 = roles.map(u64::from).sum();
    total > 0 && u64::from(group) >= total
}

crate::save::saved! {
    Role { name, min, declared_min, made_later, counts, pending_best_effort };
    ShapePart { role, class, count, depends_on };
    Noticed { version, class, at };
    StoredReasons as "Kept" { since, failure };
    GroupRow { namespace, namespace_id, key, uid, known, of_one, queue, inherits_queue, min_member, declared_min, planned, roles, min_resources, priority_class, priority, created, owner, phase, tasks, counts, pending_best_effort, releasing_placed, allocated, annotations, preemptable, topology, run_profile, deadline, reported_late as "told_late", sum_until, awaits_nodes, sub_groups, sub_jobs, reported_hyper_node as "told_hyper_node", emitted, partial_since as "half_placed_since", ended, writing, reasons, arrived, noticed, shape_version };
}

crate::save::saved_inside!(Counts);

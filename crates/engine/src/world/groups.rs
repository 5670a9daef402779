//! Groups (PodGroups, and groups of one for bare pods): minima, counts by state, shape, phase, reasons.
//! Counts follow the tasks' states exactly; only `Tables` changes them. A group that only pods name is a placeholder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::cluster::table::key_of;
use crate::cluster::table::{Keyed, Table};
use crate::facts::{DependsOn, GroupPhase, GroupStatus, OwnerFacts, SubGroupPolicy, TopologySpec};
use crate::ids::{ClassId, GroupId, NamespaceId, QueueId, TimeMs};
use crate::reasons::Failure;
use crate::resource_dims::Demand;
use crate::world::sub_jobs::SubJobs;
use crate::world::tasks::{STATES, TaskState};

pub(crate) mod marks;
mod members;

pub(crate) use members::Members;

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
    /// Requests of its tasks that have room and keep it, fences included, by dimension.
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
    pub(crate) told_late: bool,
    /// Until when what `minResources` say beyond its pods is promised to it, unless more pods come; nothing where it is spent.
    pub(crate) sum_until: Option<TimeMs>,
    /// It was admitted although no present node fits it, so that its pods are seen: it is promised nothing.
    pub(crate) awaits_nodes: bool,
    pub(crate) sub_groups: Vec<SubGroupPolicy>,
    /// The parts that these make.
    pub(crate) sub_jobs: SubJobs,
    /// The HyperNode that its PodGroup's annotation names, as seen or written last.
    pub(crate) told_hyper_node: Option<Arc<str>>,
    /// What was written last, or seen where nothing was.
    pub(crate) emitted: Option<Arc<GroupStatus>>,
    /// Since when it holds nodes and can't start, as far as a cycle has seen.
    pub(crate) half_placed_since: Option<TimeMs>,
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
    pub(crate) fn key(&self) -> String {
        self.key.to_string()
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
    fn holds_in_vain(&self) -> bool {
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

fn remember<T: Clone + Eq + Hash>(known: &mut FxHashSet<T>, one: T) -> T {
    if known.len() >= SHARED_MAX {
        known.clear();
    }
    known.insert(one.clone());
    one
}

/// By what groups are found whose owner has a name.
fn owned_key(namespace: &str, owner: &str) -> u32 {
    let mut hasher = FxHasher::default();
    (namespace, owner).hash(&mut hasher);
    u32::try_from(hasher.finish() >> 32).expect("half of the bits")
}

#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) table: Table<GroupId, GroupRow>,
    /// Groups with pending tasks, or in phase Pending or Inqueue, whose owner has not ended.
    pub(crate) waiting: BTreeSet<GroupId>,
    /// Gangs that hold nodes and can't start.
    pub(crate) half_placed: BTreeSet<GroupId>,
    /// Of those that wait, the ones that are not admitted.
    pub(crate) unadmitted: BTreeSet<GroupId>,
    /// Groups with pending pods that ask for nothing.
    pub(crate) best_effort: BTreeSet<GroupId>,
    /// Groups with a deadline that are there and have not ended, the nearest first.
    pub(crate) deadlines: BTreeSet<(TimeMs, GroupId)>,
    /// Groups whose sums are promised, by when they are spent.
    pub(crate) sums: BTreeSet<(TimeMs, GroupId)>,
    /// Groups that wait for nodes to be added.
    pub(crate) await_nodes: BTreeSet<GroupId>,
    /// The version of what nodes offer for which it was looked whether they fit.
    pub(crate) looked_for_nodes: u64,
    /// How many groups of a queue were admitted and have not ended. Pods that need no PodGroup are none, nor are groups that wait
    /// for nodes.
    admitted: FxHashMap<QueueId, u32>,
    /// Groups by their namespaces' and owners' names, of which there is a part of a hash.
    owned: BTreeSet<(u32, GroupId)>,
    /// When to tell the pods of groups that were not there when they were looked at; by time.
    pub(crate) absent: VecDeque<(TimeMs, GroupId)>,
    /// Groups whose status may have changed since it was last worked out; each once.
    dirty: Vec<GroupId>,
    /// Groups whose place in the backlog may have changed; each once.
    moved: Vec<GroupId>,
    /// Groups whose promises may have changed since they were settled; each once.
    unsettled: Vec<GroupId>,
    marks: Vec<Marks>,
    /// Statuses, names and tasks that were seen lately: groups that are alike share them.
    statuses: FxHashSet<Arc<GroupStatus>>,
    names: FxHashSet<Arc<str>>,
    parts: FxHashSet<Arc<Vec<ShapePart>>>,
}

/// Of what is shared so many of each are remembered.
const SHARED_MAX: usize = 8_192;

/// What a group is in, so that a change need not look.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    dirty: bool,
    moved: bool,
    unsettled: bool,
    waiting: bool,
    unadmitted: bool,
    best_effort: bool,
    half_placed: bool,
    /// Counted as admitted there.
    admitted: Option<QueueId>,
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            waiting: BTreeSet::new(),
            unadmitted: BTreeSet::new(),
            half_placed: BTreeSet::new(),
            best_effort: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            sums: BTreeSet::new(),
            await_nodes: BTreeSet::new(),
            looked_for_nodes: 0,
            admitted: FxHashMap::default(),
            owned: BTreeSet::new(),
            absent: VecDeque::new(),
            dirty: Vec::new(),
            moved: Vec::new(),
            unsettled: Vec::new(),
            marks: Vec::new(),
            statuses: FxHashSet::default(),
            names: FxHashSet::default(),
            parts: FxHashSet::default(),
        }
    }

    pub(crate) fn row(&self, group: GroupId) -> &GroupRow {
        self.table.row(group.index())
    }

    pub(crate) fn row_mut(&mut self, group: GroupId) -> &mut GroupRow {
        self.table.row_mut(group.index())
    }

    /// Makes a placeholder of that key, which there is none of yet.
    pub(crate) fn insert(
        &mut self,
        namespace_id: NamespaceId,
        namespace: Arc<str>,
        key: Arc<str>,
        queue: QueueId,
    ) -> GroupId {
        self.table.insert(GroupRow {
            namespace,
            namespace_id,
            key,
            uid: Arc::default(),
            known: false,
            of_one: false,
            queue,
            inherits_queue: false,
            min_member: 0,
            declared_min: 0,
            planned: 0,
            roles: Vec::new(),
            min_resources: None,
            priority_class: Arc::default(),
            priority: 0,
            created: TimeMs::default(),
            owner: None,
            phase: GroupPhase::Pending,
            tasks: Members::default(),
            counts: Counts::default(),
            pending_best_effort: 0,
            releasing_placed: 0,
            allocated: Vec::new(),
            annotations: BTreeMap::new(),
            preemptable: None,
            topology: None,
            run_profile: Arc::default(),
            deadline: None,
            told_late: false,
            sum_until: None,
            awaits_nodes: false,
            sub_groups: Vec::new(),
            sub_jobs: SubJobs::default(),
            told_hyper_node: None,
            emitted: None,
            half_placed_since: None,
            ended: false,
            writing: false,
            reasons: None,
            arrived: (0, TimeMs(0)),
            noticed: None,
            shape_version: 0,
        })
    }

    /// Whether it is among those that wait.
    pub(crate) fn is_waiting(&self, group: GroupId) -> bool {
        self.marks.get(group.index()).is_some_and(|marks| marks.waiting)
    }

    /// Puts the group in or out of the waiting ones, and marks its status for review.
    pub(crate) fn refresh(&mut self, group: GroupId) {
        let row = self.row(group);
        let early = matches!(row.phase, GroupPhase::Pending | GroupPhase::Inqueue);
        let waits = row.exists() && !row.ended && (row.pending() + row.counts.pipelined() > 0 || early);
        let unadmitted = waits && row.phase == GroupPhase::Pending;
        let best_effort = waits && row.pending_best_effort > 0;
        let half_placed = row.holds_in_vain();
        let runs = matches!(row.phase, GroupPhase::Inqueue | GroupPhase::Running | GroupPhase::Unknown);
        let admitted = (row.known && !row.of_one && !row.ended && !row.awaits_nodes && runs).then_some(row.queue);
        self.mark(group, waits, unadmitted, best_effort);
        self.mark_half_placed(group, half_placed);
        self.mark_admitted(group, admitted);
    }

    /// How many groups of the queue were admitted and have not ended.
    pub(crate) fn admitted_to(&self, queue: QueueId) -> u32 {
        self.admitted.get(&queue).copied().unwrap_or(0)
    }

    fn mark_admitted(&mut self, group: GroupId, queue: Option<QueueId>) {
        let old = std::mem::replace(&mut self.marks[group.index()].admitted, queue);
        if old == queue {
            return;
        }
        if let Some(old) = old {
            let count = self.admitted.entry(old).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.admitted.remove(&old);
            }
        }
        if let Some(queue) = queue {
            *self.admitted.entry(queue).or_default() += 1;
        }
    }

    fn mark_half_placed(&mut self, group: GroupId, half_placed: bool) {
        if std::mem::replace(&mut self.marks[group.index()].half_placed, half_placed) == half_placed {
            return;
        }
        if half_placed {
            self.row_mut(group).half_placed_since = None;
            self.half_placed.insert(group);
        } else {
            self.half_placed.remove(&group);
        }
    }

    fn mark(&mut self, group: GroupId, waiting: bool, unadmitted: bool, best_effort: bool) {
        if self.marks.len() <= group.index() {
            self.marks.resize(group.index() + 1, Marks::default());
        }
        let marks = &mut self.marks[group.index()];
        let keep = |set: &mut BTreeSet<GroupId>, is: &mut bool, wanted: bool| {
            if std::mem::replace(is, wanted) != wanted {
                if wanted {
                    set.insert(group)
                } else {
                    set.remove(&group)
                };
            }
        };
        keep(&mut self.waiting, &mut marks.waiting, waiting);
        keep(&mut self.unadmitted, &mut marks.unadmitted, unadmitted);
        keep(&mut self.best_effort, &mut marks.best_effort, best_effort);
        for (list, is) in [
            (&mut self.dirty, &mut marks.dirty),
            (&mut self.moved, &mut marks.moved),
            (&mut self.unsettled, &mut marks.unsettled),
        ] {
            if !std::mem::replace(is, true) {
                list.push(group);
            }
        }
    }

    /// When the group is to have ended, from now on.
    pub(crate) fn set_deadline(&mut self, group: GroupId, deadline: Option<TimeMs>) {
        let old = std::mem::replace(&mut self.row_mut(group).deadline, deadline);
        if old != deadline {
            old.map(|old| self.deadlines.remove(&(old, group)));
            deadline.map(|deadline| self.deadlines.insert((deadline, group)));
            self.row_mut(group).told_late = false;
        }
    }

    /// Whether the group waits for nodes to be added, from now on.
    pub(crate) fn set_awaits_nodes(&mut self, group: GroupId, awaits: bool) {
        if std::mem::replace(&mut self.row_mut(group).awaits_nodes, awaits) == awaits {
            return;
        }
        if awaits {
            self.await_nodes.insert(group);
            // It is looked at once, whatever is known of nodes.
            self.looked_for_nodes = 0;
        } else {
            self.await_nodes.remove(&group);
        }
        self.refresh(group);
    }

    /// The status, shared with whoever has the same.
    pub(crate) fn share(&mut self, status: &GroupStatus) -> Arc<GroupStatus> {
        let known = self.statuses.get(status).cloned();
        known.unwrap_or_else(|| remember(&mut self.statuses, Arc::new(status.clone())))
    }

    /// A name that many have.
    pub(crate) fn share_name(&mut self, name: &str) -> Arc<str> {
        if name.is_empty() {
            return Arc::default();
        }
        let known = self.names.get(name).cloned();
        known.unwrap_or_else(|| remember(&mut self.names, name.into()))
    }

    /// Tasks that many have.
    pub(crate) fn share_parts(&mut self, parts: Vec<ShapePart>) -> Arc<Vec<ShapePart>> {
        let known = self.parts.get(&parts).cloned();
        known.unwrap_or_else(|| remember(&mut self.parts, Arc::new(parts)))
    }

    /// Who owns the group, from now on; gives who did.
    pub(crate) fn set_owner(&mut self, group: GroupId, owner: Option<OwnerFacts>) -> Option<OwnerFacts> {
        let row = self.table.row_mut(group.index());
        let key = |owner: &OwnerFacts| (owned_key(&row.namespace, &owner.name), group);
        let (old, new) = (row.owner.as_deref().map(key), owner.as_ref().map(key));
        if old != new {
            old.map(|old| self.owned.remove(&old));
            new.map(|new| self.owned.insert(new));
        }
        std::mem::replace(&mut row.owner, owner.map(Box::new)).map(|owner| *owner)
    }

    /// The group of that name, and those whose owner has it.
    pub(crate) fn named(&self, namespace: &str, name: &str) -> Vec<GroupId> {
        let key = owned_key(namespace, name);
        let owned = self.owned.range((key, GroupId(0))..=(key, GroupId(u32::MAX))).map(|(_, group)| *group);
        let is_owned = |group: &GroupId| {
            let row = self.row(*group);
            *row.namespace == *namespace && row.owner.as_ref().is_some_and(|owner| owner.name == name)
        };
        let mut found: Vec<GroupId> = owned.filter(is_owned).collect();
        found.extend(self.table.find(&key_of(namespace, name)));
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The group is gone.
    pub(crate) fn forget(&mut self, group: GroupId) {
        self.mark(group, false, false, false);
        self.mark_half_placed(group, false);
        self.mark_admitted(group, None);
    }

    /// Its status has to be looked at again.
    pub(crate) fn review_again(&mut self, group: GroupId) {
        self.refresh(group);
    }

    /// The groups to be reviewed, none twice; some may be gone. They count as reviewed.
    pub(crate) fn take_dirty(&mut self) -> Vec<GroupId> {
        let dirty = std::mem::take(&mut self.dirty);
        dirty.iter().for_each(|group| self.marks[group.index()].dirty = false);
        dirty
    }

    /// The groups whose promises may have changed, none twice; some may be gone.
    pub(crate) fn take_unsettled(&mut self) -> Vec<GroupId> {
        let unsettled = std::mem::take(&mut self.unsettled);
        unsettled.iter().for_each(|group| self.marks[group.index()].unsettled = false);
        unsettled
    }

    /// The groups whose place in the backlog may have changed, none twice; some may be gone.
    pub(crate) fn take_moved(&mut self) -> Vec<GroupId> {
        let moved = std::mem::take(&mut self.moved);
        moved.iter().for_each(|group| self.marks[group.index()].moved = false);
        moved
    }
}

crate::save::saved! {
    Role { name, min, declared_min, made_later, counts, pending_best_effort };
    ShapePart { role, class, count, depends_on };
    Noticed { version, class, at };
    StoredReasons as "Kept" { since, failure };
    GroupRow { namespace, namespace_id, key, uid, known, of_one, queue, inherits_queue, min_member, declared_min, planned, roles, min_resources, priority_class, priority, created, owner, phase, tasks, counts, pending_best_effort, releasing_placed, allocated, annotations, preemptable, topology, run_profile, deadline, told_late, sum_until, awaits_nodes, sub_groups, sub_jobs, told_hyper_node, emitted, half_placed_since, ended, writing, reasons, arrived, noticed, shape_version };
    Groups { table, waiting, half_placed, unadmitted, best_effort, deadlines, sums, await_nodes, looked_for_nodes, admitted, owned, absent, dirty, moved, unsettled, marks } except { statuses: FxHashSet::default(), names: FxHashSet::default(), parts: FxHashSet::default() };
    Marks { dirty, moved, unsettled, waiting, unadmitted, best_effort, half_placed, admitted };
}

crate::save::saved_inside!(Counts);

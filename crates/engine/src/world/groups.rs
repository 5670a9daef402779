//! Groups (PodGroups, and groups of one for bare pods): minima, counts by state, shape, phase, reasons.
//! Counts follow the tasks' states exactly; only `Tables` changes them. A group that only pods name is a placeholder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::cluster::table::Table;
use crate::cluster::table::key_of;
use crate::facts::{GroupPhase, GroupStatus, OwnerFacts};
use crate::ids::{GroupId, NamespaceId, QueueId, TimeMs};
use crate::world::sub_jobs::SubJobs;

mod members;
mod row;

pub(crate) use members::Members;
pub use row::GroupRow;
pub(crate) use row::{
    AWAITS_NODES, Counts, MADE_PREFIX, Noticed, ROLES_MAX, Role, ShapePart, StoredReasons, minima_apply,
};

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
    pub(crate) partial_gangs: BTreeSet<GroupId>,
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
    /// Groups whose place in the pending index may have changed; each once.
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
    partial_gangs: bool,
    /// Counted as admitted there.
    admitted: Option<QueueId>,
}

/// How many groups each list of those to be looked at again had, before a trial that was only for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marked([usize; 3]);

impl Groups {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            waiting: BTreeSet::new(),
            unadmitted: BTreeSet::new(),
            partial_gangs: BTreeSet::new(),
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
            reported_late: false,
            sum_until: None,
            awaits_nodes: false,
            sub_groups: Vec::new(),
            sub_jobs: SubJobs::default(),
            reported_hyper_node: None,
            emitted: None,
            partial_since: None,
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
        let partial_gangs = row.holds_in_vain();
        let runs = matches!(row.phase, GroupPhase::Inqueue | GroupPhase::Running | GroupPhase::Unknown);
        let admitted = (row.known && !row.of_one && !row.ended && !row.awaits_nodes && runs).then_some(row.queue);
        self.mark(group, waits, unadmitted, best_effort);
        self.mark_partial(group, partial_gangs);
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

    fn mark_partial(&mut self, group: GroupId, partial_gangs: bool) {
        if std::mem::replace(&mut self.marks[group.index()].partial_gangs, partial_gangs) == partial_gangs {
            return;
        }
        if partial_gangs {
            self.row_mut(group).partial_since = None;
            self.partial_gangs.insert(group);
        } else {
            self.partial_gangs.remove(&group);
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
            self.row_mut(group).reported_late = false;
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
        self.mark_partial(group, false);
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

    /// The groups whose place in the pending index may have changed, none twice; some may be gone.
    pub(crate) fn take_moved(&mut self) -> Vec<GroupId> {
        let moved = std::mem::take(&mut self.moved);
        moved.iter().for_each(|group| self.marks[group.index()].moved = false);
        moved
    }

    pub(crate) fn marks(&self) -> Marked {
        Marked([self.dirty.len(), self.moved.len(), self.unsettled.len()])
    }

    /// Forgets what was marked since; everything else of the groups was rolled back. O(that).
    pub(crate) fn unmark(&mut self, Marked([dirty, moved, unsettled]): Marked) {
        for group in self.dirty.drain(dirty..) {
            self.marks[group.index()].dirty = false;
        }
        for group in self.moved.drain(moved..) {
            self.marks[group.index()].moved = false;
        }
        for group in self.unsettled.drain(unsettled..) {
            self.marks[group.index()].unsettled = false;
        }
    }
}

crate::save::saved! {
    Groups { table, waiting, partial_gangs as "half_placed", unadmitted, best_effort, deadlines, sums, await_nodes, looked_for_nodes, admitted, owned, absent, dirty, moved, unsettled, marks } except { statuses: FxHashSet::default(), names: FxHashSet::default(), parts: FxHashSet::default() };
    Marks { dirty, moved, unsettled, waiting, unadmitted, best_effort, partial_gangs as "half_placed", admitted };
}

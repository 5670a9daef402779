//! Whose turn it is: down the tree of queues, each time to the first with work; in a queue to the first namespace;
//! there to the first group. After its turn everything on the way finds its new place: only what had the turn has
//! changed its standing, so an insertion by binary search keeps the order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use crate::ids::{GroupId, NamespaceId, QueueId};
use crate::policy::{NamespaceHead, Policy, QueueTurn};
use crate::search::pending::enqueue_candidates::{BatchId, EnqueueCandidates};
use crate::search::pending::ordered::{Cursor, Ordered};
use crate::search::pending::{PendingIndex, TaskClassKey};
use crate::share;
use crate::world::namespace_shares::Counted;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Groups that are alike, in lists.
pub(crate) trait Alike {
    /// What tells the lists apart.
    type Key: Copy;

    /// One of them; nothing if it is gone.
    fn groups(&self, kind: Self::Key) -> Option<&Ordered>;
}

impl Alike for PendingIndex {
    type Key = TaskClassKey;

    fn groups(&self, kind: TaskClassKey) -> Option<&Ordered> {
        self.by_task_class.get(&kind).map(|task_class| &task_class.groups)
    }
}

impl Alike for EnqueueCandidates {
    type Key = BatchId;

    fn groups(&self, batch: BatchId) -> Option<&Ordered> {
        Some(&self.batch(batch).groups)
    }
}

/// What can have a turn.
#[derive(Debug, Clone, Copy)]
enum Entry<K> {
    Group(GroupId),
    /// The next group of those that are alike.
    Alike {
        kind: K,
        cursor: Cursor,
        head: GroupId,
    },
}

impl<K> Entry<K> {
    fn head(&self) -> GroupId {
        match self {
            Self::Group(head) | Self::Alike { head, .. } => *head,
        }
    }
}

/// The first group of some that are alike, by what they are found, and whose they are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<K> {
    pub(crate) kind: K,
    pub(crate) queue: QueueId,
    pub(crate) namespace: NamespaceId,
    pub(crate) group: GroupId,
}

/// A namespace's work in one queue. The first last.
#[derive(Debug)]
struct NamespaceEntries<K> {
    namespace: NamespaceId,
    entries: VecDeque<Entry<K>>,
}

impl<K> NamespaceEntries<K> {
    fn new(tables: &Tables, policy: &Policy, namespace: NamespaceId, mut entries: Vec<Entry<K>>) -> Self {
        entries.sort_by(|left, right| policy.job_order(tables, right.head(), left.head()));
        Self { namespace, entries: entries.into() }
    }

    /// Puts an entry in its place. The next group of a task class mostly comes after all others.
    fn insert(&mut self, tables: &Tables, policy: &Policy, entry: Entry<K>) {
        let comes_after = |other: &Entry<K>| policy.job_order(tables, other.head(), entry.head()).is_gt();
        match self.entries.front() {
            Some(last) if comes_after(last) => {
                let place = self.entries.partition_point(comes_after);
                self.entries.insert(place, entry);
            }
            _ => self.entries.push_front(entry),
        }
    }

    fn compare(&self, tables: &Tables, policy: &Policy, queue: QueueId, counted: Counted, other: &Self) -> Ordering {
        match (self.entries.back(), other.entries.back()) {
            (Some(mine), Some(others)) => {
                let mine = NamespaceHead { namespace: self.namespace, group: mine.head() };
                let others = NamespaceHead { namespace: other.namespace, group: others.head() };
                policy.namespace_order(tables, queue, mine, others, counted)
            }
            // One without work does not stay.
            (mine, others) => others.is_some().cmp(&mine.is_some()),
        }
    }
}

/// A queue and what is below it, the first last. Number 0 stands above all.
#[derive(Debug)]
struct Branch<K> {
    queue: Option<QueueId>,
    children: Vec<usize>,
    namespaces: Vec<NamespaceEntries<K>>,
    /// How much its next group asks for, where that matters; else 0.
    size: i64,
}

impl<K> Branch<K> {
    fn new(queue: Option<QueueId>) -> Self {
        Self { queue, children: Vec::new(), namespaces: Vec::new(), size: 0 }
    }

    fn head(&self) -> Option<GroupId> {
        Some(self.namespaces.last()?.entries.back()?.head())
    }
}

/// The largest share of all nodes that what waits of a group asks for in any resource, in parts per billion.
fn size(tables: &Tables, group: GroupId) -> i64 {
    let tasks = tables.groups.row(group).tasks.iter().map(|task| tables.task(*task));
    let mut asked = Vec::new();
    for task in tasks.filter(|task| task.state == TaskState::Pending) {
        tables.classes.row(task.class).demand.add_to(&mut asked, 1);
    }
    share::dominant(&asked, &tables.nodes.total)
}

/// A group whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn<K = TaskClassKey> {
    pub(crate) group: GroupId,
    pub(crate) queue: QueueId,
    /// The task class that it comes from.
    pub(crate) kind: Option<K>,
    entry: Entry<K>,
}

/// What became of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It wants another one.
    Again,
    /// It has what it wants.
    Done,
    /// It can't have it in this action, nor can those alike.
    Stuck,
}

pub(crate) struct FairShareOrder<K = TaskClassKey> {
    branches: Vec<Branch<K>>,
    /// The branches from the top to the queue whose turn it is.
    path: Vec<usize>,
    /// What tells whose turn it is among the namespaces of a queue.
    counted: Counted,
}

impl FairShareOrder {
    /// Over all of the groups of one task class, and `groups`.
    pub(crate) fn new(
        tables: &Tables,
        policy: &Policy,
        pending_index: Option<&PendingIndex>,
        groups: &[GroupId],
    ) -> Self {
        let heads = pending_index.into_iter().flat_map(|pending_index| &pending_index.by_task_class).filter_map(
            |(kind, task_class)| {
                let group = task_class.groups.at(Cursor::default())?;
                Some(Head { kind: *kind, queue: kind.queue, namespace: kind.namespace, group })
            },
        );
        Self::over(tables, policy, Counted::Usage, heads, groups)
    }
}

impl<K: Copy> FairShareOrder<K> {
    /// Over these lists of those that are alike, each with its queue, namespace and first group, and `groups`.
    pub(crate) fn over(
        tables: &Tables,
        policy: &Policy,
        counted: Counted,
        heads: impl IntoIterator<Item = Head<K>>,
        groups: &[GroupId],
    ) -> Self {
        let mut by_queue: BTreeMap<QueueId, BTreeMap<NamespaceId, Vec<Entry<K>>>> = BTreeMap::new();
        let namespace_of = |queue: QueueId, namespace: NamespaceId| {
            if policy.shares_among_namespaces(tables, queue) { namespace } else { NamespaceId::from(0) }
        };
        for Head { kind, queue, namespace, group: head } in heads {
            let namespaces = by_queue.entry(queue).or_default();
            let entry = Entry::Alike { kind, cursor: Cursor::default(), head };
            namespaces.entry(namespace_of(queue, namespace)).or_default().push(entry);
        }
        for group in groups {
            let row = tables.groups.row(*group);
            let namespaces = by_queue.entry(row.queue).or_default();
            namespaces.entry(namespace_of(row.queue, row.namespace_id)).or_default().push(Entry::Group(*group));
        }
        let mut walk = Self { branches: vec![Branch::new(None)], path: Vec::new(), counted };
        let mut planted: BTreeMap<QueueId, usize> = BTreeMap::new();
        for (queue, namespaces) in by_queue {
            let mut namespaces: Vec<NamespaceEntries<K>> = namespaces
                .into_iter()
                .map(|(namespace, entries)| NamespaceEntries::new(tables, policy, namespace, entries))
                .collect();
            namespaces.sort_by(|left, right| right.compare(tables, policy, queue, counted, left));
            let branch = walk.plant(tables, policy, &mut planted, queue);
            walk.branches[branch].namespaces = namespaces;
        }
        walk.sort(tables, policy, 0);
        walk
    }

    /// The branch of a queue, and those above it where queues are asked along their tree.
    fn plant(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        planted: &mut BTreeMap<QueueId, usize>,
        queue: QueueId,
    ) -> usize {
        if let Some(branch) = planted.get(&queue) {
            return *branch;
        }
        let parent = match tables.queues.row(queue).ancestors.first() {
            Some(above) if policy.follows_queue_tree() => self.plant(tables, policy, planted, *above),
            _ => 0,
        };
        self.branches.push(Branch::new(Some(queue)));
        let branch = self.branches.len() - 1;
        self.branches[parent].children.push(branch);
        planted.insert(queue, branch);
        branch
    }

    fn sort(&mut self, tables: &Tables, policy: &Policy, branch: usize) {
        let mut children = std::mem::take(&mut self.branches[branch].children);
        for child in &children {
            self.sort(tables, policy, *child);
        }
        children.sort_by(|left, right| self.compare(tables, policy, *right, *left));
        self.branches[branch].children = children;
        self.measure(tables, policy, branch);
    }

    /// Notes how much the next group of a branch asks for, once what is below the branch stands in order.
    fn measure(&mut self, tables: &Tables, policy: &Policy, branch: usize) {
        if policy.large_first {
            let below = self.branches[branch].children.last().map(|child| self.branches[*child].size);
            let head = self.branches[branch].head().map(|head| size(tables, head));
            self.branches[branch].size = head.or(below).unwrap_or(0);
        }
    }

    fn compare(&self, tables: &Tables, policy: &Policy, left: usize, right: usize) -> Ordering {
        let (left, right) = (&self.branches[left], &self.branches[right]);
        match (left.queue, right.queue) {
            (Some(mine), Some(theirs)) => policy.turn_order(
                tables,
                QueueTurn { queue: mine, size: left.size },
                QueueTurn { queue: theirs, size: right.size },
            ),
            _ => Ordering::Equal,
        }
    }

    /// The group whose turn it is. Every `pop` is followed by a `put_back`, or by `drop_queue`.
    pub(crate) fn pop(&mut self) -> Option<Turn<K>> {
        self.path.clear();
        self.path.push(0);
        loop {
            let at = *self.path.last()?;
            let branch = &mut self.branches[at];
            if let (Some(queue), Some(work)) = (branch.queue, branch.namespaces.last_mut()) {
                match work.entries.pop_back() {
                    Some(entry) => {
                        let kind = match entry {
                            Entry::Alike { kind, .. } => Some(kind),
                            Entry::Group(_) => None,
                        };
                        return Some(Turn { group: entry.head(), queue, kind, entry });
                    }
                    None => drop(branch.namespaces.pop()),
                }
            } else if let Some(child) = branch.children.last() {
                self.path.push(*child);
            } else {
                // Nothing is left here.
                self.path.pop();
                let above = *self.path.last()?;
                self.branches[above].children.pop();
            }
        }
    }

    /// What the turn that was popped last came to.
    pub(crate) fn put_back(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        alike: &impl Alike<Key = K>,
        turn: Turn<K>,
        outcome: Outcome,
    ) {
        let counted = self.counted;
        let at = *self.path.last().expect("a turn was popped");
        let namespaces = &mut self.branches[at].namespaces;
        let mut work = namespaces.pop().expect("the turn came from the last");
        if let Entry::Alike { kind, cursor, .. } = turn.entry
            && outcome != Outcome::Stuck
            && let Some(groups) = alike.groups(kind)
        {
            let cursor = groups.after(cursor);
            if let Some(head) = groups.at(cursor) {
                work.insert(tables, policy, Entry::Alike { kind, cursor, head });
            }
        }
        if outcome == Outcome::Again {
            work.insert(tables, policy, Entry::Group(turn.group));
        }
        if !work.entries.is_empty() {
            let after = |other: &NamespaceEntries<K>| other.compare(tables, policy, turn.queue, counted, &work).is_gt();
            let place = namespaces.partition_point(after);
            namespaces.insert(place, work);
        }
        // What was stuck has changed nobody's standing, but another group is next.
        if outcome != Outcome::Stuck || policy.large_first {
            self.reorder(tables, policy);
        }
    }

    /// Gives those of a list that come after the turn that was popped last another one: they had none since their first
    /// was stuck.
    pub(crate) fn revive(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        alike: &impl Alike<Key = K>,
        turn: &Turn<K>,
        kind: K,
        namespace: NamespaceId,
    ) {
        let counted = self.counted;
        let namespace_of = |namespace| {
            if policy.shares_among_namespaces(tables, turn.queue) { namespace } else { NamespaceId::from(0) }
        };
        let namespace = namespace_of(namespace);
        let own = namespace_of(tables.groups.row(turn.group).namespace_id);
        let own = NamespaceHead { namespace: own, group: turn.group };
        let order = |group| {
            let other = NamespaceHead { namespace, group };
            policy.namespace_order(tables, turn.queue, other, own, counted)
        };
        let Some(groups) = alike.groups(kind) else { return };
        let cursor = groups.first(|other| order(other).is_gt());
        let Some(head) = groups.at(cursor) else { return };
        let at = *self.path.last().expect("a turn was popped");
        let namespaces = &mut self.branches[at].namespaces;
        let popped = namespaces.pop().expect("the turn came from the last");
        let entry = Entry::Alike { kind, cursor, head };
        let mut work = if popped.namespace == namespace {
            let mut popped = popped;
            popped.insert(tables, policy, entry);
            return namespaces.push(popped);
        } else {
            let place = namespaces.iter().position(|work| work.namespace == namespace);
            place.map_or_else(
                || NamespaceEntries { namespace, entries: VecDeque::new() },
                |place| namespaces.remove(place),
            )
        };
        work.insert(tables, policy, entry);
        let after = |other: &NamespaceEntries<K>| other.compare(tables, policy, turn.queue, counted, &work).is_gt();
        let place = namespaces.partition_point(after);
        namespaces.insert(place, work);
        namespaces.push(popped);
    }

    /// Finds the new places of the branches that had the turn, the lowest first.
    fn reorder(&mut self, tables: &Tables, policy: &Policy) {
        for depth in (1..self.path.len()).rev() {
            let (above, branch) = (self.path[depth - 1], self.path[depth]);
            self.measure(tables, policy, branch);
            let mut children = std::mem::take(&mut self.branches[above].children);
            if policy.reorders_queues() {
                children.sort_by(|left, right| self.compare(tables, policy, *right, *left));
                self.branches[above].children = children;
                continue;
            }
            children.pop();
            let place = children.partition_point(|other| self.compare(tables, policy, *other, branch).is_gt());
            children.insert(place, branch);
            self.branches[above].children = children;
        }
    }

    /// Drops all that is left of the queue whose turn it is; gives the groups and task classes that lose their turn.
    pub(crate) fn drop_queue(&mut self, turn: Turn<K>) -> (Vec<GroupId>, Vec<K>) {
        let at = *self.path.last().expect("a turn was popped");
        let namespaces = std::mem::take(&mut self.branches[at].namespaces);
        let left = namespaces.into_iter().flat_map(|work| work.entries).chain([turn.entry]);
        let (mut groups, mut kinds) = (Vec::new(), Vec::new());
        for entry in left {
            match entry {
                Entry::Group(group) => groups.push(group),
                Entry::Alike { kind, .. } => kinds.push(kind),
            }
        }
        (groups, kinds)
    }
}

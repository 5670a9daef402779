//! Which pods leave one node for one pod, worked out without touching more than has to be tried.
//!
//! Invariant: the victims found are all needed: without any one of them the pod would not fit, its queue would not
//! allow it, or a check would fail. Victims that don't run yet go first, then Volcano's order. Pods of other
//! schedulers and of DaemonSets are never candidates. Called by preempt and reclaim through `candidates`.

use std::cmp::Ordering;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::reclaim_progress::Taking;
use super::unreclaimable::UnreclaimableNodes;
use super::whole_gangs;
use crate::ids::{ClassId, DimId, GroupId, NodeId, QueueId, TaskId, TimeMs};
use crate::policy::Allowed;
use crate::queue_limit;
use crate::resource_dims::Demand;
use crate::session::Session;
use crate::world::groups::GroupRow;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Whose pods may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum From {
    /// Other groups of the same queue.
    Queue,
    Group,
    OtherQueues,
}

/// A pod that wants room.
#[derive(Debug, Clone, Copy)]
pub(super) struct VictimSearch {
    pub(super) from: From,
    pub(super) task: TaskId,
    pub(super) group: GroupId,
    pub(super) queue: QueueId,
    pub(super) class: ClassId,
    /// A plugin has more to say about this very task.
    pub(super) specific: bool,
    /// Only what is of lower priority than this leaves: groups, or within the group tasks.
    below: Option<i32>,
    /// Groups leave as one.
    whole: bool,
    now: TimeMs,
}

/// On which nodes anything may leave for a task, as far as pods, groups and queues go.
#[derive(Debug)]
pub(super) enum VictimScope {
    /// To be found out node by node.
    Anything,
    /// On none, as long as the action runs.
    Nothing,
    /// On these, as things stand.
    On(FixedBitSet),
}

/// Why a node can't be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Nothing that may leave makes room there.
    Node,
    /// Nothing on it leaves for any pod of another queue.
    Everyone,
    /// The queue may not take as much, whatever leaves this node.
    Queue,
}

impl VictimSearch {
    pub(super) fn new(session: &Session<'_>, from: From, group: GroupId, task: TaskId) -> Self {
        let specific = session.policy.is_specific(session.tables, task);
        let (wants, row) = (session.tables.task(task), session.tables.groups.row(group));
        let priority = match from {
            From::Queue => Some(row.priority),
            From::Group => Some(wants.priority),
            From::OtherQueues => None,
        };
        let below = if session.policy.preempts_only_lower() { priority } else { None };
        let whole = session.config.gangs_leave_whole;
        Self { from, task, group, queue: row.queue, class: wants.class, specific, below, whole, now: session.now }
    }

    /// Whether anything may leave for the task, as far as that can be told without looking at all there is. A `false` holds
    /// as long as the action runs: what comes to hold room meanwhile only waits for it, which is no victim.
    pub(super) fn may_find(&self, session: &Session<'_>, unreclaimable: &UnreclaimableNodes) -> bool {
        match (self.from, self.below) {
            (From::Queue, Some(priority)) => session.pending_index.usage_by_priority.any_below(self.queue, priority),
            (From::Queue, None) => true,
            (From::Group, _) => {
                let mut own = session.tables.groups.row(self.group).tasks.iter();
                own.any(|task| self.is_candidate(session.tables, unreclaimable, *task))
            }
            (From::OtherQueues, _) => unreclaimable.any_gives_to(self.queue),
        }
    }

    /// Where anything may leave for the task. O(pods of the groups that may lose any).
    pub(super) fn scope(&self, session: &Session<'_>, unreclaimable: &UnreclaimableNodes) -> VictimScope {
        if !self.may_find(session, unreclaimable) {
            return VictimScope::Nothing;
        }
        let groups: Vec<GroupId> = match (self.from, self.below) {
            (From::Queue, Some(priority)) => {
                session.pending_index.usage_by_priority.groups_below(self.queue, priority).collect()
            }
            (From::Group, _) => vec![self.group],
            _ => return VictimScope::Anything,
        };
        let tables = &*session.tables;
        let mut nodes = FixedBitSet::with_capacity(tables.nodes.table.span());
        let tasks = groups.iter().flat_map(|group| tables.groups.row(*group).tasks.iter());
        let candidates = tasks.filter(|task| self.is_candidate(tables, unreclaimable, **task));
        nodes.extend(candidates.filter_map(|task| tables.task(*task).node).map(NodeId::index));
        VictimScope::On(nodes)
    }

    /// Whether it may leave, as far as it, its group and queues go.
    fn is_candidate(&self, tables: &Tables, unreclaimable: &UnreclaimableNodes, victim: TaskId) -> bool {
        self.may_take(tables, tables.task(self.task).best_effort, victim)
            && !self.is_kept(tables, unreclaimable, victim)
    }

    /// Whether plugins would keep it, as far as that is known up front: what does not come after the task, and what its queue
    /// may keep. Not asked where they choose: those with a budget count all candidates.
    fn is_kept(&self, tables: &Tables, unreclaimable: &UnreclaimableNodes, victim: TaskId) -> bool {
        let row = tables.task(victim);
        let owner = || row.group.map(|group| tables.groups.row(group));
        match self.from {
            From::Queue => self.below.is_some_and(|below| owner().is_none_or(|owner| owner.priority >= below)),
            From::Group => self.below.is_some_and(|below| row.priority >= below),
            From::OtherQueues => owner().is_none_or(|owner| !unreclaimable.gives(owner.queue)),
        }
    }

    fn may_take(&self, tables: &Tables, best_effort: bool, victim: TaskId) -> bool {
        let row = tables.task(victim);
        let Some((group, owner)) = self.owner(tables, victim) else { return false };
        let ours = match self.from {
            From::Queue => owner.queue == self.queue && group != self.group,
            // Who takes from its own gang would leave with it.
            From::Group => group == self.group && !self.whole,
            From::OtherQueues => owner.queue != self.queue && tables.queues.row(owner.queue).reclaimable,
        };
        ours && (!best_effort || row.best_effort)
    }

    /// The group of a task that may leave for somebody, as far as the task and the group go.
    fn owner<'a>(&self, tables: &'a Tables, victim: TaskId) -> Option<(GroupId, &'a GroupRow)> {
        let row = tables.task(victim);
        let may_leave = matches!(row.state, TaskState::Bound | TaskState::Running)
            && row.preemptable
            && !row.of_daemon_set
            && row.spared_until <= self.now;
        if !may_leave {
            return None;
        }
        let group = row.group?;
        let owner = tables.groups.row(group);
        owner.exists().then_some((group, owner))
    }

    /// Whether nothing on the node leaves for any pod of another queue, where plugins of `tier` decide.
    fn nobody_leaves(&self, session: &Session<'_>, node: NodeId, tier: Option<usize>) -> bool {
        let tables = &*session.tables;
        let stays = |task: &TaskId| match self.owner(tables, *task) {
            Some((_, owner)) if tables.queues.row(owner.queue).reclaimable => {
                tier.is_some_and(|tier| session.policy.keeps(tables, tier, *task))
            }
            _ => true,
        };
        self.from == From::OtherQueues && tables.nodes.row(node).tasks.iter().all(stays)
    }

    /// Whether anything on the node may leave for the task, as far as pods, groups and queues go.
    fn has_candidates(&self, tables: &Tables, unreclaimable: &UnreclaimableNodes, node: NodeId) -> bool {
        let is_candidate = |task: &TaskId| self.is_candidate(tables, unreclaimable, *task);
        !unreclaimable.contains(node) && tables.nodes.row(node).tasks.iter().any(is_candidate)
    }

    /// All on the node that plugins allow to leave, those that leave first in front. Where groups leave as one those of one
    /// stand together; what it has on other nodes leaves with them.
    pub(super) fn victims(&self, session: &Session<'_>, node: NodeId) -> Allowed {
        let tables = &*session.tables;
        let best_effort = tables.task(self.task).best_effort;
        let listed = tables.nodes.row(node).tasks.iter().copied();
        let may_take = |task: TaskId| self.may_take(tables, best_effort, task);
        let mut candidates: Vec<TaskId> = listed.filter(|task| may_take(*task)).collect();
        if self.whole {
            candidates = whole_gangs::whole(tables, &candidates, may_take);
        }
        if candidates.is_empty() {
            return Allowed::default();
        }
        // Plugins with a budget serve who comes first.
        let places = self.places(session, &candidates);
        self.sort(session, &places, &mut candidates);
        let mut allowed = match self.from {
            From::OtherQueues => session.policy.reclaimable(tables, self.task, &candidates),
            From::Queue | From::Group => session.policy.preemptable(tables, self.task, &candidates),
        };
        let unreclaimable = |task: &TaskId| allowed.tier.is_some_and(|tier| session.policy.keeps(tables, tier, *task));
        debug_assert!(
            self.from != From::OtherQueues || !allowed.tasks.iter().any(unreclaimable),
            "what is kept does not leave"
        );
        if self.whole {
            allowed.tasks = whole_gangs::by_first(tables, &candidates, &allowed.tasks);
            allowed.tasks.retain(|task| tables.task(*task).node == Some(node));
        } else {
            self.sort(session, &places, &mut allowed.tasks);
            spare_beginners(tables, &mut allowed.tasks);
        }
        allowed
    }

    /// In which order groups lose pods; those that come at the same time share a place. Worked out once for a node: its pods
    /// are compared more often than its groups.
    fn places(&self, session: &Session<'_>, candidates: &[TaskId]) -> FxHashMap<GroupId, usize> {
        let mut groups: Vec<GroupId> = candidates.iter().filter_map(|task| session.tables.task(*task).group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.sort_by(|left, right| self.group_order(session, *left, *right));
        let mut places = FxHashMap::default();
        let (mut place, mut before) = (0, None);
        for group in groups {
            place += usize::from(before.is_some_and(|before| self.group_order(session, before, group).is_ne()));
            places.insert(group, place);
            before = Some(group);
        }
        places
    }

    fn group_order(&self, session: &Session<'_>, mine: GroupId, theirs: GroupId) -> Ordering {
        let (tables, policy) = (&*session.tables, &*session.policy);
        let queue = |group: GroupId| tables.groups.row(group).queue;
        if mine == theirs {
            Ordering::Equal
        } else if self.from != From::OtherQueues || queue(mine) == queue(theirs) {
            policy.job_order_alone(tables, theirs, mine)
        } else {
            let nearest = policy.victim_queue_order(tables, queue(mine), queue(theirs), self.queue);
            nearest.then_with(|| policy.queue_order(tables, queue(theirs), queue(mine)))
        }
    }

    /// Puts pods in the order in which they leave: what does not run yet, then by the places of their groups, then by themselves.
    /// Groups that leave as one stand together, and run if any pod of them does.
    fn sort(&self, session: &Session<'_>, places: &FxHashMap<GroupId, usize>, tasks: &mut [TaskId]) {
        let (tables, policy) = (&*session.tables, &*session.policy);
        let placed = |task: &TaskId| {
            let row = tables.task(*task);
            let place = row.group.and_then(|group| places.get(&group).copied());
            let together = if self.whole { row.group } else { None };
            let runs = together.is_some_and(|group| tables.groups.row(group).counts.get(TaskState::Running) > 0);
            (runs || row.state == TaskState::Running, place, together, *task)
        };
        let mut placed: Vec<_> = tasks.iter().map(placed).collect();
        placed.sort_by(|left, right| {
            let (mine, theirs) = ((left.0, left.1, left.2), (right.0, right.1, right.2));
            mine.cmp(&theirs).then_with(|| policy.task_order(tables, right.3, left.3))
        });
        tasks.iter_mut().zip(placed).for_each(|(task, (.., in_order))| *task = in_order);
    }

    /// Who has to leave `node` so that the task can have it: nobody, some, or why it is in vain.
    pub(super) fn choose(&self, session: &mut Session<'_>, node: NodeId) -> Result<Vec<TaskId>, Refusal> {
        let demand = session.tables.classes.row(self.class).demand.clone();
        let lacks = lacking(session.tables, node, &demand);
        let checks_pass = self.checks_pass(session, node);
        let allowed_now = self.allowed(session, &demand);
        if lacks.is_empty() && checks_pass && allowed_now {
            return Ok(Vec::new());
        }
        let Allowed { tasks: victims, tier } = self.victims(session, node);
        if victims.is_empty() || !would_fit(session.tables, &lacks, &victims) {
            let nobody = victims.is_empty() && self.nobody_leaves(session, node, tier);
            return Err(if nobody { Refusal::Everyone } else { Refusal::Node });
        }
        let chosen = if checks_pass && allowed_now {
            enough(session.tables, &lacks, self.units(session.tables, &victims))
        } else {
            self.try_out(session, node, &demand, &victims)?
        };
        let chosen = whole_gangs::with_fellows(session, chosen);
        if self.from == From::OtherQueues {
            let short: SmallVec<[DimId; 4]> = lacks.iter().map(|(dim, _)| *dim).collect();
            let taking = Taking { queue: self.queue, demand: &demand, victims: &chosen, short: &short };
            if !taking.is_right(session) {
                return Err(Refusal::Node);
            }
        }
        Ok(chosen)
    }

    fn checks_pass(&self, session: &Session<'_>, node: NodeId) -> bool {
        let class = session.tables.classes.row(self.class);
        session.policy.check_use_later(session.tables, class, node).is_none()
            && (!self.specific || session.policy.check_task_later(session.tables, self.task, node).is_none())
    }

    /// Victims of the node that leave together.
    fn units<'t, 'v>(
        &self,
        tables: &'t Tables,
        victims: &'v [TaskId],
    ) -> impl Iterator<Item = &'v [TaskId]> + use<'t, 'v> {
        let whole = self.whole;
        victims.chunk_by(move |left, right| whole && whole_gangs::are_one(tables, *left, *right))
    }

    /// Lets victims go one by one on the tables until queue, room and checks agree, gives back all that was in vain,
    /// and takes the trial back.
    fn try_out(
        &self,
        session: &mut Session<'_>,
        node: NodeId,
        demand: &Demand,
        victims: &[TaskId],
    ) -> Result<Vec<TaskId>, Refusal> {
        let units: Vec<&[TaskId]> = self.units(session.tables, victims).collect();
        let savepoint = session.tables.savepoint();
        let mut gone: Vec<Vanished> = Vec::new();
        let mut agreed = false;
        for unit in units {
            gone.push(unit.iter().map(|victim| (*victim, session.tables.task(*victim).state)).collect());
            unit.iter().for_each(|victim| session.vacate(*victim));
            agreed = self.agrees(session, node, demand);
            if agreed {
                break;
            }
        }
        let refusal = if lacking(session.tables, node, demand).is_empty() && self.checks_pass(session, node) {
            Refusal::Queue
        } else {
            Refusal::Node
        };
        let mut chosen: Vec<TaskId> = Vec::new();
        if agreed {
            // The last one is needed, or the loop had ended before it.
            while let Some(unit) = gone.pop() {
                if !chosen.is_empty() {
                    unit.iter().for_each(|(victim, state)| session.restore(*victim, *state, node));
                    if self.agrees(session, node, demand) {
                        continue;
                    }
                    unit.iter().for_each(|(victim, _)| session.vacate(*victim));
                }
                chosen.extend(unit.iter().rev().map(|(victim, _)| *victim));
            }
            chosen.reverse();
        }
        session.rollback(savepoint);
        if agreed { Ok(chosen) } else { Err(refusal) }
    }

    fn agrees(&self, session: &Session<'_>, node: NodeId, demand: &Demand) -> bool {
        lacking(session.tables, node, demand).is_empty()
            && self.allowed(session, demand)
            && self.checks_pass(session, node)
    }

    /// May the queue have the room, once all that leaves is gone?
    fn allowed(&self, session: &Session<'_>, demand: &Demand) -> bool {
        queue_limit::exceeded_in_future(session.tables, self.queue, demand).is_none()
            && session.policy.allocatable(session.tables, self.queue, self.task).is_none()
    }
}

impl VictimScope {
    /// Whether anything on the node may leave.
    pub(super) fn contain(
        &self,
        search: &VictimSearch,
        tables: &Tables,
        unreclaimable: &UnreclaimableNodes,
        node: NodeId,
    ) -> bool {
        match self {
            Self::Anything => search.has_candidates(tables, unreclaimable, node),
            Self::Nothing => false,
            Self::On(nodes) => nodes.contains(node.index()),
        }
    }
}

/// Where pods are on their way to a gang only those beyond its minimum leave: it would be broken before it begins.
fn spare_beginners(tables: &Tables, victims: &mut Vec<TaskId>) {
    let mut ready: FxHashMap<GroupId, u32> = FxHashMap::default();
    victims.retain(|task| {
        let Some(group) = tables.task(*task).group else { return false };
        let row = tables.groups.row(group);
        let left = ready.entry(group).or_insert_with(|| row.counts.ready());
        let leaves = row.counts.get(TaskState::Binding) == 0 || *left > row.min_member;
        *left = left.saturating_sub(u32::from(leaves));
        leaves
    });
}

type Lacks = SmallVec<[(DimId, i64); 4]>;
/// What left together in a trial, with what it was.
type Vanished = SmallVec<[(TaskId, TaskState); 1]>;

/// What is missing on the node once all that leaves it is gone and all that is promised is taken.
fn lacking(tables: &Tables, node: NodeId, demand: &Demand) -> Lacks {
    let short = |(dim, amount): (DimId, i64)| (dim, amount.saturating_sub(tables.nodes.future_room(node, dim)));
    demand.iter().map(short).filter(|(_, short)| *short > 0).collect()
}

fn would_fit(tables: &Tables, lacks: &Lacks, victims: &[TaskId]) -> bool {
    lacks.iter().all(|(dim, short)| {
        let freed = victims.iter().map(|task| frees(tables, *task, *dim));
        freed.fold(0, i64::saturating_add) >= *short
    })
}

fn frees(tables: &Tables, task: TaskId, dim: DimId) -> i64 {
    tables.classes.row(tables.task(task).class).demand.get(dim)
}

/// The first of the units that make room, without those that the later ones make needless.
fn enough<'a>(tables: &Tables, lacks: &Lacks, units: impl Iterator<Item = &'a [TaskId]>) -> Vec<TaskId> {
    let frees =
        |unit: &[TaskId], dim: DimId| unit.iter().map(|task| frees(tables, *task, dim)).fold(0, i64::saturating_add);
    let mut left = lacks.clone();
    let mut chosen: Vec<&[TaskId]> = Vec::new();
    for unit in units {
        if left.iter().all(|(_, short)| *short <= 0) {
            break;
        }
        left.iter_mut().for_each(|(dim, short)| *short = short.saturating_sub(frees(unit, *dim)));
        chosen.push(unit);
    }
    for index in (0..chosen.len()).rev() {
        let spare = |(dim, short): &(DimId, i64)| short.saturating_add(frees(chosen[index], *dim)) <= 0;
        if left.iter().all(spare) {
            left.iter_mut().for_each(|(dim, short)| *short = short.saturating_add(frees(chosen[index], *dim)));
            chosen.remove(index);
        }
    }
    chosen.concat()
}

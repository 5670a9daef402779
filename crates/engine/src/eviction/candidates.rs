//! The nodes in the order in which one pod would like them, for preemptors that are alike.
//!
//! Invariant: a node is left out only as long as nothing has changed that could make it a better answer: it comes
//! back when it changes, when evictions that made it useless are taken back, or when the queue holds less. So 10,000
//! preemptors that are alike cost one look at each node and one at each success, not a scan each. Nodes where nobody
//! leaves are left out for all queues that reclaim (`unreclaimable`); nodes without anything that may leave are not even looked at
//! where that is known up front.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::unreclaimable::UnreclaimableNodes;
use super::victim_search::{From, Refusal, VictimScope, VictimSearch};
use crate::config::Switch;
use crate::ids::{ClassId, GroupId, NodeId, QueueId, TaskId};
use crate::session::Session;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Searches kept; beyond it all are dropped and built again on use.
const SEARCHES_MAX: usize = 256;

/// Preemptors equal in this get the same answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    from: From,
    class: ClassId,
    queue: QueueId,
    /// Set where its own pods are on nodes, so that they are told from those of others, and any of these may leave.
    group: Option<GroupId>,
    /// All that plugins read of the preemptor; set to the task itself where no two are alike.
    victims: Result<u64, TaskId>,
}

/// Where a node stands in a search: with room to come before without, then by score.
type NodeRank = (bool, i64);

#[derive(Debug, Default)]
struct Order {
    heap: BinaryHeap<(NodeRank, Reverse<NodeId>)>,
    /// Entries of the heap that differ from this are stale. Empty as long as no node was any good.
    ranks: Vec<Option<NodeRank>>,
    seen: Option<u64>,
    /// Nodes that only the queue stands against, and what it held then.
    blocked: Vec<NodeId>,
    queue_usage: Vec<i64>,
}

/// Where a pod can go, and who has to leave for it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) node: NodeId,
    pub(super) victims: Vec<TaskId>,
}

/// The searches of one run of an action.
#[derive(Debug, Default)]
pub(super) struct PreemptionCandidates {
    orders: FxHashMap<Key, Order>,
    /// Nodes left out since the statement first took room.
    buried: Vec<(Key, NodeId)>,
    unreclaimable: UnreclaimableNodes,
    /// The statement has taken room.
    taken: bool,
}

impl PreemptionCandidates {
    /// The first node, in order, where victims make room.
    pub(super) fn find(&mut self, session: &mut Session<'_>, search: &VictimSearch) -> Option<Room> {
        self.find_some(session, search, 1).pop()
    }

    /// Up to `wanted` nodes where victims make room, in order; one where nobody has to leave ends the search.
    pub(super) fn find_some(&mut self, session: &mut Session<'_>, search: &VictimSearch, wanted: usize) -> Vec<Room> {
        let key = Key::new(session, search, &self.unreclaimable);
        if self.orders.len() >= SEARCHES_MAX && !self.orders.contains_key(&key) {
            self.orders.clear();
        }
        let order = self.orders.entry(key).or_default();
        self.unreclaimable.refresh(&session.tables.nodes);
        if search.from == From::OtherQueues {
            self.unreclaimable.note_givers(session.tables, session.policy, search.task);
        }
        order.repair(session, search, &self.unreclaimable);
        let mut found: Vec<Room> = Vec::new();
        while found.len() < wanted
            && let Some(node) = order.first()
        {
            match search.choose(session, node) {
                Ok(victims) => {
                    let needless = victims.is_empty();
                    order.ranks[node.index()] = None;
                    found.push(Room { node, victims });
                    if needless {
                        found.drain(..found.len() - 1);
                        break;
                    }
                    continue;
                }
                Err(refusal @ (Refusal::Node | Refusal::Everyone)) => {
                    if refusal == Refusal::Everyone {
                        self.unreclaimable.add(node, self.taken);
                    }
                    if self.taken {
                        self.buried.push((key, node));
                    }
                }
                Err(Refusal::Queue) => order.blocked.push(node),
            }
            order.ranks[node.index()] = None;
        }
        // What trials left in the log of changes has been taken back.
        order.seen = Some(session.tables.nodes.use_log.end());
        self.unreclaimable.skip(&session.tables.nodes);
        order.weigh_again(session, search, &self.unreclaimable, found.iter().map(|room| room.node));
        self.taken |= !found.is_empty();
        found
    }

    /// Whether anything may leave for the task, as far as that can be told without looking at nodes.
    pub(super) fn may_find(&self, session: &Session<'_>, search: &VictimSearch) -> bool {
        search.may_find(session, &self.unreclaimable)
    }

    /// A statement has been carried out: what it made useless stays so.
    pub(super) fn committed(&mut self) {
        self.buried.clear();
        self.unreclaimable.committed();
        self.taken = false;
    }

    /// A statement has been taken back, and with it what its evictions made useless elsewhere.
    pub(super) fn discarded(&mut self) {
        self.unreclaimable.discarded();
        self.taken = false;
        for (key, node) in self.buried.drain(..) {
            if let Some(order) = self.orders.get_mut(&key) {
                order.blocked.push(node);
                order.queue_usage.clear();
            }
        }
    }
}

impl Key {
    fn new(session: &Session<'_>, search: &VictimSearch, unreclaimable: &UnreclaimableNodes) -> Self {
        let switch = if search.from == From::OtherQueues { Switch::Reclaimable } else { Switch::Preemptable };
        let victims = match session.policy.victim_key(session.tables, switch, search.task) {
            Some(key) if !search.specific => Ok(key),
            _ => Err(search.task),
        };
        let counts = &session.tables.groups.row(search.group).counts;
        let placed = counts.get(TaskState::Bound) + counts.get(TaskState::Running) > 0;
        let tells = || search.from == From::Group || search.may_find(session, unreclaimable);
        let group = (placed && search.from != From::OtherQueues && tells()).then_some(search.group);
        Self { from: search.from, class: search.class, queue: search.queue, group, victims }
    }
}

impl Order {
    fn first(&mut self) -> Option<NodeId> {
        while let Some((ranks, Reverse(node))) = self.heap.peek().copied() {
            if self.ranks[node.index()] == Some(ranks) {
                return Some(node);
            }
            self.heap.pop();
        }
        None
    }

    fn repair(&mut self, session: &Session<'_>, search: &VictimSearch, unreclaimable: &UnreclaimableNodes) {
        let nodes = &session.tables.nodes;
        let span = nodes.table.span();
        match self.seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some(changed) => self.weigh_again(session, search, unreclaimable, changed.iter().copied()),
            None => self.start(session, search, unreclaimable),
        }
        self.seen = Some(nodes.use_log.end());
        let queue_usage = queue_usage(session.tables, search.queue);
        let less = self.queue_usage.len() != queue_usage.len()
            || self.queue_usage.iter().zip(&queue_usage).any(|(before, now)| now < before);
        if less {
            let blocked = std::mem::take(&mut self.blocked);
            self.weigh_again(session, search, unreclaimable, blocked.into_iter());
        }
        self.queue_usage = queue_usage;
        if self.heap.len() > 64 + 4 * span {
            let live = self.ranks.iter().enumerate();
            self.heap = live.filter_map(|(node, ranks)| Some(((*ranks)?, Reverse(node.into())))).collect();
        }
    }

    /// Finds the places of all nodes. Those without room where nothing may leave have none.
    fn start(&mut self, session: &Session<'_>, search: &VictimSearch, unreclaimable: &UnreclaimableNodes) {
        let nodes = &session.tables.nodes;
        let scope = search.scope(session, unreclaimable);
        let mut looked_at = FixedBitSet::with_capacity(nodes.table.span());
        match &scope {
            VictimScope::Anything => looked_at.insert_range(..),
            VictimScope::Nothing => {}
            VictimScope::On(some) => looked_at.union_with(some),
        }
        if !matches!(scope, VictimScope::Anything) {
            let demand = &session.tables.classes.row(search.class).demand;
            looked_at.extend(nodes.with_future_room(demand).into_iter().map(NodeId::index));
        }
        debug_assert!(
            nodes.ids().all(|node| looked_at.contains(node.index()) || search.victims(session, node).tasks.is_empty()),
            "where nobody leaves are no victims"
        );
        self.ranks.fill(None);
        self.heap.clear();
        self.weigh(session, search, unreclaimable, &scope, looked_at.ones().map(NodeId::from));
    }

    /// Finds the places of nodes that may have changed.
    fn weigh_again(
        &mut self,
        session: &Session<'_>,
        search: &VictimSearch,
        unreclaimable: &UnreclaimableNodes,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        let scope = if search.may_find(session, unreclaimable) { VictimScope::Anything } else { VictimScope::Nothing };
        self.weigh(session, search, unreclaimable, &scope, nodes);
    }

    fn weigh(
        &mut self,
        session: &Session<'_>,
        search: &VictimSearch,
        unreclaimable: &UnreclaimableNodes,
        scope: &VictimScope,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        let tables = &*session.tables;
        let class = tables.classes.row(search.class);
        let (mut suited, mut rooms): (Vec<NodeId>, Vec<bool>) = (Vec::new(), Vec::new());
        for node in nodes {
            let known = tables.nodes.table.get(node.index()).is_some_and(|row| row.known);
            let room = class.demand.iter().all(|(dim, amount)| amount <= tables.nodes.future_room(node, dim));
            let in_vain = !known || !room && !scope.contain(search, tables, unreclaimable, node);
            debug_assert!(
                !known || !in_vain || search.victims(session, node).tasks.is_empty(),
                "where nobody leaves are no victims"
            );
            if !in_vain && session.policy.check_facts(tables, class, node).is_none() {
                suited.push(node);
                rooms.push(room);
            } else if let Some(ranks) = self.ranks.get_mut(node.index()) {
                *ranks = None;
            }
        }
        if suited.is_empty() {
            return;
        }
        self.ranks.resize(tables.nodes.table.span().max(self.ranks.len()), None);
        let mut scores = vec![0; suited.len()];
        session.policy.score_nodes(tables, class, &suited, &mut scores);
        if search.specific {
            // Each by itself: what others score must not matter to a node that has not changed.
            for (node, score) in suited.iter().zip(&mut scores) {
                session.policy.score_task(tables, search.task, &[*node], std::slice::from_mut(score));
            }
        }
        let ranked = suited.into_iter().zip(rooms.into_iter().zip(scores));
        let moved = ranked.filter(|(node, ranks)| self.ranks[node.index()].replace(*ranks) != Some(*ranks));
        self.heap.extend(moved.map(|(node, ranks)| (ranks, Reverse(node))));
    }
}

/// What a queue and those above it hold, one after the other.
fn queue_usage(tables: &Tables, queue: QueueId) -> Vec<i64> {
    let row = tables.queues.row(queue);
    let above = row.ancestors.iter().map(|queue| &tables.queues.row(*queue).tree);
    let dims = (0..tables.dims.len()).map(crate::ids::DimId::from);
    let sums: Vec<_> = std::iter::once(&row.tree).chain(above).collect();
    dims.flat_map(|dim| sums.iter().map(move |sum| sum.promised(dim)).collect::<Vec<_>>()).collect()
}

//! The nodes in the order in which one pod would like them, for preemptors that are alike.
//!
//! Invariant: a node is left out only as long as nothing has changed that could make it a better answer: it comes
//! back when it changes, when evictions that made it useless are taken back, or when the queue holds less. So 10,000
//! preemptors that are alike cost one look at each node and one at each success, not a scan each. Nodes where nobody
//! leaves are left out for all queues that reclaim (`kept`); nodes without anything that may leave are not even looked at
//! where that is known up front.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::unreclaimable::Kept;
use super::victim_search::{From, Grounds, Hunt, Refusal};
use crate::config::Switch;
use crate::ids::{ClassId, GroupId, NodeId, QueueId, TaskId};
use crate::session::Cycle;
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
type Standing = (bool, i64);

#[derive(Debug, Default)]
struct Order {
    heap: BinaryHeap<(Standing, Reverse<NodeId>)>,
    /// Entries of the heap that differ from this are stale. Empty as long as no node was any good.
    standing: Vec<Option<Standing>>,
    seen: Option<u64>,
    /// Nodes that only the queue stands against, and what it held then.
    blocked: Vec<NodeId>,
    held: Vec<i64>,
}

/// Where a pod can go, and who has to leave for it.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) node: NodeId,
    pub(super) victims: Vec<TaskId>,
}

/// The searches of one run of an action.
#[derive(Debug, Default)]
pub(super) struct Prospects {
    orders: FxHashMap<Key, Order>,
    /// Nodes left out since the statement first took room.
    buried: Vec<(Key, NodeId)>,
    kept: Kept,
    /// The statement has taken room.
    taken: bool,
}

impl Prospects {
    /// The first node, in order, where victims make room.
    pub(super) fn find(&mut self, cycle: &mut Cycle<'_>, hunt: &Hunt) -> Option<Room> {
        self.find_some(cycle, hunt, 1).pop()
    }

    /// Up to `wanted` nodes where victims make room, in order; one where nobody has to leave ends the search.
    pub(super) fn find_some(&mut self, cycle: &mut Cycle<'_>, hunt: &Hunt, wanted: usize) -> Vec<Room> {
        let key = Key::new(cycle, hunt, &self.kept);
        if self.orders.len() >= SEARCHES_MAX && !self.orders.contains_key(&key) {
            self.orders.clear();
        }
        let order = self.orders.entry(key).or_default();
        self.kept.refresh(&cycle.tables.nodes);
        if hunt.from == From::OtherQueues {
            self.kept.note_givers(cycle.tables, cycle.policy, hunt.task);
        }
        order.repair(cycle, hunt, &self.kept);
        let mut found: Vec<Room> = Vec::new();
        while found.len() < wanted
            && let Some(node) = order.first()
        {
            match hunt.choose(cycle, node) {
                Ok(victims) => {
                    let needless = victims.is_empty();
                    order.standing[node.index()] = None;
                    found.push(Room { node, victims });
                    if needless {
                        found.drain(..found.len() - 1);
                        break;
                    }
                    continue;
                }
                Err(refusal @ (Refusal::Node | Refusal::Everyone)) => {
                    if refusal == Refusal::Everyone {
                        self.kept.add(node, self.taken);
                    }
                    if self.taken {
                        self.buried.push((key, node));
                    }
                }
                Err(Refusal::Queue) => order.blocked.push(node),
            }
            order.standing[node.index()] = None;
        }
        // What trials left in the log of changes has been taken back.
        order.seen = Some(cycle.tables.nodes.use_log.end());
        self.kept.skip(&cycle.tables.nodes);
        order.weigh_again(cycle, hunt, &self.kept, found.iter().map(|room| room.node));
        self.taken |= !found.is_empty();
        found
    }

    /// Whether anything may leave for the task, as far as that can be told without looking at nodes.
    pub(super) fn may_find(&self, cycle: &Cycle<'_>, hunt: &Hunt) -> bool {
        hunt.may_find(cycle, &self.kept)
    }

    /// A statement has been carried out: what it made useless stays so.
    pub(super) fn committed(&mut self) {
        self.buried.clear();
        self.kept.committed();
        self.taken = false;
    }

    /// A statement has been taken back, and with it what its evictions made useless elsewhere.
    pub(super) fn discarded(&mut self) {
        self.kept.discarded();
        self.taken = false;
        for (key, node) in self.buried.drain(..) {
            if let Some(order) = self.orders.get_mut(&key) {
                order.blocked.push(node);
                order.held.clear();
            }
        }
    }
}

impl Key {
    fn new(cycle: &Cycle<'_>, hunt: &Hunt, kept: &Kept) -> Self {
        let switch = if hunt.from == From::OtherQueues { Switch::Reclaimable } else { Switch::Preemptable };
        let victims = match cycle.policy.victim_key(cycle.tables, switch, hunt.task) {
            Some(key) if !hunt.specific => Ok(key),
            _ => Err(hunt.task),
        };
        let counts = &cycle.tables.groups.row(hunt.group).counts;
        let placed = counts.get(TaskState::Bound) + counts.get(TaskState::Running) > 0;
        let tells = || hunt.from == From::Group || hunt.may_find(cycle, kept);
        let group = (placed && hunt.from != From::OtherQueues && tells()).then_some(hunt.group);
        Self { from: hunt.from, class: hunt.class, queue: hunt.queue, group, victims }
    }
}

impl Order {
    fn first(&mut self) -> Option<NodeId> {
        while let Some((standing, Reverse(node))) = self.heap.peek().copied() {
            if self.standing[node.index()] == Some(standing) {
                return Some(node);
            }
            self.heap.pop();
        }
        None
    }

    fn repair(&mut self, cycle: &Cycle<'_>, hunt: &Hunt, kept: &Kept) {
        let nodes = &cycle.tables.nodes;
        let span = nodes.table.span();
        match self.seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some(changed) => self.weigh_again(cycle, hunt, kept, changed.iter().copied()),
            None => self.start(cycle, hunt, kept),
        }
        self.seen = Some(nodes.use_log.end());
        let held = held(cycle.tables, hunt.queue);
        let less = self.held.len() != held.len() || self.held.iter().zip(&held).any(|(before, now)| now < before);
        if less {
            let blocked = std::mem::take(&mut self.blocked);
            self.weigh_again(cycle, hunt, kept, blocked.into_iter());
        }
        self.held = held;
        if self.heap.len() > 64 + 4 * span {
            let live = self.standing.iter().enumerate();
            self.heap = live.filter_map(|(node, standing)| Some(((*standing)?, Reverse(node.into())))).collect();
        }
    }

    /// Finds the places of all nodes. Those without room where nothing may leave have none.
    fn start(&mut self, cycle: &Cycle<'_>, hunt: &Hunt, kept: &Kept) {
        let nodes = &cycle.tables.nodes;
        let grounds = hunt.grounds(cycle, kept);
        let mut looked_at = FixedBitSet::with_capacity(nodes.table.span());
        match &grounds {
            Grounds::Anywhere => looked_at.insert_range(..),
            Grounds::Nowhere => {}
            Grounds::On(some) => looked_at.union_with(some),
        }
        if !matches!(grounds, Grounds::Anywhere) {
            let demand = &cycle.tables.classes.row(hunt.class).demand;
            looked_at.extend(nodes.with_future_room(demand).into_iter().map(NodeId::index));
        }
        debug_assert!(
            nodes.ids().all(|node| looked_at.contains(node.index()) || hunt.victims(cycle, node).tasks.is_empty()),
            "where nobody leaves are no victims"
        );
        self.standing.fill(None);
        self.heap.clear();
        self.weigh(cycle, hunt, (kept, &grounds), looked_at.ones().map(NodeId::from));
    }

    /// Finds the places of nodes that may have changed.
    fn weigh_again(&mut self, cycle: &Cycle<'_>, hunt: &Hunt, kept: &Kept, nodes: impl Iterator<Item = NodeId>) {
        let grounds = if hunt.may_find(cycle, kept) { Grounds::Anywhere } else { Grounds::Nowhere };
        self.weigh(cycle, hunt, (kept, &grounds), nodes);
    }

    fn weigh(
        &mut self,
        cycle: &Cycle<'_>,
        hunt: &Hunt,
        (kept, grounds): (&Kept, &Grounds),
        nodes: impl Iterator<Item = NodeId>,
    ) {
        let tables = &*cycle.tables;
        let class = tables.classes.row(hunt.class);
        let (mut suited, mut rooms): (Vec<NodeId>, Vec<bool>) = (Vec::new(), Vec::new());
        for node in nodes {
            let known = tables.nodes.table.get(node.index()).is_some_and(|row| row.known);
            let room = class.demand.iter().all(|(dim, amount)| amount <= tables.nodes.future_room(node, dim));
            let in_vain = !known || !room && !grounds.contain(hunt, tables, kept, node);
            debug_assert!(
                !known || !in_vain || hunt.victims(cycle, node).tasks.is_empty(),
                "where nobody leaves are no victims"
            );
            if !in_vain && cycle.policy.check_facts(tables, class, node).is_none() {
                suited.push(node);
                rooms.push(room);
            } else if let Some(standing) = self.standing.get_mut(node.index()) {
                *standing = None;
            }
        }
        if suited.is_empty() {
            return;
        }
        self.standing.resize(tables.nodes.table.span().max(self.standing.len()), None);
        let mut scores = vec![0; suited.len()];
        cycle.policy.score_nodes(tables, class, &suited, &mut scores);
        if hunt.specific {
            // Each by itself: what others score must not matter to a node that has not changed.
            for (node, score) in suited.iter().zip(&mut scores) {
                cycle.policy.score_task(tables, hunt.task, &[*node], std::slice::from_mut(score));
            }
        }
        let standings = suited.into_iter().zip(rooms.into_iter().zip(scores));
        let moved =
            standings.filter(|(node, standing)| self.standing[node.index()].replace(*standing) != Some(*standing));
        self.heap.extend(moved.map(|(node, standing)| (standing, Reverse(node))));
    }
}

/// What a queue and those above it hold, one after the other.
fn held(tables: &Tables, queue: QueueId) -> Vec<i64> {
    let row = tables.queues.row(queue);
    let above = row.ancestors.iter().map(|queue| &tables.queues.row(*queue).tree);
    let dims = (0..tables.dims.len()).map(crate::ids::DimId::from);
    let sums: Vec<_> = std::iter::once(&row.tree).chain(above).collect();
    dims.flat_map(|dim| sums.iter().map(move |sum| sum.promised(dim)).collect::<Vec<_>>()).collect()
}

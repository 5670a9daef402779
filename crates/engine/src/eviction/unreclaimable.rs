//! Nodes where nothing leaves for any pod of another queue: found out once for all queues that reclaim.
//!
//! Invariant: a node is forgotten when it changes, and when the evictions are taken back after which it was found so.
//! Nothing that a queue gets by reclaiming makes what it has already free to leave: that is counted apart until it runs.
//! Nor does it make a queue that may lose nothing one that may. Used by `candidates`.

use fixedbitset::FixedBitSet;

use crate::cluster::nodes::Nodes;
use crate::ids::{NodeId, QueueId, TaskId};
use crate::policy::Policy;
use crate::world::tables::Tables;

#[derive(Debug, Default)]
pub(super) struct UnreclaimableNodes {
    nodes: FixedBitSet,
    /// Found since the statement took room: not known for good.
    doubtful: Vec<NodeId>,
    /// How far the log of changes has been read.
    seen: Option<u64>,
    /// Queues of which anything may leave; all where that is not known.
    givers: Option<FixedBitSet>,
}

impl UnreclaimableNodes {
    /// Forgets what has changed.
    pub(super) fn refresh(&mut self, nodes: &Nodes) {
        self.nodes.grow(nodes.table.span());
        match self.seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some(changed) => {
                changed.iter().for_each(|node| self.nodes.set(node.index(), false));
                self.doubtful.retain(|node| !changed.contains(node));
            }
            None => {
                self.nodes.clear();
                self.doubtful.clear();
            }
        }
        self.skip(nodes);
    }

    /// What was logged until now has been taken back.
    pub(super) fn skip(&mut self, nodes: &Nodes) {
        self.seen = Some(nodes.use_log.end());
    }

    /// Finds out once for an action which queues may lose anything to others: before anything is taken.
    pub(super) fn note_givers(&mut self, tables: &Tables, policy: &Policy, preemptor: TaskId) {
        if self.givers.is_some() {
            return;
        }
        let tier = policy.reclaim_tier(tables, preemptor);
        let keeps = |queue: QueueId| tier.is_some_and(|tier| policy.keeps_all_of(tables, tier, queue));
        let queues = tables.queues.table.iter().filter(|(queue, row)| row.reclaimable && !keeps(*queue));
        let mut givers = FixedBitSet::with_capacity(tables.queues.table.span());
        givers.extend(queues.map(|(queue, _)| queue.index()));
        self.givers = Some(givers);
    }

    /// Whether anything may leave the queue.
    pub(super) fn gives(&self, queue: QueueId) -> bool {
        self.givers.as_ref().is_none_or(|givers| givers.contains(queue.index()))
    }

    /// Whether anything may leave any queue but that.
    pub(super) fn any_gives_to(&self, queue: QueueId) -> bool {
        self.givers.as_ref().is_none_or(|givers| givers.ones().any(|giver| giver != queue.index()))
    }

    pub(super) fn contains(&self, node: NodeId) -> bool {
        self.nodes.contains(node.index())
    }

    /// One more; `doubtful` where that may be due to evictions that are not decided yet.
    pub(super) fn add(&mut self, node: NodeId, doubtful: bool) {
        if doubtful {
            self.doubtful.push(node);
        } else {
            self.nodes.insert(node.index());
        }
    }

    /// The evictions are decided.
    pub(super) fn committed(&mut self) {
        self.nodes.extend(self.doubtful.drain(..).map(NodeId::index));
    }

    /// The evictions are taken back.
    pub(super) fn discarded(&mut self) {
        self.doubtful.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Action, Config};
    use crate::engine::tests::{Lab, group, pod};
    use crate::{Delta, GroupFacts, PodFacts, PodPhase};

    fn nodes() -> (Nodes, [NodeId; 2]) {
        let mut nodes = Nodes::new();
        let ids = ["a", "b"].map(|name| nodes.intern(name, 3));
        (nodes, ids)
    }

    #[test]
    fn a_node_that_changes_is_forgotten() {
        for doubtful in [false, true] {
            let (mut nodes, [a, b]) = nodes();
            let mut unreclaimable = UnreclaimableNodes::default();
            unreclaimable.refresh(&nodes);
            unreclaimable.add(a, doubtful);
            unreclaimable.add(b, doubtful);
            nodes.note_use(a);
            unreclaimable.refresh(&nodes);
            unreclaimable.committed();
            assert_eq!([a, b].map(|node| unreclaimable.contains(node)), [false, true]);
            nodes.note_use(b);
            unreclaimable.skip(&nodes);
            unreclaimable.refresh(&nodes);
            assert!(unreclaimable.contains(b), "a change that was taken back is none");
        }
    }

    /// Queue `a` holds all four cpu, of which it deserves two, and `b` waits.
    #[test]
    fn only_queues_above_their_share_give() {
        let config = Config { actions: vec![Action::Allocate], ..Config::default() };
        let mut lab = Lab::with(config, &[4_000]);
        for name in ["a", "b"] {
            lab.queue(name, &[]);
            let facts = GroupFacts { queue: name.to_owned(), ..group(name, 1) };
            lab.apply(Delta::GroupUpsert(Box::new(facts)));
        }
        for index in 0..4 {
            let facts = pod("a", index, 1_000);
            lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..facts });
            lab.pod(pod("b", index, 1_000));
        }
        lab.cycle();
        let [a, b] = ["a", "b"].map(|name| lab.queue_id(name));
        let mut unreclaimable = UnreclaimableNodes::default();
        assert!(
            unreclaimable.gives(a) && unreclaimable.gives(b) && unreclaimable.any_gives_to(a),
            "nothing is known yet"
        );
        unreclaimable.note_givers(lab.tables(), &lab.world.policy, lab.task_id("b", 0));
        assert_eq!([a, b].map(|queue| unreclaimable.gives(queue)), [true, false]);
        assert_eq!([a, b].map(|queue| unreclaimable.any_gives_to(queue)), [false, true]);
    }

    #[test]
    fn what_evictions_made_so_goes_with_them() {
        for (decided, expected) in [(true, [true, true]), (false, [true, false])] {
            let (nodes, [a, b]) = nodes();
            let mut unreclaimable = UnreclaimableNodes::default();
            unreclaimable.refresh(&nodes);
            unreclaimable.add(a, false);
            unreclaimable.add(b, true);
            assert_eq!([a, b].map(|node| unreclaimable.contains(node)), [true, false]);
            if decided {
                unreclaimable.committed()
            } else {
                unreclaimable.discarded()
            }
            unreclaimable.committed();
            assert_eq!([a, b].map(|node| unreclaimable.contains(node)), expected);
        }
    }
}

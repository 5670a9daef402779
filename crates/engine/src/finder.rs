//! The best node for a class of pods, and what the nodes say when there is none.
//!
//! Invariant: an answer takes every node into account and equals what a scan of all nodes would give. Each active
//! class keeps its verdicts and scores, repaired from the nodes' change logs: O(changed nodes x log nodes) a question.
//! These are caches: losing them changes no decision.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::ids::{ClassId, NodeId, TaskId};
use crate::policy::Policy;
use crate::world::tables::Tables;

mod cache;
mod diagnosis;
mod empty;
mod scaled;

use cache::Cache;

/// Memory of the caches, about; beyond it all are dropped and built again on use.
const BYTES_MAX: usize = 256 << 20;
/// Classes kept ready at least.
const CLASSES_MIN: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Finder {
    caches: Vec<Option<Box<Cache>>>,
    active: usize,
    empty: empty::EmptyCluster,
    book: diagnosis::Book,
}

/// What a node is searched for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search<'a> {
    pub(crate) class: ClassId,
    /// The very task; absent for pods that don't exist yet.
    pub(crate) task: Option<TaskId>,
    /// Only these nodes.
    pub(crate) within: Option<&'a FixedBitSet>,
}

impl<'a> Search<'a> {
    pub(crate) fn of_class(class: ClassId) -> Self {
        Self { class, task: None, within: None }
    }

    pub(crate) fn of_task(tables: &Tables, task: TaskId) -> Self {
        Self { class: tables.task(task).class, task: Some(task), within: None }
    }

    pub(crate) fn within(self, nodes: &'a FixedBitSet) -> Self {
        Self { within: Some(nodes), ..self }
    }
}

impl Finder {
    /// The node where the pod fits now with the highest score; among equals the lowest id. Where no plugin has more to
    /// say than the class tells the answer comes from an index, else from a scan of the nodes that fit.
    pub(crate) fn best(&mut self, tables: &Tables, policy: &Policy, search: Search<'_>) -> Option<NodeId> {
        let specific = search.task.filter(|task| policy.is_specific(tables, *task));
        let cache = self.fresh(tables, policy, search.class);
        if specific.is_none() && search.within.is_none() {
            return cache.best();
        }
        let mut nodes: Vec<NodeId> = match search.within {
            Some(within) => within.ones().map(NodeId::from).filter(|node| cache.total(*node).is_some()).collect(),
            None => cache.fitting().collect(),
        };
        if let Some(task) = specific {
            policy.keep_for_task(tables, task, &mut nodes);
        }
        let mut scores = cache.scores_among(policy, &nodes);
        if let Some(task) = specific {
            policy.score_task(tables, task, &nodes, &mut scores);
        }
        let best = nodes.into_iter().zip(scores).max_by_key(|(node, score)| (*score, Reverse(*node)));
        best.map(|(node, _)| node)
    }

    /// The nodes where a pod of the class fits now, by what the class tells.
    pub(crate) fn fitting(&mut self, tables: &Tables, policy: &Policy, class: ClassId) -> Vec<NodeId> {
        self.fresh(tables, policy, class).fitting().collect()
    }

    fn fresh(&mut self, tables: &Tables, policy: &Policy, class: ClassId) -> &mut Cache {
        let row = tables.classes.row(class);
        if self.caches.len() <= class.index() {
            self.caches.resize_with(class.index() + 1, || None);
        }
        let usable = self.caches[class.index()].as_ref().is_some_and(|cache| cache.generation == row.generation);
        if !usable {
            let most = (BYTES_MAX / Cache::bytes(tables.nodes.table.span())).max(CLASSES_MIN);
            if self.active >= most {
                self.caches.iter_mut().for_each(|cache| *cache = None);
                self.active = 0;
            }
            self.active += usize::from(self.caches[class.index()].is_none());
            self.caches[class.index()] = None;
        }
        let slot = &mut self.caches[class.index()];
        let cache = slot.get_or_insert_with(|| Box::new(Cache::new(row.generation, policy)));
        cache.repair(tables, policy, row);
        cache
    }
}

//! The best node for a class of pods, and what the nodes say when there is none.
//!
//! Invariant: an answer takes every node into account and equals what a scan of all nodes would give. There are two ways
//! to it. A class that is asked for again and again keeps the scores of all nodes, repaired from the nodes' change logs:
//! O(changed nodes) a question (`cache`). For classes that take turns, so that all has changed when one is asked for
//! again, there is one index that all share, searched by branch and bound (`regions`). Each question goes the way that
//! is cheaper by what was counted before. All of these are caches: losing them changes no decision.

use std::cmp::Reverse;

use fixedbitset::FixedBitSet;

use crate::ids::{ClassId, NodeId, TaskId};
use crate::policy::Policy;
use crate::world::tables::Tables;

mod cache;
mod class_memo;
mod diagnosis;
mod empty;
mod regions;
mod scaled;

use cache::Cache;
use class_memo::{ClassMemo, Tellers};
pub(crate) use diagnosis::PodsWanted;
use regions::{Question, Regions};

/// Memory of the caches, about; beyond it all are dropped and built again on use.
const BYTES_MAX: usize = 256 << 20;
/// Classes kept ready at least.
const CLASSES_MIN: usize = 512;
/// Memory of notes, about; beyond it all are dropped.
const MEMO_BYTES_MAX: usize = 64 << 20;
/// What it costs a cache to take in one node, where looking at a node or region in a search counts 1: its memory is
/// cold where many classes take turns.
const REPAIR_EFFORT: u64 = 6;

#[derive(Debug, Default)]
pub(crate) struct Finder {
    caches: Vec<Option<Box<Cache>>>,
    active: usize,
    regions: Regions,
    class_memos: Vec<Option<Box<ClassMemo>>>,
    memo_bytes: usize,
    tellers: Tellers,
    empty: empty::EmptyCluster,
    room_index: diagnosis::RoomIndex,
    telling: Telling,
}

/// How much is told of what the nodes have against a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Telling {
    /// What each says first.
    #[default]
    First,
    /// All that each has.
    All,
    /// Nothing: it only matters whether there is a node.
    Nothing,
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
    /// Tells so much from now on.
    pub(crate) fn tell(&mut self, telling: Telling) {
        self.telling = telling;
    }

    /// The node where the pod fits now with the highest score; among equals the lowest id. Where no plugin has more to
    /// say than the class tells the answer comes from an index, else from a scan of the nodes that fit.
    pub(crate) fn best(&mut self, tables: &Tables, policy: &Policy, search: Search<'_>) -> Option<NodeId> {
        let specific = search.task.filter(|task| policy.is_specific(tables, *task));
        if specific.is_none() && search.within.is_none() {
            return self.best_of_class(tables, policy, search.class);
        }
        let cache = self.fresh(tables, policy, search.class);
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

    /// The best for any pod of the class. Asked again before any node has changed it is the same: whether a group fits at
    /// all is asked before its first pod is placed.
    fn best_of_class(&mut self, tables: &Tables, policy: &Policy, class: ClassId) -> Option<NodeId> {
        if let Some(answer) = self.note(tables, class).answer(tables) {
            return answer;
        }
        let among_regions = self.search_regions(tables, policy, class, false);
        let best = among_regions.unwrap_or_else(|| self.fresh(tables, policy, class).best());
        self.class_memos[class.index()].as_mut().expect("`note` makes them").keep_answer(tables, best);
        best
    }

    /// The nodes where a pod of the class fits now, by what the class tells.
    pub(crate) fn fitting(&mut self, tables: &Tables, policy: &Policy, class: ClassId) -> Vec<NodeId> {
        self.fresh(tables, policy, class).fitting().collect()
    }

    /// The same by the index that all classes share. Nothing where that can't tell, or a cache is cheaper, unless
    /// `always`. The notes must be good for now.
    ///
    /// A search is paid for as long as that is less than a cache would cost to bring up to date. What the cache would
    /// have saved since is counted, so that in all no more than twice the cheaper way is ever paid.
    fn search_regions(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        class: ClassId,
        always: bool,
    ) -> Option<Option<NodeId>> {
        let row = tables.classes.row(class);
        let cache = self.caches.get(class.index()).and_then(Option::as_ref);
        let behind = cache.filter(|cache| cache.generation == row.generation).map(|cache| cache.behind(tables));
        let repair = REPAIR_EFFORT.saturating_mul(behind.unwrap_or(tables.nodes.table.span() as u64));
        let Self { class_memos, tellers, regions, .. } = self;
        let class_memos = class_memos[class.index()].as_mut().expect("`note` makes them");
        let end = tables.nodes.use_log.end();
        let changes = end - std::mem::replace(&mut class_memos.asked_at, end);
        if !always && (repair <= class_memos.effort || repair <= class_memos.missed) {
            class_memos.missed = 0;
            return None;
        }
        if !class_memos.is_even(policy, row, tellers, tables) || !policy.bound_scores(tables, row, &[], &mut []) {
            return None;
        }
        regions.refresh(tables);
        let found = regions.best(Question { tables, policy, class: row }, class_memos)?;
        class_memos.effort = found.effort;
        class_memos.missed = (class_memos.missed + found.effort).saturating_sub(REPAIR_EFFORT.saturating_mul(changes));
        Some(found.node)
    }

    /// Makes what is remembered of the class good for now.
    fn note(&mut self, tables: &Tables, class: ClassId) -> &mut ClassMemo {
        let row = tables.classes.row(class);
        if self.memo_bytes > MEMO_BYTES_MAX {
            self.class_memos.clear();
            self.memo_bytes = 0;
        }
        if self.class_memos.len() <= class.index() {
            self.class_memos.resize_with(class.index() + 1, || None);
        }
        let slot = &mut self.class_memos[class.index()];
        if let Some(old) = slot.take_if(|class_memos| class_memos.generation != row.generation) {
            self.memo_bytes -= old.counted;
        }
        let class_memos = slot.get_or_insert_with(|| Box::new(ClassMemo::new(tables, row)));
        class_memos.refresh(tables);
        let bytes = class_memos.bytes();
        self.memo_bytes = (self.memo_bytes + bytes).saturating_sub(std::mem::replace(&mut class_memos.counted, bytes));
        class_memos
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

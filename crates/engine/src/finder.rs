//! The best node for a class of pods, and what the nodes say when there is none.
//!
//! Invariant: an answer takes every node into account and equals what a scan of all nodes would give. Each active
//! class keeps its verdicts and scores, repaired from the nodes' change logs: O(changed nodes x log nodes) a question.
//! These are caches: losing them changes no decision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use fixedbitset::FixedBitSet;

use crate::ids::{ClassId, NodeId, TaskId};
use crate::policy::Policy;
use crate::reasons::Check;
use crate::world::classes::ClassRow;
use crate::world::tables::Tables;

mod diagnosis;
mod empty;

/// Classes kept ready; beyond it all are dropped and built again on use.
const CLASSES_MAX: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct Finder {
    caches: Vec<Option<Box<Cache>>>,
    active: usize,
    empty: empty::EmptyCluster,
}

/// What is known of the nodes for one class.
#[derive(Debug)]
struct Cache {
    generation: u64,
    facts_seen: Option<u64>,
    use_seen: Option<u64>,
    /// The check that fails on the node's facts, per node.
    verdicts: Vec<Option<Check>>,
    /// Nodes whose facts allow the class.
    feasible: FixedBitSet,
    /// Score by use, per node that can take a pod now.
    by_use: Vec<Option<i64>>,
    /// With the scaled scores added.
    totals: Vec<Option<i64>>,
    /// Unscaled preferences, node after node.
    raw: Vec<i64>,
    /// How often each unscaled value occurs among the candidates, per preference.
    spread: Vec<BTreeMap<i64, u32>>,
    maxima: Vec<i64>,
    /// Entries that no longer equal `totals` are stale.
    heap: BinaryHeap<(i64, Reverse<NodeId>)>,
    diagnosis: diagnosis::Memo,
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
        if specific.is_some() || search.within.is_some() {
            return cache.scan(tables, policy, specific, search.within);
        }
        while let Some((score, Reverse(node))) = cache.heap.peek().copied() {
            if cache.totals[node.index()] == Some(score) {
                return Some(node);
            }
            cache.heap.pop();
        }
        None
    }

    fn fresh(&mut self, tables: &Tables, policy: &Policy, class: ClassId) -> &mut Cache {
        let row = tables.classes.row(class);
        if self.caches.len() <= class.index() {
            self.caches.resize_with(class.index() + 1, || None);
        }
        let usable = self.caches[class.index()].as_ref().is_some_and(|cache| cache.generation == row.generation);
        if !usable {
            if self.active >= CLASSES_MAX {
                self.caches.iter_mut().for_each(|cache| *cache = None);
                self.active = 0;
            }
            self.active += usize::from(self.caches[class.index()].is_none());
        }
        let slot = &mut self.caches[class.index()];
        if !usable {
            *slot = None;
        }
        let cache = slot.get_or_insert_with(|| Box::new(Cache::new(row.generation, policy)));
        cache.repair(tables, policy, row);
        cache
    }
}

impl Cache {
    fn new(generation: u64, policy: &Policy) -> Self {
        let preferences = policy.preferences().len();
        Self {
            generation,
            facts_seen: None,
            use_seen: None,
            verdicts: Vec::new(),
            feasible: FixedBitSet::new(),
            by_use: Vec::new(),
            totals: Vec::new(),
            raw: Vec::new(),
            spread: vec![BTreeMap::new(); preferences],
            maxima: vec![0; preferences],
            heap: BinaryHeap::new(),
            diagnosis: diagnosis::Memo::default(),
        }
    }

    fn repair(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow) {
        let nodes = &tables.nodes;
        let span = nodes.table.span();
        if self.verdicts.len() < span {
            self.verdicts.resize(span, Some(Check::NodeGone));
            self.feasible.grow(span);
            self.by_use.resize(span, None);
            self.totals.resize(span, None);
            self.raw.resize(span * self.spread.len(), 0);
        }
        match self.facts_seen.and_then(|seen| nodes.facts_log.since(seen)) {
            Some(changed) => changed.iter().for_each(|node| self.judge(tables, policy, class, *node)),
            None => {
                (0..span).for_each(|node| self.judge(tables, policy, class, node.into()));
                self.use_seen = None;
            }
        }
        self.facts_seen = Some(nodes.facts_log.end());
        match self.use_seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some(changed) => changed.iter().for_each(|node| self.weigh(tables, policy, class, *node)),
            None => (0..span).for_each(|node| self.weigh(tables, policy, class, node.into())),
        }
        self.use_seen = Some(nodes.use_log.end());
        let maxima: Vec<i64> =
            self.spread.iter().map(|values| values.last_key_value().map_or(0, |(max, _)| *max)).collect();
        if maxima != self.maxima {
            self.maxima = maxima;
            for node in 0..span {
                self.totals[node] = self.by_use[node].map(|score| score.saturating_add(self.scaled(policy, node)));
            }
            self.rebuild();
        } else if self.heap.len() > 64 + 4 * span {
            self.rebuild();
        }
    }

    /// The best of the nodes that fit, with what is to be said about the very task.
    fn scan(
        &self,
        tables: &Tables,
        policy: &Policy,
        task: Option<TaskId>,
        within: Option<&FixedBitSet>,
    ) -> Option<NodeId> {
        let inside = |node: &usize| within.is_none_or(|nodes| nodes.contains(*node));
        let fitting = self.totals.iter().enumerate().filter(|(node, _)| inside(node));
        let fitting = fitting.filter_map(|(node, total)| Some((NodeId::from(node), (*total)?)));
        let Some(task) = task else {
            return fitting.max_by_key(|(node, score)| (*score, Reverse(*node))).map(|(node, _)| node);
        };
        let allowed = fitting.filter(|(node, _)| policy.check_task(tables, task, *node).is_none());
        let (nodes, mut scores): (Vec<NodeId>, Vec<i64>) = allowed.unzip();
        policy.score_task(tables, task, &nodes, &mut scores);
        let best = nodes.into_iter().zip(scores).max_by_key(|(node, score)| (*score, Reverse(*node)));
        best.map(|(node, _)| node)
    }

    /// Looks at a node's facts again.
    fn judge(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) {
        // What the node counted for among the candidates goes by its old preferences.
        self.leave(node);
        let row = tables.nodes.table.get(node.index());
        let verdict = row.map_or(Some(Check::NodeGone), |_| policy.check_facts(tables, class, node));
        self.verdicts[node.index()] = verdict;
        self.feasible.set(node.index(), verdict.is_none());
        if let (Some(row), None) = (row, verdict) {
            let kinds = self.spread.len();
            for (which, preference) in policy.preferences().iter().enumerate() {
                self.raw[node.index() * kinds + which] = (preference.raw)(&class.template, row);
            }
        }
    }

    /// Looks at a node's use again.
    fn weigh(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) {
        let index = node.index();
        let fits = self.verdicts[index].is_none()
            && tables.nodes.lacking(node, &class.demand).next().is_none()
            && policy.check_use(tables, class, node).is_none();
        if !fits {
            return self.leave(node);
        }
        if self.by_use[index].is_none() {
            for (which, values) in self.spread.iter_mut().enumerate() {
                *values.entry(self.raw[index * self.maxima.len() + which]).or_default() += 1;
            }
        }
        let score = policy.score(tables, class, node);
        self.by_use[index] = Some(score);
        let total = Some(score.saturating_add(self.scaled(policy, index)));
        if self.totals[index] != total {
            self.totals[index] = total;
            self.heap.extend(total.map(|total| (total, Reverse(node))));
        }
    }

    fn leave(&mut self, node: NodeId) {
        let index = node.index();
        if self.by_use[index].take().is_none() {
            return;
        }
        self.totals[index] = None;
        for (which, values) in self.spread.iter_mut().enumerate() {
            let raw = self.raw[index * self.maxima.len() + which];
            if let Some(count) = values.get_mut(&raw) {
                *count -= 1;
                if *count == 0 {
                    values.remove(&raw);
                }
            }
        }
    }

    fn scaled(&self, policy: &Policy, node: usize) -> i64 {
        const SCORE_MAX: i64 = 100;
        let kinds = self.spread.len();
        let scores = policy.preferences().iter().enumerate().map(|(which, preference)| {
            let max = self.maxima[which];
            let score = if max == 0 { 0 } else { self.raw[node * kinds + which].saturating_mul(SCORE_MAX) / max };
            preference.weight.saturating_mul(if preference.reverse { SCORE_MAX - score } else { score })
        });
        scores.fold(0, i64::saturating_add)
    }

    fn rebuild(&mut self) {
        let live = self.totals.iter().enumerate();
        self.heap = live.filter_map(|(node, total)| Some(((*total)?, Reverse(NodeId::from(node))))).collect();
    }
}

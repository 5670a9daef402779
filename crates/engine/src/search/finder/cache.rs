//! What is known of all nodes for one class: which fit now, and their scores; brought up to date from the nodes'
//! change logs. O(changed nodes) a question, and O(nodes / 64) for the best.
//!
//! Invariant: `totals` hold the score of exactly the nodes that fit now, as a scan of all nodes would give them.

use fixedbitset::FixedBitSet;

use super::scaled::Scaled;
use crate::cluster::classes::ClassRow;
use crate::ids::NodeId;
use crate::policy::Policy;
use crate::world::tables::Tables;

/// Nodes whose greatest score is kept together.
const BLOCK: usize = 64;
/// No score: the node does not fit now.
const UNFIT: i64 = i64::MIN;

#[derive(Debug)]
pub(super) struct Cache {
    pub(super) generation: u64,
    facts_seen: Option<u64>,
    use_seen: Option<u64>,
    /// Nodes whose facts allow the class.
    feasible: FixedBitSet,
    totals: Vec<i64>,
    /// The greatest total of each block.
    blocks: Vec<i64>,
    /// Blocks whose greatest total may have fallen; each once.
    stale: Vec<u32>,
    is_stale: FixedBitSet,
    /// Scores that depend on the candidates, where any node differs in them.
    scaled: Scaled,
    /// Nodes to be weighed, and their scores: kept for their memory.
    weighing: (Vec<NodeId>, Vec<i64>),
}

impl Cache {
    pub(super) fn new(generation: u64, policy: &Policy) -> Self {
        Self {
            generation,
            facts_seen: None,
            use_seen: None,
            feasible: FixedBitSet::new(),
            totals: Vec::new(),
            blocks: Vec::new(),
            stale: Vec::new(),
            is_stale: FixedBitSet::new(),
            scaled: Scaled::new(policy.preferences().len()),
            weighing: (Vec::new(), Vec::new()),
        }
    }

    /// Memory of a cache over so many nodes, in bytes, about.
    pub(super) fn bytes(nodes: usize) -> usize {
        nodes * size_of::<i64>() * (BLOCK + 1) / BLOCK + nodes / 4 + size_of::<Self>()
    }

    /// How many changes of nodes it has not taken in.
    pub(super) fn behind(&self, tables: &Tables) -> u64 {
        let nodes = &tables.nodes;
        let all = nodes.table.span() as u64;
        let facts = self.facts_seen.and_then(|seen| nodes.facts_log.since(seen));
        let uses = self.use_seen.and_then(|seen| nodes.use_log.since(seen));
        facts.zip(uses).map_or(all, |(facts, uses)| (facts.len() + uses.len()) as u64)
    }

    /// Takes in what has changed on the nodes.
    pub(super) fn repair(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow) {
        let nodes = &tables.nodes;
        let span = nodes.table.span();
        if self.totals.len() < span {
            self.feasible.grow(span);
            self.totals.resize(span, UNFIT);
            self.blocks.resize(span.div_ceil(BLOCK), UNFIT);
            self.is_stale.grow(self.blocks.len());
            self.scaled.grow(span);
        }
        let differed = self.scaled.differs();
        let facts = self.facts_seen.map(|seen| nodes.facts_log.since(seen));
        match facts {
            Some(Some(changed)) => changed.iter().for_each(|node| self.judge(tables, policy, class, *node)),
            _ => {
                (0..span).for_each(|node| self.judge(tables, policy, class, node.into()));
                self.use_seen = None;
            }
        }
        self.facts_seen = Some(nodes.facts_log.end());
        if self.scaled.differs() && !differed {
            // Nodes that were weighed while all were alike have to be counted.
            (0..span).for_each(|node| self.unfit(node.into()));
            self.use_seen = None;
        }
        match self.use_seen.and_then(|seen| nodes.use_log.since(seen)) {
            Some([]) => {}
            Some(changed) => self.weigh(tables, policy, class, changed.iter().copied()),
            None => self.weigh(tables, policy, class, (0..span).map(NodeId::from)),
        }
        self.use_seen = Some(nodes.use_log.end());
        if self.scaled.settle() {
            for node in 0..span {
                if self.totals[node] != UNFIT {
                    let total = self.scaled.total(policy, node.into());
                    self.put(node.into(), total);
                }
            }
        }
    }

    /// The node with the highest score; among equals the lowest id.
    pub(super) fn best(&mut self) -> Option<NodeId> {
        for block in self.stale.drain(..) {
            let block = block as usize;
            self.is_stale.set(block, false);
            let end = self.totals.len().min((block + 1) * BLOCK);
            self.blocks[block] = self.totals[block * BLOCK..end].iter().copied().max().unwrap_or(UNFIT);
        }
        let best = self.blocks.iter().copied().max().filter(|best| *best != UNFIT)?;
        let block = self.blocks.iter().position(|max| *max == best)?;
        let within = self.totals[block * BLOCK..].iter().position(|total| *total == best)?;
        Some(NodeId::from(block * BLOCK + within))
    }

    /// The score of a node, if it fits.
    pub(super) fn total(&self, node: NodeId) -> Option<i64> {
        self.totals.get(node.index()).copied().filter(|total| *total != UNFIT)
    }

    /// The nodes that fit.
    pub(super) fn fitting(&self) -> impl Iterator<Item = NodeId> {
        self.totals.iter().enumerate().filter(|(_, total)| **total != UNFIT).map(|(node, _)| NodeId::from(node))
    }

    /// The scores of nodes that fit, where only these are candidates.
    pub(super) fn scores_among(&self, policy: &Policy, nodes: &[NodeId]) -> Vec<i64> {
        let as_kept = |nodes: &[NodeId]| nodes.iter().map(|node| self.totals[node.index()]).collect();
        self.scaled.scores_among(policy, nodes).unwrap_or_else(|| as_kept(nodes))
    }

    /// Looks at a node's facts again.
    fn judge(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, node: NodeId) {
        // What the node counted for among the candidates goes by its old preferences.
        self.leave(node);
        let allows =
            tables.nodes.table.get(node.index()).is_some() && policy.check_facts(tables, class, node).is_none();
        self.feasible.set(node.index(), allows);
        if allows {
            self.scaled.judge(tables, policy, class, node);
        }
    }

    /// Looks at the use of nodes again.
    fn weigh(&mut self, tables: &Tables, policy: &Policy, class: &ClassRow, changed: impl Iterator<Item = NodeId>) {
        let (mut nodes, mut scores) = std::mem::take(&mut self.weighing);
        nodes.clear();
        for node in changed {
            let fits = self.feasible.contains(node.index()) && tables.nodes.fits(node, &class.demand);
            if fits {
                nodes.push(node);
            } else {
                self.leave(node);
            }
        }
        policy.keep_by_use(tables, class, &mut nodes, |node| self.leave(node));
        scores.clear();
        scores.resize(nodes.len(), 0);
        policy.score_nodes(tables, class, &nodes, &mut scores);
        for (node, score) in nodes.iter().zip(&scores) {
            let total = self.scaled.enter(policy, *node, *score, self.totals[node.index()] != UNFIT);
            self.put(*node, total);
        }
        self.weighing = (nodes, scores);
    }

    fn put(&mut self, node: NodeId, total: i64) {
        let (index, block) = (node.index(), node.index() / BLOCK);
        let old = std::mem::replace(&mut self.totals[index], total);
        if total >= self.blocks[block] {
            self.blocks[block] = total;
        } else if old == self.blocks[block] && !self.is_stale.put(block) {
            self.stale.push(u32::try_from(block).expect("a world holds fewer than 2^32 nodes"));
        }
    }

    fn unfit(&mut self, node: NodeId) {
        self.put(node, UNFIT);
    }

    fn leave(&mut self, node: NodeId) {
        if self.totals[node.index()] != UNFIT {
            self.scaled.leave(node);
            self.put(node, UNFIT);
        }
    }
}

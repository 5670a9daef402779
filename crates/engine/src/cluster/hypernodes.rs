//! HyperNodes: the parts of the network, as a tree over the nodes, under a virtual root that holds every node.
//!
//! Invariant: after `refresh` each HyperNode's set holds exactly the known nodes that it or a HyperNode below it names;
//! a member is always of a lower tier than what it is a member of, so there is no cycle; a HyperNode has one parent.
//! What breaks these rules is left out and reported. Refreshed at the start of a cycle, read by allocation inside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use thiserror::Error;

use crate::cluster::nodes::Nodes;
use crate::cluster::objects::Versioned;
use crate::facts::HyperNodeFacts;
use crate::ids::{HyperId, NodeId};

mod members;
pub(crate) use members::labels_match;
mod tree;

/// The virtual HyperNode above all others, as Volcano names it.
pub(crate) const ROOT_NAME: &str = "<cluster-top-hypernode>";
/// HyperNodes kept; further ones are reported and left out.
const HYPER_NODES_MAX: usize = 65_536;

/// The HyperNodes that hold one node, lowest tier first; the root is always the last.
pub(crate) type Chain = SmallVec<[HyperId; 4]>;

/// A HyperNode with its members looked up: which nodes and HyperNodes are in it.
#[derive(Debug, Clone)]
pub(crate) struct HyperRow {
    pub(crate) name: Arc<str>,
    pub(crate) tier: u32,
    pub(crate) tier_name: Arc<str>,
    /// None for the root only.
    pub(crate) parent: Option<HyperId>,
    pub(crate) children: Vec<HyperId>,
    pub(crate) nodes: FixedBitSet,
    /// How many there are in `nodes`.
    pub(crate) count: u32,
}

/// What of a HyperNode does not count, and why. The rest of it does.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum HyperNodeProblem {
    /// A member HyperNode is not there.
    #[error("HyperNode {hyper_node}: member HyperNode {member} does not exist")]
    Missing { hyper_node: String, member: String },
    /// A member HyperNode is not below it.
    #[error("HyperNode {hyper_node} of tier {tier}: member {member} must have a lower tier, not {member_tier}")]
    NotBelow { hyper_node: String, tier: u32, member: String, member_tier: u32 },
    /// A member HyperNode is already below another one.
    #[error("HyperNode {hyper_node}: member {member} belongs to {parent} already")]
    SecondParent { hyper_node: String, member: String, parent: String },
    /// The pattern of a member is no regular expression, or too large.
    #[error("HyperNode {hyper_node}: pattern {pattern:?} is not usable")]
    BadPattern { hyper_node: String, pattern: String },
    /// HyperNodes are not selected by labels.
    #[error("HyperNode {hyper_node}: member HyperNodes can't be selected by labels, name them")]
    LabelsOfHyperNodes { hyper_node: String },
    /// There are too many.
    #[error("HyperNode {hyper_node} is one more than the limit of {HYPER_NODES_MAX}")]
    TooMany { hyper_node: String },
}

/// The tree worked out of the facts.
#[derive(Debug)]
pub(crate) struct HyperNodes {
    /// By id; the root is the last.
    rows: Vec<HyperRow>,
    by_name: FxHashMap<Arc<str>, HyperId>,
    members: members::Members,
    /// By node; empty for a node that is not known.
    chains: Vec<Chain>,
    problems: Vec<HyperNodeProblem>,
    /// The version of the HyperNodes' facts that the tree was built of.
    built_of: Option<u64>,
    /// How far the log of the nodes' facts has been read.
    nodes_seen: Option<u64>,
    /// Counts changes of the tree or of any set.
    pub(crate) version: u64,
}

impl HyperNodes {
    pub(crate) fn new() -> Self {
        Self {
            rows: vec![tree::root(&[])],
            by_name: FxHashMap::default(),
            members: members::Members::default(),
            chains: Vec::new(),
            problems: Vec::new(),
            built_of: None,
            nodes_seen: None,
            version: 0,
        }
    }

    /// There is at least one beside the root.
    pub(crate) fn any(&self) -> bool {
        self.rows.len() > 1
    }

    /// Brings the tree up to date: O(changed nodes), or O(nodes + HyperNodes) after a change of HyperNodes.
    pub(crate) fn refresh(&mut self, facts: &Versioned<HyperNodeFacts>, nodes: &Nodes) {
        if self.built_of != Some(facts.version) {
            let built = tree::build(&facts.all);
            self.rows = built.rows;
            self.by_name = built.by_name;
            self.problems = built.problems;
            self.members = members::Members::new(&facts.all, &self.by_name, &mut self.problems);
            self.chains.clear();
            self.nodes_seen = None;
            self.built_of = Some(facts.version);
            self.version += 1;
        }
        let span = nodes.table.span();
        if self.chains.len() < span {
            self.chains.resize_with(span, Chain::new);
            self.rows.iter_mut().for_each(|row| row.nodes.grow(span));
        }
        match self.nodes_seen.and_then(|seen| nodes.facts_log.since(seen)) {
            Some(changed) => changed.iter().for_each(|node| self.assign_node(nodes, *node)),
            None => (0..span).for_each(|node| self.assign_node(nodes, node.into())),
        }
        self.nodes_seen = Some(nodes.facts_log.end());
    }

    /// Puts one node into the sets it belongs to, and out of all others.
    fn assign_node(&mut self, nodes: &Nodes, node: NodeId) {
        let known = nodes.table.get(node.index()).filter(|row| row.known);
        let chain = known.map_or_else(Chain::new, |row| self.chain(self.members.of(&row.name, &row.labels)));
        let old = std::mem::replace(&mut self.chains[node.index()], chain.clone());
        if old == chain {
            return;
        }
        self.version += 1;
        for hyper in old {
            let row = &mut self.rows[hyper.index()];
            row.nodes.set(node.index(), false);
            row.count -= 1;
        }
        for hyper in chain {
            let row = &mut self.rows[hyper.index()];
            row.nodes.insert(node.index());
            row.count += 1;
        }
    }

    /// The given HyperNodes and all above them, lowest first.
    fn chain(&self, direct: Chain) -> Chain {
        let mut chain = Chain::new();
        for hyper in direct.into_iter().chain([self.root()]) {
            chain.extend(self.path(hyper));
        }
        chain.sort_unstable_by_key(|hyper| (self.row(*hyper).tier, *hyper));
        chain.dedup();
        chain
    }

    /// From `hyper` up to the root.
    pub(crate) fn path(&self, hyper: HyperId) -> impl Iterator<Item = HyperId> + '_ {
        std::iter::successors(Some(hyper), |at| self.row(*at).parent)
    }

    pub(crate) fn row(&self, hyper: HyperId) -> &HyperRow {
        &self.rows[hyper.index()]
    }

    pub(crate) fn root(&self) -> HyperId {
        HyperId::from(self.rows.len() - 1)
    }

    /// The root's tier: soft topology is hard topology up to this.
    pub(crate) fn root_tier(&self) -> u32 {
        self.row(self.root()).tier
    }

    #[cfg(test)]
    pub(crate) fn find(&self, name: &str) -> Option<HyperId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = HyperId> + use<> {
        (0..self.rows.len()).map(HyperId::from)
    }

    /// All HyperNodes that hold the node, the lowest first.
    pub(crate) fn of_node(&self, node: NodeId) -> &[HyperId] {
        self.chains.get(node.index()).map_or(&[], SmallVec::as_slice)
    }

    /// The tier of that name: the lowest, where HyperNodes disagree.
    pub(crate) fn tier_named(&self, name: &str) -> Option<u32> {
        let named = self.rows.iter().filter(|row| !name.is_empty() && *row.tier_name == *name);
        named.map(|row| row.tier).min()
    }

    /// True if `above` is `below` or above it.
    pub(crate) fn holds(&self, above: HyperId, below: HyperId) -> bool {
        self.path(below).any(|hyper| hyper == above)
    }

    /// The lowest HyperNode above both, or one of them.
    pub(crate) fn common(&self, left: HyperId, right: HyperId) -> HyperId {
        self.path(left).find(|hyper| self.holds(*hyper, right)).unwrap_or_else(|| self.root())
    }

    /// The lowest HyperNode that holds all the nodes; none where there is no node, or one is not known any more.
    pub(crate) fn lowest_with(&self, nodes: impl IntoIterator<Item = NodeId>) -> Option<HyperId> {
        let mut nodes = nodes.into_iter();
        let mut chain: Chain = self.of_node(nodes.next()?).into();
        for node in nodes {
            chain.retain(|hyper| self.row(*hyper).nodes.contains(node.index()));
        }
        chain.first().copied()
    }

    /// The highest HyperNode at or above `hyper` whose tier is allowed.
    pub(crate) fn highest_within(&self, hyper: HyperId, tier_max: u32) -> Option<HyperId> {
        self.path(hyper).take_while(|hyper| self.row(*hyper).tier <= tier_max).last()
    }

    /// `hyper` and everything below it whose tier is allowed: tier by tier, lowest first, then by name.
    pub(crate) fn below(&self, hyper: HyperId, tier_max: u32) -> BTreeMap<u32, Vec<HyperId>> {
        let mut found: BTreeMap<u32, Vec<HyperId>> = BTreeMap::new();
        let mut left = vec![hyper];
        while let Some(hyper) = left.pop() {
            let row = self.row(hyper);
            left.extend(&row.children);
            if row.tier <= tier_max {
                found.entry(row.tier).or_default().push(hyper);
            }
        }
        found.values_mut().for_each(|hypers| hypers.sort_unstable());
        found
    }

    /// What of the HyperNodes does not count, and why.
    pub(crate) fn problems(&self) -> &[HyperNodeProblem] {
        &self.problems
    }
}

#[cfg(test)]
mod tests;

//! Topology spread: pods of a selection by domain, counted on eligible nodes only.
//!
//! Kubernetes counts a node only if it has all the topology keys of the pod's constraints and, by the constraint's
//! policies, if the pod's node affinity and tolerations allow it. Pods with equal rules share a row.
//! Invariant: `nodes` counts eligible nodes by domain, and `levels` holds the counts of the domains that have any.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use super::domains::NONE;
use super::tally::{Change, Levels, shifted};
use crate::cluster::node_matching;
use crate::cluster::nodes::NodeRow;
use crate::facts::{NodeTerm, PodTemplate, SpreadConstraint, Toleration};
use crate::ids::NodeId;

/// Which nodes count for a spread: by the pod's selectors, its tolerations, and the topology keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Eligible {
    node_selector: BTreeMap<String, String>,
    required_terms: Option<Vec<NodeTerm>>,
    /// `Some` where taints count.
    tolerations: Option<Vec<Toleration>>,
    /// All of these labels are there.
    keys: Vec<String>,
}

impl Eligible {
    /// The rule of one constraint of `template`, among constraints with these topology keys.
    pub(crate) fn new(template: &PodTemplate, constraint: &SpreadConstraint, keys: &[String]) -> Self {
        let honors = constraint.honors_affinity;
        Self {
            node_selector: if honors { template.node_selector.clone() } else { BTreeMap::new() },
            required_terms: if honors { template.required_terms.clone() } else { None },
            tolerations: if constraint.honors_taints { Some(template.tolerations.clone()) } else { None },
            keys: keys.to_vec(),
        }
    }

    pub(crate) fn admits(&self, row: Option<&NodeRow>) -> bool {
        row.filter(|row| row.known).is_some_and(|row| {
            self.keys.iter().all(|key| row.labels.contains_key(key))
                && node_matching::selects(&self.node_selector, self.required_terms.as_deref(), row)
                && self.tolerations.as_ref().is_none_or(|list| node_matching::untolerated(list, row).next().is_none())
        })
    }
}

/// The eligible nodes of one rule.
#[derive(Debug, Default)]
pub(crate) struct EligibleNodes(FixedBitSet);

impl EligibleNodes {
    pub(crate) fn has(&self, node: NodeId) -> bool {
        self.0.contains(node.index())
    }

    pub(crate) fn set(&mut self, node: NodeId, eligible: bool) {
        self.0.grow(node.index() + 1);
        self.0.set(node.index(), eligible);
    }
}

/// What makes a spread: places in `InterPod`'s tables of selections, topology keys and rules of eligibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SpreadKey {
    pub(crate) selection: u32,
    pub(crate) key: u32,
    pub(crate) eligible: u32,
}

#[derive(Debug, Default)]
pub(crate) struct SpreadRow {
    /// Pods by domain; those on their way out don't count.
    pub(crate) counts: Vec<u32>,
    nodes: Vec<u32>,
    pub(crate) levels: Levels,
}

impl SpreadRow {
    /// An eligible node of `domain` more, or less.
    pub(crate) fn count_node(&mut self, domain: u32, there: bool) {
        if domain == NONE {
            return;
        }
        let at = domain as usize;
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, 0);
            self.counts.resize(at + 1, 0);
        }
        if there {
            self.nodes[at] += 1;
            if self.nodes[at] == 1 {
                self.levels.enter(self.counts[at]);
            }
        } else {
            self.nodes[at] -= 1;
            if self.nodes[at] == 0 {
                self.levels.leave(self.counts[at]);
            }
        }
    }

    /// Pods on an eligible node of `domain`.
    pub(crate) fn add(&mut self, domain: u32, change: Change) {
        if domain == NONE || change.future == 0 {
            return;
        }
        let old = self.counts[domain as usize];
        let new = shifted(old, change.future);
        self.counts[domain as usize] = new;
        self.levels.shift(old, new);
    }
}

crate::save::saved! {
    Eligible { node_selector, required_terms, tolerations, keys };
    SpreadRow { counts, nodes, levels };
}

crate::save::saved_inside!(EligibleNodes);
crate::save::saved_unmarked!(SpreadKey { selection, key, eligible });

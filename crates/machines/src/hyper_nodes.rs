//! The HyperNode machine: parts of the network made from nodes' labels, and how many members each HyperNode has.
//!
//! Invariant: what is discovered depends on the configuration and on labels alone, so that every look, by whatever instance,
//! comes to the same HyperNodes of the same names; HyperNodes without the label of a source are people's and only counted.
//! Called by the HyperNode controller when a node's labels, a HyperNode or the configuration have changed.

mod by_label;
mod config;
mod members;

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::topology::HyperNode;

pub use config::{Discovery, DiscoveryError, LabelSource};
pub use members::{PATTERN_MAX, PatternError, pattern, selector};

/// The labels of one node: what parts of the network are made from.
pub type Labels = BTreeMap<String, String>;

/// What a step looks at.
pub struct NetworkView<'a> {
    /// What is to be discovered.
    pub discovery: &'a Discovery,
    /// The labels of each node.
    pub nodes: &'a BTreeMap<String, Labels>,
    /// Every HyperNode by name.
    pub hyper_nodes: &'a BTreeMap<String, &'a HyperNode>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum HyperNodeEffect {
    Create(Box<HyperNode>),
    /// Give an existing one this spec, and these labels beside its own.
    Update(Box<HyperNode>),
    /// Delete one that nothing stands behind any more; the uid guards a namesake.
    Delete {
        name: String,
        uid: String,
    },
    /// Write `status.nodeCount`.
    WriteCount {
        name: String,
        count: i64,
    },
}

/// Decides what to change now. `O(nodes × tiers + members + patterns × names)`.
pub fn step(view: &NetworkView<'_>) -> Vec<HyperNodeEffect> {
    let mut effects = view.discovery.label.as_ref().map(|source| by_label::step(source, view)).unwrap_or_default();
    let goes = |effect: &HyperNodeEffect| match effect {
        HyperNodeEffect::Delete { name, .. } => Some(name.clone()),
        _ => None,
    };
    let going: BTreeSet<String> = effects.iter().filter_map(goes).collect();
    for (name, hyper_node) in view.hyper_nodes {
        if hyper_node.metadata.deletion_timestamp.is_some() || going.contains(name) {
            continue;
        }
        let count = members::count(hyper_node, view);
        if count != hyper_node.status.node_count {
            effects.push(HyperNodeEffect::WriteCount { name: name.clone(), count });
        }
    }
    effects
}

#[cfg(test)]
mod tests;

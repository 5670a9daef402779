//! Gangs whose nodes share one value of a label (`armadaproject.io/gangNodeUniformityLabel`).
//!
//! To the engine each value of a label is a part of the network (HyperNode), and the label the name of its tier. A gang is
//! tried in one after the other until it fits as a whole. Invariant: members that run keep the others to their value.

use std::collections::{BTreeMap, BTreeSet};

use pumice_engine::plugin::{Alike, ClassRow, GroupId, HyperId, HyperSearch, Plugin, Tables};
use pumice_engine::{
    Delta, GroupFacts, HyperNodeFacts, HyperNodeMember, MemberKind, NodeFacts, Operator, Reason, Requirement,
    TopologySpec, World,
};
use pumice_fleet_model::names::CLUSTER_LABEL;

/// Its name in the configuration, and in front of what it says.
pub const NAME: &str = "uniformity";

/// The labels that gangs name, with their values.
#[derive(Debug, Default)]
pub struct Labels {
    /// In the order of their tiers, which begin at 1.
    names: Vec<String>,
    values: BTreeMap<String, BTreeSet<String>>,
}

/// Where the nodes of a gang lie; nothing where it names no label.
pub fn topology(label: &str) -> Option<TopologySpec> {
    if label.is_empty() {
        return None;
    }
    Some(TopologySpec { hard: true, highest_tier_name: Some(label.to_owned()), ..TopologySpec::default() })
}

impl Labels {
    /// What has to be told besides a gang: the values of its label, where it is a new one. O(nodes) then.
    pub fn gang(&mut self, facts: &GroupFacts, world: &World) -> Vec<Delta> {
        let label = facts.topology.as_ref().and_then(|topology| topology.highest_tier_name.as_ref());
        let Some(label) = label.filter(|label| !self.values.contains_key(*label)) else { return Vec::new() };
        self.names.push(label.clone());
        let values = world.label_values(label);
        let told = values.iter().map(|value| part(self.names.len(), label, value)).collect();
        self.values.insert(label.clone(), values);
        told
    }

    /// What has to be told besides a node.
    pub fn node(&mut self, facts: &NodeFacts) -> Vec<Delta> {
        let mut told = Vec::new();
        for (tier, label) in self.names.iter().enumerate() {
            let (Some(value), Some(known)) = (facts.labels.get(label), self.values.get_mut(label)) else { continue };
            if known.insert(value.clone()) {
                told.push(part(tier + 1, label, value));
            }
        }
        told
    }
}

fn part(tier: usize, label: &str, value: &str) -> Delta {
    let is = Requirement { key: label.to_owned(), operator: Operator::In, values: vec![value.to_owned()] };
    Delta::HyperNodeUpsert(HyperNodeFacts {
        name: format!("{label}={value}"),
        tier: u32::try_from(tier).unwrap_or(u32::MAX),
        tier_name: label.to_owned(),
        members: vec![HyperNodeMember { hyper_node: false, which: MemberKind::Labels(vec![is]) }],
    })
}

/// Keeps all members of a gang on nodes with one value of the label that the gang names.
#[derive(Debug)]
pub struct Uniformity;

fn label(tables: &Tables, group: GroupId) -> Option<&str> {
    tables.group(group).topology()?.highest_tier_name.as_deref()
}

impl Plugin for Uniformity {
    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, tables: &Tables, group: GroupId) -> Alike {
        if label(tables, group).is_some() { Alike::Alone } else { Alike::Key(0) }
    }

    fn job_valid(&self, tables: &Tables, group: GroupId) -> Option<Reason> {
        let label = label(tables, group).filter(|label| tables.hyper_nodes_of(label).is_empty())?;
        let message = match label {
            CLUSTER_LABEL => {
                "no cluster of the pool runs Volcano Jobs: one with Volcano, or of Pumice, is wanted".to_owned()
            }
            label => format!("no node has the label {label}, of which all nodes of the gang are to have one value"),
        };
        Some(Reason::Refused { plugin: NAME.to_owned(), message })
    }

    fn hyper_gradients(&self, tables: &Tables, search: &HyperSearch<'_>) -> Option<Vec<Vec<HyperId>>> {
        let label = label(tables, search.group)?;
        if search.within != tables.hyper_root() {
            return Some(vec![vec![search.within]]);
        }
        let placed: Vec<_> = tables.nodes_held_by(search.group).collect();
        let mut parts = tables.hyper_nodes_of(label);
        parts.retain(|part| placed.iter().all(|node| tables.is_in(*node, *part)));
        Some(vec![parts])
    }
}

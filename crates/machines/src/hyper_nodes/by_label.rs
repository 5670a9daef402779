//! HyperNodes from labels of nodes: nodes with equal values of a label are one part of the network.
//!
//! Invariant: a HyperNode stands for a type of network, a tier and a value; it keeps its name as long as any node has that
//! value. Names of new ones follow from what they stand for, so that making them twice is making them once.

use std::collections::{BTreeMap, BTreeSet};

use pumice_api::names::TOPOLOGY_SOURCE;
use pumice_api::topology::{ExactMatch, HyperNode, HyperNodeSpec, Member, MemberSelector, MemberType};
use pumice_objects::names::suffix;
use pumice_units::stable_hash;

use super::{HyperNodeEffect, LabelSource, NetworkView};

/// Value of the label of this source.
const SOURCE: &str = "label";
/// Names tried for one HyperNode before it is left out.
const NAMES_MAX: u64 = 100;
const TIER_NAME_MAX: usize = 253;

/// What a discovered HyperNode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Domain<'a> {
    network: &'a str,
    /// From 1.
    tier: usize,
    label: &'a str,
    value: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Below<'a> {
    Node(&'a str),
    Domain(Domain<'a>),
}

/// What to change of the discovered HyperNodes.
pub(super) fn step(source: &LabelSource, view: &NetworkView<'_>) -> Vec<HyperNodeEffect> {
    let domains = domains(source, view);
    let names = names(source, &domains, view);
    let mut effects = Vec::new();
    for (domain, below) in &domains {
        let Some(name) = names.get(domain) else { continue };
        let mut wanted = hyper_node(domain, name, below, &names);
        match view.hyper_nodes.get(name) {
            None => effects.push(HyperNodeEffect::Create(Box::new(wanted))),
            Some(held) if !agrees(held, &wanted) => {
                wanted.metadata.uid.clone_from(&held.metadata.uid);
                effects.push(HyperNodeEffect::Update(Box::new(wanted)));
            }
            Some(_) => {}
        }
    }
    let kept: BTreeSet<&str> = names.values().map(String::as_str).collect();
    for (name, held) in view.hyper_nodes {
        let is_ignored = source.ignored.iter().any(|network| name.starts_with(&prefix(network, "")));
        if is_discovered(held) && !kept.contains(name.as_str()) && !is_ignored {
            let uid = held.metadata.uid.clone().unwrap_or_default();
            effects.push(HyperNodeEffect::Delete { name: name.clone(), uid });
        }
    }
    effects
}

/// What there is, and what belongs to each.
fn domains<'a>(source: &'a LabelSource, view: &NetworkView<'a>) -> BTreeMap<Domain<'a>, BTreeSet<Below<'a>>> {
    let mut domains: BTreeMap<Domain<'_>, BTreeSet<Below<'_>>> = BTreeMap::new();
    for (node, labels) in view.nodes {
        for (network, tiers) in &source.types {
            let mut below = Below::Node(node);
            for (index, label) in tiers.iter().enumerate() {
                let Some(value) = labels.get(label) else { break };
                let domain = Domain { network, tier: index.saturating_add(1), label, value };
                domains.entry(domain).or_default().insert(below);
                below = Below::Domain(domain);
            }
        }
    }
    domains
}

/// A name for each: that of the HyperNode that stands for it, else a new one.
fn names<'a>(
    source: &'a LabelSource,
    domains: &BTreeMap<Domain<'a>, BTreeSet<Below<'a>>>,
    view: &NetworkView<'a>,
) -> BTreeMap<Domain<'a>, String> {
    let mut names: BTreeMap<Domain<'_>, String> = BTreeMap::new();
    for (name, held) in view.hyper_nodes.iter().filter(|(_, held)| is_discovered(held)) {
        let labels = held.metadata.labels.as_ref();
        for (network, tiers) in &source.types {
            for (index, label) in tiers.iter().enumerate() {
                let Some(value) = labels.and_then(|labels| labels.get(label)) else { continue };
                let domain = Domain { network, tier: index.saturating_add(1), label, value };
                if name.starts_with(&domain.prefix()) && domains.contains_key(&domain) {
                    names.entry(domain).or_insert_with(|| name.clone());
                }
            }
        }
    }
    let mut given: BTreeSet<String> = BTreeSet::new();
    for domain in domains.keys() {
        if names.contains_key(domain) {
            continue;
        }
        let is_free = |name: &String| !view.hyper_nodes.contains_key(name) && !given.contains(name);
        let Some(name) = (0..NAMES_MAX).map(|attempt| domain.name(attempt)).find(is_free) else { continue };
        given.insert(name.clone());
        names.insert(*domain, name);
    }
    names
}

/// Made by this source, and there to stay.
fn is_discovered(hyper_node: &HyperNode) -> bool {
    let labels = hyper_node.metadata.labels.as_ref();
    let source = labels.and_then(|labels| labels.get(TOPOLOGY_SOURCE));
    source.is_some_and(|source| source == SOURCE) && hyper_node.metadata.deletion_timestamp.is_none()
}

fn prefix(network: &str, tier: &str) -> String {
    format!("hypernode-{network}-tier{tier}")
}

impl Domain<'_> {
    fn prefix(&self) -> String {
        prefix(self.network, &format!("{}-", self.tier))
    }

    fn name(&self, attempt: u64) -> String {
        let tier = self.tier.to_string();
        let seed = hash([self.network, &tier, self.label, self.value].into_iter()).wrapping_add(attempt);
        format!("{}{}", self.prefix(), suffix(seed))
    }
}

/// Of texts with an end each.
fn hash<'t>(texts: impl Iterator<Item = &'t str>) -> u64 {
    stable_hash(texts.flat_map(|text| text.bytes().chain([0xff])))
}

fn hyper_node(
    domain: &Domain<'_>,
    name: &str,
    below: &BTreeSet<Below<'_>>,
    names: &BTreeMap<Domain<'_>, String>,
) -> HyperNode {
    let mut members: Vec<Member> = below
        .iter()
        .filter_map(|below| match below {
            Below::Node(node) => Some((MemberType::Node, (*node).to_owned())),
            Below::Domain(domain) => Some((MemberType::HyperNode, names.get(domain)?.clone())),
        })
        .map(|(type_, name)| Member {
            type_: Some(type_),
            selector: MemberSelector { exact_match: Some(ExactMatch { name }), ..MemberSelector::default() },
        })
        .collect();
    members.sort_by(|a, b| name_of(a).cmp(name_of(b)));
    let tier_name = if domain.label.len() <= TIER_NAME_MAX { domain.label.to_owned() } else { String::new() };
    let mut hyper_node = HyperNode {
        spec: HyperNodeSpec { tier: i64::try_from(domain.tier).unwrap_or(i64::MAX), tier_name, members },
        ..HyperNode::default()
    };
    hyper_node.metadata.name = Some(name.to_owned());
    let labels = [(TOPOLOGY_SOURCE, SOURCE), (domain.label, domain.value)];
    hyper_node.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    hyper_node
}

fn name_of(member: &Member) -> &str {
    member.selector.exact_match.as_ref().map_or("", |exact| exact.name.as_str())
}

/// Whether an existing one says what is wanted; labels that others put on it may stay.
fn agrees(held: &HyperNode, wanted: &HyperNode) -> bool {
    let labels = held.metadata.labels.as_ref();
    let has = |(key, value): (&String, &String)| labels.and_then(|labels| labels.get(key)) == Some(value);
    held.spec == wanted.spec && wanted.metadata.labels.iter().flatten().all(has)
}

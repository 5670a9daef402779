//! The tree of HyperNodes out of their facts. Ids go by name, so equal facts give equal trees. Called by `refresh`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::members::pattern;
use super::{HYPER_NODES_MAX, HyperNodeProblem, HyperRow, ROOT_NAME};
use crate::facts::{HyperNodeFacts, HyperNodeMember, MemberKind};
use crate::ids::HyperId;

/// The tree that `build` makes out of facts.
pub(super) struct Built {
    pub(super) rows: Vec<HyperRow>,
    pub(super) by_name: FxHashMap<Arc<str>, HyperId>,
    pub(super) problems: Vec<HyperNodeProblem>,
}

/// The root above `rows`: one tier above the highest, or 1.
pub(super) fn root(rows: &[HyperRow]) -> HyperRow {
    let tier = rows.iter().map(|row| row.tier).max().map_or(1, |tier| tier.saturating_add(1));
    row(ROOT_NAME.into(), tier, "".into())
}

fn row(name: Arc<str>, tier: u32, tier_name: Arc<str>) -> HyperRow {
    HyperRow { name, tier, tier_name, parent: None, children: Vec::new(), nodes: FixedBitSet::new(), count: 0 }
}

pub(super) fn build(facts: &BTreeMap<String, HyperNodeFacts>) -> Built {
    let mut problems = Vec::new();
    for name in facts.keys().skip(HYPER_NODES_MAX) {
        problems.push(HyperNodeProblem::TooMany { hyper_node: name.clone() });
    }
    let counted = || facts.iter().take(HYPER_NODES_MAX);
    // The root must stay above all: the highest tier there can be is one less than it.
    let mut rows: Vec<HyperRow> = counted()
        .map(|(name, facts)| row(name.as_str().into(), facts.tier.min(u32::MAX - 1), facts.tier_name.as_str().into()))
        .collect();
    let by_name: FxHashMap<Arc<str>, HyperId> =
        rows.iter().enumerate().map(|(index, row)| (row.name.clone(), index.into())).collect();
    // Lower parents first: a member that two claim belongs to the closer one.
    let mut parents: Vec<HyperId> = (0..rows.len()).map(HyperId::from).collect();
    parents.sort_by_key(|parent| (rows[parent.index()].tier, *parent));
    for parent in parents {
        let facts = &facts[&*rows[parent.index()].name];
        for member in facts.members.iter().filter(|member| member.hyper_node) {
            for child in children(&rows, &by_name, parent, member, &mut problems) {
                adopt(&mut rows, parent, child, &mut problems);
            }
        }
    }
    let top = HyperId::from(rows.len());
    let mut root = root(&rows);
    for (index, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.parent.is_none()) {
        row.parent = Some(top);
        root.children.push(index.into());
    }
    rows.push(root);
    problems.sort();
    problems.dedup();
    Built { rows, by_name, problems }
}

/// The HyperNodes that one member of `parent` names.
fn children(
    rows: &[HyperRow],
    by_name: &FxHashMap<Arc<str>, HyperId>,
    parent: HyperId,
    member: &HyperNodeMember,
    problems: &mut Vec<HyperNodeProblem>,
) -> Vec<HyperId> {
    let row = &rows[parent.index()];
    let hyper_node = || row.name.to_string();
    match &member.which {
        MemberKind::Exact(name) => {
            let child = by_name.get(name.as_str()).copied();
            if child.is_none() {
                problems.push(HyperNodeProblem::Missing { hyper_node: hyper_node(), member: name.clone() });
            }
            child.into_iter().collect()
        }
        MemberKind::Pattern(text) => {
            let Some(pattern) = pattern(text) else {
                problems.push(HyperNodeProblem::BadPattern { hyper_node: hyper_node(), pattern: text.clone() });
                return Vec::new();
            };
            // A pattern may match more than is meant: only what is below counts.
            let matching = |other: &&HyperRow| other.tier < row.tier && pattern.is_match(&other.name);
            rows.iter().filter(matching).map(|other| by_name[&other.name]).collect()
        }
        MemberKind::Labels(_) => {
            problems.push(HyperNodeProblem::LabelsOfHyperNodes { hyper_node: hyper_node() });
            Vec::new()
        }
    }
}

fn adopt(rows: &mut [HyperRow], parent: HyperId, child: HyperId, problems: &mut Vec<HyperNodeProblem>) {
    let (above, below) = (&rows[parent.index()], &rows[child.index()]);
    let (hyper_node, member) = (above.name.to_string(), below.name.to_string());
    if below.tier >= above.tier {
        let (tier, member_tier) = (above.tier, below.tier);
        problems.push(HyperNodeProblem::NotBelow { hyper_node, tier, member, member_tier });
        return;
    }
    match below.parent {
        None => {
            rows[child.index()].parent = Some(parent);
            rows[parent.index()].children.push(child);
        }
        Some(same) if same == parent => {}
        Some(other) => {
            let parent = rows[other.index()].name.to_string();
            problems.push(HyperNodeProblem::SecondParent { hyper_node, member, parent });
        }
    }
}

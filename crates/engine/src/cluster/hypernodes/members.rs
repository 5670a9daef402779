//! Which HyperNodes a node is a direct member of: by name, by pattern, by labels. Called when a node's facts change.

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Chain, HyperNodeProblem};
use crate::cluster::node_matching::selected;
use crate::facts::{HyperNodeFacts, MemberKind, Requirement};
use crate::ids::HyperId;

/// Longest pattern that is looked at.
const PATTERN_MAX: usize = 1024;
/// Memory that one compiled pattern may take, in bytes.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// The pattern, matched anywhere in a name as Go does; none where it is not usable.
pub(super) fn pattern(text: &str) -> Option<Regex> {
    if text.is_empty() || text.len() > PATTERN_MAX {
        return None;
    }
    RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).build().ok()
}

/// Do the labels meet all requirements? None at all are met by anything.
pub(crate) fn labels_match(requirements: &[Requirement], labels: &BTreeMap<String, String>) -> bool {
    let value = |key: &str| labels.get(key).map(String::as_str);
    requirements.iter().all(|requirement| selected(requirement, value(&requirement.key)))
}

/// The node members of all HyperNodes, arranged to be asked by node.
#[derive(Debug, Default)]
pub(super) struct Members {
    exact: FxHashMap<Arc<str>, SmallVec<[HyperId; 2]>>,
    patterns: Vec<(Regex, HyperId)>,
    labels: Vec<(Vec<Requirement>, HyperId)>,
}

impl Members {
    pub(super) fn new(
        facts: &BTreeMap<String, HyperNodeFacts>,
        by_name: &FxHashMap<Arc<str>, HyperId>,
        problems: &mut Vec<HyperNodeProblem>,
    ) -> Self {
        let mut members = Self::default();
        for (name, facts) in facts {
            let Some(hyper) = by_name.get(name.as_str()).copied() else { continue };
            for member in facts.members.iter().filter(|member| !member.hyper_node) {
                match &member.which {
                    MemberKind::Exact(node) => members.exact.entry(node.as_str().into()).or_default().push(hyper),
                    MemberKind::Labels(requirements) => members.labels.push((requirements.clone(), hyper)),
                    MemberKind::Pattern(text) => match pattern(text) {
                        Some(pattern) => members.patterns.push((pattern, hyper)),
                        None => problems
                            .push(HyperNodeProblem::BadPattern { hyper_node: name.clone(), pattern: text.clone() }),
                    },
                }
            }
        }
        members
    }

    /// The HyperNodes that name the node themselves, in no order that means anything.
    pub(super) fn of(&self, name: &str, labels: &BTreeMap<String, String>) -> Chain {
        let mut found: Chain = self.exact.get(name).into_iter().flatten().copied().collect();
        found.extend(self.patterns.iter().filter(|(pattern, _)| pattern.is_match(name)).map(|(_, hyper)| *hyper));
        found.extend(self.labels.iter().filter(|(wanted, _)| labels_match(wanted, labels)).map(|(_, hyper)| *hyper));
        found
    }
}

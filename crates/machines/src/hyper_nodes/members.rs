//! Members of a HyperNode: how they are named, and how many there are.
//!
//! Invariant: a pattern is matched anywhere in a name in time linear in it, and has the bounds that the scheduler has, so
//! that what admission takes the scheduler can use.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as Wire;
use pumice_api::topology::{HyperNode, Member, MemberType};
use pumice_objects::selector::{LabelSelector, SelectorError};
use regex::{Regex, RegexBuilder};

use super::{Labels, NetworkView};

/// Longest pattern, in bytes.
pub const PATTERN_MAX: usize = 1024;
/// Memory that a compiled pattern may take, in bytes.
const PATTERN_SIZE_MAX: usize = 1 << 20;

/// Why a pattern can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// There is none.
    #[error("member regexMatch pattern is required")]
    Empty,
    /// It is too long.
    #[error("it has {0} bytes and may have {PATTERN_MAX}")]
    TooLong(usize),
    /// It is no pattern.
    #[error("error parsing regexp: {0}")]
    Syntax(String),
}

/// Reads a pattern, in the syntax of RE2 as far as names of nodes need it.
pub fn pattern(text: &str) -> Result<Regex, PatternError> {
    match text.len() {
        0 => Err(PatternError::Empty),
        1..=PATTERN_MAX => RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).build().map_err(|error| {
            // The lines before draw the place.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            PatternError::Syntax(last.strip_prefix("error: ").unwrap_or(last).to_owned())
        }),
        length => Err(PatternError::TooLong(length)),
    }
}

/// Reads a selector of nodes.
pub fn selector(labels: &Wire) -> Result<LabelSelector, SelectorError> {
    // Maps, lists and texts always have JSON.
    LabelSelector::from_json(&serde_json::to_value(labels).unwrap_or_default())
}

/// Names of members. Those that are named count even where there is no such node, as in Volcano.
pub(super) fn count(hyper_node: &HyperNode, view: &NetworkView<'_>) -> i64 {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for member in &hyper_node.spec.members {
        if let Some(exact) = &member.selector.exact_match {
            names.insert(&exact.name);
        } else if let Some(regex) = &member.selector.regex_match {
            let Ok(pattern) = pattern(&regex.pattern) else { continue };
            names.extend(candidates(member, view).filter(|name| pattern.is_match(name)));
        } else if let Some(labels) = &member.selector.label_match {
            let Ok(selector) = selector(labels) else { continue };
            let selected = |labels: &Labels| selector.matches(|key| labels.get(key).map(String::as_str));
            names.extend(view.nodes.iter().filter(|(_, labels)| selected(labels)).map(|(name, _)| name.as_str()));
        }
    }
    i64::try_from(names.len()).unwrap_or(i64::MAX)
}

/// The names that a member's pattern is about.
fn candidates<'a>(member: &Member, view: &'a NetworkView<'_>) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    match member.type_ {
        Some(MemberType::HyperNode) => Box::new(view.hyper_nodes.keys().map(String::as_str)),
        _ => Box::new(view.nodes.keys().map(String::as_str)),
    }
}

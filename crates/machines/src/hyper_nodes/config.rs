//! What is to be discovered, from Volcano's `volcano-controller.conf`.
//!
//! Invariant: a text is read once, at the edge; a part that can't be used leaves what was discovered of it before alone, and
//! is told.

use std::collections::{BTreeMap, BTreeSet};

use pumice_objects::names::check_qualified_name;
use serde::Deserialize;
use serde_json::Value;

/// Longest text, in bytes.
const TEXT_MAX: usize = 1 << 20;
/// Longest name of a type of network.
const TYPE_NAME_MAX: usize = 20;
/// Most types of network in one configuration.
const TYPES_MAX: usize = 64;
/// Most tiers of a type.
const TIERS_MAX: usize = 16;

/// Why a configuration is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryError {
    /// It is too long.
    #[error("the configuration has {0} bytes and may have {TEXT_MAX}")]
    TooLong(usize),
    /// It is no such configuration.
    #[error("the configuration can't be read: {0}")]
    Syntax(String),
}

/// The sources that are on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    pub label: Option<LabelSource>,
}

/// Networks told by labels of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSource {
    /// The labels of each type of network, the lowest tier first. Types are as they stand in names.
    pub types: BTreeMap<String, Vec<String>>,
    /// Types that can't be used: theirs stays as it is.
    pub ignored: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    network_topology_discovery: Option<Vec<Source>>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    source: String,
    #[serde(default)]
    enabled: bool,
    #[serde(default)]
    config: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LabelConfig {
    #[serde(default)]
    network_topology_types: Option<BTreeMap<String, Vec<NodeLabel>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeLabel {
    node_label: String,
}

impl Discovery {
    /// Reads a configuration, and says what of it is ignored.
    pub fn parse(text: &str) -> Result<(Self, Vec<String>), DiscoveryError> {
        if text.len() > TEXT_MAX {
            return Err(DiscoveryError::TooLong(text.len()));
        }
        let mut discovery = Self::default();
        let mut problems = Vec::new();
        if text.trim().is_empty() {
            return Ok((discovery, problems));
        }
        let file: File = serde_saphyr::from_str(text).map_err(|error| DiscoveryError::Syntax(error.to_string()))?;
        for source in file.network_topology_discovery.into_iter().flatten().filter(|source| source.enabled) {
            match source.source.as_str() {
                "label" if discovery.label.is_some() => {
                    problems.push("source label is there twice: the first counts".into())
                }
                "label" => match LabelConfig::deserialize(&source.config) {
                    Ok(config) => {
                        let types = config.network_topology_types.unwrap_or_default();
                        discovery.label = Some(LabelSource::of(types, &mut problems));
                    }
                    Err(error) => problems.push(format!("source label: {error}")),
                },
                name => problems.push(format!("source {name:?} is not supported; use label")),
            }
        }
        Ok((discovery, problems))
    }
}

impl LabelSource {
    fn of(types: BTreeMap<String, Vec<NodeLabel>>, problems: &mut Vec<String>) -> Self {
        let mut source = Self::default();
        for (name, labels) in types {
            let clean = clean(&name);
            match tiers(&name, labels) {
                _ if source.types.len() >= TYPES_MAX => {
                    problems.push(format!("network {name:?} is beyond the first {TYPES_MAX}"));
                    source.ignored.insert(clean);
                }
                _ if clean.is_empty() => problems.push(format!("network {name:?} needs letters or digits in its name")),
                _ if source.types.contains_key(&clean) => {
                    problems
                        .push(format!("network {name:?} has the name of another one, but for case and punctuation"));
                }
                Ok(tiers) => drop(source.types.insert(clean, tiers)),
                Err(problem) => {
                    problems.push(format!("network {name:?} is ignored: {problem}"));
                    source.ignored.insert(clean);
                }
            }
        }
        source
    }
}

/// A type's name as it may stand in the names of objects.
fn clean(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).take(TYPE_NAME_MAX).collect()
}

/// The labels from the lowest tier up. They are listed from the highest down to that of the node itself, which is no tier.
fn tiers(name: &str, labels: Vec<NodeLabel>) -> Result<Vec<String>, String> {
    if name.len() > TYPE_NAME_MAX {
        return Err(format!("its name is longer than {TYPE_NAME_MAX} characters"));
    }
    let mut labels: Vec<String> = labels.into_iter().map(|label| label.node_label).collect();
    for (index, label) in labels.iter().enumerate() {
        check_qualified_name(label).map_err(|error| format!("label {label:?}: {error}"))?;
        if labels[..index].contains(label) {
            return Err(format!("label {label:?} is there twice"));
        }
    }
    labels.pop();
    if labels.len() > TIERS_MAX {
        return Err(format!("it has more than {TIERS_MAX} tiers"));
    }
    labels.reverse();
    Ok(labels)
}

//! Resource groups: what an administrator's file gives to pods of some namespaces or annotations.
//!
//! Invariant: a file is taken whole or refused whole, with the group that is wrong; the first group that a pod belongs to
//! counts, alone. The shell reads the file, and again when it changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Affinity, Toleration};
use pumice_api::names::RESOURCE_GROUP;
use pumice_objects::names::{check_dns1123_subdomain, check_label_value, check_qualified_name};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::view::annotations;

/// Longest file, in bytes.
const FILE_MAX: usize = 1 << 20;
/// Most groups of a file: each new pod is held against them one after the other.
const GROUPS_MAX: usize = 1_000;

/// Why a file of resource groups is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ResourceGroupsError {
    /// It is too long.
    #[error("the file has {0} bytes and may have {FILE_MAX}; give fewer resource groups")]
    TooLong(usize),
    /// There are too many groups.
    #[error("the file has {0} resource groups and may have {GROUPS_MAX}; give fewer")]
    TooMany(usize),
    /// It is not such a file.
    #[error("the file of resource groups can't be read: {0}")]
    Syntax(String),
    /// One group is wrong.
    #[error("resource group {name:?}: {reason}")]
    Group {
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// All groups, in the file's order. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceGroups(Arc<[ResourceGroup]>);

#[derive(Clone, Debug, PartialEq)]
struct ResourceGroup {
    members: Members,
    scheduler_name: Option<String>,
    node_selector: BTreeMap<String, String>,
    tolerations: Vec<Value>,
    affinity: Option<Value>,
}

/// Which pods belong to a group.
#[derive(Clone, Debug, PartialEq)]
enum Members {
    Namespaces(Vec<String>),
    /// Those with any of these annotations.
    Annotations(Vec<(String, String)>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    resource_groups: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    resource_group: String,
    #[serde(default)]
    object: Object,
    #[serde(default)]
    scheduler_name: Option<String>,
    #[serde(default)]
    tolerations: Option<Vec<Toleration>>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    /// JSON in a text.
    #[serde(default)]
    affinity: Option<String>,
}

#[derive(Default, Deserialize)]
struct Object {
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    value: Option<Vec<String>>,
}

impl ResourceGroups {
    /// Reads a file in Volcano's format (`--admission-conf`). An empty one has no groups.
    pub fn parse(text: &str) -> Result<Self, ResourceGroupsError> {
        if text.len() > FILE_MAX {
            return Err(ResourceGroupsError::TooLong(text.len()));
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let file: File =
            serde_saphyr::from_str(text).map_err(|error| ResourceGroupsError::Syntax(error.to_string()))?;
        let entries = file.resource_groups.unwrap_or_default();
        if entries.len() > GROUPS_MAX {
            return Err(ResourceGroupsError::TooMany(entries.len()));
        }
        let group = |entry: Entry| {
            let name = entry.resource_group.clone();
            ResourceGroup::of(entry).map_err(|reason| ResourceGroupsError::Group { name, reason })
        };
        entries.into_iter().map(group).collect::<Result<Vec<_>, _>>().map(|groups| Self(groups.into()))
    }

    /// Gives a new pod what its group has for it, and says whether it changed.
    pub(super) fn apply(&self, pod: &mut Value, namespace: &str) -> bool {
        let group = self.0.iter().find(|group| group.members.have(pod, namespace));
        match (group, pod.get_mut("spec").and_then(Value::as_object_mut)) {
            (Some(group), Some(spec)) => group.apply(spec),
            _ => false,
        }
    }
}

impl ResourceGroup {
    fn of(entry: Entry) -> Result<Self, String> {
        let scheduler_name = entry.scheduler_name.filter(|name| !name.is_empty());
        if let Some(name) = &scheduler_name {
            check_dns1123_subdomain(name).map_err(|error| format!("schedulerName {name:?}: {error}"))?;
        }
        let node_selector = entry.labels.unwrap_or_default();
        for (key, value) in &node_selector {
            let checked = check_qualified_name(key).and_then(|()| check_label_value(value));
            checked.map_err(|error| format!("labels {key:?}: {error}"))?;
        }
        let json = |toleration: &Toleration| serde_json::to_value(toleration).map_err(|error| error.to_string());
        let tolerations = entry.tolerations.iter().flatten().map(json).collect::<Result<_, _>>()?;
        Ok(Self {
            members: Members::of(entry.object, &entry.resource_group)?,
            affinity: entry.affinity.as_deref().map(affinity).transpose()?.flatten(),
            scheduler_name,
            node_selector,
            tolerations,
        })
    }

    fn apply(&self, spec: &mut Map<String, Value>) -> bool {
        let mut changed = false;
        if let Some(name) = &self.scheduler_name {
            changed |= set(spec, "schedulerName", name.as_str().into());
        }
        if !self.node_selector.is_empty()
            && let Value::Object(selector) = filled(spec, "nodeSelector", || Value::Object(Map::new()))
        {
            for (key, value) in &self.node_selector {
                changed |= set(selector, key, value.as_str().into());
            }
        }
        if !self.tolerations.is_empty()
            && let Value::Array(tolerations) = filled(spec, "tolerations", || Value::Array(Vec::new()))
        {
            for toleration in &self.tolerations {
                if !tolerations.contains(toleration) {
                    tolerations.push(toleration.clone());
                    changed = true;
                }
            }
        }
        if let Some(affinity) = &self.affinity
            && spec.get("affinity").is_none_or(Value::is_null)
        {
            spec.insert("affinity".to_owned(), affinity.clone());
            changed = true;
        }
        changed
    }
}

impl Members {
    /// Without a key, pods that name the group belong to it, too.
    fn of(object: Object, group: &str) -> Result<Self, String> {
        let values = object.value.unwrap_or_default();
        match object.key.as_deref().unwrap_or_default() {
            "namespace" => Ok(Self::Namespaces(values)),
            key @ ("annotation" | "") => {
                let mut pairs = Vec::new();
                for value in values {
                    let read: BTreeMap<String, String> = serde_saphyr::from_str(&value)
                        .map_err(|_| format!("object.value {value:?} is no annotation; write \"key: value\""))?;
                    pairs.extend(read);
                }
                if key.is_empty() && !group.is_empty() {
                    pairs.push((RESOURCE_GROUP.to_owned(), group.to_owned()));
                }
                Ok(Self::Annotations(pairs))
            }
            key => Err(format!("object.key {key:?} is unknown; use namespace or annotation")),
        }
    }

    fn have(&self, pod: &Value, namespace: &str) -> bool {
        match self {
            Self::Namespaces(namespaces) => namespaces.iter().any(|name| name == namespace),
            Self::Annotations(pairs) => {
                let Some(annotations) = annotations(pod) else { return false };
                pairs.iter().any(|(key, value)| annotations.get(key).and_then(Value::as_str) == Some(value))
            }
        }
    }
}

/// An affinity from its JSON, with the fields that pods have.
fn affinity(text: &str) -> Result<Option<Value>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let typed: Affinity = serde_json::from_str(text).map_err(|error| format!("affinity can't be read: {error}"))?;
    serde_json::to_value(typed).map(Some).map_err(|error| error.to_string())
}

fn set(members: &mut Map<String, Value>, key: &str, value: Value) -> bool {
    if members.get(key) == Some(&value) {
        return false;
    }
    members.insert(key.to_owned(), value);
    true
}

/// A member, made if it is absent; one of a wrong type is left for the schema to refuse.
fn filled<'a>(spec: &'a mut Map<String, Value>, key: &str, empty: impl FnOnce() -> Value) -> &'a mut Value {
    let member = spec.entry(key).or_insert(Value::Null);
    if member.is_null() {
        *member = empty();
    }
    member
}

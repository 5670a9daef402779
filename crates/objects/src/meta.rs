//! Reading and writing `metadata` of an object held as JSON.
//!
//! Invariant: readers never fail — what is absent or of the wrong type reads as absent; writers
//! make `metadata` (and the object) where it is missing. Called by the API server's pipeline,
//! garbage collection and everything that looks at objects without a typed view.

mod validate;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

pub use validate::{ObjectScope, validate};

/// One entry of `metadata.ownerReferences`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OwnerReference {
    /// API version of the owner, like `batch.volcano.sh/v1alpha1`.
    pub api_version: String,
    /// Kind of the owner.
    pub kind: String,
    /// Name of the owner, in the same namespace or of cluster scope.
    pub name: String,
    /// Uid of the owner.
    pub uid: String,
    /// Whether the owner manages the object; at most one may.
    pub controller: bool,
    /// Whether the owner's foreground deletion waits for the object.
    pub block_owner_deletion: bool,
}

impl OwnerReference {
    /// The entry as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": self.controller,
            "blockOwnerDeletion": self.block_owner_deletion,
        })
    }

    fn from_json(entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Self {
            api_version: text("apiVersion"),
            kind: text("kind"),
            name: text("name"),
            uid: text("uid"),
            controller: entry["controller"].as_bool().unwrap_or_default(),
            block_owner_deletion: entry["blockOwnerDeletion"].as_bool().unwrap_or_default(),
        }
    }
}

/// The object's `apiVersion`; empty where it is missing or no text.
pub fn api_version(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap_or_default()
}

/// The object's `kind`; empty where it is missing or no text.
pub fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
}

/// The object's `metadata.name`; empty where it is missing or no text.
pub fn name(object: &Value) -> &str {
    text(object, "name").unwrap_or_default()
}

/// `metadata.generateName`, where set and not empty.
pub fn generate_name(object: &Value) -> Option<&str> {
    text(object, "generateName").filter(|base| !base.is_empty())
}

/// `metadata.namespace`, where set and not empty.
pub fn namespace(object: &Value) -> Option<&str> {
    text(object, "namespace").filter(|namespace| !namespace.is_empty())
}

/// `metadata.uid`, where set and not empty.
pub fn uid(object: &Value) -> Option<&str> {
    text(object, "uid").filter(|uid| !uid.is_empty())
}

/// `metadata.resourceVersion` as the store's revision; `None` where absent, empty or no number.
pub fn resource_version(object: &Value) -> Option<u64> {
    text(object, "resourceVersion").and_then(|text| text.parse().ok())
}

/// `metadata.generation`, 0 where absent.
pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// `metadata.labels` as pairs, in key order.
pub fn labels(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    pairs(object, "labels")
}

/// The value of the label `key`; `None` where it is missing or no text.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"].get(key)?.as_str()
}

/// `metadata.annotations` as pairs, in key order.
pub fn annotations(object: &Value) -> impl Iterator<Item = (&str, &str)> {
    pairs(object, "annotations")
}

/// The value of the annotation `key`; `None` where it is missing or no text.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(key)?.as_str()
}

/// `metadata.ownerReferences`; missing members read as empty.
pub fn owner_references(object: &Value) -> Vec<OwnerReference> {
    let entries = object["metadata"]["ownerReferences"].as_array();
    entries.into_iter().flatten().map(OwnerReference::from_json).collect()
}

/// The owner that manages the object.
pub fn controller(object: &Value) -> Option<OwnerReference> {
    owner_references(object).into_iter().find(|owner| owner.controller)
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let entries = object["metadata"]["finalizers"].as_array();
    entries.into_iter().flatten().filter_map(Value::as_str)
}

/// `metadata.creationTimestamp`.
pub fn creation_timestamp(object: &Value) -> Option<Timestamp> {
    text(object, "creationTimestamp").and_then(parse_time)
}

/// `metadata.deletionTimestamp`: set once the object is on its way out.
pub fn deletion_timestamp(object: &Value) -> Option<Timestamp> {
    text(object, "deletionTimestamp").and_then(parse_time)
}

/// `metadata.deletionGracePeriodSeconds`.
pub fn deletion_grace_period_seconds(object: &Value) -> Option<i64> {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64()
}

/// A moment as Kubernetes writes `Time`: RFC 3339, UTC, whole seconds.
pub fn format_time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A moment as Kubernetes writes `MicroTime`: RFC 3339, UTC, six decimals.
pub fn format_micro_time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// The moment in an RFC 3339 text.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Sets `metadata.name`; the name is taken as it is.
pub fn set_name(object: &mut Value, name: &str) {
    metadata_mut(object).insert("name".into(), name.into());
}

/// Sets `metadata.namespace`; `None` removes it.
pub fn set_namespace(object: &mut Value, namespace: Option<&str>) {
    set_or_remove(object, "namespace", namespace.map(Value::from));
}

/// Sets `metadata.uid`; the API server does so once, on create.
pub fn set_uid(object: &mut Value, uid: &str) {
    metadata_mut(object).insert("uid".into(), uid.into());
}

/// Sets `metadata.resourceVersion`; `None` removes it.
pub fn set_resource_version(object: &mut Value, revision: Option<u64>) {
    let text = revision.map(|revision| revision.to_string().into());
    set_or_remove(object, "resourceVersion", text);
}

/// Sets `metadata.generation`, which grows with each change of the spec.
pub fn set_generation(object: &mut Value, generation: i64) {
    metadata_mut(object).insert("generation".into(), generation.into());
}

/// Sets `metadata.creationTimestamp`, in whole seconds of UTC.
pub fn set_creation_timestamp(object: &mut Value, moment: Timestamp) {
    metadata_mut(object).insert("creationTimestamp".into(), format_time(moment).into());
}

/// Sets `metadata.deletionTimestamp`; `None` removes it.
pub fn set_deletion_timestamp(object: &mut Value, moment: Option<Timestamp>) {
    let text = moment.map(|moment| format_time(moment).into());
    set_or_remove(object, "deletionTimestamp", text);
}

/// Sets `metadata.deletionGracePeriodSeconds`; `None` removes it.
pub fn set_deletion_grace_period_seconds(object: &mut Value, seconds: Option<i64>) {
    set_or_remove(object, "deletionGracePeriodSeconds", seconds.map(Value::from));
}

/// Sets the label `key`, making `metadata.labels` if there are none.
pub fn set_label(object: &mut Value, key: &str, value: &str) {
    map_mut(object, "labels").insert(key.to_owned(), value.into());
}

/// Sets the annotation `key`, making `metadata.annotations` if there are none.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) {
    map_mut(object, "annotations").insert(key.to_owned(), value.into());
}

/// Sets `metadata.finalizers`; an empty list removes it.
pub fn set_finalizers<'a>(object: &mut Value, finalizers: impl IntoIterator<Item = &'a str>) {
    let list: Vec<Value> = finalizers.into_iter().map(Value::from).collect();
    let list = (!list.is_empty()).then_some(Value::Array(list));
    set_or_remove(object, "finalizers", list);
}

/// Sets `metadata.ownerReferences`; an empty list removes it.
pub fn set_owner_references(object: &mut Value, owners: &[OwnerReference]) {
    let list: Vec<Value> = owners.iter().map(OwnerReference::to_json).collect();
    let list = (!list.is_empty()).then_some(Value::Array(list));
    set_or_remove(object, "ownerReferences", list);
}

/// The `metadata` map, made where it is missing or no map; likewise the object itself.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_map(as_map(object), "metadata")
}

fn map_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    child_map(metadata_mut(object), key)
}

fn child_map<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    as_map(map.entry(key).or_insert(Value::Null))
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

fn set_or_remove(object: &mut Value, key: &str, value: Option<Value>) {
    let metadata = metadata_mut(object);
    match value {
        Some(value) => metadata.insert(key.to_owned(), value),
        None => metadata.remove(key),
    };
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"][key].as_str()
}

fn pairs<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let map = object["metadata"][key].as_object();
    map.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests;

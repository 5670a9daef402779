//! `metadata.managedFields`: who owns which fields.
//!
//! Invariant: an entry is known by who wrote, how, and by which way; none is empty. What says nothing sensible is no entry.

use std::cmp::Ordering;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::{By, Operation};

/// Most managers that only updated; the oldest become one. Upstream's limit.
const UPDATERS_MAX: usize = 10;
/// The name of those.
const ANCIENT: &str = "ancient-changes";

/// An owner of fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: Fields,
}

impl Manager {
    /// Who writes now, with no fields yet.
    pub(super) fn new(by: &By<'_>, operation: Operation) -> Self {
        Self {
            name: by.manager.to_owned(),
            operation,
            api_version: by.api_version.to_owned(),
            subresource: by.subresource.to_owned(),
            time: Some(by.now.to_owned()),
            fields: Fields::default(),
        }
    }

    /// Whether both are the same owner. Who applies is one, in whatever version.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn parse(entry: &Value) -> Option<Self> {
        let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
        let operation = match entry["operation"].as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if entry["fieldsType"] != "FieldsV1" {
            return None;
        }
        Some(Self {
            name: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: entry["time"].as_str().map(str::to_owned),
            fields: Fields::parse(&entry["fieldsV1"])?,
        })
    }

    fn to_json(&self) -> Value {
        let operation = if self.operation == Operation::Apply { "Apply" } else { "Update" };
        let mut entry = json!({
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_json(),
            "operation": operation,
        });
        let optional =
            [("manager", Some(&self.name)), ("subresource", Some(&self.subresource)), ("time", self.time.as_ref())];
        for (name, value) in optional {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                entry[name] = json!(value);
            }
        }
        entry
    }

    /// The order in the list: who applies first, then by time.
    fn compare(&self, other: &Self) -> Ordering {
        let is_update = |one: &Self| one.operation == Operation::Update;
        is_update(self)
            .cmp(&is_update(other))
            .then_with(|| self.time.cmp(&other.time))
            .then_with(|| self.name.cmp(&other.name))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }
}

/// As conflicts name it.
impl std::fmt::Display for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.name)?;
        if !self.subresource.is_empty() {
            write!(f, " with subresource {:?}", self.subresource)?;
        }
        if self.operation == Operation::Update {
            write!(f, " using {}", self.api_version)?;
            if let Some(time) = &self.time {
                write!(f, " at {time}")?;
            }
        }
        Ok(())
    }
}

/// Takes the managers out of an object.
pub(super) fn take(object: &mut Value) -> Vec<Manager> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let entries = metadata.and_then(|metadata| metadata.remove("managedFields"));
    let entries = entries.as_ref().and_then(Value::as_array).into_iter().flatten();
    entries.filter_map(Manager::parse).collect()
}

/// Puts the managers that own something into an object.
pub(super) fn put(object: &mut Value, mut managers: Vec<Manager>) {
    managers.retain(|manager| !manager.fields.is_empty());
    managers.sort_by(Manager::compare);
    cap(&mut managers);
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Some(metadata) = metadata.as_object_mut() {
        if managers.is_empty() {
            metadata.remove("managedFields");
        } else {
            metadata.insert("managedFields".to_owned(), managers.iter().map(Manager::to_json).collect());
        }
    }
}

/// Makes one of the oldest of too many updaters. They are sorted, the oldest first.
fn cap(managers: &mut Vec<Manager>) {
    let first = managers.iter().position(|manager| manager.operation == Operation::Update).unwrap_or(managers.len());
    while managers.len() - first > UPDATERS_MAX {
        let oldest = managers.remove(first);
        let next = &mut managers[first];
        next.fields.add(&oldest.fields);
        ANCIENT.clone_into(&mut next.name);
        next.subresource.clear();
    }
}

/// Fields that nobody owns: who wrote them does not matter, or the server does.
pub(super) fn without_owner(mut fields: Fields) -> Fields {
    let server = json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {}, "f:deletionTimestamp": {},
            "f:deletionGracePeriodSeconds": {}},
    });
    if let Some(server) = Fields::parse(&server) {
        fields.subtract(&server);
    }
    fields
}

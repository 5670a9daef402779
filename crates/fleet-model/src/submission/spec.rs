//! Reading pod specs that are JSON, of whatever shape until they are checked.
//!
//! Invariant: [`check_bounds`] is not recursive and stops at the limits, so that what comes after it may be.

use serde_json::{Map, Value};

use super::ItemError;

/// Deepest nesting of a pod spec; Kubernetes' own needs eleven levels.
pub const DEPTH_MAX: usize = 32;

/// Refuses what is nested too deep, or has more values or text than a pod spec of `size_max` bytes.
pub fn check_bounds(spec: &Value, size_max: usize) -> Result<(), ItemError> {
    let mut size = 0_usize;
    let mut open = vec![(spec, 0)];
    while let Some((value, depth)) = open.pop() {
        size = size.saturating_add(if let Value::String(text) = value { text.len() } else { 1 });
        let children = match value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            _ => 0,
        };
        if children > 0 && depth >= DEPTH_MAX {
            return Err(ItemError::PodSpecTooDeep { max: DEPTH_MAX });
        }
        // Each child counts at least one: no more is put on the stack than may be there.
        if size.saturating_add(children) > size_max {
            return Err(ItemError::PodSpecTooLarge { max: size_max });
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(fields) => open.extend(fields.values().map(|field| (field, depth + 1))),
            _ => {}
        }
    }
    Ok(())
}

/// The items of a list; none where there is no list.
pub fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A field's text; empty where there is none.
pub fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

/// Whether an init container runs beside the others.
pub fn is_sidecar(init_container: &Value) -> bool {
    text(init_container, "restartPolicy") == "Always"
}

/// All containers that run together: the main ones, then sidecars.
pub fn running(spec: &Value) -> impl Iterator<Item = &Value> {
    let sidecars = list(spec, "initContainers").iter().filter(|container| is_sidecar(container));
    list(spec, "containers").iter().chain(sidecars)
}

/// Ports of containers that run together: container, port.
pub fn ports(spec: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    running(spec).flat_map(|container| list(container, "ports").iter().map(move |port| (container, port)))
}

/// A field that is an object, made where it is none.
pub fn object_mut<'v>(fields: &'v mut Map<String, Value>, name: &str) -> &'v mut Map<String, Value> {
    let value = fields.entry(name).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made one")
}

/// A field that is a list, made where it is none.
pub fn list_mut<'v>(fields: &'v mut Map<String, Value>, name: &str) -> &'v mut Vec<Value> {
    let value = fields.entry(name).or_insert(Value::Null);
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it was made one")
}

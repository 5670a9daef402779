//! What Kubernetes writes of a kind's `spec` and `status` where nobody gave them.
//!
//! Its types are Go structs, whose JSON has a struct that is no pointer whether anything is in it or not, and many a zero, so
//! that a Node always has a `spec` and a Service a `status.loadBalancer`; clients count on it. Invariant: what is written follows
//! from the table of messages, which is made of those types, down to the first list; nothing that was given is changed. Nulls, as
//! Go writes lists that were not given, are left out. Filled in where objects are written: answers are the stored text. Called by
//! the write verbs.

use std::slice;

use pumice_objects::protobuf;
use serde_json::{Map, Value};

/// The parts of an object that are looked at.
const PARTS: [&str; 2] = ["spec", "status"];

/// The parts that a kind always has. Empty for kinds that definitions add: upstream has no types of them.
#[derive(Default)]
pub(crate) struct ZeroValues {
    parts: Vec<Part>,
}

pub(crate) struct Part {
    name: &'static str,
    /// What stands in it, however little was given.
    zero: Map<String, Value>,
}

impl ZeroValues {
    /// Those of the built-in kind with this component.
    pub(crate) fn of_builtin(component: &str) -> Self {
        let mut zero = protobuf::builtin().decode_message(message_of(component), &[]).unwrap_or_default();
        let parts = PARTS.into_iter().filter_map(|name| {
            let Value::Object(mut zero) = zero[name].take() else { return None };
            drop_nulls(&mut zero);
            Some(Part { name, zero })
        });
        Self { parts: parts.collect() }
    }

    pub(crate) fn all(&self) -> &[Part] {
        &self.parts
    }

    /// The part that a write of the status alone fills in; empty for kinds without one.
    pub(crate) fn status(&self) -> &[Part] {
        self.parts.iter().find(|part| part.name == PARTS[1]).map_or(&[], slice::from_ref)
    }
}

/// What the table of messages calls a component: by its last three words, as `core.v1.Pod`.
fn message_of(component: &str) -> &str {
    let dot = component.rmatch_indices('.').nth(2);
    dot.and_then(|(index, _)| component.get(index + 1..)).unwrap_or(component)
}

/// Fills in what is missing of these parts. A look-up for each value that Go writes, of which a pod has none.
pub(crate) fn fill(parts: &[Part], object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    for part in parts {
        match fields.get_mut(part.name) {
            None | Some(Value::Null) => {
                fields.insert(part.name.to_owned(), Value::Object(part.zero.clone()));
            }
            Some(given) => merge(given, &part.zero),
        }
    }
}

/// The schema says what is wrong with what is of another type.
fn merge(given: &mut Value, zero: &Map<String, Value>) {
    let Some(given) = given.as_object_mut() else { return };
    for (name, zero) in zero {
        match (given.get_mut(name), zero) {
            (None | Some(Value::Null), _) => {
                given.insert(name.clone(), zero.clone());
            }
            (Some(given), Value::Object(zero)) => merge(given, zero),
            (Some(_), _) => {}
        }
    }
}

fn drop_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().filter_map(Value::as_object_mut).for_each(drop_nulls);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::builtin;

    fn least(kind: &str) -> Value {
        let descriptors = builtin::descriptors();
        let descriptor = descriptors.iter().find(|one| one.kind == kind).expect("a kind");
        let mut object = json!({});
        fill(descriptor.zero_values.all(), &mut object);
        object
    }

    #[test]
    fn parts_are_those_that_go_writes() {
        for (kind, wanted) in [
            ("ConfigMap", json!({})),
            ("CSINode", json!({ "spec": {} })),
            ("DeviceClass", json!({ "spec": {} })),
            ("Event", json!({})),
            ("Lease", json!({ "spec": {} })),
            ("Namespace", json!({ "spec": {}, "status": {} })),
            ("NetworkPolicy", json!({ "spec": { "podSelector": {} } })),
            ("PersistentVolumeClaim", json!({ "spec": { "resources": {} }, "status": {} })),
            ("Pod", json!({ "spec": {}, "status": {} })),
            (
                "ReplicaSet",
                json!({ "spec": { "template": { "metadata": {}, "spec": {} } }, "status": { "replicas": 0 } }),
            ),
            ("ResourceClaim", json!({ "spec": { "devices": {} }, "status": {} })),
            ("Service", json!({ "spec": {}, "status": { "loadBalancer": {} } })),
        ] {
            assert_eq!(least(kind), wanted, "{kind}");
        }
        let node = least("Node");
        assert_eq!(node["status"]["daemonEndpoints"], json!({ "kubeletEndpoint": { "Port": 0 } }));
        assert_eq!((&node["spec"], &node["status"]["nodeInfo"]["architecture"]), (&json!({}), &json!("")));
    }

    /// A kind that is not in the table would get nothing, and nobody would hear of it.
    #[test]
    fn every_kind_is_in_the_table() {
        for descriptor in builtin::descriptors().iter().filter(|one| one.review.is_none()) {
            let message = message_of(&descriptor.component);
            assert!(protobuf::builtin().message(message).is_some(), "{message}");
            let properties = &crate::schemas::components()[&descriptor.component]["properties"];
            for part in descriptor.zero_values.all() {
                assert!(properties[part.name].is_object(), "{} has no {}", descriptor.kind, part.name);
            }
        }
    }

    #[test]
    fn what_was_given_stays() {
        let parts = ZeroValues::of_builtin("io.k8s.api.core.v1.Service");
        let mut object = json!({ "spec": { "type": "ClusterIP" }, "status": null });
        fill(parts.all(), &mut object);
        let wanted = json!({ "spec": { "type": "ClusterIP" }, "status": { "loadBalancer": {} } });
        assert_eq!(object, wanted);
        fill(parts.all(), &mut object);
        assert_eq!(object, wanted);
        let mut odd = json!({ "spec": 3 });
        fill(parts.all(), &mut odd);
        assert_eq!(odd["spec"], 3);
        let slice = ZeroValues::of_builtin("io.k8s.api.resource.v1.ResourceSlice");
        let mut object = json!({ "spec": { "driver": "d", "pool": { "name": "p", "resourceSliceCount": null } } });
        fill(slice.all(), &mut object);
        let pool = json!({ "name": "p", "generation": 0, "resourceSliceCount": 0 });
        assert_eq!(object, json!({ "spec": { "driver": "d", "pool": pool } }));
        let mut status = json!({});
        fill(parts.status(), &mut status);
        assert_eq!(status, json!({ "status": { "loadBalancer": {} } }));
        assert!(ZeroValues::default().all().is_empty());
    }
}

//! Readers on odd metadata, writers on missing metadata, and the common checks.

use serde_json::{Value, json};

use super::*;
use crate::names::NameRule;

#[test]
fn readers_find_what_is_there() {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "42", "generation": 3,
            "labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"},
            "finalizers": ["f/a", "f/b"],
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "deletionTimestamp": "2026-01-02T03:04:06+00:00",
            "deletionGracePeriodSeconds": 30,
            "ownerReferences": [
                {"apiVersion": "a/v1", "kind": "K", "name": "o", "uid": "i"},
                {"apiVersion": "a/v1", "kind": "K", "name": "c", "uid": "j", "controller": true}
            ]
        }
    });
    assert_eq!((api_version(&object), kind(&object)), ("v1", "Pod"));
    assert_eq!((name(&object), namespace(&object)), ("p", Some("n")));
    assert_eq!((uid(&object), resource_version(&object)), (Some("u"), Some(42)));
    assert_eq!(generation(&object), 3);
    assert_eq!(labels(&object).collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    assert_eq!((label(&object, "b"), annotation(&object, "x")), (Some("2"), Some("y")));
    assert_eq!(finalizers(&object).collect::<Vec<_>>(), ["f/a", "f/b"]);
    let created = creation_timestamp(&object).unwrap();
    let deleted = deletion_timestamp(&object).unwrap();
    assert_eq!(deleted.as_second() - created.as_second(), 1);
    assert_eq!(deletion_grace_period_seconds(&object), Some(30));
    assert_eq!(owner_references(&object).len(), 2);
    assert_eq!(controller(&object).unwrap().name, "c");
}

#[test]
fn readers_take_odd_metadata_for_absent() {
    for object in [
        json!(null),
        json!(5),
        json!([]),
        json!({}),
        json!({"metadata": null}),
        json!({"metadata": {"name": 5, "namespace": "", "labels": [], "finalizers": {}, "ownerReferences": 3, "resourceVersion": "x", "creationTimestamp": "soon"}}),
    ] {
        assert_eq!((name(&object), namespace(&object)), ("", None));
        assert_eq!(labels(&object).count() + finalizers(&object).count(), 0);
        assert_eq!(owner_references(&object), []);
        assert_eq!(resource_version(&object), None);
        assert_eq!(creation_timestamp(&object), None);
    }
}

#[test]
fn writers_make_what_is_missing_and_remove_what_is_none() {
    let moment: jiff::Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
    let mut object = Value::Null;
    set_name(&mut object, "p");
    set_namespace(&mut object, Some("n"));
    set_resource_version(&mut object, Some(7));
    set_label(&mut object, "a", "1");
    set_annotation(&mut object, "b", "2");
    set_creation_timestamp(&mut object, moment);
    set_finalizers(&mut object, ["f"]);
    assert_eq!(
        object,
        json!({"metadata": {
            "name": "p", "namespace": "n", "resourceVersion": "7",
            "labels": {"a": "1"}, "annotations": {"b": "2"},
            "creationTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["f"]
        }})
    );
    set_namespace(&mut object, None);
    set_resource_version(&mut object, None);
    set_finalizers(&mut object, []);
    set_owner_references(&mut object, &[]);
    assert_eq!(
        object["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["annotations", "creationTimestamp", "labels", "name"]
    );
    assert_eq!(format_micro_time(moment), "2026-01-02T03:04:05.678901Z");
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "K".into(),
        name: "o".into(),
        uid: "u".into(),
        controller: true,
        block_owner_deletion: true,
    };
    set_owner_references(&mut object, std::slice::from_ref(&owner));
    assert_eq!(owner_references(&object), [owner]);
}

#[test]
fn common_checks_name_the_field() {
    let check = |metadata: Value, scope| {
        let errors = validate(&json!({"metadata": metadata}), scope, NameRule::Subdomain);
        errors.iter().map(|error| format!("{} {:?}", error.path, error.kind)).collect::<Vec<_>>()
    };
    let namespaced = |metadata| check(metadata, ObjectScope::Namespaced);
    assert_eq!(namespaced(json!({"name": "a", "namespace": "b"})), [""; 0]);
    assert_eq!(namespaced(json!({"namespace": "b"})), ["metadata.name Required"]);
    assert_eq!(namespaced(json!({"name": "a"})), ["metadata.namespace Required"]);
    assert_eq!(check(json!({"name": "a", "namespace": "b"}), ObjectScope::Cluster), ["metadata.namespace Forbidden"]);
    assert_eq!(
        namespaced(json!({
            "name": "A", "namespace": "b.c", "generation": -1,
            "labels": {"a b": "x", "c": "-", "d": 1},
            "annotations": {"UPPER.io/x": "any text", "/": ""},
            "finalizers": ["bad one"],
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "K", "name": "a", "uid": "", "controller": true},
                {"apiVersion": "v1", "kind": "K", "name": "b", "uid": "2", "controller": true}
            ]
        })),
        [
            "metadata.name Invalid",
            "metadata.namespace Invalid",
            "metadata.generation Invalid",
            "metadata.labels Invalid",
            "metadata.labels Invalid",
            "metadata.labels.d TypeInvalid",
            "metadata.annotations Invalid",
            "metadata.ownerReferences[0].uid Invalid",
            "metadata.ownerReferences Invalid",
            "metadata.finalizers[0] Invalid",
        ]
    );
    let big = "x".repeat(256 * 1024);
    assert_eq!(
        namespaced(json!({"name": "a", "namespace": "b", "annotations": {"k": big}})),
        ["metadata.annotations TooLong"]
    );
}

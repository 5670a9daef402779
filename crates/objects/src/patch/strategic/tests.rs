//! Lists that merge by key, orders, directives, and what is no patch.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A kind with each sort of list that Kubernetes' types have.
fn schema() -> Schema {
    let text = json!({"type": "string"});
    let named = json!({"type": "object", "properties": {
        "name": text, "value": text, "image": text,
        "env": {"type": "array", "items": {"$ref": "#/components/schemas/Named"},
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
        "args": {"type": "array", "items": text},
    }});
    let components = json!({ "Named": named });
    let kind = json!({"type": "object", "properties": {
        "labels": {"type": "object", "additionalProperties": text},
        "finalizers": {"type": "array", "items": text, "x-kubernetes-patch-strategy": "merge"},
        "containers": {"type": "array", "items": {"$ref": "#/components/schemas/Named"},
            "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
        "volumes": {"type": "array", "items": {"$ref": "#/components/schemas/Named"},
            "x-kubernetes-patch-strategy": "merge,retainKeys", "x-kubernetes-patch-merge-key": "name"},
        "template": {"type": "object", "x-kubernetes-patch-strategy": "replace", "additionalProperties": text},
        "keyless": {"type": "array", "items": {"type": "object", "additionalProperties": text},
            "x-kubernetes-patch-strategy": "merge"},
        "strategy": {"type": "object", "properties": {"type": text, "rolling": {"type": "object"}},
            "x-kubernetes-patch-strategy": "retainKeys"},
        "replicas": {"type": "integer"},
    }});
    Schema::from_openapi(&kind, components.as_object().unwrap()).unwrap()
}

#[test]
fn patches_merge_as_upstream_does() {
    for (what, object, patch, expected) in [
        ("scalars are set", json!({"replicas": 1}), json!({"replicas": 2}), json!({"replicas": 2})),
        (
            "null deletes, also what is not there",
            json!({"replicas": 1}),
            json!({"replicas": null, "x": null}),
            json!({}),
        ),
        (
            "maps merge",
            json!({"labels": {"a": "1", "b": "2"}}),
            json!({"labels": {"b": null, "c": "3"}}),
            json!({"labels": {"a": "1", "c": "3"}}),
        ),
        (
            "items merge by key, new ones stand before what the patch names after them",
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]}),
            json!({"containers": [{"name": "c", "image": "2"}, {"name": "b", "image": "2", "args": ["x"]}]}),
            json!({"containers": [{"name": "c", "image": "2"}, {"name": "a", "image": "1"},
                {"name": "b", "image": "2", "args": ["x"]}]}),
        ),
        (
            "lists in items merge too, those without a strategy are replaced",
            json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}], "args": ["1", "2"]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}], "args": ["3"]}]}),
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}],
                "args": ["3"]}]}),
        ),
        (
            "an item is deleted by its key",
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "nobody", "$patch": "delete"}]}),
            json!({"containers": [{"name": "b"}]}),
        ),
        (
            "a list is replaced",
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"containers": [{"$patch": "replace"}, {"name": "c", "image": null}]}),
            json!({"containers": [{"name": "c"}]}),
        ),
        (
            "an object is replaced, or emptied",
            json!({"labels": {"a": "1"}, "strategy": {"type": "x"}}),
            json!({"labels": {"$patch": "replace", "b": "2"}, "strategy": {"$patch": "delete"}}),
            json!({"labels": {"b": "2"}, "strategy": {}}),
        ),
        (
            "what its strategy replaces",
            json!({"template": {"a": "1"}}),
            json!({"template": {"b": "2"}}),
            json!({"template": {"b": "2"}}),
        ),
        (
            "scalars of a list are a set",
            json!({"finalizers": ["a", "b"]}),
            json!({"finalizers": ["c", "a"]}),
            json!({"finalizers": ["c", "a", "b"]}),
        ),
        (
            "scalars are taken out of a list",
            json!({"finalizers": ["a", "b", "c"]}),
            json!({"$deleteFromPrimitiveList/finalizers": ["b"], "$setElementOrder/finalizers": ["c", "a"]}),
            json!({"finalizers": ["c", "a"]}),
        ),
        (
            "the stated order, and others where they stood",
            json!({"containers": [{"name": "a"}, {"name": "s"}, {"name": "b"}, {"name": "t"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}],
                "containers": [{"name": "n", "image": "1"}]}),
            json!({"containers": [{"name": "s"}, {"name": "b"}, {"name": "n", "image": "1"}, {"name": "a"}, {"name": "t"}]}),
        ),
        (
            "an order alone sorts, or says nothing",
            json!({"containers": [{"name": "a"}, {"name": "b"}]}),
            json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "$setElementOrder/volumes": []}),
            json!({"containers": [{"name": "b"}, {"name": "a"}]}),
        ),
        (
            "an order of a list that is replaced",
            json!({"containers": [{"name": "a", "args": ["1"]}]}),
            json!({"containers": [{"name": "a", "$setElementOrder/args": ["3", "2"], "args": ["2", "3"]}]}),
            json!({"containers": [{"name": "a", "args": ["2", "3"]}]}),
        ),
        (
            "keys that are retained",
            json!({"strategy": {"type": "rolling", "rolling": {}}}),
            json!({"strategy": {"$retainKeys": ["type"], "type": "recreate"}}),
            json!({"strategy": {"type": "recreate"}}),
        ),
        (
            "what is new has no nulls and no directives",
            json!({}),
            json!({"containers": [{"name": "a", "image": null, "env": [{"name": "x", "$patch": "delete"}]}],
                "strategy": {"$retainKeys": ["type"], "type": "x"}, "labels": {"$patch": "replace", "a": "1"}}),
            json!({"containers": [{"name": "a", "env": []}], "strategy": {"type": "x"}}),
        ),
        (
            "of equal keys the first is meant",
            json!({"containers": [{"name": "a", "image": "1"}, {"name": "a", "image": "2"}]}),
            json!({"containers": [{"name": "a", "image": "3"}]}),
            json!({"containers": [{"name": "a", "image": "3"}, {"name": "a", "image": "2"}]}),
        ),
        ("a value of another type", json!({"labels": {"a": "1"}}), json!({"labels": 3}), json!({"labels": 3})),
        ("nothing", json!({"replicas": 1}), json!({}), json!({"replicas": 1})),
    ] {
        let before = object.clone();
        assert_eq!(apply_strategic_merge_patch(&object, &patch, &schema()).unwrap(), expected, "{what}");
        assert_eq!(object, before);
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let object = json!({"containers": [{"name": "a"}], "keyless": [{"a": "1"}], "finalizers": ["a"]});
    for (patch, code, message) in [
        (json!([1]), 400, "invalid patch format: patch must be an object"),
        (
            json!({"labels": 1, "$patch": "merge"}),
            400,
            "unknown patch type: \"merge\"; $patch must be \"delete\" or \"replace\"",
        ),
        (
            json!({"containers": [{"name": "a", "$patch": 3}]}),
            400,
            "unknown patch type: 3; $patch must be \"delete\" or \"replace\"",
        ),
        (json!({"containers": [{"image": "x"}]}), 422, "an item of a list does not contain declared merge key: name"),
        (
            json!({"containers": [{"$patch": "delete"}]}),
            422,
            "an item of a list does not contain declared merge key: name",
        ),
        (json!({"keyless": [{"b": "2"}]}), 422, "cannot merge lists without merge key"),
        (json!({"finalizers": [{"b": "2"}]}), 422, "list element types are not identical"),
        (json!({"finalizers": [["b"]]}), 422, "lists of lists are not supported"),
        (json!({"$setElementOrder/containers": 1}), 400, "invalid patch format: $setElementOrder must be a list"),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": 1}),
            400,
            "invalid patch format: what $setElementOrder orders must be a list",
        ),
        (
            json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]}),
            400,
            "the order in the patch list doesn't match its $setElementOrder list at \"b\"",
        ),
        (
            json!({"$deleteFromPrimitiveList/finalizers": "a"}),
            400,
            "invalid patch format: $deleteFromPrimitiveList must be a list",
        ),
        (
            json!({"$retainKeys": ["a"], "b": 1}),
            400,
            "invalid patch format: $retainKeys must be a list of all fields beside it",
        ),
        (json!({"$retainKeys": "a"}), 400, "invalid patch format: $retainKeys must be a list"),
    ] {
        let error = apply_strategic_merge_patch(&object, &patch, &schema()).unwrap_err();
        let status = crate::Status::from(error);
        assert_eq!((status.code, status.message.as_str()), (code, message), "{patch}");
    }
    let deep = (0..DEPTH_MAX + 1).fold(json!(1), |value, _| json!({ "a": value }));
    assert!(matches!(apply_strategic_merge_patch(&object, &deep, &schema()), Err(PatchError::TooDeep { .. })));
}

/// Values with names that mean something to the schema or to patches.
fn value() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec![
        "name",
        "value",
        "env",
        "containers",
        "finalizers",
        "labels",
        "volumes",
        "strategy",
        "template",
        DIRECTIVE,
        RETAIN_KEYS,
        "$setElementOrder/containers",
        "$setElementOrder/finalizers",
        "$deleteFromPrimitiveList/finalizers",
    ]);
    let scalar = prop_oneof![
        Just(Value::Null),
        prop::sample::select(vec![json!("a"), json!("b"), json!("delete"), json!("replace"), json!(1)])
    ];
    scalar.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 0..4).prop_map(|members| Value::Object(
                members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
            )),
        ]
    })
}

/// An object as it is stored: without nulls, with no member of a directive's name.
fn stored() -> impl Strategy<Value = Value> {
    value().prop_map(|value| match fresh(&value) {
        Some(Value::Object(members)) => Value::Object(members),
        _ => json!({}),
    })
}

proptest! {
    #[test]
    fn no_patch_panics_or_leaves_directives(object in stored(), patch in value()) {
        if let Ok(new) = apply_strategic_merge_patch(&object, &patch, &schema()) {
            let again = apply_strategic_merge_patch(&new, &json!({}), &schema()).unwrap();
            prop_assert_eq!(again, new);
        }
    }

    /// A new list is taken as it is, even where it names something twice, so the second time may still merge those.
    #[test]
    fn without_directives_a_third_time_changes_nothing(object in stored(), patch in stored()) {
        let apply = |object: &Value| apply_strategic_merge_patch(object, &patch, &schema());
        if let Ok(twice) = apply(&object).and_then(|once| apply(&once)) {
            prop_assert_eq!(apply(&twice).unwrap(), twice);
        }
    }
}

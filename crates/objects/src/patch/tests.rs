//! Patches that apply, that do not, and that would grow without bound.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn refusal(object: Value, patch: Value) -> (u16, String) {
    let error = apply_json_patch(&object, &patch).unwrap_err();
    let status = Status::from(error);
    (status.code, status.message)
}

#[test]
fn json_patches_apply_in_order() {
    let object = json!({"a": {"b": [1, 2]}, "c~d/e": "x"});
    for (patch, expected) in [
        (json!([]), object.clone()),
        (
            json!([{"op": "add", "path": "/a/b/-", "value": 3}, {"op": "remove", "path": "/a/b/0"}]),
            json!({"a": {"b": [2, 3]}, "c~d/e": "x"}),
        ),
        (
            json!([{"op": "test", "path": "/c~0d~1e", "value": "x"}, {"op": "replace", "path": "/c~0d~1e", "value": null}]),
            json!({"a": {"b": [1, 2]}, "c~d/e": null}),
        ),
        (
            json!([{"op": "move", "from": "/a/b", "path": "/f"}, {"op": "copy", "from": "/f/1", "path": "/f/0"}]),
            json!({"a": {}, "f": [2, 1, 2], "c~d/e": "x"}),
        ),
        (json!([{"op": "add", "path": "", "value": {"n": 1}}]), json!({"n": 1})),
    ] {
        assert_eq!(apply_json_patch(&object, &patch).unwrap(), expected, "{patch}");
    }
}

#[test]
fn refusals_say_which_operation_and_path() {
    let object = json!({"a": 1, "l": [0]});
    for (patch, code, message) in [
        (json!([{"op": "test", "path": "/a", "value": 2}]), 422, "testing value /a failed: test failed"),
        (
            json!([{"op": "remove", "path": "/x"}]),
            422,
            "remove operation does not apply: doc is missing path: \"/x\": missing value",
        ),
        (
            json!([{"op": "add", "path": "/x/y", "value": 1}]),
            422,
            "add operation does not apply: doc is missing path: \"/x/y\": missing value",
        ),
        (
            json!([{"op": "add", "path": "/l/7", "value": 1}]),
            422,
            "add operation does not apply: doc is missing path: \"/l/7\": missing value",
        ),
        (
            json!([{"op": "copy", "from": "/y", "path": "/z"}]),
            422,
            "copy operation does not apply: doc is missing path: \"/y\": missing value",
        ),
        (
            json!([{"op": "move", "from": "/l", "path": "/l/0"}]),
            422,
            "move operation does not apply: \"/l\" cannot move into itself",
        ),
    ] {
        assert_eq!(refusal(object.clone(), patch), (code, message.to_owned()));
    }
    for patch in [
        json!({}),
        json!(null),
        json!([{"op": "grow", "path": "/a"}]),
        json!([{"op": "add", "path": "a", "value": 1}]),
        json!([1]),
    ] {
        let (code, message) = refusal(object.clone(), patch);
        assert_eq!(code, 400);
        assert!(message.starts_with("error decoding patch: "), "{message}");
    }
}

#[test]
fn growth_is_bounded() {
    let too_many = Value::Array(vec![json!({"op": "test", "path": "", "value": 1}); 10_001]);
    assert_eq!(
        refusal(json!(1), too_many),
        (413, "The allowed maximum operations in a JSON patch is 10000, got 10001".into())
    );

    // Each copy doubles the document: thirty of them would make a billion values.
    let doubling: Vec<Value> =
        (0..30).map(|index| json!({"op": "copy", "from": "/a", "path": format!("/a/{index}")})).collect();
    let (code, message) = refusal(json!({"a": {"seed": "x".repeat(1000)}}), doubling.into());
    assert_eq!(code, 413);
    assert!(message.starts_with("Unable to complete the copy"), "{message}");

    // Each move puts the document one level deeper.
    let deepening: Vec<Value> = (0..200)
        .flat_map(|_| {
            [
                json!({"op": "move", "from": "/a", "path": "/b"}),
                json!({"op": "add", "path": "/a", "value": {}}),
                json!({"op": "move", "from": "/b", "path": "/a/c"}),
            ]
        })
        .collect();
    let (code, message) = refusal(json!({"a": {}}), deepening.into());
    assert_eq!((code, message.as_str()), (400, "move operation makes the object deeper than 128 levels"));

    let inserts = vec![json!({"op": "add", "path": "/0", "value": 0}); 9_000];
    let (code, _) = refusal(Value::Array(vec![json!(0); 10_000]), inserts.into());
    assert_eq!(code, 413);
}

#[test]
fn merge_patches_follow_the_rfc() {
    for (object, patch, expected) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c"]), json!(["c"])),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let mut result = object.clone();
        apply_merge_patch(&mut result, &patch).unwrap();
        assert_eq!(result, expected, "{object} with {patch}");
    }
    let deep = (0..129).fold(json!(1), |inner, _| json!({"a": inner}));
    let mut object = json!({"k": 1});
    assert!(apply_merge_patch(&mut object, &deep).is_err());
    assert_eq!(object, json!({"k": 1}));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn replacing_the_whole_gives_the_new(old in any_value(), new in any_value()) {
        let patch = json!([{"op": "replace", "path": "", "value": new}]);
        prop_assert_eq!(apply_json_patch(&old, &patch).unwrap(), new);
    }

    #[test]
    fn merging_twice_is_merging_once(mut object in any_value(), patch in any_value()) {
        apply_merge_patch(&mut object, &patch).unwrap();
        let once = object.clone();
        apply_merge_patch(&mut object, &patch).unwrap();
        prop_assert_eq!(object, once);
    }

    #[test]
    fn no_pointer_panics(object in any_value(), pointer in "(/[a-c0-2~-]{0,2}){0,3}") {
        for operation in ["add", "remove", "replace", "test"] {
            let patch = json!([{"op": operation, "path": pointer, "value": 1}]);
            let _ = apply_json_patch(&object, &patch);
        }
        for operation in ["move", "copy"] {
            let patch = json!([{"op": operation, "from": pointer, "path": "/a"}]);
            let _ = apply_json_patch(&object, &patch);
        }
    }
}

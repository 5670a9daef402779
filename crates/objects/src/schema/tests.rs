//! Limits, malformed schemas, and the laws of the walk. What it finds is in the golden cases.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn compile(schema: Value) -> Schema {
    Schema::from_openapi(&schema, &Map::new()).unwrap()
}

fn refusal(schema: Value) -> String {
    Schema::from_openapi(&schema, &Map::new()).unwrap_err().to_string()
}

fn nested(levels: usize, leaf: Value, wrap: impl Fn(Value) -> Value) -> Value {
    (0..levels).fold(leaf, |inner, _| wrap(inner))
}

#[test]
fn malformed_schemas_are_refused_with_their_place() {
    for (schema, message) in [
        (json!(5), "schema at \"\": schema must be an object"),
        (json!({"type": 5}), "schema at \"\": type must be a text"),
        (
            json!({"properties": {"a": {"items": {"type": "text"}}}}),
            "schema at \"properties[a].items\": type \"text\" must be one of integer, number, string, boolean, object, array",
        ),
        (json!({"properties": []}), "schema at \"\": properties must be a map"),
        (json!({"required": [1]}), "schema at \"\": required must be a list of texts"),
        (json!({"minLength": -1}), "schema at \"\": minLength must be a count"),
        (json!({"nullable": "yes"}), "schema at \"\": nullable must be a boolean"),
        (
            json!({"anyOf": [{"type": "x"}]}),
            "schema at \"anyOf[0]\": type \"x\" must be one of integer, number, string, boolean, object, array",
        ),
        (
            json!({"additionalProperties": {"pattern": "("}}),
            "schema at \"additionalProperties\": pattern \"(\" cannot be used",
        ),
        (json!({"pattern": "(a{1000}){1000}"}), "schema at \"\": pattern \"(a{1000}){1000}\" cannot be used"),
        (
            json!({"items": {"$ref": "#/components/schemas/x"}}),
            "schema at \"items\": $ref \"#/components/schemas/x\" leads to no known component",
        ),
    ] {
        assert_eq!(refusal(schema), message);
    }
    let deep = nested(200, json!({"type": "string"}), |inner| json!({"type": "array", "items": inner}));
    assert!(refusal(deep).ends_with("schemas are nested deeper than 128 levels"));
}

#[test]
fn references_are_followed_to_a_schema_or_refused() {
    let components =
        json!({"a": {"$ref": "#/components/schemas/b"}, "b": {"type": "string"}, "loop": {"$ref": "loop"}});
    let components = components.as_object().unwrap();
    let schema = Schema::from_openapi(&json!({"$ref": "#/components/schemas/a"}), components).unwrap();
    assert_eq!(schema.validate(&mut json!(1)).len(), 1);
    assert_eq!(schema.validate(&mut json!("x")), []);
    let error = Schema::from_openapi(&json!({"$ref": "loop"}), components).unwrap_err();
    assert_eq!(error.to_string(), "schema at \"\": $ref \"loop\" leads to no known component");
}

#[test]
fn objects_beyond_the_limits_are_refused_once() {
    let components = json!({"list": {"type": "array", "items": {"$ref": "#/components/schemas/list"}}});
    let schema = Schema::from_openapi(&json!({"$ref": "list"}), components.as_object().unwrap()).unwrap();
    let pair = |inner: Value| json!([inner, []]);
    assert_eq!(schema.validate(&mut nested(128, json!([]), pair)), []);
    let errors = schema.validate(&mut nested(140, json!([]), pair));
    assert_eq!(errors.len(), 1);
    assert!(errors[0].to_string().ends_with("Forbidden: must not be nested deeper than 128 levels"));

    let mut many = Value::Array(vec![json!([]); VALUES_MAX + 5]);
    let errors = schema.validate(&mut many);
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].detail, "object must not have more than 1000000 values");
}

#[test]
fn reports_are_capped_and_pruning_is_not() {
    let schema =
        compile(json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}}}}));
    let unknown: Map<String, Value> = (0..500).map(|index| (format!("u{index}"), json!(1))).collect();
    let mut object = Value::Object(unknown);
    object["l"] = Value::Array(vec![json!("x"); 500]);
    let findings = schema.admit(&mut object);
    assert_eq!((findings.unknown_fields.len(), findings.errors.len()), (REPORTS_MAX, REPORTS_MAX));
    assert_eq!(object.as_object().unwrap().len(), 1);
}

#[test]
fn validation_alone_changes_nothing_and_sees_what_is_written() {
    let schema = compile(json!({
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "integer", "default": 1}, "b": {"type": "integer"}}
    }));
    let errors = schema.validate(&mut json!({"b": null, "c": 1}));
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["a: Required value", "b: Invalid value: \"null\": b in body must be of type integer: \"null\""]);
    let mut object = json!({"b": null, "c": 1});
    assert_eq!(schema.admit(&mut object), Findings { unknown_fields: vec!["c".into()], errors: Vec::new() });
    assert_eq!(object, json!({"a": 1}));
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i8..12).prop_map(Value::from),
        "[a-c]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-e]", inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Objects made of a schema's own words, sensible or not.
fn any_schema() -> impl Strategy<Value = Value> {
    let keyword = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "additionalProperties",
        "required",
        "enum",
        "default",
        "nullable",
        "minimum",
        "maxLength",
        "pattern",
        "format",
        "anyOf",
        "not",
        "allOf",
        "$ref",
        "multipleOf",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-embedded-resource",
        "a",
    ]);
    let leaf = prop_oneof![
        prop::sample::select(vec!["object", "array", "string", "integer", "map", "set", "a", "self", "int32"])
            .prop_map(Value::from),
        (-1_i8..3).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 30, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(keyword.clone().prop_map(str::to_owned), inner, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn sample_schema() -> Schema {
    let tree = json!({
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "integer", "default": 4, "minimum": 0, "maximum": 10},
            "b": {"type": "array", "items": {"$ref": "#/components/schemas/tree"}, "maxItems": 2},
            "c": {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": true}},
            "d": {"$ref": "#/components/schemas/tree", "nullable": true, "default": {"a": 1}},
            "e": {"type": "string", "enum": ["a", "b"], "nullable": true}
        }
    });
    let mut components = Map::new();
    components.insert("tree".into(), json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    Schema::from_openapi(&tree, &components).unwrap()
}

proptest! {
    #[test]
    fn admitting_twice_is_admitting_once(mut object in any_value()) {
        let schema = sample_schema();
        let first = schema.admit(&mut object);
        let once = object.clone();
        let second = schema.admit(&mut object);
        prop_assert_eq!(&object, &once);
        prop_assert_eq!(second.unknown_fields, Vec::<String>::new());
        prop_assert_eq!(&second.errors, &first.errors);
        prop_assert_eq!(schema.validate(&mut object), first.errors);
    }

    #[test]
    fn no_schema_and_no_object_panic(schema in any_schema(), mut object in any_value()) {
        let mut components = Map::new();
        components.insert("self".into(), schema.clone());
        if let Ok(schema) = Schema::from_openapi(&schema, &components) {
            schema.admit(&mut object);
        }
    }

    #[test]
    fn pruning_removes_exactly_what_it_reports(object in any_value()) {
        let schema = sample_schema();
        let mut pruned = object.clone();
        let unknown = schema.prune(&mut pruned);
        prop_assert_eq!(unknown.is_empty(), pruned == object);
        prop_assert_eq!(schema.unknown_fields(&object), unknown);
    }
}

#[test]
fn a_default_that_recurs_ends_at_the_depth_limit() {
    let components = json!({
        "tree": {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/tree", "default": {}}}}
    });
    let schema = Schema::from_openapi(&json!({"$ref": "tree"}), components.as_object().unwrap()).unwrap();
    let mut object = json!({});
    let findings = schema.admit(&mut object);
    assert_eq!(findings.errors.len(), 1);
    assert!(findings.errors[0].detail.contains("nested deeper"));
}

#[test]
fn fields_are_independent_where_no_rule_is_about_several() {
    for (schema, expected) in [
        (json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["a"]}}}), true),
        (json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object"}}}), false),
        (json!({"type": "object", "minProperties": 3}), false),
        (json!({"type": "object", "maxProperties": 3}), false),
        (json!({"type": "object", "anyOf": [{"required": ["spec"]}, {"required": ["data"]}]}), false),
    ] {
        let compiled = Schema::from_openapi(&schema, &Map::new()).unwrap();
        assert_eq!(compiled.fields_are_independent(), expected, "{schema}");
    }
}

/// What others wrote says how lists are merged, and leaves to their kinds what may stand in them.
#[test]
fn items_of_built_in_types_may_stand_twice() {
    let set = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"});
    let components = json!({"Meta": {"type": "object", "properties": {"finalizers": set}}});
    let kind = json!({"type": "object", "properties": {
        "metadata": {"$ref": "#/components/schemas/Meta"}, "own": set}});
    let schema = Schema::from_openapi(&kind, components.as_object().unwrap()).unwrap();
    assert_eq!(schema.validate(&mut json!({"metadata": {"finalizers": ["a", "a"]}})), []);
    assert_eq!(schema.validate(&mut json!({"own": ["a", "a"]})).len(), 1);
    let builtin = Schema::of_builtin(&kind, components.as_object().unwrap()).unwrap();
    assert_eq!(builtin.validate(&mut json!({"own": ["a", "a"]})), []);
}

#[test]
fn an_integer_is_one_when_it_comes_out() {
    let integers = json!({"properties": {
        "a": {"type": "integer", "format": "int64"},
        "b": {"type": "array", "items": {"type": "integer"}},
        "n": {"type": "number"},
    }});
    let declared = compile(integers.clone());
    let mut object = json!({"a": 1e3, "b": [2.0, -0.0], "n": 3.0});
    assert_eq!(declared.admit(&mut object).errors, []);
    assert_eq!(object, json!({"a": 1000, "b": [2, 0], "n": 3.0}));
    for (text, path) in [
        (r#"{"a": 1.5}"#, "a"),
        (r#"{"b": [1, 0.1]}"#, "b[1]"),
        (r#"{"a": 9223372036854775808}"#, "a"),
        (r#"{"a": 9223372036854775808.0}"#, "a"),
        (r#"{"a": 1e30}"#, "a"),
        (r#"{"a": "1"}"#, "a"),
    ] {
        let found = declared.admit(&mut serde_json::from_str(text).unwrap()).errors;
        assert_eq!(found.iter().map(|error| error.path.as_str()).collect::<Vec<_>>(), [path], "{text}");
    }
    // A typed client can't read another spelling.
    let builtin = Schema::of_builtin(&integers, &Map::new()).unwrap();
    for (text, told) in [
        (r#"{"a": -0, "b": [7], "n": 3.0}"#, ""),
        (r#"{"a": 1e3}"#, "a: Invalid value: 1000.0: a in body must be of type integer: \"number\""),
        (r#"{"b": [1, 2.0]}"#, "b[1]: Invalid value: 2.0: b[1] in body must be of type integer: \"number\""),
    ] {
        let found = builtin.admit(&mut serde_json::from_str(text).unwrap()).errors;
        assert_eq!(found.iter().map(ToString::to_string).collect::<String>(), told, "{text}");
    }
}

#[test]
fn a_member_has_the_range_of_its_component() {
    let components = json!({
        "spec": {"properties": {
            "user": {"type": "integer", "format": "int64"},
            "groups": {"type": "array", "items": {"type": "integer"}},
            "port": {"$ref": "io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
            "other": {"$ref": "io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
        }},
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": true},
    });
    let kind = json!({"properties": {"spec": {"$ref": "spec"}, "user": {"type": "integer"}}});
    let range_of: RangeOf = |component, member| {
        let is_ranged = component == "spec" && member != "other";
        is_ranged.then_some(Range::between(0, 9, "must be a digit"))
    };
    let schema = Schema::of_builtin_within(&kind, components.as_object().unwrap(), range_of).unwrap();
    for (object, told) in [
        (json!({"user": 10, "spec": {"user": 9, "groups": [0, 9], "port": "name", "other": 10}}), vec![]),
        (json!({"spec": {"user": -1}}), vec!["spec.user: Invalid value: -1: must be a digit"]),
        (json!({"spec": {"groups": [1, 10]}}), vec!["spec.groups[1]: Invalid value: 10: must be a digit"]),
        (json!({"spec": {"port": 10}}), vec!["spec.port: Invalid value: 10: must be a digit"]),
    ] {
        let text = |errors: Vec<FieldError>| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(schema.validate(&mut object.clone())), told, "{object}");
        assert_eq!(text(schema.out_of_range(&mut object.clone())), told, "{object}");
    }
    let beyond = schema.validate(&mut json!({"spec": {"other": 1_u64 << 32}}));
    assert_eq!(beyond.len(), 1, "a number of such a field has 32 bits");
}

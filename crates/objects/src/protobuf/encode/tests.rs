//! Against bytes that Google's encoder wrote by the `.proto` files of Kubernetes, and against the decoder.

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

use super::super::builtin;
use super::*;

/// JSON, and the bytes of the same message as Python's `protobuf` wrote them from its generated classes.
#[derive(Deserialize)]
struct Vector {
    name: String,
    message: String,
    hex: String,
    json: Value,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn bytes_are_those_of_other_encoders() {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../../tests/protobuf/vectors.json")).expect("fixture");
    assert_eq!(vectors.len(), 3);
    for Vector { name, message, hex: wanted, json } in vectors {
        let bytes = builtin().encode_message(&message, &json).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(hex(&bytes), wanted, "{name}");
        let decoded = builtin().decode_message(&message, &bytes).expect("decodes");
        assert_eq!(builtin().encode_message(&message, &decoded), Ok(normal(&message, &json)), "{name}");
    }
}

/// The bytes of JSON with the zeros that reading adds.
fn normal(message: &str, json: &Value) -> Vec<u8> {
    let bytes = builtin().encode_message(message, json).expect("encodes");
    let decoded = builtin().decode_message(message, &bytes).expect("decodes");
    builtin().encode_message(message, &decoded).expect("encodes")
}

#[test]
fn values_are_read_as_kubernetes_has_them() {
    let container = |fields: Value| {
        let mut container = json!({"name": "", "resources": {}});
        for (name, value) in fields.as_object().expect("object") {
            container[name] = value.clone();
        }
        json!({"containers": [container]})
    };
    let limits = |value: Value| container(json!({"resources": {"limits": {"a": value}}}));
    let spec = "core.v1.PodSpec";
    let props = "apiextensions.v1.JSONSchemaProps";
    let meta = "meta.v1.ObjectMeta";
    let lease = "coordination.v1.LeaseSpec";
    let same = |name, json: Value| (name, json.clone(), json);
    for (message, given, wanted) in [
        (spec, json!({}), json!({"containers": null})),
        (spec, json!({"containers": []}), json!({"containers": null})),
        (spec, json!({"containers": [null]}), container(json!({}))),
        (spec, json!({"hostNetwork": false, "nodeName": null, "containers": null}), json!({"containers": null})),
        same(spec, json!({"containers": null, "priority": 0, "enableServiceLinks": false})),
        same(spec, json!({"containers": null, "activeDeadlineSeconds": i64::MIN, "priority": i32::MIN})),
        same(spec, json!({"containers": null, "nodeSelector": {"b": "", "a": "c"}})),
        (spec, limits(json!("1000m")), limits(json!("1"))),
        (spec, limits(json!(2)), limits(json!("2"))),
        (spec, limits(json!(0.5)), limits(json!("500m"))),
        (spec, limits(Value::Null), limits(json!("0"))),
        same(spec, limits(json!("-1500Mi"))),
        same("core.v1.Secret", json!({"metadata": {}, "data": {"a": "AP8="}})),
        same(meta, json!({"creationTimestamp": "1969-12-31T23:59:59Z"})),
        (
            meta,
            json!({"creationTimestamp": "2024-02-03T04:05:06.7+01:00"}),
            json!({"creationTimestamp": "2024-02-03T03:05:06Z"}),
        ),
        (meta, json!({"creationTimestamp": "0001-01-01T00:00:00Z"}), json!({})),
        same(lease, json!({"acquireTime": "2024-02-03T04:05:06.000007Z"})),
        same(lease, json!({"acquireTime": "1969-12-31T23:59:59.500000Z"})),
        same(props, json!({"items": {"type": "string"}, "maximum": 1.5, "default": {"a": [null, 1]}})),
        same(props, json!({"items": [{"type": "string"}], "additionalProperties": false})),
        same(props, json!({"additionalProperties": {"type": "object"}, "dependencies": {"a": ["b"]}})),
    ] {
        let bytes = builtin().encode_message(message, &given).unwrap_or_else(|error| panic!("{given}: {error}"));
        assert_eq!(builtin().decode_message(message, &bytes), Ok(wanted), "{given}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_path() {
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({"not": deep});
    }
    let mut free = json!(1);
    for _ in 0..500 {
        free = Value::Array(vec![free]);
    }
    let spec = "core.v1.PodSpec";
    for (message, given, text) in [
        ("core.v1.Nothing", json!({}), "there is no message \"core.v1.Nothing\""),
        (spec, json!([]), "it must be an object"),
        (spec, json!({"kind": "Pod"}), "kind: there is no such field"),
        (spec, json!({"containers": [{}, {"naem": "a"}]}), "containers[1].naem: there is no such field"),
        (spec, json!({"containers": {}}), "containers: it must be a list"),
        (spec, json!({"containers": [1]}), "containers[0]: it must be an object"),
        (
            spec,
            json!({"volumes": [{"emptyDir": {"sizeLimit": "x"}}]}),
            "volumes[0].emptyDir.sizeLimit: it must be a quantity",
        ),
        (spec, json!({"nodeSelector": {"a": 1}}), "nodeSelector.a: it must be text"),
        (spec, json!({"priority": 1_i64 << 31}), "priority: it must be a whole number of 32 bits"),
        (spec, json!({"nodeSelector": []}), "nodeSelector: it must be an object"),
        (spec, json!({"tolerations": {}}), "tolerations: it must be a list"),
        (spec, json!({"hostNetwork": 0}), "hostNetwork: it must be true or false"),
        (spec, json!({"priority": 1.5}), "priority: it must be a whole number"),
        (spec, json!({"hostNetwork": "yes"}), "hostNetwork: it must be true or false"),
        ("core.v1.Secret", json!({"data": {"a": "%"}}), "data.a: it must be text in base64"),
        ("core.v1.ServicePort", json!({"targetPort": 1.5}), "targetPort: it must be text or a whole number of 32 bits"),
        ("meta.v1.ObjectMeta", json!({"creationTimestamp": "today"}), "creationTimestamp: it must be a time"),
        ("apiextensions.v1.JSONSchemaProps", json!({"items": 1}), "items: it must be of a type that"),
        ("apiextensions.v1.JSONSchemaProps", deep, "nested deeper than 96 levels"),
        ("apiextensions.v1.JSONSchemaProps", json!({"default": free}), "default: nested deeper than 96 levels"),
    ] {
        let error = builtin().encode_message(message, &given).expect_err(text).to_string();
        assert!(error.contains(text), "{error} is not {text}");
    }
}

fn word() -> impl Strategy<Value = String> {
    "[a-z]{1,6}"
}

fn quantities() -> impl Strategy<Value = Value> {
    let units = ["", "m", "k", "Mi", "Gi", "e3"];
    let quantity = (0_i64..5_000, proptest::sample::select(units.to_vec()))
        .prop_map(|(number, unit)| format!("{number}{unit}").parse::<Quantity>().expect("quantity").to_string());
    proptest::collection::btree_map(word(), quantity, 1..4).prop_map(|map| json!(map))
}

/// Containers as the decoder gives them.
fn container() -> impl Strategy<Value = Value> {
    let ports = vec((1_i32..65_535, proptest::option::of(word())), 1..3);
    let optional =
        (proptest::option::of(quantities()), proptest::option::of(ports), proptest::option::of(any::<i32>()));
    (word(), vec(".{0,8}", 1..4), optional).prop_map(|(name, args, (limits, ports, port))| {
        let mut container = json!({"name": name, "args": args, "resources": {}});
        if let Some(limits) = limits {
            container["resources"]["limits"] = limits;
        }
        if let Some(ports) = ports {
            let port = |(number, name): (i32, Option<String>)| match name {
                Some(name) => json!({"containerPort": number, "name": name}),
                None => json!({"containerPort": number}),
            };
            container["ports"] = ports.into_iter().map(port).collect();
        }
        if let Some(port) = port {
            container["livenessProbe"] = json!({"tcpSocket": {"port": port}});
        }
        container
    })
}

fn pod_spec() -> impl Strategy<Value = Value> {
    let selector = proptest::collection::btree_map(word(), "[a-z]{0,4}", 1..4);
    let optional =
        (proptest::option::of(selector), proptest::option::of(any::<i64>()), proptest::option::of(any::<bool>()));
    (vec(container(), 1..3), optional).prop_map(|(containers, (selector, seconds, flag))| {
        let mut spec = json!({"containers": containers});
        let fields = spec.as_object_mut().expect("object");
        fields.extend(selector.map(|selector| ("nodeSelector".to_owned(), json!(selector))));
        fields.extend(seconds.map(|seconds| ("activeDeadlineSeconds".to_owned(), json!(seconds))));
        fields.extend(flag.map(|flag| ("hostUsers".to_owned(), json!(flag))));
        spec
    })
}

/// JSON of any shape with names that the table has.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z0-9Gim]{0,5}".prop_map(Value::from),
    ];
    let names =
        ["containers", "resources", "limits", "volumes", "emptyDir", "affinity", "name", "priority", "ports", "args"];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((proptest::sample::select(names.to_vec()), inner), 0..5)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

/// Without the nulls that Go's decoder takes for nothing.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            kept.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        value => value,
    }
}

/// Bug: it came back as an empty list.
#[test]
fn an_entry_without_a_value_stays_one() {
    let mut writer = Writer::default();
    // An entry of `extra`, whose key is empty as well.
    writer.bytes(4, &[]);
    let read = builtin().decode_message("authentication.v1.UserInfo", &writer.written).expect("decodes");
    let bytes = builtin().encode_message("authentication.v1.UserInfo", &read).expect("encodes");
    assert_eq!(builtin().decode_message("authentication.v1.UserInfo", &bytes), Ok(read));
}

proptest! {
    #[test]
    fn what_was_written_is_read_as_it_was(spec in pod_spec()) {
        let bytes = builtin().encode_message("core.v1.PodSpec", &spec).expect("encodes");
        prop_assert_eq!(builtin().decode_message("core.v1.PodSpec", &bytes), Ok(spec));
    }

    #[test]
    fn no_json_panics_and_reading_settles(given in anything()) {
        if let Ok(bytes) = builtin().encode_message("core.v1.PodSpec", &given) {
            let once = builtin().decode_message("core.v1.PodSpec", &bytes).expect("decodes");
            let again = builtin().encode_message("core.v1.PodSpec", &once).expect("encodes");
            prop_assert_eq!(builtin().decode_message("core.v1.PodSpec", &again), Ok(once));
        }
    }

    /// Whatever bytes are read as can be written and read as the same again.
    #[test]
    fn what_was_read_can_be_written(
        index in any::<prop::sample::Index>(),
        fields in vec((1_u32..45, prop_oneof![
            vec(0_u8..128, 0..20).prop_map(Ok), (0_u64..9).prop_map(Err)
        ]), 0..6),
    ) {
        let name = &index.get(builtin().messages()).name;
        let mut writer = Writer::default();
        for (number, content) in &fields {
            match content {
                Ok(bytes) => writer.bytes(*number, bytes),
                Err(whole) => writer.varint(*number, *whole),
            }
        }
        if let Ok(read) = builtin().decode_message(name, &writer.written)
            && let Ok(bytes) = builtin().encode_message(name, &read)
        {
            let again = builtin().decode_message(name, &bytes).expect("decodes");
            prop_assert_eq!(without_nulls(again), without_nulls(read));
        }
    }
}

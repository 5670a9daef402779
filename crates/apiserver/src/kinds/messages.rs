//! The protobuf messages of the kinds that are Kubernetes' own, against what Kubernetes wrote and the served schemas.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use pumice_objects::protobuf::{Field, Kind, Message, Shape, builtin as types};
use serde::Deserialize;
use serde_json::Value;

use crate::kinds::builtin;
use crate::schemas;

/// What Kubernetes' encoder wrote, and the JSON that Kubernetes makes of it: `tests/bodies/main.go` printed them.
#[derive(Deserialize)]
struct Body {
    name: String,
    body: String,
    json: Value,
}

impl Body {
    fn all() -> Vec<Self> {
        serde_json::from_str(include_str!("../../tests/bodies/bodies.json")).expect("fixture")
    }

    fn bytes(&self) -> Vec<u8> {
        BASE64_STANDARD.decode(&self.body).expect("base64")
    }
}

#[test]
fn bodies_of_kubernetes_are_read_as_kubernetes_reads_them() {
    let bodies = Body::all();
    assert!(bodies.len() > 70, "{}", bodies.len());
    for body in bodies {
        let decoded = types().decode(&body.bytes()).unwrap_or_else(|error| panic!("{}: {error}", body.name));
        let mut differences = Vec::new();
        differ(&body.json, &decoded, "", &mut differences);
        assert!(differences.is_empty(), "{}: {differences:#?}", body.name);
    }
}

#[test]
fn what_kubernetes_wrote_is_written_as_the_same() {
    for body in Body::all() {
        let kind = (body.json["apiVersion"].as_str(), body.json["kind"].as_str());
        let (Some(version), Some(kind)) = kind else { panic!("{}: no kind", body.name) };
        let group = version.split_once('/').map_or("core", |(group, _)| group);
        let of_group = |message: &&Message| {
            let mut name = message.name.split('.');
            name.next() == group.split('.').next() && name.next_back() == Some(kind)
        };
        let options = if kind == "DeleteOptions" { types().message("meta.v1.DeleteOptions") } else { None };
        let message = options.or_else(|| types().messages().iter().find(of_group)).expect("message");
        let mut wanted = body.json.clone();
        let fields = wanted.as_object_mut().expect("object");
        fields.retain(|name, _| name != "apiVersion" && name != "kind");
        let bytes = types().encode_message(&message.name, &wanted);
        let bytes = bytes.unwrap_or_else(|error| panic!("{}: {error}", body.name));
        let decoded = types().decode_message(&message.name, &bytes).expect("decodes");
        let mut differences = Vec::new();
        differ(&without_nulls(wanted), &without_nulls(decoded), "", &mut differences);
        assert!(differences.is_empty(), "{}: {differences:#?}", body.name);
    }
}

/// Without the fields that Go's JSON decoder leaves as they are.
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

fn differ(wanted: &Value, found: &Value, path: &str, differences: &mut Vec<String>) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for name in wanted.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
                let (path, gone) = (format!("{path}.{name}"), Value::from("<nothing>"));
                differ(wanted.get(name).unwrap_or(&gone), found.get(name).unwrap_or(&gone), &path, differences);
            }
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            for (index, (wanted, found)) in wanted.iter().zip(found).enumerate() {
                differ(wanted, found, &format!("{path}[{index}]"), differences);
            }
        }
        _ if wanted == found => {}
        _ => differences.push(format!("{path}: {found}, Kubernetes says {wanted}")),
    }
}

proptest! {
    #[test]
    fn damaged_bodies_do_not_panic(which: prop::sample::Index, cut: prop::sample::Index, flips: Vec<(prop::sample::Index, u8)>) {
        let bodies = Body::all();
        let mut bytes = which.get(&bodies).bytes();
        bytes.truncate(cut.index(bytes.len()) + 1);
        for (place, byte) in flips.iter().take(4) {
            let place = place.index(bytes.len());
            bytes[place] ^= byte;
        }
        let _ = types().decode(&bytes);
    }
}

#[test]
fn the_table_says_what_the_schemas_say() {
    let mut wanted: Vec<String> = builtin::descriptors().iter().map(|one| one.component.clone()).collect();
    wanted.push("io.k8s.api.core.v1.Binding".to_owned());
    wanted.push("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions".to_owned());
    let mut seen = BTreeSet::new();
    while let Some(component) = wanted.pop() {
        if !seen.insert(component.clone()) {
            continue;
        }
        let Some(message) = message(&component) else { continue };
        let schema = &schemas::components()[&component];
        let Some(properties) = schema["properties"].as_object() else { continue };
        let fields = fields(message);
        let names: BTreeSet<&str> = properties.keys().map(String::as_str).filter(|name| !is_type_meta(name)).collect();
        let known: BTreeSet<&str> = fields.keys().copied().filter(|name| !is_type_meta(name)).collect();
        assert_eq!(known, names, "{component}");
        for (name, property) in properties {
            let Some(field) = fields.get(name.as_str()) else { continue };
            let inner = match field.shape {
                Shape::List => &property["items"],
                Shape::Map => &property["additionalProperties"],
                Shape::One | Shape::Inline => property,
            };
            assert!(fits(&field.kind, inner), "{component}.{name}: {field:?}, the schema has {property}");
            if let Some(reference) = reference(inner) {
                wanted.push(reference.to_owned());
            }
        }
    }
    assert!(seen.len() > 150, "{}", seen.len());
}

/// The envelope has these, not the message.
fn is_type_meta(name: &str) -> bool {
    name == "apiVersion" || name == "kind"
}

fn message(component: &str) -> Option<&'static Message> {
    types().messages().iter().find(|message| !message.is_union && component.ends_with(&format!(".{}", message.name)))
}

fn fields(message: &'static Message) -> BTreeMap<&'static str, &'static Field> {
    let mut found = BTreeMap::new();
    for field in &message.fields {
        match (field.shape, field.kind) {
            (Shape::Inline, Kind::Message(inner)) => found.extend(fields(&types().messages()[inner])),
            _ => {
                found.insert(field.name.as_str(), field);
            }
        }
    }
    found
}

fn reference(schema: &Value) -> Option<&str> {
    let reference = schema["$ref"].as_str().or(schema["allOf"][0]["$ref"].as_str())?;
    reference.strip_prefix("#/components/schemas/")
}

fn fits(kind: &Kind, schema: &Value) -> bool {
    let of = reference(schema).unwrap_or_default();
    let ends = |name: &str| of.ends_with(&format!(".{name}"));
    match kind {
        Kind::Bool => schema["type"] == "boolean",
        Kind::Int32 | Kind::Int64 => schema["type"] == "integer",
        Kind::Double => schema["type"] == "number",
        Kind::String => schema["type"] == "string",
        Kind::Bytes => ends("ByteString") || schema["format"] == "byte",
        Kind::Time => ends("Time") || schema["format"] == "date-time",
        Kind::MicroTime => ends("MicroTime") || schema["format"] == "date-time",
        Kind::Quantity => ends("Quantity"),
        Kind::IntOrString => ends("IntOrString"),
        Kind::Json => ends("JSON") || ends("FieldsV1") || ends("RawExtension"),
        Kind::Strings => schema["type"] == "array",
        Kind::Message(index) => ends(&types().messages()[*index].name),
    }
}

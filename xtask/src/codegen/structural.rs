//! From a schemars document to a structural schema, in the habits of controller-gen.
//!
//! Invariant of the result: no `$ref`, no `null` among types, no words for people; quantities and int-or-strings carry
//! upstream's form; embedded pod metadata keeps five fields. Called by `crd`.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Map, Value, json};

/// Deepest nesting of types; a recursive type would exceed any bound.
const DEPTH_MAX: usize = 48;

/// Pattern controller-gen writes for a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Keywords that carry over unchanged.
const KEPT: &[&str] = &[
    "type",
    "format",
    "default",
    "enum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "pattern",
    "required",
    "nullable",
    "uniqueItems",
];

/// Keywords that say nothing to the API server.
const DROPPED: &[&str] = &["description", "title", "$schema", "example", "examples"];

/// Type name -> field name (`.` = the type itself) -> what the field's schema gains.
pub type Markers = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

/// Reads the committed markers of Kubernetes' own types.
pub fn kubernetes_markers() -> anyhow::Result<Markers> {
    serde_saphyr::from_str(include_str!("../../data/kubernetes-markers.yaml")).context("data/kubernetes-markers.yaml")
}

/// Turns schemas that refer to `definitions` into structural ones.
pub struct Structural<'a> {
    /// Named schemas, as the generator collected them.
    pub definitions: &'a Map<String, Value>,
    /// What the generator does not know about them.
    pub markers: &'a Markers,
}

impl Structural<'_> {
    /// The structural form of `schema`.
    pub fn convert(&self, schema: &Value) -> anyhow::Result<Value> {
        self.node(schema, 0).map(Value::Object)
    }

    fn node(&self, schema: &Value, depth: usize) -> anyhow::Result<Map<String, Value>> {
        ensure!(depth < DEPTH_MAX, "a type nests deeper than {DEPTH_MAX}; recursive types have no structural schema");
        let members = schema.as_object().context("a schema is an object")?;
        if let Some(name) = reference(members)? {
            let mut out = self.named(&name, depth)?;
            self.members(members, &mut out, depth)?;
            return Ok(out);
        }
        let mut out = Map::new();
        self.members(members, &mut out, depth)?;
        if members.contains_key("x-kubernetes-int-or-string") {
            out.insert("anyOf".into(), json!([{ "type": "integer" }, { "type": "string" }]));
        }
        Ok(out)
    }

    /// A named schema, with the markers of its type.
    fn named(&self, name: &str, depth: usize) -> anyhow::Result<Map<String, Value>> {
        let definition = self.definitions.get(name).with_context(|| format!("no schema {name}"))?;
        if name.ends_with(".ObjectMeta") {
            return object(embedded_metadata());
        }
        let mut out = self.node(definition, depth + 1)?;
        if name.ends_with(".Quantity") {
            out.insert("pattern".into(), QUANTITY.into());
        }
        for (field, additions) in self.markers.get(name).into_iter().flatten() {
            mark(&mut out, field, additions).with_context(|| format!("{name}.{field}"))?;
        }
        Ok(out)
    }

    fn members(&self, members: &Map<String, Value>, out: &mut Map<String, Value>, depth: usize) -> anyhow::Result<()> {
        for (keyword, value) in members {
            match keyword.as_str() {
                "$ref" => {}
                "type" => drop(out.insert(keyword.clone(), without_null(value)?)),
                "enum" => {
                    let words = value.as_array().context("enum is a list")?;
                    let words = words.iter().filter(|word| !word.is_null()).cloned().collect();
                    out.insert(keyword.clone(), Value::Array(words));
                }
                "items" | "additionalProperties" => {
                    out.insert(keyword.clone(), Value::Object(self.node(value, depth + 1)?));
                }
                "properties" => drop(out.insert(keyword.clone(), self.properties(value, depth)?)),
                "anyOf" => out.extend(self.node(not_null(value)?, depth + 1)?),
                _ if KEPT.contains(&keyword.as_str()) || keyword.starts_with("x-kubernetes-") => {
                    out.insert(keyword.clone(), value.clone());
                }
                _ if DROPPED.contains(&keyword.as_str()) => {}
                _ => bail!("keyword {keyword} has no structural form: {value}"),
            }
        }
        without_defaults_of_required(out);
        Ok(())
    }

    fn properties(&self, value: &Value, depth: usize) -> anyhow::Result<Value> {
        let mut out = Map::new();
        for (name, schema) in value.as_object().context("properties are an object")? {
            out.insert(name.clone(), Value::Object(self.node(schema, depth + 1).with_context(|| name.clone())?));
        }
        Ok(Value::Object(out))
    }
}

/// The name a `$ref` points to.
fn reference(members: &Map<String, Value>) -> anyhow::Result<Option<String>> {
    let Some(reference) = members.get("$ref") else { return Ok(None) };
    let name = reference.as_str().and_then(|path| path.strip_prefix("#/components/schemas/"));
    Ok(Some(name.with_context(|| format!("reference {reference} leaves the document"))?.to_owned()))
}

/// The type of an optional field: schemars says `["integer", "null"]`.
fn without_null(value: &Value) -> anyhow::Result<Value> {
    let Value::Array(types) = value else { return Ok(value.clone()) };
    let mut types = types.iter().filter(|name| *name != "null");
    match (types.next(), types.next()) {
        (Some(name), None) => Ok(name.clone()),
        _ => bail!("type {value} is not one type"),
    }
}

/// The alternative that is not `null`: schemars' form of an optional struct.
fn not_null(value: &Value) -> anyhow::Result<&Value> {
    let mut alternatives =
        value.as_array().into_iter().flatten().filter(|schema| **schema != json!({ "type": "null" }));
    match (alternatives.next(), alternatives.next()) {
        (Some(schema), None) => Ok(schema),
        _ => bail!("anyOf {value} is a union, which has no structural form"),
    }
}

/// Adds a marker to a type or one of its fields; a field with a default is not required.
fn mark(schema: &mut Map<String, Value>, field: &str, additions: &Map<String, Value>) -> anyhow::Result<()> {
    // Definitions take no strategic merge patches, and controller-gen writes nothing about them.
    let additions = additions.clone().into_iter().filter(|(keyword, _)| !keyword.starts_with("x-kubernetes-patch-"));
    let additions: Map<String, Value> = additions.collect();
    if field == "." {
        schema.extend(additions);
        return Ok(());
    }
    let property = schema.get_mut("properties").and_then(|properties| properties.get_mut(field));
    let property = property.and_then(Value::as_object_mut).context("no such field")?;
    let has_default = additions.contains_key("default");
    property.extend(additions);
    if has_default {
        not_required(schema, field);
    }
    Ok(())
}

/// A server fills defaults in before it looks for what is missing: what our types read an absent field as must not
/// stand in for one that people have to give.
fn without_defaults_of_required(schema: &mut Map<String, Value>) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for name in required.iter().filter_map(Value::as_str) {
        if let Some(property) = properties.get_mut(name).and_then(Value::as_object_mut) {
            property.remove("default");
        }
    }
}

/// Takes a field out of the required ones.
pub fn not_required(schema: &mut Map<String, Value>, field: &str) {
    let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) else { return };
    required.retain(|name| name != field);
    if required.is_empty() {
        schema.remove("required");
    }
}

/// What controller-gen keeps of metadata inside another object.
fn embedded_metadata() -> Value {
    json!({
        "type": "object",
        "properties": {
            "annotations": { "type": "object", "additionalProperties": { "type": "string" } },
            "finalizers": { "type": "array", "items": { "type": "string" } },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
            "name": { "type": "string" },
            "namespace": { "type": "string" },
        },
    })
}

fn object(value: Value) -> anyhow::Result<Map<String, Value>> {
    match value {
        Value::Object(members) => Ok(members),
        other => bail!("{other} is not an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(schema: Value, definitions: Value) -> anyhow::Result<Value> {
        let definitions = object(definitions)?;
        Structural { definitions: &definitions, markers: &kubernetes_markers()? }.convert(&schema)
    }

    #[test]
    fn optional_fields_lose_their_null() {
        let out = convert(
            json!({ "type": "object", "description": "x", "properties": {
                "a": { "type": ["integer", "null"], "format": "int32", "minimum": 0 },
                "b": { "anyOf": [{ "$ref": "#/components/schemas/B" }, { "type": "null" }], "default": "y" },
                "c": { "type": ["string", "null"], "enum": ["y", null] },
            } }),
            json!({ "B": { "type": "string", "title": "B" } }),
        );
        let wanted = json!({ "type": "object", "properties": {
            "a": { "type": "integer", "format": "int32", "minimum": 0 },
            "b": { "type": "string", "default": "y" },
            "c": { "type": "string", "enum": ["y"] },
        } });
        assert_eq!(out.expect("converts"), wanted);
    }

    #[test]
    fn what_is_required_has_no_default() {
        let word = json!({ "type": "string", "default": "" });
        let schema = json!({ "type": "object", "properties": { "a": word, "b": word }, "required": ["a"] });
        let out = convert(schema, json!({})).expect("converts");
        assert_eq!(out["properties"], json!({ "a": { "type": "string" }, "b": word }));
    }

    #[test]
    fn markers_reach_type_and_field() {
        let name = "io.k8s.api.core.v1.LocalObjectReference";
        let out = convert(
            json!({ "$ref": format!("#/components/schemas/{name}") }),
            json!({ name: { "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] } }),
        );
        let wanted = json!({ "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": { "name": { "type": "string", "default": "" } } });
        assert_eq!(out.expect("converts"), wanted);
    }

    #[test]
    fn what_has_no_structural_form_is_refused() {
        let cases = [
            (json!({ "$ref": "#/components/schemas/A" }), "recursive types"),
            (json!({ "$ref": "other.json" }), "leaves the document"),
            (json!({ "oneOf": [] }), "keyword oneOf"),
            (json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }), "union"),
            (json!({ "type": ["string", "integer"] }), "not one type"),
        ];
        for (schema, wanted) in cases {
            let error =
                convert(schema, json!({ "A": { "properties": { "a": { "$ref": "#/components/schemas/A" } } } }));
            let text = format!("{:#}", error.expect_err(wanted));
            assert!(text.contains(wanted), "{text}");
        }
    }
}

//! OpenAPI v3 documents, one for each group and version, from the registry.
//!
//! kubectl reads from them whether the server validates fields and runs dry, which patches it takes, and what
//! `explain` says. Called by `discovery` when a document is first asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kinds::Descriptor;
use crate::kinds::GIT_VERSION;
use crate::schemas;

/// The document of the kinds of one group and version.
pub(crate) fn document(descriptors: &[Arc<Descriptor>]) -> Value {
    let mut paths = BTreeMap::new();
    let mut components = Components::default();
    for descriptor in descriptors {
        add_paths(descriptor, &mut paths);
        components.add_kind(descriptor);
    }
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": GIT_VERSION },
        "paths": paths,
        "components": { "schemas": components.found },
    })
}

fn add_paths(descriptor: &Descriptor, paths: &mut BTreeMap<String, Value>) {
    let base = if descriptor.group.is_empty() {
        format!("/api/{}", descriptor.version)
    } else {
        format!("/apis/{}/{}", descriptor.group, descriptor.version)
    };
    let plural = &descriptor.plural;
    let mut parameters = Vec::new();
    let collection = if descriptor.namespaced {
        parameters.push(path_parameter("namespace"));
        if descriptor.review.is_none() {
            paths.insert(format!("{base}/{plural}"), json!({ "get": operation(descriptor, "list", &[], None) }));
        }
        format!("{base}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{base}/{plural}")
    };
    let post = operation(descriptor, "post", &WRITE_PARAMETERS, Some(&OBJECT_BODIES));
    if descriptor.review.is_some() {
        paths.insert(collection, json!({ "post": post, "parameters": parameters }));
        return;
    }
    let item = format!("{collection}/{{name}}");
    paths.insert(
        collection,
        json!({
            "get": operation(descriptor, "list", &[], None),
            "post": post,
            "delete": operation(descriptor, "deletecollection", &["dryRun"], None),
            "parameters": parameters,
        }),
    );
    parameters.push(path_parameter("name"));
    let methods = json!({
        "get": operation(descriptor, "get", &[], None),
        "put": operation(descriptor, "put", &WRITE_PARAMETERS, Some(&OBJECT_BODIES)),
        "patch": operation(descriptor, "patch", &WRITE_PARAMETERS, Some(descriptor.patches())),
        "delete": operation(descriptor, "delete", &["dryRun", "gracePeriodSeconds", "propagationPolicy"], None),
        "parameters": parameters,
    });
    if descriptor.has_status() {
        let mut status = methods.clone();
        if let Some(status) = status.as_object_mut() {
            status.remove("delete");
        }
        paths.insert(format!("{item}/status"), status);
    }
    paths.insert(item, methods);
}

const WRITE_PARAMETERS: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const OBJECT_BODIES: [&str; 2] = ["application/json", "application/yaml"];

fn path_parameter(name: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
}

fn operation(descriptor: &Descriptor, action: &str, parameters: &[&str], bodies: Option<&[&str]>) -> Value {
    let reference = schemas::reference(&descriptor.component);
    let parameters: Vec<Value> =
        parameters.iter().map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } })).collect();
    let mut operation = json!({
        "operationId": format!("{action}{}{}{}", descriptor.group.replace('.', "_"), descriptor.version, descriptor.kind),
        "parameters": parameters,
        "responses": { "200": { "description": "OK", "content": { "application/json": { "schema": reference } } } },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": descriptor.group, "version": descriptor.version, "kind": descriptor.kind,
        },
    });
    if let Some(bodies) = bodies {
        let content: BTreeMap<&str, Value> =
            bodies.iter().map(|kind| (*kind, json!({ "schema": reference }))).collect();
        operation["requestBody"] = json!({ "content": content });
    }
    operation
}

/// Components that the kinds of a document reach.
#[derive(Default)]
struct Components {
    found: BTreeMap<String, Value>,
}

impl Components {
    fn add_kind(&mut self, descriptor: &Descriptor) {
        match &descriptor.openapi {
            Some(schema) => {
                self.found.insert(descriptor.component.clone(), schema.clone());
                self.add_referenced(schema);
            }
            None => self.add(&descriptor.component),
        }
    }

    fn add(&mut self, name: &str) {
        if self.found.contains_key(name) {
            return;
        }
        if let Some(schema) = schemas::components().get(name) {
            self.found.insert(name.to_owned(), schema.clone());
            self.add_referenced(schema);
        }
    }

    fn add_referenced(&mut self, schema: &Value) {
        let mut names = BTreeSet::new();
        references(schema, &mut names);
        for name in names {
            self.add(&name);
        }
    }
}

fn references(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let target = fields.get("$ref").and_then(Value::as_str);
            if let Some(name) = target.and_then(|target| target.strip_prefix("#/components/schemas/")) {
                names.insert(name.to_owned());
            }
            fields.values().for_each(|field| references(field, names));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, names)),
        _ => {}
    }
}

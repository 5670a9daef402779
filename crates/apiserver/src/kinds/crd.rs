//! Descriptors of what a CustomResourceDefinition adds.
//!
//! Invariant: a definition that passed admission yields descriptors; one that does not is skipped with its reason.

pub(crate) mod rules;
pub(crate) mod strategy;

use std::cmp::Reverse;
use std::sync::Arc;

use pumice_objects::schema::Schema;
use pumice_objects::table::Table;
use serde_json::{Value, json};

use super::descriptor::{Descriptor, Subresource};
use crate::kinds::conversion::webhook::Converter;
use crate::kinds::conversion::{Conversion, Versions};
use crate::problems::Problems;
use crate::schemas;
use crate::schemas::zero_values::ZeroValues;
use crate::strategies::Plain;

/// Why a definition can't be served.
#[derive(Debug, thiserror::Error)]
#[error("definition {name:?}: {cause}")]
pub(crate) struct DefinitionError {
    name: String,
    cause: String,
}

/// Parses the schema of a version as declared; metadata, apiVersion and kind are always the standard ones.
pub(crate) fn schema(declared: &Value) -> Result<Schema, String> {
    Schema::from_openapi(&complete(declared), schemas::components()).map_err(|error| error.to_string())
}

/// The declared schema with the standard fields of every object.
fn complete(declared: &Value) -> Value {
    let mut whole = declared.clone();
    if !whole["properties"].is_object() {
        whole["properties"] = json!({});
    }
    whole["type"] = json!("object");
    whole["properties"]["apiVersion"] = json!({ "type": "string" });
    whole["properties"]["kind"] = json!({ "type": "string" });
    whole["properties"]["metadata"] = schemas::reference(schemas::OBJECT_META);
    whole
}

/// One descriptor for each served version.
pub(crate) fn descriptors(definition: &Value) -> Result<Vec<Descriptor>, DefinitionError> {
    let spec = &definition["spec"];
    let name = || definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let fail = |cause: &str| DefinitionError { name: name(), cause: cause.to_owned() };
    let versions = spec["versions"].as_array().ok_or_else(|| fail("has no versions"))?;
    let storage = versions
        .iter()
        .find(|version| version["storage"] == true)
        .and_then(|version| version["name"].as_str())
        .ok_or_else(|| fail("has no storage version"))?;
    let conversion = conversion(definition, versions, storage).map_err(|cause| fail(&cause))?;
    let terminating = definition["metadata"]["deletionTimestamp"].is_string();
    let mut names: Vec<&str> = versions.iter().filter_map(|version| version["name"].as_str()).collect();
    names.sort_by_key(|name| preference(name));
    versions
        .iter()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let rank = names.iter().position(|name| version["name"] == *name).unwrap_or_default();
            one(spec, version, storage, rank)
                .map(|found| Descriptor { terminating, conversion: conversion.clone(), ..found })
                .map_err(|cause| fail(&cause))
        })
        .collect()
}

/// How the versions become each other. One that was the only one that objects were ever stored in has nothing to become.
fn conversion(definition: &Value, versions: &[Value], storage: &str) -> Result<Conversion, String> {
    let mut stored = definition["status"]["storedVersions"].as_array().into_iter().flatten();
    if versions.len() == 1 && stored.all(|version| version == storage) {
        return Ok(Conversion::Same);
    }
    let of_storage = versions.iter().find(|version| version["storage"] == true).unwrap_or(&Value::Null);
    let declared = &definition["spec"]["conversion"];
    Ok(Conversion::Versions(Arc::new(Versions {
        storage_schema: schema(&of_storage["schema"]["openAPIV3Schema"])?,
        converter: (declared["strategy"] == "Webhook").then(|| Converter::new(&declared["webhook"])),
    })))
}

/// Kubernetes' order of versions: stable before beta before alpha, larger numbers first. The order of the fields is the order in
/// which they decide.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    /// 0 = stable, 1 = beta, 2 = alpha.
    stage: u8,
    major: Reverse<u32>,
    minor: Reverse<u32>,
    name: String,
}

fn preference(version: &str) -> Preference {
    let number = |text: &str| text.parse::<u32>().unwrap_or_default();
    let rest = version.strip_prefix('v').unwrap_or(version);
    let (stage, major, minor) = if let Some((major, minor)) = rest.split_once("alpha") {
        (2, number(major), number(minor))
    } else if let Some((major, minor)) = rest.split_once("beta") {
        (1, number(major), number(minor))
    } else {
        (0, number(rest), 0)
    };
    Preference { stage, major: Reverse(major), minor: Reverse(minor), name: version.to_owned() }
}

fn one(spec: &Value, version: &Value, storage: &str, rank: usize) -> Result<Descriptor, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<String>>();
    let names = &spec["names"];
    let (group, plural, kind) = (text(&spec["group"]), text(&names["plural"]), text(&names["kind"]));
    let version_name = text(&version["name"]);
    let declared = &version["schema"]["openAPIV3Schema"];
    let mut openapi = complete(declared);
    openapi["x-kubernetes-group-version-kind"] = json!([{ "group": group, "version": version_name, "kind": kind }]);
    let reversed: Vec<&str> = group.rsplit('.').collect();
    let schema = schema(declared)?;
    // Mistakes were told when the definition was written; a rule that this release does not know is not asked.
    let rules = rules::compile(declared, &schema, "", &mut Problems::default());
    Ok(Descriptor {
        component: format!("{}.{version_name}.{kind}", reversed.join(".")),
        storage: Arc::from(format!("{group}/{plural}")),
        storage_version: storage.to_owned(),
        conversion: Conversion::Same,
        version: version_name,
        singular: text(&names["singular"]),
        list_kind: text(&names["listKind"]),
        short_names: list(&names["shortNames"]),
        categories: list(&names["categories"]),
        namespaced: spec["scope"] == "Namespaced",
        schema,
        zero_values: ZeroValues::default(),
        rules,
        openapi: Some(openapi),
        table: Table::from_crd_version(version).map_err(|error| error.to_string())?,
        subresources: subresources(&version["subresources"]),
        counts_generation: true,
        drops_nulls: false,
        selectable: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned())
            .collect(),
        strategy: &Plain,
        terminating: false,
        review: None,
        version_rank: rank,
        group,
        plural,
        kind,
    })
}

fn subresources(declared: &Value) -> Vec<Subresource> {
    let mut found = Vec::new();
    if declared["status"].is_object() {
        found.push(Subresource::Status);
    }
    if let Some(scale) = declared["scale"].as_object() {
        let path =
            |field: &str| scale.get(field).and_then(Value::as_str).map(|path| path.trim_start_matches('.').to_owned());
        if let (Some(spec), Some(status)) = (path("specReplicasPath"), path("statusReplicasPath")) {
            found.push(Subresource::Scale { spec, status, selector: path("labelSelectorPath") });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_preferred_as_upstream() {
        let mut names = vec!["v1alpha1", "v2", "v1", "v1beta2", "v10", "v1beta1"];
        names.sort_by_key(|name| preference(name));
        assert_eq!(names, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }

    #[test]
    fn broken_definitions_are_refused() {
        for definition in [json!({}), json!({"spec": {"versions": []}}), json!({"spec": {"versions": 3}})] {
            assert!(descriptors(&definition).is_err());
        }
    }
}

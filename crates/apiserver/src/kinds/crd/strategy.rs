//! CustomResourceDefinitions: defaults, rules, and the status that says they are served.
//!
//! Invariant: a definition whose `Established` condition is true is in the registry when the write is answered.

use std::collections::BTreeSet;

use pumice_clock::wire_time;
use pumice_objects::field::FieldError;
use pumice_objects::status::Status;
use pumice_objects::table::Table;
use pumice_objects::{meta, names};
use serde_json::{Value, json};

use crate::kinds::crd;
use crate::kinds::crd::rules;
use crate::problems::Problems;
use crate::strategies::{Hook, Strategy, admission};

pub(crate) struct CustomResourceDefinition;

/// Holds a definition until the collector has deleted its objects.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// Most versions of one definition.
const VERSIONS_MAX: usize = 32;
/// The version of conversion reviews that is sent.
const REVIEW_VERSION: &str = "v1";

impl Strategy for CustomResourceDefinition {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
        spec.entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
        let service = spec.get_mut("conversion").and_then(|one| one.pointer_mut("/webhook/clientConfig/service"));
        if let Some(service) = service.and_then(Value::as_object_mut) {
            service.entry("port").or_insert_with(|| json!(443));
        }
        let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
        names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
    }

    fn prepare_create(&self, object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        object["status"] = status(object, &Value::Null, &wire_time(hook.now));
        let finalizers: Vec<String> =
            meta::finalizers(object).filter(|one| *one != CLEANUP).chain([CLEANUP]).map(str::to_owned).collect();
        meta::set_finalizers(object, finalizers.iter().map(String::as_str));
        Ok(())
    }

    fn prepare_update(&self, new: &mut Value, old: &Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        new["status"] = status(new, &old["status"], &wire_time(hook.now));
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        names_rules(object, &mut problems);
        let scope = spec["scope"].as_str().unwrap_or_default();
        if scope != "Namespaced" && scope != "Cluster" {
            problems.not_supported("spec.scope", scope, &["Cluster", "Namespaced"]);
        }
        conversion(&spec["conversion"], &mut problems);
        versions(spec, &mut problems);
        problems.into_errors()
    }

    fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        stored_versions(object, &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["group", "scope"] {
            problems.immutable(&format!("spec.{field}"), &new["spec"][field], &old["spec"][field]);
        }
        for field in ["plural", "kind"] {
            let path = format!("spec.names.{field}");
            problems.immutable(&path, &new["spec"]["names"][field], &old["spec"]["names"][field]);
        }
        problems.into_errors()
    }
}

fn names_rules(object: &Value, problems: &mut Problems) {
    let spec = &object["spec"];
    let group = spec["group"].as_str().unwrap_or_default();
    let plural = spec["names"]["plural"].as_str().unwrap_or_default();
    if names::check_dns1123_subdomain(group).is_err() || !group.contains('.') {
        problems.invalid("spec.group", &group.into(), "should be a domain with at least one dot");
    }
    problems.dns_label("spec.names.plural", plural);
    if spec["names"]["kind"].as_str().is_none_or(str::is_empty) {
        problems.required("spec.names.kind", "");
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    if name != format!("{plural}.{group}") {
        problems.invalid("metadata.name", &name.into(), "must be spec.names.plural+\".\"+spec.group");
    }
}

/// Who converts between versions, if anybody does.
fn conversion(conversion: &Value, problems: &mut Problems) {
    let path = "spec.conversion";
    match conversion["strategy"].as_str().unwrap_or_default() {
        "Webhook" => {
            let webhook = &conversion["webhook"];
            if webhook["clientConfig"].is_object() {
                admission::client(&webhook["clientConfig"], &format!("{path}.webhook.clientConfig"), problems);
            } else {
                let detail = "required when strategy is set to Webhook";
                problems.required(&format!("{path}.webhook.clientConfig"), detail);
            }
            let at = format!("{path}.webhook.conversionReviewVersions");
            let reviews = &webhook["conversionReviewVersions"];
            match reviews.as_array().map_or(&[][..], Vec::as_slice) {
                [] => problems.required(&at, ""),
                known if known.iter().any(|version| version == REVIEW_VERSION) => {}
                _ => problems.invalid(&at, reviews, &format!("must include at least one of {REVIEW_VERSION}")),
            }
        }
        "None" if !conversion["webhook"].is_null() => {
            problems.forbidden(&format!("{path}.webhook"), "should not be set when strategy is not set to Webhook");
        }
        "None" => {}
        other => problems.not_supported(&format!("{path}.strategy"), other, &["None", "Webhook"]),
    }
}

/// A version in which objects may still be stored must stay, so that they can be read.
fn stored_versions(object: &Value, problems: &mut Problems) {
    let path = "status.storedVersions";
    let stored = object["status"]["storedVersions"].as_array().map_or(&[][..], Vec::as_slice);
    let versions = object["spec"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    if stored.is_empty() {
        problems.invalid(path, &json!([]), "must have at least one stored version");
        return;
    }
    let storage = versions.iter().find(|version| version["storage"] == true).map(|version| &version["name"]);
    if let Some(storage) = storage.filter(|storage| !stored.contains(storage)) {
        let detail = format!("must have the storage version {}", storage.as_str().unwrap_or_default());
        problems.invalid(path, &json!(stored), &detail);
    }
    for (index, version) in stored.iter().enumerate() {
        if !versions.iter().any(|one| one["name"] == *version) {
            let name = version.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            problems.invalid(&format!("{path}[{index}]"), version, &detail);
        }
    }
}

fn versions(spec: &Value, problems: &mut Problems) {
    let versions = spec["versions"].as_array().map_or(&[][..], Vec::as_slice);
    if versions.is_empty() || versions.len() > VERSIONS_MAX {
        let detail = format!("must have between 1 and {VERSIONS_MAX} versions");
        problems.invalid("spec.versions", &versions.len().into(), &detail);
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        problems.invalid(
            "spec.versions",
            &"<versions>".into(),
            "must have exactly one version marked as storage version",
        );
    }
    let mut seen = BTreeSet::new();
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = version["name"].as_str().unwrap_or_default();
        problems.dns_label(&format!("{path}.name"), name);
        if !seen.insert(name) {
            problems.duplicate(&format!("{path}.name"), name);
        }
        let declared = &version["schema"]["openAPIV3Schema"];
        let within = format!("{path}.schema.openAPIV3Schema");
        if declared.is_object() {
            match crd::schema(declared) {
                Err(cause) => problems.invalid(&within, &"<schema>".into(), &cause),
                Ok(schema) => {
                    rules::compile(declared, &schema, &within, problems);
                }
            }
        } else {
            problems.required(&within, "schemas are required");
        }
        if let Err(cause) = Table::from_crd_version(version) {
            problems.invalid(&format!("{path}.additionalPrinterColumns"), &"<columns>".into(), &cause.to_string());
        }
    }
}

/// The status of a definition: names are always accepted, and it is established by the write itself.
fn status(object: &Value, old: &Value, now: &str) -> Value {
    let storage = object["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .map_or(Value::Null, |version| version["name"].clone());
    let mut stored = old["storedVersions"].as_array().cloned().unwrap_or_default();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    let condition = |kind: &str, reason: &str, message: &str| {
        let before = old["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
        let since = before.map_or(json!(now), |condition| condition["lastTransitionTime"].clone());
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since,
        })
    };
    json!({
        "acceptedNames": object["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_established_and_checked() {
        let mut crd = json!({
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        });
        CustomResourceDefinition.defaults(&mut crd);
        assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
        assert!(CustomResourceDefinition.validate(&crd).is_empty());
        let first = status(&crd, &Value::Null, "t1");
        assert_eq!(first["storedVersions"], json!(["v1"]));
        assert_eq!(status(&crd, &first, "t2"), first);
        crd["metadata"]["name"] = json!("gadgets.example.com");
        crd["spec"]["versions"][0]["storage"] = json!(false);
        assert_eq!(CustomResourceDefinition.validate(&crd).len(), 2);
    }
}

//! StatefulSets and the ControllerRevisions that keep their templates.

use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::claim::Claim;
use super::workload::{
    fill, fill_template, label_name, lasting, not_negative, number_or_share, one_of, spec_mut, template_errors,
};
use crate::problems::Problems;

/// What may change of a specification.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];
const KEPT: [&str; 2] = ["Retain", "Delete"];

pub(crate) struct StatefulSet;

impl Strategy for StatefulSet {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        for (field, value) in [
            ("replicas", json!(1)),
            ("revisionHistoryLimit", json!(10)),
            ("podManagementPolicy", json!("OrderedReady")),
            ("updateStrategy", json!({})),
            ("persistentVolumeClaimRetentionPolicy", json!({})),
        ] {
            fill(spec, field, value);
        }
        if let Some(strategy) = spec.get_mut("updateStrategy").and_then(Value::as_object_mut) {
            fill(strategy, "type", json!("RollingUpdate"));
            if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
                fill(strategy, "rollingUpdate", json!({}));
                if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                    fill(rolling, "partition", json!(0));
                }
            }
        }
        if let Some(kept) = spec.get_mut("persistentVolumeClaimRetentionPolicy").and_then(Value::as_object_mut) {
            fill(kept, "whenDeleted", json!("Retain"));
            fill(kept, "whenScaled", json!("Retain"));
        }
        for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
            Claim.defaults(claim);
            let Some(claim) = claim.as_object_mut() else { continue };
            fill(claim, "apiVersion", json!("v1"));
            fill(claim, "kind", json!("PersistentVolumeClaim"));
            fill(claim, "status", json!({ "phase": "Pending" }));
        }
        fill_template(spec);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        label_name(&mut problems, object);
        not_negative(&mut problems, spec, "spec", &["replicas", "minReadySeconds", "revisionHistoryLimit"]);
        not_negative(&mut problems, &spec["ordinals"], "spec.ordinals", &["start"]);
        one_of(&mut problems, "spec.podManagementPolicy", &spec["podManagementPolicy"], &["OrderedReady", "Parallel"]);
        update_strategy(&mut problems, &spec["updateStrategy"]);
        for field in ["whenDeleted", "whenScaled"] {
            let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
            one_of(&mut problems, &path, &spec["persistentVolumeClaimRetentionPolicy"][field], &KEPT);
        }
        lasting(&mut problems, spec, "statefulset");
        let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten().enumerate();
        for (index, claim) in claims {
            let name = claim["metadata"]["name"].as_str().unwrap_or_default();
            problems.dns_label(&format!("spec.volumeClaimTemplates[{index}].metadata.name"), name);
        }
        let mut errors = problems.into_errors();
        errors.extend(template_errors(&with_claims(spec), "spec.template"));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let fixed = |object: &Value| {
            let mut spec = object["spec"].clone();
            if let Some(spec) = spec.as_object_mut() {
                spec.retain(|field, _| !MUTABLE.contains(&field.as_str()));
            }
            spec
        };
        if fixed(new) != fixed(old) {
            let names: Vec<String> = MUTABLE.iter().map(|name| format!("'{name}'")).collect();
            let (last, first) = names.split_last().map_or(("", &[][..]), |(last, first)| (last.as_str(), first));
            problems.forbidden(
                "spec",
                &format!(
                    "updates to statefulset spec for fields other than {} and {last} are forbidden",
                    first.join(", ")
                ),
            );
        }
        problems.into_errors()
    }
}

/// The template with a volume for each claim, as its pods have it.
fn with_claims(spec: &Value) -> Value {
    let mut template = spec["template"].clone();
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let names: Vec<&Value> = claims.map(|claim| &claim["metadata"]["name"]).collect();
    if names.is_empty() {
        return template;
    }
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return template;
    };
    let mut volumes = pod.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    volumes.retain(|volume| !names.contains(&&volume["name"]));
    volumes.extend(names.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})));
    pod.insert("volumes".to_owned(), Value::Array(volumes));
    template
}

fn update_strategy(problems: &mut Problems, strategy: &Value) {
    one_of(problems, "spec.updateStrategy.type", &strategy["type"], &["RollingUpdate", "OnDelete"]);
    let (path, rolling) = ("spec.updateStrategy.rollingUpdate", &strategy["rollingUpdate"]);
    if strategy["type"] == "OnDelete" && rolling.is_object() {
        problems.invalid(path, rolling, "only allowed for updateStrategy 'RollingUpdate'");
    }
    not_negative(problems, rolling, path, &["partition"]);
    number_or_share(problems, &format!("{path}.maxUnavailable"), &rolling["maxUnavailable"]);
}

/// A ControllerRevision's data never change.
pub(crate) struct ControllerRevision;

impl Strategy for ControllerRevision {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        if object["data"].is_null() {
            problems.required("data", "data is mandatory");
        }
        not_negative(&mut problems, object, "", &["revision"]);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        problems.immutable("data", &new["data"], &old["data"]);
        problems.into_errors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "s"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "serviceName": "s",
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [
                {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
        }});
        object["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        StatefulSet.defaults(&mut object);
        object
    }

    #[test]
    fn claims_are_volumes_of_the_template() {
        let object = set(json!({}));
        assert_eq!(StatefulSet.validate(&object), []);
        assert_eq!(object["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
        assert_eq!(object["spec"]["updateStrategy"]["rollingUpdate"]["partition"], 0);
        let without = set(json!({"volumeClaimTemplates": []}));
        assert_eq!(StatefulSet.validate(&without)[0].path, "spec.template.spec.containers[0].volumeMounts[0].name");
    }

    #[test]
    fn only_some_fields_may_change() {
        let old = set(json!({}));
        for (spec, allowed) in [
            (json!({"replicas": 3}), true),
            (json!({"minReadySeconds": 3}), true),
            (json!({"serviceName": "t"}), false),
            (json!({"podManagementPolicy": "Parallel"}), false),
        ] {
            let errors = StatefulSet.validate_update(&set(spec.clone()), &old);
            assert_eq!(errors.is_empty(), allowed, "{spec}");
            for error in errors {
                let wanted = "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                    'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                    'minReadySeconds' are forbidden";
                assert_eq!(error.to_string(), wanted);
            }
        }
    }
}

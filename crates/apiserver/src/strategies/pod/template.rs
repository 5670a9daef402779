//! Whether pods could be made from a template.
//!
//! Invariant: a spec is judged by the very rules that the pods will meet, after the same defaults. Called by admission of
//! kinds that make pods, so that their user hears of a fault while the object is in hand.

use std::sync::LazyLock;

use pumice_objects::field::FieldError;
use pumice_objects::meta::{self, ObjectScope};
use pumice_objects::names::NameRule;
use pumice_objects::schema::Schema;
use serde_json::{Value, json};

use super::{defaults, spec};
use crate::ephemeral_containers;
use crate::schemas;

/// The parts of a template's metadata that are judged. Names and owners are given by whoever makes the pods.
const JUDGED: [&str; 2] = ["metadata.labels", "metadata.annotations"];

/// The schema of templates, for the ranges of their numbers.
static SCHEMA: LazyLock<Schema> = LazyLock::new(|| schemas::builtin("io.k8s.api.core.v1.PodTemplateSpec"));

/// Every rule of pods that a `PodTemplateSpec` breaks: those of labels and annotations first, then those of the spec with
/// its defaults filled in, then numbers out of range. Paths are relative to the template, such as `spec.containers[0].image`.
///
/// Types are not judged: a schema, or decoding the template, does that.
pub fn validate_pod_template(template: &Value) -> Vec<FieldError> {
    let mut errors = validate_rules(template);
    errors.extend(SCHEMA.out_of_range(&mut template.clone()));
    errors
}

/// As [`validate_pod_template`], for a template in an object whose own schema says what its numbers may be.
pub(crate) fn validate_rules(template: &Value) -> Vec<FieldError> {
    let given = template.get("spec").filter(|spec| spec.is_object());
    // A missing spec counts as an empty one: defaults need a place, or the restart policy would be told as a fault too.
    let mut pod = json!({ "spec": given.cloned().unwrap_or_else(|| json!({})) });
    defaults::apply(&mut pod);
    let mut errors = meta::validate(template, ObjectScope::Namespaced, NameRule::Subdomain);
    errors.retain(|error| JUDGED.iter().any(|path| error.path.starts_with(path)));
    errors.extend(ephemeral_containers::refuse(&pod["spec"], "ephemeral containers not allowed in pod template"));
    errors.extend(spec::validate(&pod));
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(field: &str, value: Value) -> Value {
        let mut template = json!({"spec": {"containers": [{"name": "a", "image": "x"}]}});
        template["spec"][field] = value;
        template
    }

    #[test]
    fn each_fault_is_told_once_at_its_field() {
        let good = with("volumes", json!([{"name": "v"}]));
        let labelled = |metadata: Value| json!({"metadata": metadata, "spec": good["spec"]});
        let cases: &[(Value, &[&str])] = &[
            (good.clone(), &[]),
            (with("restartPolicy", json!("")), &[]),
            (labelled(json!({"labels": {"a": "b"}, "annotations": {"Example.com/a": "b c"}})), &[]),
            (labelled(json!({"name": "A_", "ownerReferences": [{}]})), &[]),
            (labelled(json!({"labels": {"a": "b c"}})), &["metadata.labels: Invalid value: \"b c\": "]),
            (labelled(json!({"labels": {"a b": "c"}})), &["metadata.labels: Invalid value: \"a b\": "]),
            (labelled(json!({"annotations": {"a b": "c"}})), &["metadata.annotations: Invalid value: \"a b\": "]),
            (
                json!({"metadata": {"labels": {"a": "b c"}}}),
                &["metadata.labels: Invalid value: \"b c\": ", "spec.containers: Required value"],
            ),
            (with("restartPolicy", json!("Sometimes")), &["spec.restartPolicy: Unsupported value: \"Sometimes\""]),
            (
                with("initContainers", json!([{"name": "a", "image": "x"}])),
                &["spec.containers[0].name: Duplicate value"],
            ),
            (
                with("ephemeralContainers", json!([{"name": "e", "image": "x"}])),
                &["spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
            ),
            (with("terminationGracePeriodSeconds", json!(-1)), &["spec.terminationGracePeriodSeconds: Invalid value"]),
            (
                with("volumes", json!([{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
                &["spec.volumes[0]: Forbidden"],
            ),
        ];
        for (template, wanted) in cases {
            let found: Vec<String> = validate_pod_template(template).iter().map(ToString::to_string).collect();
            let told =
                found.len() == wanted.len() && found.iter().zip(*wanted).all(|(one, start)| one.starts_with(start));
            assert!(told, "{template}: {found:?}");
        }
    }

    #[test]
    fn odd_shapes_lack_containers() {
        for template in [json!(null), json!([]), json!({}), json!({"spec": 1}), json!({"metadata": 1, "spec": null})] {
            let found: Vec<String> = validate_pod_template(&template).iter().map(ToString::to_string).collect();
            assert_eq!(found, ["spec.containers: Required value"], "{template}");
        }
    }
}

//! ReplicaSets: defaults, and what may not change.

use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::workload::{fill, fill_template, immutable, lasting, not_negative, spec_mut, template_errors};
use crate::problems::Problems;

pub(crate) struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        fill(spec, "replicas", json!(1));
        fill_template(spec);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        not_negative(&mut problems, spec, "spec", &["replicas", "minReadySeconds"]);
        lasting(&mut problems, spec, "ReplicaSet");
        let mut errors = problems.into_errors();
        errors.extend(template_errors(&spec["template"], "spec.template"));
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        immutable(&mut problems, new, old, &["selector"]);
        problems.into_errors()
    }
}

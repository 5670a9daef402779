//! Leases: durations are positive.

use pumice_objects::field::FieldError;
use serde_json::Value;

use super::Strategy;
use super::problems::Problems;

pub(crate) struct Lease;

impl Strategy for Lease {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for (field, least, detail) in [
            ("leaseDurationSeconds", 1, "must be greater than 0"),
            ("leaseTransitions", 0, "must be greater than or equal to 0"),
        ] {
            let value = &object["spec"][field];
            if value.as_i64().is_some_and(|number| number < least) {
                problems.invalid(&format!("spec.{field}"), value, detail);
            }
        }
        problems.into_errors()
    }
}

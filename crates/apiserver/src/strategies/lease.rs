//! Leases: durations are positive.

use pumice_objects::field::FieldError;
use serde_json::Value;

use super::Strategy;
use crate::problems::Problems;

pub(crate) struct Lease;

/// Fields of an election that upstream keeps only with a gate that is off.
const GATED: [&str; 2] = ["preferredHolder", "strategy"];

impl Strategy for Lease {
    fn defaults(&self, object: &mut Value) {
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.retain(|field, _| !GATED.contains(&field.as_str()));
        }
    }

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_behind_a_gate_are_left_out_and_durations_are_positive() {
        let mut lease =
            json!({"spec": {"holderIdentity": "h", "strategy": "OldestEmulationVersion", "preferredHolder": "p"}});
        Lease.defaults(&mut lease);
        assert_eq!(lease, json!({"spec": {"holderIdentity": "h"}}));
        assert_eq!(Lease.validate(&json!({"spec": {"leaseDurationSeconds": 0}})).len(), 1);
    }
}

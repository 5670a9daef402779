//! PodDisruptionBudgets: what may stand in one. Their status is written by `workers::disruption`.

use pumice_objects::field::FieldError;
use pumice_objects::selector::LabelSelector;
use serde_json::Value;

use super::Strategy;
use crate::problems::Problems;

const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];

pub(crate) struct DisruptionBudget;

impl Strategy for DisruptionBudget {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
            problems.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set");
        }
        for field in ["minAvailable", "maxUnavailable"] {
            check_amount(&format!("spec.{field}"), &spec[field], &mut problems);
        }
        if spec["selector"].is_object()
            && let Err(error) = LabelSelector::from_json(&spec["selector"])
        {
            problems.invalid("spec.selector", &spec["selector"], &error.to_string());
        }
        if let Some(policy) = spec["unhealthyPodEvictionPolicy"].as_str()
            && !POLICIES.contains(&policy)
        {
            problems.not_supported("spec.unhealthyPodEvictionPolicy", policy, &POLICIES);
        }
        problems.into_errors()
    }
}

fn check_amount(path: &str, value: &Value, problems: &mut Problems) {
    match value {
        Value::Null => {}
        Value::Number(number) => {
            if number.as_i64().is_none_or(|number| number < 0) {
                problems.invalid(path, value, "must be greater than or equal to 0");
            }
        }
        _ => {
            let digits = value.as_str().and_then(|text| text.strip_suffix('%'));
            let percent = digits.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
            match percent.map(str::parse::<u64>) {
                Some(Ok(0..=100)) => {}
                Some(_) => problems.invalid(path, value, "must not be greater than 100%"),
                None => problems.invalid(
                    path,
                    value,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                     regex used for validation is '[0-9]+%')",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn budgets_say_one_thing_and_say_it_right() {
        for (spec, wanted) in [
            (json!({"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}), 0),
            (json!({"maxUnavailable": "30%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}), 0),
            (json!({}), 0),
            (json!({"minAvailable": 1, "maxUnavailable": 1}), 1),
            (json!({"minAvailable": -1}), 1),
            (json!({"minAvailable": "101%"}), 1),
            (json!({"minAvailable": "half"}), 1),
            (json!({"minAvailable": "%"}), 1),
            (json!({"unhealthyPodEvictionPolicy": "Never"}), 1),
            (json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}), 1),
        ] {
            assert_eq!(DisruptionBudget.validate(&json!({"spec": spec})).len(), wanted, "{spec}");
        }
    }
}

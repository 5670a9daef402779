//! Deployments: defaults, the bounds of a rolling update, and what may not change.

use pumice_objects::field::FieldError;
use serde_json::{Value, json};

use super::Strategy;
use super::workload::{
    absolute_or_share, fill, fill_template, immutable, lasting, not_negative, number_or_share, one_of, spec_mut,
    template_errors,
};
use crate::problems::Problems;

const ROLLING: &str = "RollingUpdate";
const RECREATE: &str = "Recreate";

pub(crate) struct Deployment;

impl Strategy for Deployment {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        fill(spec, "replicas", json!(1));
        fill(spec, "revisionHistoryLimit", json!(10));
        fill(spec, "progressDeadlineSeconds", json!(600));
        fill_template(spec);
        fill(spec, "strategy", json!({}));
        let Some(strategy) = spec.get_mut("strategy").and_then(Value::as_object_mut) else { return };
        fill(strategy, "type", json!(ROLLING));
        if strategy.get("type").and_then(Value::as_str) == Some(ROLLING) {
            fill(strategy, "rollingUpdate", json!({}));
            if let Some(rolling) = strategy.get_mut("rollingUpdate").and_then(Value::as_object_mut) {
                fill(rolling, "maxSurge", json!("25%"));
                fill(rolling, "maxUnavailable", json!("25%"));
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let spec = &object["spec"];
        let numbers = ["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"];
        not_negative(&mut problems, spec, "spec", &numbers);
        lasting(&mut problems, spec, "deployment");
        let deadline = &spec["progressDeadlineSeconds"];
        let ready = spec["minReadySeconds"].as_i64().unwrap_or(0);
        if deadline.as_i64().is_some_and(|seconds| seconds <= ready) {
            problems.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
        }
        strategy(&mut problems, &spec["strategy"]);
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

fn strategy(problems: &mut Problems, strategy: &Value) {
    one_of(problems, "spec.strategy.type", &strategy["type"], &[RECREATE, ROLLING]);
    let rolling = &strategy["rollingUpdate"];
    let path = "spec.strategy.rollingUpdate";
    if strategy["type"] == RECREATE && rolling.is_object() {
        problems.forbidden(path, "may not be specified when strategy `type` is 'Recreate'");
        return;
    }
    for field in ["maxUnavailable", "maxSurge"] {
        number_or_share(problems, &format!("{path}.{field}"), &rolling[field]);
    }
    let of_hundred = |field: &str| absolute_or_share(&rolling[field], 100, true);
    let unavailable = format!("{path}.maxUnavailable");
    if of_hundred("maxUnavailable") == Some(0) && of_hundred("maxSurge") == Some(0) {
        problems.invalid(&unavailable, &rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0");
    }
    if rolling["maxUnavailable"].is_string() && of_hundred("maxUnavailable").is_some_and(|percent| percent > 100) {
        problems.invalid(&unavailable, &rolling["maxUnavailable"], "must not be greater than 100%");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}},
        }});
        object["spec"].as_object_mut().expect("a spec").extend(spec.as_object().expect("fields").clone());
        Deployment.defaults(&mut object);
        object
    }

    #[test]
    fn defaults_are_upstreams_and_filled_once() {
        let object = deployment(json!({}));
        let spec = &object["spec"];
        assert_eq!((&spec["replicas"], &spec["progressDeadlineSeconds"]), (&json!(1), &json!(600)));
        assert_eq!(
            spec["strategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}})
        );
        let pod = &spec["template"]["spec"];
        assert_eq!((&pod["restartPolicy"], &pod["serviceAccountName"]), (&json!("Always"), &Value::Null));
        let mut again = object.clone();
        Deployment.defaults(&mut again);
        assert_eq!(again, object);
        assert_eq!(Deployment.validate(&object), []);
    }

    #[test]
    fn each_rule_names_its_field() {
        let rolling = |rolling: Value| json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": rolling}});
        let template = |labels: Value, spec: Value| json!({"template": {"metadata": {"labels": labels}, "spec": spec}});
        let containers = json!([{"name": "c", "image": "i"}]);
        for (spec, wanted) in [
            (json!({"replicas": -1}), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
            (json!({"selector": {}}), "spec.selector: Invalid value: {}: empty selector is invalid for deployment"),
            (
                template(json!({"a": "c"}), json!({"containers": containers})),
                "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
            ),
            (
                template(json!({"a": "b"}), json!({"containers": containers, "restartPolicy": "Never"})),
                "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            ),
            (template(json!({"a": "b"}), json!({})), "spec.template.spec.containers: Required value"),
            (
                rolling(json!({"maxSurge": 0, "maxUnavailable": "0%"})),
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0",
            ),
            (
                rolling(json!({"maxSurge": "x"})),
                "spec.strategy.rollingUpdate.maxSurge: Invalid value: \"x\": a valid percent",
            ),
            (
                json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
                "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
            ),
            (
                json!({"progressDeadlineSeconds": 5, "minReadySeconds": 5}),
                "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
            ),
        ] {
            let errors = Deployment.validate(&deployment(spec.clone()));
            assert!(errors.first().is_some_and(|error| error.to_string().starts_with(wanted)), "{spec}: {errors:?}");
        }
        let old = deployment(json!({}));
        let other = deployment(json!({"selector": {"matchLabels": {"a": "b", "c": "d"}}}));
        assert!(Deployment.validate_update(&other, &old)[0].to_string().ends_with("field is immutable"));
    }
}

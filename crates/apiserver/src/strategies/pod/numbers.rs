//! Rules about a pod's numbers that span fields. What a number may be by itself stands in `schemas::ranges`.

use serde_json::{Map, Value};

use super::containers;
use super::spec::parse_quantity;
use crate::problems::Problems;

/// Checks the numbers of a pod's specification.
pub(super) fn validate(spec: &Value, problems: &mut Problems) {
    for (path, container) in containers(spec) {
        sleeps(&path, container, &spec["terminationGracePeriodSeconds"], problems);
        probes(&path, container, problems);
    }
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let limit = parse_quantity(&volume["emptyDir"]["sizeLimit"]);
        if limit.is_some_and(|limit| limit.is_negative()) {
            let detail = "SizeLimit field must be a valid resource quantity";
            problems.forbidden(&format!("spec.volumes[{index}].emptyDir.sizeLimit"), detail);
        }
    }
    let overhead = spec["overhead"].as_object().into_iter().flatten();
    for (name, amount) in overhead.filter(|(_, amount)| parse_quantity(amount).is_some_and(|one| one.is_negative())) {
        problems.invalid(&format!("spec.overhead[{name}]"), amount, "must be greater than or equal to 0");
    }
}

/// A hook that sleeps ends before the pod has to.
fn sleeps(path: &str, container: &Map<String, Value>, grace: &Value, problems: &mut Problems) {
    // A grace that is no number, or no good one, is told by itself.
    let Some(grace) = grace.as_i64().filter(|grace| *grace >= 0) else { return };
    let Some(lifecycle) = container.get("lifecycle") else { return };
    for hook in ["postStart", "preStop"] {
        let seconds = &lifecycle[hook]["sleep"]["seconds"];
        if seconds.as_i64().is_some_and(|seconds| !(0..=grace).contains(&seconds)) {
            let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            problems.invalid(&format!("{path}.lifecycle.{hook}.sleep"), seconds, &detail);
        }
    }
}

/// A container that is started or alive is so at the first good answer; one that is not ready is not ended for it.
fn probes(path: &str, container: &Map<String, Value>, problems: &mut Problems) {
    for probe in ["livenessProbe", "startupProbe"] {
        let successes = container.get(probe).map_or(&Value::Null, |probe| &probe["successThreshold"]);
        if successes.as_i64().is_some_and(|successes| successes > 1) {
            problems.invalid(&format!("{path}.{probe}.successThreshold"), successes, "must be 1");
        }
    }
    let grace = container.get("readinessProbe").map_or(&Value::Null, |probe| &probe["terminationGracePeriodSeconds"]);
    if !grace.is_null() {
        let detail = "must not be set for readinessProbes";
        problems.invalid(&format!("{path}.readinessProbe.terminationGracePeriodSeconds"), grace, detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(spec: &Value) -> Vec<String> {
        let mut problems = Problems::default();
        validate(spec, &mut problems);
        problems.into_errors().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn numbers_that_depend_on_others_are_checked() {
        let container = |container: Value| json!({"terminationGracePeriodSeconds": 5, "containers": [container]});
        let sleep = |seconds: i64| container(json!({"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}));
        let cases: &[(Value, &[&str])] = &[
            (sleep(0), &[]),
            (sleep(5), &[]),
            (
                sleep(6),
                &["spec.containers[0].lifecycle.preStop.sleep: Invalid value: 6: \
                   must be non-negative and less than terminationGracePeriodSeconds (5)"],
            ),
            (
                sleep(-1),
                &["spec.containers[0].lifecycle.preStop.sleep: Invalid value: -1: \
                   must be non-negative and less than terminationGracePeriodSeconds (5)"],
            ),
            (container(json!({"readinessProbe": {"successThreshold": 3}, "livenessProbe": {}})), &[]),
            (
                container(json!({"livenessProbe": {"successThreshold": 2}})),
                &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
            ),
            (
                container(json!({"readinessProbe": {"terminationGracePeriodSeconds": 1}})),
                &["spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 1: \
                   must not be set for readinessProbes"],
            ),
            (json!({"volumes": [{"emptyDir": {"sizeLimit": "1Mi"}}, {"emptyDir": {"sizeLimit": 0}}]}), &[]),
            (
                json!({"volumes": [{"emptyDir": {"sizeLimit": "-1Mi"}}]}),
                &["spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"],
            ),
            (
                json!({"overhead": {"cpu": "-1"}}),
                &["spec.overhead[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
            ),
        ];
        for (spec, wanted) in cases {
            assert_eq!(told(spec), *wanted, "{spec}");
        }
    }
}

//! Rules of a pod's spec that span fields, so that no schema states them.

use std::collections::BTreeSet;

use pumice_objects::field::FieldError;
use pumice_objects::names;
use pumice_units::Quantity;
use serde_json::{Map, Value};

use super::{ALL_LISTS, containers, containers_in, security};
use crate::ephemeral_containers;
use crate::problems::Problems;

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
/// Resources of containers that are given in whole units only, unless they are these.
const STANDARD_RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Checks a pod before it is stored.
pub(super) fn validate(object: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    let spec = &object["spec"];
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        problems.required("spec.containers", "");
    }
    let policy = spec["restartPolicy"].as_str().unwrap_or_default();
    if !RESTART_POLICIES.contains(&policy) {
        problems.not_supported("spec.restartPolicy", policy, &RESTART_POLICIES);
    }
    let volumes = volumes(spec, &mut problems);
    let mut seen = BTreeSet::new();
    for (path, container) in containers_in(spec, &ALL_LISTS) {
        container_rules(&path, container, &volumes, &mut problems);
        let name = name_of(container);
        if !name.is_empty() && !seen.insert(name) {
            problems.duplicate(&format!("{path}.name"), name);
        }
    }
    let others = containers(spec).map(|(_, container)| name_of(container)).collect();
    ephemeral_containers::validate(spec, &others, &mut problems);
    for list in ALL_LISTS {
        let items = spec[list].as_array().into_iter().flatten().enumerate();
        for (index, _) in items.filter(|(_, item)| !item.is_object()) {
            problems.invalid(&format!("spec.{list}[{index}]"), &Value::Null, "must be an object");
        }
    }
    numbers(spec, &mut problems);
    security::validate(spec, &mut problems);
    problems.into_errors()
}

fn name_of(container: &Map<String, Value>) -> &str {
    container.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Checks volumes and gives their names.
fn volumes<'a>(spec: &'a Value, problems: &mut Problems) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec["volumes"].as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let name = volume["name"].as_str().unwrap_or_default();
        problems.dns_label(&format!("{path}.name"), name);
        if !name.is_empty() && !seen.insert(name) {
            problems.duplicate(&format!("{path}.name"), name);
        }
        let sources = volume.as_object().map_or(0, |volume| volume.keys().filter(|key| *key != "name").count());
        if sources > 1 {
            problems.forbidden(&path, "may not specify more than 1 volume type");
        }
        for (source, field) in [
            ("hostPath", "path"),
            ("persistentVolumeClaim", "claimName"),
            ("secret", "secretName"),
            ("configMap", "name"),
            ("image", "reference"),
        ] {
            if volume[source].is_object() && volume[source][field].as_str().is_none_or(str::is_empty) {
                problems.required(&format!("{path}.{source}.{field}"), "");
            }
        }
        pull_policy(&format!("{path}.image.pullPolicy"), &volume["image"]["pullPolicy"], problems);
    }
    seen
}

fn container_rules(path: &str, container: &Map<String, Value>, volumes: &BTreeSet<&str>, problems: &mut Problems) {
    let text = |field: &str| container.get(field).and_then(Value::as_str).unwrap_or_default();
    problems.dns_label(&format!("{path}.name"), text("name"));
    let image = text("image");
    if image.trim().is_empty() {
        problems.required(&format!("{path}.image"), "");
    } else if image.trim() != image {
        problems.invalid(&format!("{path}.image"), &image.into(), "must not have leading or trailing whitespace");
    }
    pull_policy(
        &format!("{path}.imagePullPolicy"),
        &container.get("imagePullPolicy").cloned().unwrap_or_default(),
        problems,
    );
    for (index, entry) in list(container, "env") {
        let name = entry["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            problems.required(&format!("{path}.env[{index}].name"), "");
        } else if name.contains(['=', '\0']) {
            problems.invalid(&format!("{path}.env[{index}].name"), &name.into(), "must not contain '=' or NUL");
        }
        if entry["value"].as_str().is_some_and(|value| !value.is_empty()) && entry["valueFrom"].is_object() {
            let detail = "may not be specified when `value` is not empty";
            problems.invalid(&format!("{path}.env[{index}].valueFrom"), &"".into(), detail);
        }
    }
    mounts(path, container, volumes, problems);
    for (index, port) in list(container, "ports") {
        if port["containerPort"].as_i64().is_none_or(|number| number == 0) {
            problems.required(&format!("{path}.ports[{index}].containerPort"), "");
        }
    }
    resources(path, container, problems);
}

/// When an image is pulled; one that is not set is the server's to choose.
fn pull_policy(path: &str, policy: &Value, problems: &mut Problems) {
    let policy = policy.as_str().unwrap_or_default();
    if !policy.is_empty() && !PULL_POLICIES.contains(&policy) {
        problems.not_supported(path, policy, &PULL_POLICIES);
    }
}

fn mounts(path: &str, container: &Map<String, Value>, volumes: &BTreeSet<&str>, problems: &mut Problems) {
    let mut places = BTreeSet::new();
    for (index, mount) in list(container, "volumeMounts") {
        let name = mount["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            problems.required(&format!("{path}.volumeMounts[{index}].name"), "");
        } else if !volumes.contains(name) {
            problems.not_found(&format!("{path}.volumeMounts[{index}].name"), name);
        }
        let place = mount["mountPath"].as_str().unwrap_or_default();
        if place.is_empty() {
            problems.required(&format!("{path}.volumeMounts[{index}].mountPath"), "");
        } else if !places.insert(place) {
            let detail = "must be unique";
            problems.invalid(&format!("{path}.volumeMounts[{index}].mountPath"), &place.into(), detail);
        }
        let inner = mount["subPath"].as_str().unwrap_or_default();
        if inner.starts_with('/') || inner.split('/').any(|part| part == "..") {
            let detail = "must be a relative path that does not contain '..'";
            problems.invalid(&format!("{path}.volumeMounts[{index}].subPath"), &inner.into(), detail);
        }
    }
}

fn resources(path: &str, container: &Map<String, Value>, problems: &mut Problems) {
    let Some(resources) = container.get("resources") else { return };
    for field in ["limits", "requests"] {
        for (name, amount) in resources[field].as_object().into_iter().flatten() {
            let at = format!("{path}.resources.{field}[{name}]");
            let Some(quantity) = parse_quantity(amount) else {
                problems.invalid(&at, amount, "must be a quantity such as 500m or 1Gi");
                continue;
            };
            if quantity.is_negative() {
                problems.invalid(&at, amount, "must be greater than or equal to 0");
            }
            let standard = STANDARD_RESOURCES.contains(&name.as_str()) || name.starts_with("hugepages-");
            if !standard && quantity != Quantity::from_units(quantity.value()) {
                problems.invalid(&at, amount, "must be an integer");
            }
            if !standard && names::check_qualified_name(name).is_err() {
                problems.invalid(&at, &name.as_str().into(), "must be a standard resource type or fully qualified");
            }
        }
    }
    for (name, limit) in resources["limits"].as_object().into_iter().flatten() {
        let request = &resources["requests"][name];
        let (Some(limit_value), Some(request_value)) = (parse_quantity(limit), parse_quantity(request)) else {
            continue;
        };
        if request_value > limit_value {
            let shown = limit.as_str().unwrap_or_default();
            let detail = format!("must be less than or equal to {name} limit of {shown}");
            problems.invalid(&format!("{path}.resources.requests"), request, &detail);
        }
    }
}

/// A quantity as text or number.
pub(crate) fn parse_quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn list<'a>(object: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    object.get(field).and_then(Value::as_array).into_iter().flatten().enumerate()
}

/// Checks numbers that depend on others. What a number may be by itself stands in `schemas::ranges`.
fn numbers(spec: &Value, problems: &mut Problems) {
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

    fn pod(container: Value, volumes: Value) -> Value {
        json!({"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}})
    }

    #[test]
    fn each_rule_names_its_field() {
        let good = json!({"name": "a", "image": "x"});
        let with = |field: &str, value: Value| {
            let mut container = good.clone();
            container[field] = value;
            container
        };
        let cases = [
            (pod(good.clone(), json!([])), ""),
            (json!({"spec": {"restartPolicy": "Never"}}), "spec.containers"),
            (json!({}), "spec.containers"),
            (pod(with("name", json!("A")), json!([])), "spec.containers[0].name"),
            (pod(with("image", json!("")), json!([])), "spec.containers[0].image"),
            (pod(with("env", json!([{"name": "a=b"}])), json!([])), "spec.containers[0].env[0].name"),
            (pod(with("ports", json!([{"containerPort": 0}])), json!([])), "spec.containers[0].ports[0].containerPort"),
            (
                pod(with("volumeMounts", json!([{"name": "v", "mountPath": "/v"}])), json!([])),
                "spec.containers[0].volumeMounts[0].name",
            ),
            (
                pod(with("resources", json!({"limits": {"cpu": "1x"}})), json!([])),
                "spec.containers[0].resources.limits[cpu]",
            ),
            (
                pod(with("resources", json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1100m"}})), json!([])),
                "spec.containers[0].resources.requests",
            ),
            (
                pod(with("resources", json!({"limits": {"example.com/gpu": "500m"}})), json!([])),
                "spec.containers[0].resources.limits[example.com/gpu]",
            ),
            (pod(good.clone(), json!([{"name": "v"}, {"name": "v"}])), "spec.volumes[1].name"),
            (pod(good.clone(), json!([{"name": "v", "hostPath": {}}])), "spec.volumes[0].hostPath.path"),
            (pod(good.clone(), json!([{"name": "v", "image": {"reference": "i", "pullPolicy": "Never"}}])), ""),
            (pod(good.clone(), json!([{"name": "v", "image": {}}])), "spec.volumes[0].image.reference"),
            (
                pod(good.clone(), json!([{"name": "v", "image": {"reference": "i", "pullPolicy": "Maybe"}}])),
                "spec.volumes[0].image.pullPolicy",
            ),
        ];
        for (pod, wanted) in cases {
            let found: Vec<String> = validate(&pod).into_iter().map(|error| error.path).collect();
            assert_eq!(found.first().map_or("", String::as_str), wanted, "{pod}");
        }
    }

    fn told(spec: &Value) -> Vec<String> {
        let mut problems = Problems::default();
        numbers(spec, &mut problems);
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

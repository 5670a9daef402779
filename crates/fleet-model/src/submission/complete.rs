//! What a job gets that it did not ask for.

use std::collections::BTreeMap;

use pumice_units::Quantity;
use serde_json::{Map, Value, json};

use super::annotations::{EXTERNAL_JOB_URI, FAIL_FAST, PRICE_BAND};
use super::spec::{list_mut, object_mut};
use super::{Again, Checked, Completed, Item, ItemError, PriceBand, Rules, Toleration};
use super::{failures, gang, resources, services};

/// Completes an item that was checked.
pub fn complete(item: &Item, pod_spec: &Value, rules: &Rules) -> Result<Completed, ItemError> {
    let (mut labels, mut annotations) = (item.labels.clone(), item.annotations.clone());
    let gang = gang::complete(item, rules, &mut labels, &mut annotations)?;
    let fail_fast = annotations.get(FAIL_FAST).is_some_and(|text| text == "true");
    let mut fields = pod_spec.as_object().cloned().unwrap_or_default();
    let priority_class = priority_class(&mut fields, rules);
    resource_defaults(&mut fields, rules);
    let mut pod_spec = Value::Object(fields);
    let requests = resources::requests(&pod_spec);
    if let Value::Object(fields) = &mut pod_spec {
        defaults(fields, item, &priority_class, &requests, rules);
    }
    let (services, ingresses) = services::plan(item, &pod_spec, rules);
    let retries = failures::own(item, requests.get("memory").copied().map(Quantity::value));
    let alone = item_alone(item, priority_class);
    Ok(Completed { labels, annotations, pod_spec, services, ingresses, gang, fail_fast, requests, retries, ..alone })
}

/// What an item of a priority class says apart from its pods.
pub fn item_alone(item: &Item, priority_class: String) -> Completed {
    let annotations = item.annotations.clone();
    Completed {
        priority: priority(item.priority),
        namespace: item.namespace.clone(),
        labels: item.labels.clone(),
        pod_spec: Value::Object(Map::new()),
        services: Vec::new(),
        ingresses: Vec::new(),
        client_id: present(&item.client_id),
        external_job_uri: external_job_uri(&item.external_job_uri, &annotations),
        scheduler: item.scheduler.clone(),
        gang: None,
        fail_fast: annotations.get(FAIL_FAST).is_some_and(|text| text == "true"),
        priority_class,
        requests: BTreeMap::new(),
        price_band: annotations.get(PRICE_BAND).and_then(|text| PriceBand::parse(text)),
        retries: failures::own(item, None),
        volcano_job: None,
        annotations,
    }
}

/// Completes a job that was checked, of an item that was completed.
pub fn again(again: &Again, checked: &[Checked]) -> Checked {
    let annotations = match checked.get(again.of) {
        Some(Checked::Item(item)) => &item.annotations,
        _ => &BTreeMap::new(),
    };
    Checked::Again {
        of: again.of,
        priority: priority(again.priority),
        client_id: present(&again.client_id),
        external_job_uri: external_job_uri(&again.external_job_uri, annotations),
    }
}

fn present(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// The field, or else the annotation.
fn external_job_uri(field: &str, annotations: &BTreeMap<String, String>) -> Option<String> {
    present(field).or_else(|| annotations.get(EXTERNAL_JOB_URI).cloned())
}

/// The nearest whole number that there is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
fn priority(asked: f64) -> u32 {
    asked.round().clamp(0.0, f64::from(u32::MAX)) as u32
}

fn priority_class(fields: &mut Map<String, Value>, rules: &Rules) -> String {
    let named = fields.get("priorityClassName").and_then(Value::as_str).filter(|name| !name.is_empty());
    let class = named.unwrap_or(&rules.default_priority_class_name).to_owned();
    fields.insert("priorityClassName".to_owned(), json!(class));
    class
}

/// Gives main containers what they have neither requested nor limited. Init containers get nothing: a whole core would
/// break the rule that they ask for none.
pub fn resource_defaults(fields: &mut Map<String, Value>, rules: &Rules) {
    for container in list_mut(fields, "containers").iter_mut().filter_map(Value::as_object_mut) {
        let resources = object_mut(container, "resources");
        for (name, amount) in &rules.default_job_limits {
            let is_set = |of: &str| resources.get(of).is_some_and(|amounts| !amounts[name].is_null());
            if is_set("requests") || is_set("limits") {
                continue;
            }
            for of in ["requests", "limits"] {
                object_mut(resources, of).insert(name.clone(), json!(amount));
            }
        }
    }
}

fn defaults(
    fields: &mut Map<String, Value>,
    item: &Item,
    priority_class: &str,
    requests: &BTreeMap<String, Quantity>,
    rules: &Rules,
) {
    fields.insert("restartPolicy".to_owned(), json!("Never"));
    if !item.required_node_labels.is_empty() {
        let selector = object_mut(fields, "nodeSelector");
        selector.extend(item.required_node_labels.iter().map(|(key, value)| (key.clone(), json!(value))));
    }
    pod_defaults(fields, priority_class, requests, rules);
}

/// What any pod of a priority class that asks for so much gets.
pub fn pod_defaults(
    fields: &mut Map<String, Value>,
    priority_class: &str,
    requests: &BTreeMap<String, Quantity>,
    rules: &Rules,
) {
    if fields.get("activeDeadlineSeconds").is_none_or(Value::is_null) {
        fields.insert("activeDeadlineSeconds".to_owned(), json!(active_deadline_secs(requests, rules)));
    }
    if fields.get("terminationGracePeriodSeconds").is_none_or(|seconds| seconds.is_null() || seconds == 0) {
        let seconds = rules.min_termination_grace_period.as_secs();
        fields.insert("terminationGracePeriodSeconds".to_owned(), json!(seconds));
    }
    let tolerations = tolerations(priority_class, requests, rules).map(|toleration| json!(toleration));
    let present = list_mut(fields, "tolerations");
    for toleration in tolerations {
        if !present.contains(&toleration) {
            present.push(toleration);
        }
    }
    if present.is_empty() {
        fields.remove("tolerations");
    }
}

fn active_deadline_secs(requests: &BTreeMap<String, Quantity>, rules: &Rules) -> i64 {
    let by_resource = rules.default_active_deadline_by_resource_request.iter();
    let requested = by_resource.filter(|(name, _)| is_requested(requests, name)).map(|(_, deadline)| *deadline);
    requested.max().unwrap_or(rules.default_active_deadline).as_secs()
}

fn tolerations<'r>(
    priority_class: &str,
    requests: &'r BTreeMap<String, Quantity>,
    rules: &'r Rules,
) -> impl Iterator<Item = &'r Toleration> {
    let of_class = rules.default_job_tolerations_by_priority_class.get(priority_class).into_iter().flatten();
    let by_resource = rules.default_job_tolerations_by_resource_request.iter();
    let of_resources = by_resource.filter(|(name, _)| is_requested(requests, name)).flat_map(|(_, list)| list);
    rules.default_job_tolerations.iter().chain(of_class).chain(of_resources)
}

fn is_requested(requests: &BTreeMap<String, Quantity>, resource: &str) -> bool {
    requests.get(resource).is_some_and(|amount| !amount.is_zero())
}

#[cfg(test)]
mod tests;

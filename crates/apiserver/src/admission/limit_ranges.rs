//! LimitRanges at work: pods get their defaults, and pods and claims are held to the bounds.
//!
//! Invariant: in upstream's words. Of an update only claims are looked at: what a pod asks for does not change. Where a
//! namespace has no range, a write costs one look at a number. Called by the write verbs beside admission.

use std::collections::BTreeMap;

use pumice_objects::meta;
use pumice_objects::status::Status;
use pumice_units::Quantity;
use serde_json::{Map, Value, json};

use crate::admission::Attributes;
use crate::admission::Operation;
use crate::admission::pod_resources::{Amounts, amounts, total};
use crate::stored::ObjectReader;

/// The store's name of ranges.
const LIMIT_RANGES: &str = "limitranges";
/// Tells what was filled in.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// The ranges that hold for this write, in the order of their names.
fn ranges(write: &Attributes<'_>) -> Vec<Value> {
    let (store, namespace) = (write.store, write.namespace);
    let looked_at = match &*write.descriptor.storage {
        "pods" => write.operation == Operation::Create,
        "persistentvolumeclaims" => write.operation != Operation::Delete,
        _ => false,
    };
    if !looked_at || !write.subresource.is_empty() || store.count(LIMIT_RANGES, Some(namespace)) == 0 {
        return Vec::new();
    }
    ObjectReader::list(store, LIMIT_RANGES, Some(namespace))
}

/// Fills requests and limits of containers that say nothing.
pub(crate) fn fill(write: &Attributes<'_>, object: &mut Value) {
    if &*write.descriptor.storage == "pods" {
        for range in ranges(write) {
            fill_pod(&range, object);
        }
    }
}

/// Refuses what breaks a bound.
pub(crate) fn check(write: &Attributes<'_>, object: &Value) -> Result<(), Status> {
    let is_pod = &*write.descriptor.storage == "pods";
    for range in ranges(write) {
        let found = if is_pod { check_pod(&range, object) } else { check_claim(&range, object) };
        let cause = match found.as_slice() {
            [] => continue,
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        };
        return Err(Status::forbidden(write.resource(), meta::name(object), cause));
    }
    Ok(())
}

fn items<'r>(range: &'r Value, kind: &'static str) -> impl Iterator<Item = &'r Value> {
    range["spec"]["limits"].as_array().into_iter().flatten().filter(move |item| item["type"] == kind)
}

fn fill_pod(range: &Value, pod: &mut Value) {
    let mut told = Vec::new();
    for item in items(range, "Container") {
        for (list, title) in [("containers", "container"), ("initContainers", "init container")] {
            let containers = pod.get_mut("spec").and_then(|spec| spec.get_mut(list)).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                let name = container.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (field, from, what) in [("requests", "defaultRequest", "request"), ("limits", "default", "limit")] {
                    let set = fill_container(container, field, &item[from]);
                    if !set.is_empty() {
                        told.push(format!("{} {what} for {title} {name}", set.join(", ")));
                    }
                }
            }
        }
    }
    if !told.is_empty() {
        meta::set_annotation(pod, ANNOTATION, &format!("LimitRanger plugin set: {}", told.join("; ")));
    }
}

/// Gives the names of what it set.
fn fill_container(container: &mut Map<String, Value>, field: &str, defaults: &Value) -> Vec<String> {
    let Some(defaults) = defaults.as_object().filter(|defaults| !defaults.is_empty()) else { return Vec::new() };
    let resources = container.entry("resources").or_insert_with(|| json!({}));
    let list = resources.as_object_mut().map(|resources| resources.entry(field).or_insert_with(|| json!({})));
    let Some(list) = list.and_then(Value::as_object_mut) else { return Vec::new() };
    let mut set = Vec::new();
    for (name, amount) in defaults {
        if !list.contains_key(name) {
            list.insert(name.clone(), amount.clone());
            set.push(name.clone());
        }
    }
    set
}

/// What is asked for, and up to where.
struct Resources {
    requests: Amounts,
    limits: Amounts,
}

fn check_pod(range: &Value, pod: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let spec = &pod["spec"];
    for item in items(range, "Container") {
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array().into_iter().flatten() {
                let resources = &container["resources"];
                let asked =
                    Resources { requests: amounts(&resources["requests"]), limits: amounts(&resources["limits"]) };
                asked.check(item, "Container", &mut found);
            }
        }
    }
    for item in items(range, "Pod") {
        let asked = Resources { requests: total(spec, "requests"), limits: total(spec, "limits") };
        asked.check(item, "Pod", &mut found);
    }
    found
}

fn check_claim(range: &Value, claim: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let asked = Resources { requests: amounts(&claim["spec"]["resources"]["requests"]), limits: Amounts::new() };
    for item in items(range, "PersistentVolumeClaim") {
        asked.at_least(item, "PersistentVolumeClaim", &mut found);
        for (name, most) in amounts(&item["max"]) {
            found.extend(bound("maximum", &name, "PersistentVolumeClaim", most, &asked, &[Of::Request]));
        }
    }
    found
}

#[derive(Clone, Copy)]
enum Of {
    Request,
    Limit,
}

impl Resources {
    fn check(&self, item: &Value, kind: &str, found: &mut Vec<String>) {
        self.at_least(item, kind, found);
        for (name, most) in amounts(&item["max"]) {
            found.extend(bound("maximum", &name, kind, most, self, &[Of::Limit, Of::Request]));
        }
        for (name, ratio) in amounts(&item["maxLimitRequestRatio"]) {
            found.extend(self.ratio(&name, kind, ratio));
        }
    }

    fn at_least(&self, item: &Value, kind: &str, found: &mut Vec<String>) {
        for (name, least) in amounts(&item["min"]) {
            found.extend(bound("minimum", &name, kind, least, self, &[Of::Request, Of::Limit]));
        }
    }

    fn of(&self, which: Of) -> (&'static str, &BTreeMap<String, Quantity>) {
        match which {
            Of::Request => ("request", &self.requests),
            Of::Limit => ("limit", &self.limits),
        }
    }

    fn ratio(&self, name: &str, kind: &str, most: Quantity) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {kind} is {most}, but");
        let given = |amounts: &Amounts| amounts.get(name).copied().filter(|amount| !amount.is_zero());
        let Some(request) = given(&self.requests) else {
            return Some(format!("{head} no request is specified or request is 0"));
        };
        let Some(limit) = given(&self.limits) else {
            return Some(format!("{head} no limit is specified or limit is 0"));
        };
        let ratio = limit.nanos() as f64 / request.nanos() as f64;
        let is_over = ratio > most.nanos() as f64 / 1e9;
        if is_over { Some(format!("{head} provided ratio is {ratio:.6}")) } else { None }
    }
}

/// What breaks a bound: the first of `which` must be given, the second may be.
fn bound(word: &str, name: &str, kind: &str, bound: Quantity, asked: &Resources, which: &[Of]) -> Option<String> {
    let head = format!("{word} {name} usage per {kind} is {bound}");
    for (index, one) in which.iter().enumerate() {
        let (what, amounts) = asked.of(*one);
        match amounts.get(name) {
            None if index == 0 => return Some(format!("{head}.  No {what} is specified")),
            None => {}
            Some(amount) => {
                let breaks = if word == "minimum" { *amount < bound } else { *amount > bound };
                if breaks {
                    return Some(format!("{head}, but {what} is {amount}"));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(item: Value) -> Value {
        json!({"spec": {"limits": [item]}})
    }

    fn pod(resources: Value) -> Value {
        json!({"spec": {"containers": [{"name": "a", "resources": resources}]}})
    }

    #[test]
    fn defaults_are_filled_and_told() {
        let range = range(
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}),
        );
        let mut silent = pod(json!({"limits": {"memory": "2Gi"}}));
        silent["spec"]["initContainers"] = json!([{"name": "i"}]);
        fill_pod(&range, &mut silent);
        let resources = json!({"limits": {"memory": "2Gi", "cpu": "1"}, "requests": {"cpu": "500m"}});
        assert_eq!(silent["spec"]["containers"][0]["resources"], resources);
        assert_eq!(
            silent["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container a; cpu limit for container a; cpu request for init \
             container i; cpu, memory limit for init container i"
        );
        let before = silent.clone();
        fill_pod(&range, &mut silent);
        assert_eq!(silent, before, "twice changes nothing");
    }

    #[test]
    fn bounds_hold_in_upstreams_words() {
        let cpu = |request: &str, limit: &str| json!({"requests": {"cpu": request}, "limits": {"cpu": limit}});
        for (item, resources, wanted) in [
            (json!({"type": "Container", "min": {"cpu": "1"}}), cpu("1", "1"), None),
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                json!({}),
                Some("minimum cpu usage per Container is 1.  No request is specified"),
            ),
            (
                json!({"type": "Container", "min": {"cpu": "1"}}),
                cpu("500m", "1"),
                Some("minimum cpu usage per Container is 1, but request is 500m"),
            ),
            (
                json!({"type": "Container", "max": {"cpu": "1"}}),
                json!({"requests": {"cpu": "1"}}),
                Some("maximum cpu usage per Container is 1.  No limit is specified"),
            ),
            (
                json!({"type": "Pod", "max": {"cpu": "1"}}),
                cpu("1", "2"),
                Some("maximum cpu usage per Pod is 1, but limit is 2"),
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                cpu("1", "3"),
                Some("cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"),
            ),
            (
                json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}),
                json!({"requests": {"cpu": "1"}}),
                Some("cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0"),
            ),
        ] {
            let found = check_pod(&range(item.clone()), &pod(resources.clone()));
            assert_eq!(found.first().map(String::as_str), wanted, "{item} {resources}");
        }
        let claim = json!({"spec": {"resources": {"requests": {"storage": "5Gi"}}}});
        let item = json!({"type": "PersistentVolumeClaim", "max": {"storage": "2Gi"}});
        let wanted = "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 5Gi";
        assert_eq!(check_claim(&range(item), &claim), [wanted]);
    }
}

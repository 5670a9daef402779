//! What a pod asks for in all, from its containers' requests or limits.
//!
//! Invariant: containers and sidecars together, or the largest init container with the sidecars before it, whichever is
//! more; pod-level amounts replace theirs, overhead comes on top. Asked by quotas and limit ranges.

use std::collections::BTreeMap;

use pumice_units::Quantity;
use serde_json::Value;

use crate::strategies::pod::spec::parse_quantity;

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<String, Quantity>;

/// A list of amounts as objects have it. What can't be read counts for nothing: rules of value refuse it.
pub(crate) fn amounts(list: &Value) -> Amounts {
    let listed = list.as_object().into_iter().flatten();
    listed.filter_map(|(name, value)| Some((name.clone(), parse_quantity(value)?))).collect()
}

/// Adds all of `more`. A sum that no quantity holds stays as it was.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let held = sum.entry(name.clone()).or_default();
        *held = held.checked_add(*amount).unwrap_or(*held);
    }
}

/// Raises each amount to that of `other`.
pub(crate) fn raise(most: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let held = most.entry(name.clone()).or_insert(*amount);
        *held = (*held).max(*amount);
    }
}

/// What a pod's `requests` or `limits` come to.
pub(crate) fn total(spec: &Value, field: &str) -> Amounts {
    let each = |list: &str| spec[list].as_array().map_or(&[][..], Vec::as_slice);
    let own = |container: &Value| amounts(&container["resources"][field]);
    let mut sum = Amounts::new();
    for container in each("containers") {
        add(&mut sum, &own(container));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in each("initContainers") {
        let asked = own(container);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &asked);
            add(&mut sidecars, &asked);
        } else {
            let mut beside = asked;
            add(&mut beside, &sidecars);
            raise(&mut largest, &beside);
        }
    }
    raise(&mut sum, &largest);
    for (name, amount) in amounts(&spec["resources"][field]) {
        sum.insert(name, amount);
    }
    for (name, amount) in amounts(&spec["overhead"]) {
        // No limit stays no limit.
        if field == "requests" || sum.contains_key(&name) {
            add(&mut sum, &Amounts::from([(name, amount)]));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_sidecars_and_init_containers() {
        let asks = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (spec, cpu) in [
            (json!({}), None),
            (json!({"containers": [asks("1"), asks("500m")]}), Some("1500m")),
            (json!({"containers": [asks("1")], "initContainers": [asks("3"), asks("2")]}), Some("3")),
            (json!({"containers": [asks("1")], "initContainers": [sidecar("1"), asks("2")]}), Some("3")),
            (json!({"containers": [asks("1")], "initContainers": [asks("2"), sidecar("2")]}), Some("3")),
            (json!({"containers": [asks("1")], "overhead": {"cpu": "250m"}}), Some("1250m")),
            (json!({"containers": [asks("1")], "resources": {"requests": {"cpu": "4"}}}), Some("4")),
        ] {
            assert_eq!(total(&spec, "requests").get("cpu").map(ToString::to_string).as_deref(), cpu, "{spec}");
        }
        let spec = json!({"containers": [asks("1")], "overhead": {"cpu": "1"}});
        assert!(total(&spec, "limits").is_empty(), "no limit stays no limit");
    }
}

//! What containers ask for: what they may, and what it comes to.

use std::collections::BTreeMap;

use pumice_units::Quantity;
use serde_json::Value;

use super::error::{Amount, ContainerPath, Misfit};
use super::spec;
use super::{ItemError, Rules};

/// What a container or a pod asks for, or may use at most, by the name of the resource.
type Amounts = BTreeMap<String, Quantity>;

/// Fractions of a limit that may be lost in the multiplication by a ratio.
const RATIO_TOLERANCE: f64 = 1e-9;

/// Amounts are below: many of them can be added, and none is lost in whole units of 64 bits.
const AMOUNT_LIMIT: Quantity = Quantity::from_units(i64::MAX);

/// Containers with their places: init containers last.
pub fn places(pod_spec: &Value) -> impl Iterator<Item = (ContainerPath, &Value)> {
    ["containers", "initContainers"].into_iter().flat_map(|list| {
        let containers = spec::list(pod_spec, list).iter().enumerate();
        containers.map(move |(index, container)| (ContainerPath { list, index }, container))
    })
}

/// Checks requests and limits of every container, and the amounts of the pod itself.
pub fn check(pod_spec: &Value, rules: &Rules) -> Result<(), ItemError> {
    for (at, container) in places(pod_spec) {
        check_container(&at, container, rules)?;
    }
    let resources = &pod_spec["resources"];
    for (field, amounts) in [
        ("podSpec.overhead", &pod_spec["overhead"]),
        ("podSpec.resources.requests", &resources["requests"]),
        ("podSpec.resources.limits", &resources["limits"]),
    ] {
        read(amounts, |resource, text| ItemError::PodAmount { field, resource, text })?;
    }
    Ok(())
}

fn check_container(at: &ContainerPath, container: &Value, rules: &Rules) -> Result<(), ItemError> {
    let amount = |of, resource: &str| Amount { at: at.clone(), of, resource: resource.to_owned() };
    let read = |of: &'static str| {
        let amounts = &container["resources"][of];
        read(amounts, |resource, text| ItemError::Amount { amount: amount(of, &resource), text })
    };
    let (requests, limits) = (read("requests")?, read("limits")?);
    if requests.is_empty() && limits.is_empty() {
        return Err(ItemError::NoResources { at: at.clone() });
    }
    for (of, some, others) in [("limits", &requests, &limits), ("requests", &limits, &requests)] {
        if let Some(resource) = some.keys().find(|resource| !others.contains_key(*resource)) {
            return Err(ItemError::ResourcesDiffer { missing: amount(of, resource) });
        }
    }
    for (resource, request) in requests {
        let limit = limits[&resource];
        let misfit = |of, is, bound| Box::new(Misfit { amount: amount(of, &resource), is, bound });
        if limit < request {
            return Err(ItemError::LimitBelowRequest(misfit("limits", limit, request)));
        }
        let ratio = rules.max_oversubscription_by_resource_request.get(&resource).copied().unwrap_or(1.0);
        if is_above(limit, request, ratio) {
            return Err(ItemError::LimitAboveRequest { misfit: misfit("limits", limit, request), ratio });
        }
        if let Some(least) = rules.min_job_resources.get(&resource).filter(|least| request < **least) {
            return Err(ItemError::BelowMinimum(misfit("requests", request, *least)));
        }
    }
    Ok(())
}

/// Whether the limit is above the request times the ratio.
#[allow(clippy::cast_precision_loss, reason = "a ratio is no exact number either")]
fn is_above(limit: Quantity, request: Quantity, ratio: f64) -> bool {
    // Whatever the ratio, a limit that is the request is not above it.
    limit > request && limit.nanos() as f64 > request.nanos() as f64 * ratio * (1.0 + RATIO_TOLERANCE)
}

/// Init containers that ask for whole cores would bind them for ever under the kubelet's static policy.
pub fn check_init_cores(pod_spec: &Value, rules: &Rules) -> Result<(), ItemError> {
    if !rules.assert_init_containers_request_fractional_cpu {
        return Ok(());
    }
    for (index, container) in spec::list(pod_spec, "initContainers").iter().enumerate() {
        let cpu = parse(&container["resources"]["requests"]["cpu"]);
        if let Some(is) = cpu.filter(|cpu| cpu.is_whole() && !cpu.is_zero()) {
            let at = ContainerPath { list: "initContainers", index };
            let request = Box::new(Amount { at, of: "requests", resource: "cpu".to_owned() });
            return Err(ItemError::WholeCores { request, is });
        }
    }
    Ok(())
}

/// What the pod takes, of a spec that was checked: containers and sidecars together, or the largest init container with the
/// sidecars before it where that is more; amounts of the pod itself stand for those of its containers, overhead on top.
pub fn requests(pod_spec: &Value) -> Amounts {
    let asked = |container: &Value| of_checked(&container["resources"]["requests"]);
    let (mut sum, mut sidecars, mut largest) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec::list(pod_spec, "containers") {
        add(&mut sum, &asked(container));
    }
    for container in spec::list(pod_spec, "initContainers") {
        let mut asked = asked(container);
        if spec::is_sidecar(container) {
            add(&mut sum, &asked);
            add(&mut sidecars, &asked);
        } else {
            add(&mut asked, &sidecars);
            raise(&mut largest, asked);
        }
    }
    raise(&mut sum, largest);
    let of_pod = of_checked(&pod_spec["resources"]["requests"]);
    let is_shared = |name: &String| name == "cpu" || name == "memory" || name.starts_with("hugepages-");
    sum.extend(of_pod.into_iter().filter(|(name, _)| is_shared(name)));
    add(&mut sum, &of_checked(&pod_spec["overhead"]));
    sum
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.entry(name.clone()).or_insert(Quantity::ZERO);
        *total = total.checked_add(*amount).unwrap_or(AMOUNT_LIMIT);
    }
}

fn raise(most: &mut Amounts, amounts: Amounts) {
    for (name, amount) in amounts {
        let total = most.entry(name).or_insert(Quantity::ZERO);
        *total = amount.max(*total);
    }
}

/// The amounts in a list that was checked.
fn of_checked(amounts: &Value) -> Amounts {
    let fields = amounts.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| Some((name.clone(), parse(value)?))).collect()
}

/// The amounts in a list, or the first that is none.
fn read<E>(amounts: &Value, refuse: impl Fn(String, String) -> E) -> Result<Amounts, E> {
    let fields = amounts.as_object().into_iter().flatten();
    let read = |(name, value): (&String, &Value)| match parse(value) {
        Some(amount) => Ok((name.clone(), amount)),
        None => Err(refuse(name.clone(), value.to_string())),
    };
    fields.map(read).collect()
}

/// An amount of at least zero that is safe to add up.
fn parse(value: &Value) -> Option<Quantity> {
    let amount: Quantity = match value {
        Value::String(text) => text.parse().ok()?,
        Value::Number(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    (!amount.is_negative() && amount < AMOUNT_LIMIT).then_some(amount)
}

#[cfg(test)]
mod tests;

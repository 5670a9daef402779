//! Amounts of one queue: readable, not negative, guarantee ≤ deserved ≤ capability.

use std::collections::BTreeMap;

use pumice_api::scheduling::{QueueSpec, ResourceList};
use pumice_objects::field::FieldError;
use pumice_units::Quantity;

use crate::Findings;

/// Amounts by resource, read once.
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// Reads amounts; one that can't be read counts as absent, because [`validate`] refuses it.
pub(super) fn read(list: &ResourceList) -> Amounts {
    let parsed = list.iter().filter_map(|(name, quantity)| Some((name.clone(), quantity.0.parse().ok()?)));
    parsed.collect()
}

/// What a queue deserves: what it names, and of the rest what is guaranteed to it.
pub(super) fn deserved(spec: &QueueSpec) -> Amounts {
    let mut deserved = read(&spec.guarantee.resource);
    deserved.extend(read(&spec.deserved));
    deserved
}

/// Judges the amounts of a queue against each other.
pub(super) fn validate(spec: &QueueSpec, findings: &mut Findings) {
    for (path, list) in [
        ("spec.capability", &spec.capability),
        ("spec.deserved", &spec.deserved),
        ("spec.guarantee.resource", &spec.guarantee.resource),
    ] {
        for (name, quantity) in list {
            let path = format!("{path}[{name}]");
            match quantity.0.parse::<Quantity>() {
                Err(error) => {
                    findings.refuse(FieldError::invalid(path, quantity.0.as_str(), error.to_string()).to_string())
                }
                Ok(amount) if amount.is_negative() => {
                    let error = FieldError::invalid(path, quantity.0.as_str(), "must be greater than or equal to 0");
                    findings.refuse(error.to_string());
                }
                Ok(_) => {}
            }
        }
    }
    let (capability, guarantee) = (read(&spec.capability), read(&spec.guarantee.resource));
    for (name, amount) in deserved(spec) {
        let mut refuse = |path: &str, detail: String| {
            findings.refuse(FieldError::invalid(format!("{path}[{name}]"), amount.to_string(), detail).to_string());
        };
        if let Some(floor) = guarantee.get(&name).filter(|floor| amount < **floor) {
            refuse("spec.deserved", format!("must be >= guarantee {floor}"));
        }
        if let Some(limit) = capability.get(&name).filter(|limit| amount > **limit) {
            let path = if spec.deserved.contains_key(&name) { "spec.deserved" } else { "spec.guarantee.resource" };
            refuse(path, format!("must be <= capability {limit}"));
        }
    }
}

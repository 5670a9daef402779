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
    let (capability, deserved) = (read(&spec.capability), read(&spec.deserved));
    for (name, guarantee) in read(&spec.guarantee.resource) {
        let given = deserved.get(&name);
        if given.is_none_or(|given| *given < guarantee) {
            let given = given.map_or_else(|| "0".to_owned(), Quantity::to_string);
            let detail = format!("must be >= guarantee {guarantee}");
            findings.refuse(FieldError::invalid(format!("spec.deserved[{name}]"), given, detail).to_string());
        }
    }
    for (name, amount) in deserved {
        if let Some(limit) = capability.get(&name).filter(|limit| amount > **limit) {
            let detail = format!("must be <= capability {limit}");
            findings
                .refuse(FieldError::invalid(format!("spec.deserved[{name}]"), amount.to_string(), detail).to_string());
        }
    }
}

//! Kubernetes objects into the engine's facts. Pure; what scheduling does not read is dropped here.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_engine::{Resources, TimeMs};
use pumice_units::Quantity;

mod group;
mod job;
mod node;
mod pod;
mod queue;
mod template;

pub(crate) use group::{group_facts, phase_word};
pub(crate) use job::job_shape;
pub(crate) use node::node_facts;
pub(crate) use pod::pod_facts;
pub(crate) use queue::queue_facts;

/// An amount that nobody can read counts as more than any node has: it never fits, and its reason shows.
const UNREADABLE: i64 = i64::MAX;

/// cpu in milli-cores, all else in whole units, both rounded up.
fn amount(name: &str, quantity: &WireQuantity) -> i64 {
    match quantity.0.parse::<Quantity>() {
        Ok(quantity) if name == "cpu" => quantity.cpu_milli(),
        Ok(quantity) => quantity.value(),
        Err(_) => UNREADABLE,
    }
}

fn resources(list: &BTreeMap<String, WireQuantity>) -> Resources {
    // Volcano ignores counts of objects: they are quotas, not room.
    let counted = list.iter().filter(|(name, _)| !name.starts_with("count/"));
    counted.map(|(name, quantity)| (name.clone(), amount(name, quantity))).collect()
}

/// Back to the wire.
pub(crate) fn wire_amount(name: &str, amount: i64) -> String {
    if name == "cpu" && amount % 1000 != 0 { format!("{amount}m") } else { (amount / milli(name)).to_string() }
}

fn milli(name: &str) -> i64 {
    if name == "cpu" { 1000 } else { 1 }
}

fn created(metadata: &ObjectMeta) -> TimeMs {
    TimeMs(metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond()))
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// A count that the wire has as a signed number.
fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests;

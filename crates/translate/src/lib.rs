//! Kubernetes objects into the engine's facts, and the text of specifications that simulators read. Pure; what scheduling does
//! not read is dropped here.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};
use pumice_api::names;
use pumice_engine::{Operator, PodTemplate, Requirement, Resources, TimeMs};
use pumice_units::Quantity;

pub mod armada;
mod claims;
mod cluster;
mod containers;
mod devices;
mod group;
mod inter_pod;
mod job;
mod node;
mod numa;
mod pod;
mod queue;
mod requests;
mod template;
mod window;

pub use claims::{csi_node_facts, storage_class_facts, volume_claim_facts, volume_facts};
pub use cluster::{budget_facts, hyper_node_facts, namespace, quota_facts, shard_facts};
pub use devices::{device_claim_facts, device_class_facts, device_slice_facts};
pub use group::{group_facts, phase_word};
pub use job::job_shape;
pub use node::node_facts;
pub use numa::numa_facts;
pub use pod::{pod_facts, refusal};
pub use queue::queue_facts;
pub use window::window_facts;

/// An amount that nobody can read counts as more than any node has: it never fits, and its reason shows.
const UNREADABLE: i64 = i64::MAX;

/// What `volcano.sh/sla-waiting-time` was called first.
const LEGACY_SLA_WAITING_TIME: &str = "sla-waiting-time";
/// Models of devices that a pod takes or refuses.
const GPU_TYPES: &[&str] = &["nvidia.com/use-gputype", "nvidia.com/nouse-gputype"];

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

/// What placing a pod would read that is not made yet: `metadata` gives its namespace, labels and annotations.
pub fn pod_template(metadata: &ObjectMeta, spec: &PodSpec) -> PodTemplate {
    template::template(metadata.namespace.as_deref().unwrap_or_default(), metadata, spec, None)
}

/// Back to the wire.
pub fn wire_amount(name: &str, amount: i64) -> String {
    if name == "cpu" && amount % 1000 != 0 { format!("{amount}m") } else { (amount / milli(name)).to_string() }
}

fn milli(name: &str) -> i64 {
    if name == "cpu" { 1000 } else { 1 }
}

fn created(metadata: &ObjectMeta) -> TimeMs {
    metadata.creation_timestamp.as_ref().map_or(TimeMs(0), at)
}

fn at(time: &Time) -> TimeMs {
    TimeMs(time.0.as_millisecond())
}

fn text(value: Option<&String>) -> String {
    value.cloned().unwrap_or_default()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Annotations on every pod of a job, which no plugin reads.
const UNREAD: &[&str] = &[
    names::TASK_INDEX,
    names::TASK_SPEC,
    names::JOB_NAME,
    names::QUEUE_NAME,
    names::JOB_VERSION,
    names::JOB_RETRY_COUNT,
    names::TEMPLATE_UID,
    names::VOLCANO_GROUP_NAME,
    names::JOB_FORWARDING,
];

/// Annotations that plugins may read: Volcano's, but for those of every pod; the older names; the heartbeats that device
/// plugins leave on nodes are left out, or each would be a change.
fn volcano_annotations(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let read = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let volcano = domain == "volcano.sh" || domain.ends_with(".volcano.sh");
        let other = key == LEGACY_SLA_WAITING_TIME || GPU_TYPES.contains(&key);
        (volcano && !UNREAD.contains(&key) && !key.ends_with("handshake")) || other
    };
    let all = metadata.annotations.iter().flatten();
    all.filter(|(key, _)| read(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// `volcano.sh/preemptable` as an annotation, else as a label; what can't be read is false, as in Volcano.
fn preemptable(metadata: &ObjectMeta) -> Option<bool> {
    let text = annotation(metadata, names::PREEMPTABLE).or_else(|| label(metadata, names::PREEMPTABLE))?;
    Some(matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True"))
}

fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let equal = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: Operator::In,
        values: vec![value.clone()],
    });
    let expressions = selector
        .match_expressions
        .iter()
        .flatten()
        .map(|expression| template::required(&expression.key, &expression.operator, expression.values.as_ref()));
    equal.chain(expressions).collect()
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

//! What one version of an object says, as rows.
//!
//! Invariant: a row depends on the version, on what happened to it and on `now` alone; what has no place in the
//! history (pods of no Job) gives none. Pure. Called by the feed for every object it is told of.

mod group;
mod job;
mod pod;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};

use crate::rows::{Row, Table};

pub use group::PLACED;
pub use pod::SeenPod;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    There,
    /// It was deleted, which was seen at this moment.
    Gone(Timestamp),
}

/// The list that a version was seen in, or after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(pub i64);

/// Something that leaves rows behind.
pub trait Facts {
    /// Adds the rows of this version.
    fn rows(&self, fate: Fate, seen: Seen, rows: &mut Vec<Row>);
}

/// A row with the version that it is of.
fn versioned(table: Table, metadata: &ObjectMeta, seen: Seen) -> Row {
    let version = metadata.resource_version.as_deref().and_then(|version| version.parse::<i64>().ok());
    Row::new(table).int("version", version.unwrap_or_default()).int("seen", seen.0)
}

fn text(value: Option<&String>) -> &str {
    value.map_or("", String::as_str)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    text(metadata.annotations.as_ref().and_then(|all| all.get(key)))
}

fn millis(time: Option<&Time>) -> Option<i64> {
    time.map(|time| time.0.as_millisecond())
}

/// The Job that an object is of.
fn job_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        owner.controller == Some(true) && owner.kind == "Job" && matches!(group, "batch.volcano.sh" | "batch")
    })
}

//! A deletion: one state machine for every kind.
//!
//! Invariant: an object goes at once only if nothing holds it: no finalizer, no grace. Otherwise it is marked, and the
//! write that takes away the last hold removes it. Called by the verbs, by evictions and by the collector.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_objects::status::{GroupResource, Status};
use pumice_store::{ApplyError, Change, Expect, Object};
use serde_json::{Value, json};

use super::{Storage, apply_status};
use crate::kinds::Descriptor;
use crate::stored::{draft, parse};

/// How often a delete without a stated revision is tried against a changing object.
const ATTEMPTS_MAX: usize = 16;
/// Longest grace, in seconds: 68 years. A longer one means "as long as it takes", and its end would be no date.
const GRACE_SECONDS_MAX: i64 = 2_147_483_647;
/// The finalizer that makes the collector delete dependents first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer that makes the collector cut dependents loose.
pub(crate) const ORPHAN: &str = "orphan";

/// What becomes of dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// What a client wishes of a deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<u64>,
    pub(crate) dry_run: bool,
}

/// What came of it.
pub(crate) enum Deleted {
    /// It is gone; this was its last state.
    Gone(Arc<Object>),
    /// It stays until what holds it lets go.
    Marked(Arc<Object>),
}

impl Storage {
    /// Deletes one object, or marks it.
    pub(crate) async fn delete(
        &self,
        descriptor: &Descriptor,
        namespace: &str,
        name: &str,
        deletion: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let resource = GroupResource { group: &descriptor.group, resource: &descriptor.plural };
        for _ in 0..ATTEMPTS_MAX {
            let stored = self
                .store
                .find(&descriptor.storage, namespace, name)
                .ok_or_else(|| Status::not_found(resource, name))?;
            let old = parse(&stored);
            descriptor.strategy.may_delete(&old)?;
            check_preconditions(resource, &stored, &old, deletion)?;
            let step = step(descriptor, &old, deletion, self.clock.now());
            if deletion.dry_run {
                return Ok(if step.goes { Deleted::Gone(stored) } else { Deleted::Marked(stored) });
            }
            if !step.goes && step.object == old {
                return Ok(Deleted::Marked(stored));
            }
            let (key, draft, expect) = (stored.key.clone(), draft(&step.object), Expect::Revision(stored.revision));
            let change =
                if step.goes { Change::Delete { key, draft, expect } } else { Change::Put { key, draft, expect } };
            match self.commit(change).await {
                Ok(object) if step.goes => return Ok(Deleted::Gone(object)),
                Ok(object) => return Ok(Deleted::Marked(object)),
                Err(ApplyError::Conflict(_)) => {}
                Err(error) => return Err(apply_status(resource, &error)),
            }
        }
        Err(Status::conflict_modified(resource, name))
    }
}

pub(crate) fn check_preconditions(
    resource: GroupResource<'_>,
    stored: &Object,
    old: &Value,
    deletion: &DeleteOptions,
) -> Result<(), Status> {
    let uid = meta::uid(old).unwrap_or_default();
    if let Some(wanted) = deletion.uid.as_deref().filter(|wanted| *wanted != uid) {
        let cause = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(Status::conflict(resource, &stored.key.name, cause));
    }
    if let Some(wanted) = deletion.revision.filter(|wanted| *wanted != stored.revision) {
        let cause = format!(
            "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {}",
            stored.revision
        );
        return Err(Status::conflict(resource, &stored.key.name, cause));
    }
    Ok(())
}

struct Step {
    object: Value,
    goes: bool,
}

/// The next state of an object that somebody wants deleted.
fn step(descriptor: &Descriptor, old: &Value, deletion: &DeleteOptions, now: Timestamp) -> Step {
    let mut object = old.clone();
    set_propagation(&mut object, deletion.propagation);
    let marked = meta::deletion_timestamp(old);
    let running = meta::deletion_grace_period_seconds(old);
    let mut grace = descriptor.strategy.grace_seconds(old, deletion.grace_seconds).min(GRACE_SECONDS_MAX);
    if let (Some(_), Some(running)) = (marked, running) {
        // A second delete can only shorten the wait.
        grace = if deletion.grace_seconds.is_some() { grace.min(running) } else { running };
    }
    let shorter = marked.is_none() || running.is_none_or(|running| grace < running);
    if shorter {
        let began = match (marked, running) {
            (Some(ends), Some(running)) => ends.checked_sub(SignedDuration::from_secs(running)).unwrap_or(now),
            _ => now,
        };
        let ends = began.saturating_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX);
        let metadata = meta::metadata_mut(&mut object);
        metadata.insert("deletionTimestamp".to_owned(), json!(wire_time(ends)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), json!(grace));
        if marked.is_none() && descriptor.counts_generation {
            meta::set_generation(&mut object, meta::generation(old) + 1);
        }
        if descriptor.kind == "Namespace" {
            object["status"]["phase"] = json!("Terminating");
        }
    }
    Step { goes: ends_deletion(&object), object }
}

/// Sets the finalizers that tell the collector what to do with dependents.
fn set_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let Some(propagation) = propagation else { return };
    let mut finalizers: Vec<String> =
        meta::finalizers(object).filter(|one| *one != FOREGROUND && *one != ORPHAN).map(str::to_owned).collect();
    match propagation {
        Propagation::Background => {}
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
    }
    meta::set_finalizers(object, finalizers.iter().map(String::as_str));
}

/// Whether this write takes away the last thing that held a dying object.
pub(crate) fn ends_deletion(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let waits = metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0);
    let held = meta::finalizers(object).next().is_some()
        || (object["kind"] == "Namespace"
            && object["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
    metadata["deletionTimestamp"].is_string() && !waits && !held
}

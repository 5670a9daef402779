//! create: [`create_named`] has its stages.

use std::sync::Arc;

use http::StatusCode;
use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_objects::names;
use pumice_objects::status::{GroupResource, Status, StatusCause};
use pumice_store::{ApplyError, Change, Expect, Object};
use serde_json::{Value, json};
use uuid::Uuid;

use super::write::{self, Write};
use crate::admission::Operation;
use crate::context::Call;
use crate::handlers::view::View;
use crate::http::body::Body;
use crate::http::query::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::json_scan::field;
use crate::kinds::conversion;
use crate::schemas::zero_values;
use crate::storage::apply_status;
use crate::stored::draft;

/// How often a taken generated name is replaced by another one.
const NAME_ATTEMPTS_MAX: usize = 8;

pub(crate) async fn create(call: &Call, body: Body) -> Answer {
    let decoded = write::read_object(call, body).await?;
    let mut object = decoded.value;
    write::check_kind(&call.descriptor, &mut object)?;
    write::check_place(call, &mut object)?;
    // Who made it is recorded when somebody applies to it.
    meta::metadata_mut(&mut object).remove("managedFields");
    make(call, object, &decoded.duplicates).await
}

/// Makes an object that is of the right kind and in its place.
pub(crate) async fn make(call: &Call, mut object: Value, duplicates: &[String]) -> Answer {
    let view = View::of(call)?;
    let options = WriteOptions::parse(&call.query)?;
    if call.descriptor.terminating {
        // Whoever keeps creating would hold the definition for ever.
        let mut status = Status::method_not_allowed(call.resource(), "create");
        status.message = "create not allowed while custom resource definition is terminating".to_owned();
        return Err(status);
    }
    if meta::resource_version(&object).is_some_and(|revision| revision > 0) {
        return Err(Status::bad_request("resourceVersion should not be set on objects to be created"));
    }
    require_namespace(call, meta::name(&object))?;
    if !options.dry_run {
        let (kind, namespace) = (&call.descriptor.storage, call.stored_namespace());
        call.state.submissions.admit(call.store(), &call.identity, kind, namespace, call.now())?;
    }
    let mut warnings = Vec::new();
    zero_values::fill(call.descriptor.zero_values.all(), &mut object);
    write::clean(&call.descriptor, &mut object, duplicates, options.field_validation, &mut warnings)?;
    let generated = if meta::name(&object).is_empty() { meta::generate_name(&object).map(str::to_owned) } else { None };
    for attempt in 1..=NAME_ATTEMPTS_MAX {
        // Only a generated name is tried more than once.
        let mut object = if generated.is_some() { object.clone() } else { std::mem::take(&mut object) };
        if let Some(base) = &generated {
            meta::set_name(&mut object, &names::generate_name(base, &names::suffix(random())));
        }
        let mut warnings = warnings.clone();
        let mut response = match create_named(call, object, options.dry_run, &mut warnings).await? {
            Err(ApplyError::AlreadyExists(_)) if generated.is_some() && attempt < NAME_ATTEMPTS_MAX => continue,
            Err(ApplyError::AlreadyExists(taken)) if generated.is_some() => {
                return Err(Status::generate_name_conflict(call.resource(), &taken.key.name));
            }
            Err(error) => return Err(apply_status(call.resource(), &error)),
            Ok(Made::DryRun(object)) => view.unstored(StatusCode::CREATED, object),
            Ok(Made::Stored(stored)) => {
                let made = conversion::served_one(&call.state.storage.webhooks, &call.descriptor, stored).await?;
                view.one(StatusCode::CREATED, &made)
            }
        };
        respond::warn(&mut response, &warnings);
        return Ok(response);
    }
    Err(Status::generate_name_conflict(call.resource(), generated.as_deref().unwrap_or_default()))
}

/// Random bits, taken from a fresh uid.
fn random() -> u64 {
    Uuid::now_v7().as_u64_pair().1
}

/// What a create made.
enum Made {
    Stored(Arc<Object>),
    /// What would have been stored.
    DryRun(Value),
}

/// The stages of a create, once the object is decoded, cleaned and named. What the store says against it is the inner error.
async fn create_named(
    call: &Call,
    mut object: Value,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<Result<Made, ApplyError>, Status> {
    let now = call.now();
    let write = Write { call, operation: Operation::Create, old: None, dry_run, now };
    // 1. Admission of this process, then mutating webhooks. Neither may move the object.
    let status = write.admit(&mut object, warnings)?;
    let status = write.mutate_dynamic(&mut object, warnings).await?.or(status);
    write::check_place(call, &mut object)?;
    // 2. What the server owns: metadata, status, and what the kind sets.
    stamp(call, &mut object, status, &wire_time(now));
    call.descriptor.strategy.prepare_create(&mut object, &mut write.hook(warnings))?;
    zero_values::fill(call.descriptor.zero_values.all(), &mut object);
    // 3. The rules: schema, kind, LimitRanges, Pod Security, admission of this process.
    write.validate(&mut object, true, warnings)?;
    // 4. Policies and validating webhooks.
    write.validate_dynamic(meta::name(&object), Some(&object), warnings).await?;
    // 5. Room in quotas, set aside until the store has answered.
    let room = call.state.quotas.admit(&write.attributes(), None, &object, dry_run)?;
    // 6. The store.
    let key = write::key(call, meta::name(&object));
    let outcome = if dry_run {
        call.store().get(&key).map_or(Ok(None), |taken| Err(ApplyError::AlreadyExists(taken)))
    } else {
        conversion::stored(&call.state.storage.webhooks, &call.descriptor, &mut object).await?;
        let change = Change::Put { key, draft: draft(&object), expect: Expect::Absent };
        call.state.storage.commit(change).await.map(Some)
    };
    room.settle(call.store());
    Ok(outcome.map(|stored| stored.map_or(Made::DryRun(object), Made::Stored)))
}

/// Sets what the server owns in the metadata, and puts admission's status in place of one that has its own path.
fn stamp(call: &Call, object: &mut Value, status: Option<Value>, now: &str) {
    if call.descriptor.has_status()
        && !call.descriptor.strategy.creates_with_status()
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
        fields.extend(status.map(|status| ("status".to_owned(), status)));
    }
    let metadata = meta::metadata_mut(object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(Uuid::now_v7().to_string()));
    metadata.insert("creationTimestamp".to_owned(), json!(now));
    if call.descriptor.counts_generation {
        metadata.insert("generation".to_owned(), json!(1));
    } else {
        metadata.remove("generation");
    }
}

/// A namespaced object needs a namespace that is there and stays.
pub(crate) fn require_namespace(call: &Call, name: &str) -> Result<(), Status> {
    if !call.descriptor.namespaced {
        return Ok(());
    }
    let namespace = &call.request.namespace;
    let Some(found) = call.store().find("namespaces", "", namespace) else {
        return Err(Status::not_found(GroupResource { group: "", resource: "namespaces" }, namespace));
    };
    // Looked up for each object that is made: its whole text isn't parsed for that.
    let phase = field(&found.body, "status").and_then(|status| field(status, "phase"));
    if phase != Some(b"\"Terminating\"") {
        return Ok(());
    }
    let text = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(call.resource(), name, text);
    status.details.get_or_insert_default().causes.push(StatusCause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    Err(status)
}

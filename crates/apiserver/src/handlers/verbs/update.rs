//! update and patch, of an object or of its status.

use std::sync::Arc;

use http::{Response, StatusCode};
use pumice_clock::wire_time;
use pumice_objects::apply::By;
use pumice_objects::meta;
use pumice_objects::patch::{apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
use pumice_objects::schema::Schema;
use pumice_objects::status::Status;
use pumice_store::{ApplyError, Change, Expect, Object};
use serde_json::{Value, json};

use super::write::{self, Write};
use super::{apply, read};
use crate::admission::Operation;
use crate::admission::quota::Reservation;
use crate::context::Call;
use crate::handlers::view::View;
use crate::http::body::Body;
use crate::http::decode::{self, Decoded, Format};
use crate::http::negotiate::{self, BodyKind};
use crate::http::query::{FieldValidation, WriteOptions};
use crate::http::respond::{self, Answer};
use crate::json_scan::{PartlyParsed, parse_fields};
use crate::kinds::Descriptor;
use crate::kinds::conversion;
use crate::kinds::descriptor::Subresource;
use crate::schemas::zero_values::{self, Part};
use crate::storage::apply_status;
use crate::storage::ends_deletion;
use crate::stored::{draft_with, parse};

/// How often a write without a resourceVersion is tried against a changing object.
const ATTEMPTS_MAX: usize = 16;
/// Who owns which fields: what a write makes of it is decided at its end.
const OWNERS: &str = "managedFields";
/// All that a write of a status looks at.
const STATUS_FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

pub(crate) async fn update(call: &Call, subresource: Option<&Subresource>, body: Body) -> Answer {
    let decoded = write::read_object(call, body).await?;
    let stated = decoded.value["metadata"]["resourceVersion"].as_str().is_some_and(|text| !text.is_empty());
    if !stated && call.descriptor.updates_need_revision() {
        read::fetch(call)?;
        let error = pumice_objects::field::FieldError::invalid(
            "metadata.resourceVersion",
            json!(0),
            "must be specified for an update",
        );
        return Err(write::invalid(&call.descriptor, &decoded.value, &[error]));
    }
    let change = Replace(decoded);
    run(call, subresource, &change).await
}

pub(crate) async fn patch(call: &Call, subresource: Option<&Subresource>, body: Body) -> Answer {
    let kind = negotiate::body_kind(&call.headers);
    if kind == BodyKind::Apply {
        return apply::apply(call, subresource, body).await;
    }
    let schema = match kind {
        BodyKind::JsonPatch | BodyKind::MergePatch => None,
        BodyKind::StrategicMergePatch if call.descriptor.is_builtin() => Some(&call.descriptor.schema),
        _ => return Err(unsupported(call.descriptor.patches(), kind)),
    };
    let bytes = decode::read(body).await?;
    let decoded = decode::decode(&bytes, Format::Json)?;
    match kind {
        BodyKind::JsonPatch => run(call, subresource, &JsonPatch(decoded)).await,
        _ => run(call, subresource, &MergePatch { decoded, schema }).await,
    }
}

/// 415 that says what to use instead.
pub(crate) fn unsupported(patches: &[&str], kind: BodyKind) -> Status {
    let mut status = Status::unsupported_media_type(patches);
    let advice = match kind {
        BodyKind::StrategicMergePatch => "; strategic merge is for built-in kinds: use --type=merge",
        BodyKind::Apply => "; server-side apply is for whole objects and their status",
        _ => "",
    };
    status.message.push_str(advice);
    status
}

/// What turns the stored object into the wanted one.
pub(crate) trait Edit: Sync {
    fn edit(&self, old: &Value) -> Result<Value, Status>;

    /// Whether it looks at or leaves fields other than those of [`STATUS_FIELDS`].
    fn goes_beyond_status(&self) -> bool {
        true
    }

    /// Whether it leaves the record of who owns which fields as that is to be.
    fn records_owners(&self) -> bool {
        false
    }

    /// Fields that stood twice in the body.
    fn duplicates(&self) -> &[String] {
        &[]
    }
}

struct Replace(Decoded);
struct JsonPatch(Decoded);
/// A merge patch, or a strategic one where there is a schema.
struct MergePatch<'s> {
    decoded: Decoded,
    schema: Option<&'s Schema>,
}

impl Edit for Replace {
    fn edit(&self, _old: &Value) -> Result<Value, Status> {
        Ok(self.0.value.clone())
    }

    fn duplicates(&self) -> &[String] {
        &self.0.duplicates
    }
}

impl Edit for JsonPatch {
    fn edit(&self, old: &Value) -> Result<Value, Status> {
        let mut new = apply_json_patch(old, &self.0.value)?;
        if new["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"] {
            meta::set_resource_version(&mut new, None);
        }
        Ok(new)
    }
}

impl Edit for MergePatch<'_> {
    fn edit(&self, old: &Value) -> Result<Value, Status> {
        let patch = &self.decoded.value;
        if !patch.is_object() {
            return Err(Status::bad_request("a merge patch must be an object"));
        }
        let mut new = match self.schema {
            Some(schema) => apply_strategic_merge_patch(old, patch, schema)?,
            None => {
                let mut new = old.clone();
                apply_merge_patch(&mut new, patch)?;
                new
            }
        };
        // A patch may name the revision it was made for; one that does not must not be held to the one just read.
        if patch["metadata"]["resourceVersion"].is_null() {
            meta::set_resource_version(&mut new, None);
        }
        Ok(new)
    }

    fn goes_beyond_status(&self) -> bool {
        let fields = self.decoded.value.as_object();
        fields.is_none_or(|fields| fields.keys().any(|field| !STATUS_FIELDS.contains(&field.as_str())))
    }

    fn duplicates(&self) -> &[String] {
        &self.decoded.duplicates
    }
}

/// Reads, edits and writes until nobody else was faster.
pub(crate) async fn run(call: &Call, subresource: Option<&Subresource>, edit: &impl Edit) -> Answer {
    let view = View::of(call)?;
    let options = WriteOptions::parse(&call.query)?;
    for _ in 0..ATTEMPTS_MAX {
        let stored = read::served(call).await?;
        let mut warnings = Vec::new();
        let wanted = wanted(call, subresource, edit, &stored, &options, &mut warnings).await?;
        let outcome = store(call, &view, &stored, wanted, options.dry_run).await;
        match outcome {
            Ok(mut response) => {
                respond::warn(&mut response, &warnings);
                return Ok(response);
            }
            Err(Refused::Faster) => {}
            Err(Refused::Status(status)) => return Err(status),
        }
    }
    Err(Status::conflict_modified(call.resource(), &call.request.name))
}

struct Wanted {
    object: Value,
    /// Fields of the stored object that were not looked at, as text.
    rest: Vec<u8>,
    changed: bool,
    /// Whether the client named the revision: then a conflict is its own to solve.
    pinned: bool,
    /// Room in quotas for what grows.
    room: Reservation,
}

async fn wanted(
    call: &Call,
    subresource: Option<&Subresource>,
    edit: &impl Edit,
    stored: &Object,
    options: &WriteOptions,
    warnings: &mut Vec<String>,
) -> Result<Wanted, Status> {
    let descriptor = &call.descriptor;
    let only_status = subresource == Some(&Subresource::Status)
        && !options.dry_run
        && !edit.goes_beyond_status()
        // Whoever judges sees all of it.
        && !call.state.storage.dynamic.any();
    let Looked { object: mut old, rest, parts } = look(descriptor, stored, only_status);
    old["apiVersion"] = json!(descriptor.api_version());
    let mut new = edit.edit(&old)?;
    write::check_kind(descriptor, &mut new)?;
    write::check_place(call, &mut new)?;
    let pinned = check_revision(call, &new, &old, stored.revision)?;
    // Subresources are written by programs that send what they read; only the main path warns.
    let validation = if subresource.is_some() { FieldValidation::Ignore } else { options.field_validation };
    zero_values::fill(parts, &mut new);
    write::clean(descriptor, &mut new, edit.duplicates(), validation, warnings)?;
    keep(call, subresource, &mut new, &old);
    let write =
        Write { call, operation: Operation::Update, old: Some(&old), dry_run: options.dry_run, now: call.now() };
    write.admit(&mut new, warnings)?;
    write.mutate_dynamic(&mut new, warnings).await?;
    keep(call, subresource, &mut new, &old);
    zero_values::fill(parts, &mut new);
    let main = !matches!(subresource, Some(Subresource::Status | Subresource::Finalize));
    if main {
        descriptor.strategy.prepare_update(&mut new, &old, &mut write.hook(warnings))?;
        count_generation(call, &mut new, &old);
    }
    write.validate(&mut new, main, warnings)?;
    write.validate_dynamic(&call.request.name, Some(&new), warnings).await?;
    let room =
        call.state.quotas.admit(&write::attributes(call, Operation::Update), Some(&old), &new, options.dry_run)?;
    if !edit.records_owners() {
        record_owner(call, options, &old, &mut new);
    }
    meta::set_resource_version(&mut new, None);
    meta::set_resource_version(&mut old, None);
    Ok(Wanted { changed: new != old, object: new, rest, pinned, room })
}

/// Records who changed what, if the object keeps such a record.
fn record_owner(call: &Call, options: &WriteOptions, old: &Value, new: &mut Value) {
    if old["metadata"][OWNERS].is_null() {
        meta::metadata_mut(new).remove(OWNERS);
        return;
    }
    let now = wire_time(call.now());
    let api_version = call.descriptor.api_version();
    let manager = apply::manager(call, options);
    let by = By { manager: &manager, api_version: &api_version, subresource: &call.request.subresource, now: &now };
    pumice_objects::apply::update(old, new, &call.descriptor.schema, &by);
}

/// What a write looks at.
struct Looked<'d> {
    object: Value,
    /// Fields that are not looked at, as text.
    rest: Vec<u8>,
    /// What those that are looked at always have.
    parts: &'d [Part],
}

/// The stored object; of one whose status alone is written only what that takes, where its kind allows it. An object of an
/// older release gets what it always has now before it is compared with what it becomes.
fn look<'d>(descriptor: &'d Descriptor, stored: &Object, only_status: bool) -> Looked<'d> {
    // What is left of a namespace's finalizers decides about its end.
    let separable = descriptor.stores_as_it_shows()
        && descriptor.schema.fields_are_independent()
        && descriptor.rules.is_none()
        && descriptor.kind != "Namespace";
    let part = if only_status && separable { parse_fields(&stored.body, &STATUS_FIELDS) } else { None };
    let mut looked = match part {
        Some(PartlyParsed { object, rest }) => Looked { object, rest, parts: descriptor.zero_values.status() },
        None => Looked { object: parse(stored), rest: Vec::new(), parts: descriptor.zero_values.all() },
    };
    zero_values::fill(looked.parts, &mut looked.object);
    looked
}

/// Checks uid and revision that the client states. Gives whether it stated a revision.
fn check_revision(call: &Call, new: &Value, old: &Value, current: u64) -> Result<bool, Status> {
    let name = &call.request.name;
    if let (Some(given), Some(stored)) = (meta::uid(new), meta::uid(old))
        && given != stored
    {
        let cause = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {stored}");
        return Err(Status::conflict(call.resource(), name, cause));
    }
    let given = new["metadata"]["resourceVersion"].as_str().filter(|text| !text.is_empty() && *text != "0");
    match given.map(str::parse::<u64>) {
        None => Ok(false),
        Some(Ok(revision)) if revision == current => Ok(true),
        Some(Ok(_)) => Err(Status::conflict_modified(call.resource(), name)),
        Some(Err(_)) => {
            let error = pumice_objects::field::FieldError::invalid(
                "metadata.resourceVersion",
                new["metadata"]["resourceVersion"].clone(),
                "must be a decimal number",
            );
            Err(write::invalid(&call.descriptor, new, &[error]))
        }
    }
}

/// Puts back what this path may not change.
fn keep(call: &Call, subresource: Option<&Subresource>, new: &mut Value, old: &Value) {
    if subresource == Some(&Subresource::Finalize) {
        let finalizers = new["spec"]["finalizers"].clone();
        *new = old.clone();
        set_or_remove(&mut new["spec"], "finalizers", finalizers);
        return;
    }
    if subresource == Some(&Subresource::EphemeralContainers) {
        let containers = new["spec"]["ephemeralContainers"].clone();
        let owners = new["metadata"][OWNERS].clone();
        *new = old.clone();
        set_or_remove(&mut new["spec"], "ephemeralContainers", containers);
        set_or_remove(&mut new["metadata"], OWNERS, owners);
        return;
    }
    if subresource == Some(&Subresource::Status) {
        restore(new, old, &["status", "metadata"]);
        if new["status"].is_null() {
            set_or_remove(new, "status", Value::Null);
        }
        let kept: &[&str] =
            if call.descriptor.strategy.status_keeps_labels() { &["labels", "annotations", OWNERS] } else { &[OWNERS] };
        restore(&mut new["metadata"], &old["metadata"], kept);
        return;
    }
    if call.descriptor.has_status() {
        set_or_remove(new, "status", old["status"].clone());
    }
    let before = old["metadata"].as_object();
    let metadata = meta::metadata_mut(new);
    for field in
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"]
    {
        match before.and_then(|before| before.get(field)) {
            Some(value) => metadata.insert(field.to_owned(), value.clone()),
            None => metadata.remove(field),
        };
    }
}

/// Puts back all fields but these. Copies nothing that is as it was: a status is written for each step of each pod.
fn restore(new: &mut Value, old: &Value, but: &[&str]) {
    let (Some(fields), Some(before)) = (new.as_object_mut(), old.as_object()) else {
        *new = old.clone();
        return;
    };
    fields.retain(|field, _| but.contains(&field.as_str()) || before.contains_key(field));
    for (field, value) in before.iter().filter(|(field, _)| !but.contains(&field.as_str())) {
        if fields.get(field) != Some(value) {
            fields.insert(field.clone(), value.clone());
        }
    }
}

fn set_or_remove(object: &mut Value, field: &str, value: Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if value.is_null() {
        fields.remove(field);
    } else {
        fields.insert(field.to_owned(), value);
    }
}

/// One more when anything but metadata, and a status with its own path, has changed.
fn count_generation(call: &Call, new: &mut Value, old: &Value) {
    if !call.descriptor.counts_generation {
        return;
    }
    let own_status = call.descriptor.has_status();
    let counts = |field: &str| field != "metadata" && !(own_status && field == "status");
    let fields = [&*new, old].into_iter().filter_map(Value::as_object).flat_map(serde_json::Map::keys);
    if fields.filter(|field| counts(field)).any(|field| new.get(field) != old.get(field)) {
        meta::set_generation(new, meta::generation(old) + 1);
    }
}

enum Refused {
    /// Somebody else changed the object in between; try again.
    Faster,
    Status(Status),
}

async fn store(
    call: &Call,
    view: &View,
    stored: &Arc<Object>,
    wanted: Wanted,
    dry_run: bool,
) -> Result<Response<Body>, Refused> {
    let mut object = wanted.object;
    let vanishes = ends_deletion(&object);
    if !wanted.changed && !vanishes {
        wanted.room.settle(call.store());
        return Ok(view.one(StatusCode::OK, stored));
    }
    if dry_run {
        meta::set_resource_version(&mut object, Some(stored.revision));
        return Ok(view.unstored(StatusCode::OK, object));
    }
    conversion::stored(&call.state.storage.webhooks, &call.descriptor, &mut object).await.map_err(Refused::Status)?;
    let (key, draft, expect) =
        (stored.key.clone(), draft_with(&object, &wanted.rest), Expect::Revision(stored.revision));
    let change = if vanishes { Change::Delete { key, draft, expect } } else { Change::Put { key, draft, expect } };
    let outcome = call.state.storage.commit(change).await;
    wanted.room.settle(call.store());
    match outcome {
        Ok(object) => {
            let served = conversion::served_one(&call.state.storage.webhooks, &call.descriptor, object).await;
            Ok(view.one(StatusCode::OK, &*served.map_err(Refused::Status)?))
        }
        Err(ApplyError::Conflict(_)) if !wanted.pinned => Err(Refused::Faster),
        Err(error) => Err(Refused::Status(apply_status(call.resource(), &error))),
    }
}

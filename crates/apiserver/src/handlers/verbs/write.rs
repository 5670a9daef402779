//! The steps that create, update and patch share: read, clean, admit, validate, store.
//!
//! Invariant: every object that reaches the store went through `clean`, `admit` and `validate`, in this order.

use std::sync::Arc;

use jiff::Timestamp;
use pumice_objects::field::{FieldError, FieldErrorKind};
use pumice_objects::meta::{self, ObjectScope};
use pumice_objects::status::{GroupKind, Status};
use pumice_store::Key;
use serde_json::Value;

use crate::admission::dynamic::Subject;
use crate::admission::limit_ranges;
use crate::admission::node_restriction;
use crate::admission::pod_security;
use crate::admission::security_fields;
use crate::admission::{AdmissionRequest, Attributes, Operation, TenantReader};
use crate::context::Call;
use crate::handlers::subresources::scale;
use crate::http::body::Body;
use crate::http::decode::{self, Decoded, Format};
use crate::http::negotiate::{self, BodyKind};
use crate::http::query::FieldValidation;
use crate::kinds::Descriptor;
use crate::strategies::{self, Hook};

/// Media types that bodies of objects may have; the last of them only those of built-in kinds.
const OBJECT_BODIES: [&str; 3] = ["application/json", "application/yaml", negotiate::PROTOBUF];
/// An object with so many faults has them all told: lists of errors are cut, so that a new one could hide behind old ones.
const RATCHETED_MAX: usize = 64;
/// Most unknown fields that one message names.
const UNKNOWN_MAX: usize = 32;

/// The key of the object that a request names.
pub(crate) fn key(call: &Call, name: &str) -> Key {
    Key::new(Arc::clone(&call.descriptor.storage), call.stored_namespace(), name)
}

/// Reads a body that holds an object, and checks that it is of the right kind. Gives it with what it warns of.
pub(crate) async fn read_object(call: &Call, body: Body) -> Result<Decoded, Status> {
    let format = object_body(negotiate::body_kind(&call.headers))?;
    if format == Format::Protobuf && !call.descriptor.is_builtin() && call.request.subresource != "scale" {
        return Err(Status::unsupported_media_type(&OBJECT_BODIES[..2]));
    }
    let bytes = decode::read(body).await?;
    let decoded = decode::decode(&bytes, format)?;
    if !decoded.value.is_object() {
        return Err(Status::bad_request("the request body is not an object: send one with apiVersion and kind"));
    }
    Ok(decoded)
}

/// What a body that holds an object is written in; 415 for anything else.
pub(crate) fn object_body(kind: BodyKind) -> Result<Format, Status> {
    match kind {
        BodyKind::Json => Ok(Format::Json),
        BodyKind::Yaml => Ok(Format::Yaml),
        BodyKind::Protobuf => Ok(Format::Protobuf),
        _ => Err(Status::unsupported_media_type(&OBJECT_BODIES)),
    }
}

/// Fills apiVersion and kind where they are missing, and refuses others.
pub(crate) fn check_kind(descriptor: &Descriptor, object: &mut Value) -> Result<(), Status> {
    let Some(fields) = object.as_object_mut() else {
        return Err(Status::bad_request("the request body is not an object"));
    };
    for (field, wanted) in [("apiVersion", descriptor.api_version()), ("kind", descriptor.kind.clone())] {
        match fields.get(field) {
            None | Some(Value::Null) => {
                fields.insert(field.to_owned(), Value::String(wanted));
            }
            Some(Value::String(given)) if *given == wanted => {}
            Some(given) => {
                return Err(Status::bad_request(format!(
                    "the {field} in the data ({given}) does not match the expected {field} ({wanted:?})"
                )));
            }
        }
    }
    Ok(())
}

/// Fills name and namespace from the path, and refuses others.
pub(crate) fn check_place(call: &Call, object: &mut Value) -> Result<(), Status> {
    let (name, namespace) = (&call.request.name, call.stored_namespace());
    if !object["metadata"].is_null() && !object["metadata"].is_object() {
        return Err(Status::bad_request("metadata must be an object"));
    }
    let given = meta::name(object);
    if !name.is_empty() && !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = meta::namespace(object).unwrap_or_default();
    if call.descriptor.namespaced && namespace.is_empty() {
        return Err(Status::bad_request(
            "the namespace is missing in the URL: use /namespaces/NAME/ before the resource",
        ));
    }
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the provided object does not match the namespace sent on the request ({given:?} and \
             {namespace:?})"
        )));
    }
    if !name.is_empty() {
        meta::set_name(object, name);
    }
    meta::set_namespace(object, Some(namespace).filter(|namespace| !namespace.is_empty()));
    Ok(())
}

/// Drops unknown fields as the client wishes, fills defaults, and checks types.
pub(crate) fn clean(
    descriptor: &Descriptor,
    object: &mut Value,
    duplicates: &[String],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    if descriptor.drops_nulls {
        drop_nulls(object);
    } else if let Some(metadata) = object.get_mut("metadata") {
        drop_nulls(metadata);
    }
    let findings = descriptor.schema.admit(object);
    if validation != FieldValidation::Ignore {
        let found: Vec<String> = findings
            .unknown_fields
            .iter()
            .take(UNKNOWN_MAX)
            .map(|path| format!("unknown field {path:?}"))
            .chain(duplicates.iter().map(|path| format!("duplicate field {path:?}")))
            .collect();
        if !found.is_empty() && validation == FieldValidation::Strict {
            let (kind, version) = (&descriptor.kind, &descriptor.version);
            return Err(Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                found.join(", ")
            )));
        }
        warnings.extend(found);
    }
    descriptor.strategy.defaults(object);
    let of_type: Vec<FieldError> =
        findings.errors.into_iter().filter(|error| error.kind == FieldErrorKind::TypeInvalid).collect();
    if of_type.is_empty() { Ok(()) } else { Err(invalid(descriptor, object, &of_type)) }
}

/// Prunes and fills defaults. Idempotent.
fn fill(descriptor: &Descriptor, object: &mut Value) {
    descriptor.schema.complete(object);
    descriptor.strategy.defaults(object);
}

/// Typed kinds read null as "not given".
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// 422 for an object of this kind.
pub(crate) fn invalid(descriptor: &Descriptor, object: &Value, errors: &[FieldError]) -> Status {
    Status::invalid(GroupKind { group: &descriptor.group, kind: &descriptor.kind }, meta::name(object), errors)
}

/// What is wrong with an object by itself. `main` is false for subresources.
fn broken_rules(descriptor: &Descriptor, object: &mut Value, main: bool) -> Vec<FieldError> {
    let scope = if descriptor.namespaced { ObjectScope::Namespaced } else { ObjectScope::Cluster };
    let mut errors = meta::validate(object, scope, descriptor.strategy.name_rule());
    errors.extend(descriptor.schema.validate(object));
    errors.extend(descriptor.strategy.validate_status(object));
    if main {
        errors.extend(descriptor.strategy.validate(object));
    }
    errors
}

/// A write on its way to the store.
pub(crate) struct Write<'a> {
    pub(crate) call: &'a Call,
    pub(crate) operation: Operation,
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
    pub(crate) now: Timestamp,
}

impl Write<'_> {
    fn request<'b>(&'b self, name: &'b str) -> AdmissionRequest<'b> {
        let (call, descriptor) = (self.call, &self.call.descriptor);
        AdmissionRequest {
            operation: self.operation,
            identity: &call.identity,
            group: &descriptor.group,
            version: &descriptor.version,
            resource: &descriptor.plural,
            kind: &descriptor.kind,
            subresource: &call.request.subresource,
            namespace: call.stored_namespace(),
            name,
            old: self.old,
            dry_run: self.dry_run,
            objects: call.store(),
            tenants: &*call.state.storage,
            now: self.now,
        }
    }

    /// Asks admission; a changed object is cleaned again. Gives the status that a new one begins with.
    pub(crate) fn admit(&self, object: &mut Value, warnings: &mut Vec<String>) -> Result<Option<Value>, Status> {
        let name = meta::name(object).to_owned();
        limit_ranges::fill(&self.attributes(), object);
        let admitted = self.call.state.admission.admit(&self.request(&name), Some(object))?;
        warnings.extend(admitted.warnings);
        if !admitted.untouched {
            fill(&self.call.descriptor, object);
        }
        Ok(admitted.status)
    }

    /// Asks admission about a deletion.
    pub(crate) fn admit_delete(&self, name: &str, warnings: &mut Vec<String>) -> Result<(), Status> {
        node_restriction::check(&self.attributes(), &self.call.identity, name, self.old, None)?;
        let request = self.request(name);
        warnings.extend(self.call.state.admission.admit(&request, None)?.warnings);
        warnings.extend(self.call.state.admission.validate(&request, None)?.warnings);
        Ok(())
    }

    /// Checks the final object by schema, rules and admission. `main` is false for subresources.
    ///
    /// An object may have been stored before a rule was made that it breaks. What was wrong with it already, and is as it
    /// was, holds up no write, or its status, its labels and its finalizers could never be written again.
    pub(crate) fn validate(&self, object: &mut Value, main: bool, warnings: &mut Vec<String>) -> Result<(), Status> {
        let descriptor = &self.call.descriptor;
        let mut errors = broken_rules(descriptor, object, main);
        match self.old {
            Some(old) => {
                if (1..RATCHETED_MAX).contains(&errors.len()) {
                    let before = broken_rules(descriptor, &mut old.clone(), main);
                    errors.retain(|error| !before.contains(error));
                }
                errors.extend(strategies::validate_metadata_update(object, old));
                if main {
                    let below = &self.call.request.subresource;
                    errors.extend(descriptor.strategy.validate_update_below(below, object, old));
                }
            }
            None if main => errors.extend(descriptor.strategy.validate_create(object)),
            None => {}
        }
        if errors.is_empty()
            && let Some(rules) = &descriptor.rules
        {
            errors = rules.validate(&descriptor.schema, object, self.old);
        }
        if !errors.is_empty() {
            return Err(invalid(descriptor, object, &errors));
        }
        node_restriction::check(&self.attributes(), &self.call.identity, meta::name(object), self.old, Some(object))?;
        limit_ranges::check(&self.attributes(), object)?;
        pod_security::check(&self.attributes(), object, self.old, warnings)?;
        security_fields::warn(&self.attributes(), object, self.old, warnings);
        let request = self.request(meta::name(object));
        warnings.extend(self.call.state.admission.validate(&request, Some(object))?.warnings);
        Ok(())
    }

    /// What the checks of this server look at.
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        attributes(self.call, self.operation)
    }

    /// Who and what is judged by what people configured.
    fn subject<'b>(&'b self, name: &'b str) -> Subject<'b> {
        let operation = match self.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        };
        Subject { old: self.old, ..subject(self.call, operation, name, self.dry_run) }
    }

    /// Has the object changed by the webhooks that people configured. What they left is cleaned, and admission is asked
    /// again: it may add to what was added. Gives the status that a new object begins with then.
    pub(crate) async fn mutate_dynamic(
        &self,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Value>, Status> {
        let dynamic = &self.call.state.storage.dynamic;
        // A replica count is judged, and changed by nobody else.
        if !dynamic.any() || self.call.request.subresource == "scale" {
            return Ok(None);
        }
        let name = meta::name(object).to_owned();
        if !Box::pin(dynamic.mutate(&self.subject(&name), object, warnings)).await? {
            return Ok(None);
        }
        check_kind(&self.call.descriptor, object)?;
        fill(&self.call.descriptor, object);
        let mut more = Vec::new();
        let status = self.admit(object, &mut more)?;
        more.retain(|warning| !warnings.contains(warning));
        warnings.extend(more);
        Ok(status)
    }

    /// Has the final object, or its deletion, judged by the policies and webhooks that people configured.
    pub(crate) async fn validate_dynamic(
        &self,
        name: &str,
        object: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        let dynamic = &self.call.state.storage.dynamic;
        if !dynamic.any() {
            return Ok(());
        }
        let below = self.call.descriptor.subresource(&self.call.request.subresource);
        let shown =
            |object: Option<&Value>| below.zip(object).and_then(|(below, object)| scale::scale_of(below, object));
        let (new, old) = (shown(object), shown(self.old));
        let subject = Subject { old: old.as_ref().or(self.old), ..self.subject(name) };
        Box::pin(dynamic.validate(&subject, new.as_ref().or(object), warnings)).await
    }

    /// What the hooks of a kind may look at.
    pub(crate) fn hook<'b>(&'b self, warnings: &'b mut Vec<String>) -> Hook<'b> {
        let state = &self.call.state;
        Hook {
            reader: &state.storage.store,
            identity: &self.call.identity,
            rights: state.storage.rights.lazy(&state.storage.store),
            now: self.now,
            warnings,
        }
    }
}

/// Has what is created below an object judged by what people configured: a binding, an eviction, a command. `operation` is
/// `CREATE` or `CONNECT`.
pub(crate) async fn validate_below(
    call: &Call,
    operation: &'static str,
    object: &Value,
    dry_run: bool,
) -> Result<Vec<String>, Status> {
    let (dynamic, mut warnings) = (&call.state.storage.dynamic, Vec::new());
    if dynamic.any() {
        let name = if call.request.name.is_empty() { meta::name(object) } else { &call.request.name };
        let subresource = if call.request.subresource.is_empty() { "binding" } else { &call.request.subresource };
        let subject = Subject { subresource, ..subject(call, operation, name, dry_run) };
        Box::pin(dynamic.validate(&subject, Some(object), &mut warnings)).await?;
    }
    Ok(warnings)
}

/// Has a binding judged by admission of this process.
pub(crate) fn judge_binding(call: &Call, pod: &str, binding: &Value, dry_run: bool) -> Result<(), Status> {
    let write = Write { call, operation: Operation::Create, old: None, dry_run, now: call.now() };
    let request = AdmissionRequest { subresource: "binding", ..write.request(pod) };
    call.state.admission.validate(&request, Some(binding)).map(drop)
}

/// What the checks of this server look at of a write.
pub(crate) fn attributes(call: &Call, operation: Operation) -> Attributes<'_> {
    Attributes {
        store: call.store(),
        descriptor: &call.descriptor,
        operation,
        subresource: &call.request.subresource,
        namespace: call.stored_namespace(),
        default_pod_security: call.state.default_pod_security,
        tenants: call.state.admission.judges_tenants().then_some(&*call.state.storage as &dyn TenantReader),
        annotations: call.annotations.as_ref(),
    }
}

/// What webhooks and policies judge: a request. `operation` is as in the field of that name.
fn subject<'a>(call: &'a Call, operation: &'static str, name: &'a str, dry_run: bool) -> Subject<'a> {
    Subject {
        store: call.store(),
        registry: &call.state.storage.registry,
        rights: &call.state.storage.rights,
        identity: &call.identity,
        descriptor: &call.descriptor,
        operation,
        subresource: &call.request.subresource,
        namespace: call.stored_namespace(),
        name,
        old: None,
        dry_run,
    }
}

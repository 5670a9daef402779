//! Tokens of a service account, made on request.
//!
//! Invariant: a token is for an account that is there, and ends with the pod or secret that it is bound to. Asked by the
//! node for its pods, and by `kubectl create token`.

use std::fmt;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use pumice_auth::{BoundTo, Claims, ISSUER, Named};
use pumice_clock::wire_time;
use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::status::{GroupKind, GroupResource, Status};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::admission::node_restriction;
use crate::context::Call;
use crate::handlers::verbs::write;
use crate::http::body::Body;
use crate::http::query::WriteOptions;
use crate::http::respond::{self, Answer};
use crate::stored::parse;
use crate::strategies::service_account::SERVICE_ACCOUNTS;

const GROUP: &str = "authentication.k8s.io";
const API_VERSION: &str = "authentication.k8s.io/v1";
const KIND: &str = "TokenRequest";
/// Shortest life of a token.
const SECONDS_MIN: i64 = 600;
/// Longest life of a token: a wish for more gets this, and a warning.
const SECONDS_MAX: i64 = 86_400;
/// Life of a token when nobody says.
const SECONDS: i64 = 3600;
/// Most audiences of one token.
const AUDIENCES_MAX: usize = 16;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    kind: Option<String>,
    api_version: Option<String>,
    metadata: Option<Metadata>,
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<Reference>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reference {
    kind: Option<String>,
    api_version: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

/// Answers a create of `serviceaccounts/x/token`.
pub(crate) async fn create(call: &Call, body: Body) -> Answer {
    let decoded = write::read_object(call, body).await?;
    let dry_run = WriteOptions::parse(&call.query)?.dry_run;
    let request: Request = serde_json::from_value(decoded.value.clone())
        .map_err(|error| Status::bad_request(format!("the body is no {KIND}: {error}")))?;
    let foreign = |given: &Option<String>, wanted: &str| given.as_ref().is_some_and(|given| given != wanted);
    if foreign(&request.kind, KIND) || foreign(&request.api_version, API_VERSION) {
        return Err(Status::bad_request(format!("the body must be a {KIND} of {API_VERSION}")));
    }
    let account = account(call, &request.metadata.unwrap_or_default())?;
    let spec = request.spec.unwrap_or_default();
    let (seconds, warning) = seconds(spec.expiration_seconds.unwrap_or(SECONDS))?;
    let mut audiences = spec.audiences.unwrap_or_default();
    audiences.truncate(AUDIENCES_MAX);
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let mut warnings = write::validate_below(call, "CREATE", &decoded.value, dry_run).await?;
    warnings.extend(warning);
    let bound = spec.bound_object_ref.as_ref().map(|reference| bound_to(call, reference)).transpose()?;
    let pod = bound.as_ref().and_then(|bound| bound.pod.as_ref());
    node_restriction::check_token(&call.identity, pod, &audiences)
        .map_err(|cause| Status::forbidden(call.resource(), &call.request.name, cause))?;
    let bound_to = bound.map(|bound| bound.to);
    let issued = call.now();
    let expires = issued
        .checked_add(SignedDuration::from_secs(seconds))
        .map_err(|_| Status::internal_error("the clock is out of range"))?;
    let claims = Claims {
        namespace: call.request.namespace.clone(),
        account,
        audiences,
        issued,
        expires,
        id: Uuid::now_v7().to_string(),
        bound_to,
    };
    let token = call.state.storage.accounts.keys.sign(&claims).map_err(Status::internal_error)?;
    let mut response = respond::json(StatusCode::CREATED, answer(&claims, seconds, &token, issued).to_string());
    respond::warn(&mut response, &warnings);
    Ok(response)
}

fn answer(claims: &Claims, seconds: i64, token: &str, now: Timestamp) -> Value {
    let reference = claims.bound_to.as_ref().map(|bound| {
        let (kind, named) = match bound {
            BoundTo::Pod(pod) => ("Pod", pod),
            BoundTo::Secret(secret) => ("Secret", secret),
        };
        json!({ "kind": kind, "apiVersion": "v1", "name": named.name, "uid": named.uid })
    });
    json!({
        "kind": KIND,
        "apiVersion": API_VERSION,
        "metadata": {
            "name": claims.account.name, "namespace": claims.namespace, "creationTimestamp": wire_time(now),
        },
        "spec": { "audiences": claims.audiences, "expirationSeconds": seconds, "boundObjectRef": reference },
        "status": { "token": token, "expirationTimestamp": wire_time(claims.expires) },
    })
}

/// The account of the path, which the body may name too.
fn account(call: &Call, given: &Metadata) -> Result<Named, Status> {
    let (name, namespace) = (&call.request.name, &call.request.namespace);
    let mut errors = Vec::new();
    for (field, given, wanted) in [("name", &given.name, name), ("namespace", &given.namespace, namespace)] {
        if let Some(given) = given.as_ref().filter(|given| !given.is_empty() && *given != wanted) {
            let detail = format!("must match the service account {field} if specified");
            errors.push(FieldError::invalid(format!("metadata.{field}"), given.as_str(), detail));
        }
    }
    if !errors.is_empty() {
        return Err(invalid(name, &errors));
    }
    let uid = find(call, call.resource(), SERVICE_ACCOUNTS, name)?.1;
    if let Some(given) = given.uid.as_ref().filter(|given| !given.is_empty() && **given != uid) {
        let cause =
            format!("the UID in the token request ({given}) does not match the UID of the service account ({uid})");
        return Err(conflict(KIND, name, cause));
    }
    Ok(Named { name: name.clone(), uid })
}

/// The life that a token gets, and what its asker is told.
fn seconds(wished: i64) -> Result<(i64, Option<String>), Status> {
    let refused = |detail| Err(invalid("", &[FieldError::invalid("spec.expirationSeconds", wished, detail)]));
    match wished {
        ..SECONDS_MIN => refused("may not specify a duration less than 10 minutes"),
        0x1_0000_0001.. => refused("may not specify a duration larger than 2^32 seconds"),
        SECONDS_MIN..=SECONDS_MAX => Ok((wished, None)),
        _ => {
            let text = format!("requested expiration of {wished} seconds shortened to {SECONDS_MAX} seconds");
            Ok((SECONDS_MAX, Some(text)))
        }
    }
}

/// What a token is bound to; of a pod also all of it, where its uid is named.
struct Bound {
    to: BoundTo,
    pod: Option<Value>,
}

fn bound_to(call: &Call, reference: &Reference) -> Result<Bound, Status> {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    let (kind, version, name) = (text(&reference.kind), text(&reference.api_version), text(&reference.name));
    let resource = match (version.as_str(), kind.as_str()) {
        ("" | "v1", "Pod") => "pods",
        ("" | "v1", "Secret") => "secrets",
        _ => return Err(Status::bad_request(format!("cannot bind token to object of type {version}, Kind={kind}"))),
    };
    let (object, uid) = find(call, GroupResource { group: "", resource }, resource, &name)?;
    let account = &call.request.name;
    if kind == "Pod" && object["spec"]["serviceAccountName"] != **account {
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    if let Some(given) = reference.uid.as_ref().filter(|given| !given.is_empty() && **given != uid) {
        let cause = format!(
            "the UID in the bound object reference ({given}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(conflict(&kind, &name, cause));
    }
    let named = Named { name, uid };
    if kind != "Pod" {
        return Ok(Bound { to: BoundTo::Secret(named), pod: None });
    }
    let is_exact = reference.uid.as_ref().is_some_and(|uid| !uid.is_empty());
    Ok(Bound { to: BoundTo::Pod(named), pod: is_exact.then_some(object) })
}

/// An object of the account's namespace, and its uid.
fn find(call: &Call, shown: GroupResource<'_>, resource: &str, name: &str) -> Result<(Value, String), Status> {
    let found = call.store().find(resource, &call.request.namespace, name);
    let found = found.ok_or_else(|| Status::not_found(shown, name))?;
    let object = parse(&found);
    let uid = meta::uid(&object).unwrap_or_default().to_owned();
    Ok((object, uid))
}

fn invalid(name: &str, errors: &[FieldError]) -> Status {
    Status::invalid(GroupKind { group: GROUP, kind: KIND }, name, errors)
}

fn conflict(kind: &str, name: &str, cause: impl fmt::Display) -> Status {
    let group = if kind == KIND { GROUP } else { "" };
    Status::conflict(GroupResource { group, resource: kind }, name, cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_has_bounds() {
        assert!(seconds(599).is_err() && seconds(-1).is_err() && seconds(i64::MAX).is_err());
        assert_eq!(seconds(600).ok(), Some((600, None)));
        assert_eq!(seconds(86_400).ok(), Some((86_400, None)));
        let (life, warning) = seconds(86_401).expect("shortened");
        assert_eq!(life, 86_400);
        assert_eq!(warning.as_deref(), Some("requested expiration of 86401 seconds shortened to 86400 seconds"));
    }
}

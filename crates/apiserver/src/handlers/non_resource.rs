//! Non-resource paths: discovery, OpenAPI, version, health, metrics, backups.

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use pumice_auth::Identity;
use pumice_objects::status::{GroupResource, Status};
use serde_json::{Value, json};

use crate::context::State;
use crate::handlers::backup;
use crate::handlers::metrics_page;
use crate::http::body::Body;
use crate::http::negotiate;
use crate::http::query::Query;
use crate::http::respond::not_acceptable;
use crate::http::respond::{Answer, json as json_response};
use crate::kinds::GIT_VERSION;
use crate::kinds::discovery::Document;

/// Field 1, `swagger`: "2.0".
const OPENAPI_V2_PROTOBUF: &str = "\u{a}\u{3}2.0";
const AGGREGATED: HeaderValue =
    HeaderValue::from_static("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");

/// Answers one of the paths, or 404.
pub(crate) fn serve(
    state: &State,
    segments: &[String],
    query: &Query,
    identity: &Identity,
    request: &Request<Body>,
) -> Answer {
    let (method, headers) = (request.method(), request.headers());
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    if !matches!(*method, Method::GET | Method::HEAD) {
        let resource = GroupResource { group: "", resource: "" };
        return Err(Status::method_not_allowed(resource, &method.as_str().to_ascii_lowercase()));
    }
    let registry = state.storage.registry.load(&state.storage.store);
    let documents = registry.documents();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => state.health.answer(&parts, query, identity),
        ["metrics"] => Ok(metrics_page::answer(state)),
        ["pumice", "backup"] => Ok(backup::answer(state)),
        ["version"] => value(headers, &version()),
        ["api"] => discovery(headers, |aggregated| documents.core(aggregated)),
        ["apis"] => discovery(headers, |aggregated| documents.groups(aggregated)),
        ["api", version] => value(headers, &documents.version("", version).ok_or_else(unknown)?.resource_list()),
        ["apis", group] => value(headers, &documents.group(group).ok_or_else(unknown)?),
        ["apis", group, version] => {
            value(headers, &documents.version(group, version).ok_or_else(unknown)?.resource_list())
        }
        ["openapi", "v2"] => Ok(openapi_v2(headers)),
        ["openapi", "v3"] => value(headers, &documents.openapi_index()),
        ["openapi", "v3", "api", version] => openapi(headers, documents.version("", version)),
        ["openapi", "v3", "apis", group, version] => openapi(headers, documents.version(group, version)),
        _ => Err(unknown()),
    }
}

fn unknown() -> Status {
    Status::unknown_path()
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": GIT_VERSION, "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn value(headers: &HeaderMap, value: &Value) -> Answer {
    if !negotiate::takes_json(headers) {
        return Err(not_acceptable());
    }
    Ok(json_response(StatusCode::OK, value.to_string()))
}

fn discovery<'a>(headers: &HeaderMap, document: impl Fn(bool) -> &'a Document) -> Answer {
    let aggregated = negotiate::aggregated_discovery(headers).ok_or_else(not_acceptable)?;
    let mut response = cached(headers, document(aggregated));
    if aggregated {
        response.headers_mut().insert(header::CONTENT_TYPE, AGGREGATED);
    }
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(response)
}

/// A document of version 2 that knows no kind. kubectl asks it about kinds that version 3 does not have; without it,
/// its word about an unknown kind would be that validation failed, not that there is no such kind.
fn openapi_v2(headers: &HeaderMap) -> Response<Body> {
    if negotiate::takes_json(headers) {
        let document = json!({ "swagger": "2.0", "info": { "title": "Pumice", "version": GIT_VERSION }, "paths": {} });
        return json_response(StatusCode::OK, document.to_string());
    }
    let mut response = Response::new(Body::from(OPENAPI_V2_PROTOBUF));
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/com.github.proto-openapi.spec.v2.v1.0+protobuf"),
    );
    response
}

fn openapi(headers: &HeaderMap, version: Option<&crate::kinds::discovery::Version>) -> Answer {
    if !negotiate::takes_json(headers) {
        return Err(not_acceptable());
    }
    Ok(cached(headers, version.ok_or_else(unknown)?.openapi()))
}

/// The document, or 304 for a client that has it.
fn cached(headers: &HeaderMap, document: &Document) -> Response<Body> {
    let tag = format!("\"{}\"", document.hash);
    let known = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|one| one.trim() == tag));
    let mut response = if known {
        json_response(StatusCode::NOT_MODIFIED, Body::empty())
    } else {
        json_response(StatusCode::OK, document.body.clone())
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

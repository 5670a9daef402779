//! delete and deletecollection: one state machine for every kind.
//!
//! Invariant: an object goes at once only if nothing holds it: no finalizer, no grace. Otherwise it is marked, and the
//! write that takes away the last hold removes it. The collector uses the same functions.

use std::sync::{Arc, LazyLock};

use futures::{StreamExt, stream};
use http::StatusCode;
use pumice_objects::meta;
use pumice_objects::schema::Schema;
use pumice_objects::status::{self, Status};
use pumice_store::Object;
use serde_json::Value;

use super::read;
use super::write::{self, Write};
use crate::admission::Operation;
use crate::context::Call;
use crate::handlers::paging;
use crate::handlers::selectors::Matcher;
use crate::handlers::view::View;
use crate::http::body::Body;
use crate::http::decode;
use crate::http::negotiate;
use crate::http::query::{Query, ReadOptions};
use crate::http::respond::{self, Answer, json as json_response};
use crate::kinds::conversion;
use crate::schemas;
use crate::storage::{DeleteOptions, Deleted, Propagation};
use crate::stored::parse;

/// Objects of a collection deleted at a time.
const DELETES_MAX: usize = 32;
/// What may be said of a deletion.
static OPTIONS: LazyLock<Schema> =
    LazyLock::new(|| schemas::builtin("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"));

pub(crate) async fn delete(call: &Call, body: Body) -> Answer {
    let view = View::of(call)?;
    let deletion = delete_options(call, body).await?;
    let stored = read::served(call).await?;
    let mut warnings = Vec::new();
    admit(call, &stored, &deletion, &mut warnings).await?;
    let key = &stored.key;
    let outcome = call.state.storage.delete(&call.descriptor, &key.namespace, &key.name, &deletion).await?;
    let mut response = match outcome {
        Deleted::Marked(object) => view.one(StatusCode::OK, &*served(call, object).await?),
        Deleted::Gone(object) if call.descriptor.strategy.returns_deleted() => {
            view.one(StatusCode::OK, &*served(call, object).await?)
        }
        Deleted::Gone(object) => {
            let uid = meta::uid(&parse(&object)).unwrap_or_default().to_owned();
            let resource = call.resource();
            json_response(StatusCode::OK, status::deleted(resource, &call.request.name, &uid).to_string())
        }
    };
    respond::warn(&mut response, &warnings);
    Ok(response)
}

/// Answers a deletecollection: every object of the page that is asked for, without a limit all that match, with the list
/// of what was there. Not all or nothing.
pub(crate) async fn delete_collection(call: &Call, body: Body) -> Answer {
    let view = View::of(call)?;
    let options = ReadOptions::parse(&call.query)?;
    let matcher = Matcher::new(&call.descriptor, &options)?;
    let deletion = delete_options(call, body).await?;
    let page = paging::page(call, &options, &matcher)?;
    let items = conversion::served(&call.state.storage.webhooks, &call.descriptor, page.items).await?;
    let page = paging::Page { items, ..page };
    let mut warnings = Vec::new();
    for object in &page.items {
        admit(call, object, &deletion, &mut warnings).await?;
    }
    let results: Vec<Result<(), Status>> = stream::iter(page.items.clone())
        .map(|object| {
            let deletion = &deletion;
            async move {
                let key = &object.key;
                call.state.storage.delete(&call.descriptor, &key.namespace, &key.name, deletion).await.map(|_| ())
            }
        })
        .buffer_unordered(DELETES_MAX)
        .collect()
        .await;
    if let Some(status) = results.into_iter().filter_map(Result::err).find(|status| status.code != 404) {
        return Err(status);
    }
    let mut response = view.list(page);
    respond::warn(&mut response, &warnings);
    Ok(response)
}

async fn served(call: &Call, object: Arc<Object>) -> Result<Arc<Object>, Status> {
    conversion::served_one(&call.state.storage.webhooks, &call.descriptor, object).await
}

async fn admit(
    call: &Call,
    stored: &Object,
    deletion: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), Status> {
    let old = parse(stored);
    let now = call.now();
    let write = Write { call, operation: Operation::Delete, old: Some(&old), dry_run: deletion.dry_run, now };
    write.admit_delete(&stored.key.name, warnings)?;
    write.validate_dynamic(&stored.key.name, None, warnings).await
}

/// Reads DeleteOptions from the body and, where it says nothing, from the query.
pub(crate) async fn delete_options(call: &Call, body: Body) -> Result<DeleteOptions, Status> {
    let bytes = decode::read(body).await?;
    let options = if bytes.is_empty() {
        Value::Null
    } else {
        let format = write::object_body(negotiate::body_kind(&call.headers))?;
        decode::decode(&bytes, format)?.value
    };
    parse_delete_options(&options, &call.query)
}

pub(crate) fn parse_delete_options(options: &Value, query: &Query) -> Result<DeleteOptions, Status> {
    let kind = options["kind"].as_str().unwrap_or("DeleteOptions");
    if !(options.is_null() || options.is_object()) || kind != "DeleteOptions" {
        return Err(Status::bad_request("the body of a delete must be DeleteOptions, or empty"));
    }
    // What is of another type would be read as if it were not there.
    if options.is_object()
        && let Some(error) = OPTIONS.validate(&mut options.clone()).first()
    {
        return Err(Status::bad_request(format!("the body of a delete is no DeleteOptions: {error}")));
    }
    let text = |field: &str| options[field].as_str().or_else(|| query.filled(field)).map(str::to_owned);
    let mut propagation = match text("propagationPolicy").as_deref() {
        None => None,
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            return Err(Status::bad_request(format!(
                "invalid propagationPolicy {other:?}: want Background, Foreground or Orphan"
            )));
        }
    };
    if options["orphanDependents"] == true {
        propagation = Some(Propagation::Orphan);
    }
    let grace_seconds = match options["gracePeriodSeconds"].as_i64() {
        Some(seconds) => Some(seconds),
        None => query.integer("gracePeriodSeconds")?,
    };
    if grace_seconds.is_some_and(|seconds| seconds < 0) {
        return Err(Status::bad_request("gracePeriodSeconds must not be negative"));
    }
    let preconditions = &options["preconditions"];
    let revision = match preconditions["resourceVersion"].as_str().filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(
            text.parse().map_err(|_| Status::bad_request("preconditions.resourceVersion must be a decimal number"))?,
        ),
    };
    let all = |value: &Value| value.as_array().is_some_and(|list| list.iter().any(|entry| entry == "All"));
    Ok(DeleteOptions {
        grace_seconds,
        propagation,
        uid: preconditions["uid"].as_str().map(str::to_owned),
        revision,
        dry_run: all(&options["dryRun"]) || query.filled("dryRun") == Some("All"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_come_from_body_then_query() {
        let query = Query::parse("gracePeriodSeconds=5&propagationPolicy=Orphan").expect("query");
        let deletion = parse_delete_options(&json!({"gracePeriodSeconds": 0}), &query).expect("deletion");
        assert_eq!((deletion.grace_seconds, deletion.propagation), (Some(0), Some(Propagation::Orphan)));
        for bad in [
            json!({"propagationPolicy": "x"}),
            json!({"gracePeriodSeconds": -1}),
            json!({"kind": "Pod"}),
            json!([]),
            json!({"gracePeriodSeconds": 1.5}),
            json!({"gracePeriodSeconds": 1e3}),
            json!({"gracePeriodSeconds": "0"}),
            json!({"gracePeriodSeconds": 9_223_372_036_854_775_808_u64}),
            json!({"dryRun": "All"}),
            json!({"preconditions": {"resourceVersion": "x"}}),
            json!({"preconditions": {"uid": 7}}),
        ] {
            assert!(parse_delete_options(&bad, &Query::default()).is_err(), "{bad}");
        }
        for bad in ["-1", "1.5", "9223372036854775808", "0x10", "ten"] {
            let query = Query::parse(&format!("gracePeriodSeconds={bad}")).expect("query");
            assert!(parse_delete_options(&Value::Null, &query).is_err(), "{bad}");
        }
    }
}

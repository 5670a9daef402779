//! Eviction: a delete of a pod that its disruption budget allows.
//!
//! Invariant: a pod that a budget counts goes only after the budget was charged for it. Called by drains and by whoever
//! makes room.

use pumice_objects::meta;
use pumice_objects::status::Status;
use serde_json::Value;

use super::done;
use crate::context::Call;
use crate::handlers::verbs::delete;
use crate::handlers::verbs::{read, write};
use crate::http::body::Body;
use crate::http::query::WriteOptions;
use crate::http::respond::Answer;
use crate::storage::{DeleteOptions, check_preconditions};
use crate::stored::parse_metadata;
use crate::workers::disruption;

/// Answers a create of `pods/x/eviction`.
pub(crate) async fn evict(call: &Call, body: Body) -> Answer {
    let options = WriteOptions::parse(&call.query)?;
    let decoded = write::read_object(call, body).await?;
    if !matches!(decoded.value["kind"].as_str(), None | Some("Eviction")) {
        return Err(Status::bad_request("the body must be a policy/v1 Eviction"));
    }
    let named = meta::name(&decoded.value);
    if !named.is_empty() && named != call.request.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let wished = &decoded.value["deleteOptions"];
    let mut deletion =
        if wished.is_null() { DeleteOptions::default() } else { delete::parse_delete_options(wished, &call.query)? };
    deletion.dry_run |=
        options.dry_run || wished["dryRun"].as_array().is_some_and(|list| list.contains(&Value::from("All")));
    write::validate_below(call, "CREATE", &decoded.value, deletion.dry_run).await?;
    let (namespace, name) = (&call.request.namespace, &call.request.name);
    let stored = read::fetch(call)?;
    check_preconditions(call.resource(), &stored, &parse_metadata(&stored), &deletion)?;
    disruption::charge_eviction(&call.state.storage, &stored, deletion.dry_run).await?;
    if deletion.uid.is_none() {
        // The budget was charged for this pod and no other.
        deletion.uid = meta::uid(&parse_metadata(&stored)).map(str::to_owned);
    }
    let removed = call.state.storage.delete(&call.descriptor, namespace, name, &deletion).await;
    if removed.is_err() && !deletion.dry_run {
        disruption::refund_eviction(&call.state.storage, namespace, name).await;
    }
    removed?;
    Ok(done())
}

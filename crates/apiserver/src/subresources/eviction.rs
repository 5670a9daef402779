//! Eviction: a delete of a pod under another name. No budget is kept here: PodDisruptionBudgets are not served.

use pumice_objects::status::Status;
use serde_json::Value;

use super::done;
use crate::body::Body;
use crate::pipeline::{Answer, Call};
use crate::query::WriteOptions;
use crate::verbs::delete::{self, Wish};
use crate::verbs::write;

/// Answers a create of `pods/x/eviction`.
pub(crate) async fn evict(call: &Call, body: Body) -> Answer {
    let options = WriteOptions::parse(&call.query)?;
    let decoded = write::read_object(call, body).await?;
    if !matches!(decoded.value["kind"].as_str(), None | Some("Eviction")) {
        return Err(Status::bad_request("the body must be a policy/v1 Eviction"));
    }
    let wished = &decoded.value["deleteOptions"];
    let mut wish = if wished.is_null() { Wish::default() } else { delete::parse_wish(wished, &call.query)? };
    wish.dry_run |=
        options.dry_run || wished["dryRun"].as_array().is_some_and(|list| list.contains(&Value::from("All")));
    delete::remove(&call.state, &call.descriptor, &call.request.namespace, &call.request.name, &wish).await?;
    Ok(done())
}

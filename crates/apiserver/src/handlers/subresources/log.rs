//! Logs: what a container has written, carried from its node.

use std::fmt::Write as _;

use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use pumice_objects::status::Status;
use serde_json::Value;

use super::on_node;
use crate::context::Call;
use crate::handlers::verbs::read;
use crate::http::body::Body;
use crate::http::query::Query;
use crate::http::respond::Answer;
use crate::stored::parse;

/// Parameters that go on to the node.
const FLAGS: [&str; 3] = ["follow", "previous", "timestamps"];
/// What `stream` may be.
const STREAMS: [&str; 3] = ["All", "Stdout", "Stderr"];
const NUMBERS: [&str; 3] = ["tailLines", "sinceSeconds", "limitBytes"];

/// Answers a get of `pods/x/log`.
pub(crate) async fn read(call: &Call) -> Answer {
    let pod = parse(&*read::fetch(call)?);
    let name = &call.request.name;
    let container = on_node::container(name, &pod, call.query.filled("container"))?;
    let previous = call.query.flag("previous")?.unwrap_or(false);
    let waiting = |reason: &str| {
        Err(Status::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")))
    };
    let Some(node) = on_node::node(&pod) else {
        return waiting("the pod has no node yet");
    };
    if let Some(reason) = never_started(&pod, &container)
        && !previous
    {
        return waiting(&reason);
    }
    let mut path = format!("/containerLogs/{}/{name}/{container}", call.request.namespace);
    path.push_str(&parameters(&call.query)?);
    let request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| Status::bad_request(format!("the log request can't be passed on: {error}")))?;
    let answer = on_node::ask(&*call.state.node_proxy, node, request, StatusCode::OK).await?;
    // A followed log ends with the listener, so that a shutdown need not cut it off.
    let chunks = answer.into_body().into_data_stream().take_until(call.listener.closing.clone().cancelled_owned());
    let mut response = Response::new(Body::new(StreamBody::new(chunks.map_ok(Frame::data))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// What goes on to the node of a query for a log.
pub(crate) fn parameters(query: &Query) -> Result<String, Status> {
    let mut text = String::new();
    let mut push = |name: &str, value: &str| {
        let mark = if text.is_empty() { '?' } else { '&' };
        // Writing to a String can't fail.
        let _ = write!(text, "{mark}{name}={value}");
    };
    for name in FLAGS {
        if let Some(value) = query.flag(name)? {
            push(name, if value { "true" } else { "false" });
        }
    }
    for name in NUMBERS {
        if let Some(value) = query.number(name)? {
            push(name, &value.to_string());
        }
    }
    if let Some(stream) = query.filled("stream") {
        if !STREAMS.contains(&stream) {
            return Err(Status::bad_request(format!("stream must be one of {}", STREAMS.join(", "))));
        }
        push("stream", stream);
    }
    if let Some(since) = query.filled("sinceTime") {
        let since = pumice_objects::meta::parse_time(since)
            .ok_or_else(|| Status::bad_request("sinceTime must be a time such as 2026-01-02T03:04:05Z"))?;
        push("sinceTime", &since.to_string());
    }
    Ok(text)
}

/// Why a container has written nothing yet, if it never ran.
fn never_started(pod: &Value, container: &str) -> Option<String> {
    let status = ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
        .find(|status| status["name"] == container)?;
    let waiting = status["state"]["waiting"].as_object()?;
    if status["lastState"]["terminated"].is_object() {
        return None;
    }
    Some(waiting.get("reason").and_then(Value::as_str).unwrap_or("ContainerCreating").to_owned())
}

//! Logs: what a container has written, carried from its node.

use std::fmt::Write as _;

use futures::{StreamExt, TryStreamExt};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Limited, StreamBody};
use pumice_objects::status::{Status, StatusReason};
use serde_json::Value;

use crate::body::Body;
use crate::pipeline::{Answer, Call};
use crate::render::parse;
use crate::verbs::read;

/// Longest error text taken from a node, in bytes.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// Parameters that go on to the node.
const FLAGS: [&str; 3] = ["follow", "previous", "timestamps"];
const NUMBERS: [&str; 3] = ["tailLines", "sinceSeconds", "limitBytes"];

/// Answers a get of `pods/x/log`.
pub(crate) async fn read(call: &Call) -> Answer {
    let pod = parse(&*read::fetch(call)?);
    let name = &call.request.name;
    let container = container(name, &pod, call.query.filled("container"))?;
    let previous = call.query.flag("previous")?.unwrap_or(false);
    let waiting = |reason: &str| {
        Err(Status::bad_request(format!("container {container:?} in pod {name:?} is waiting to start: {reason}")))
    };
    let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) else {
        return waiting("the pod has no node yet");
    };
    if let Some(reason) = never_started(&pod, &container)
        && !previous
    {
        return waiting(&reason);
    }
    let mut path = format!("/containerLogs/{}/{name}/{container}", call.request.namespace);
    path.push_str(&parameters(call)?);
    let request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| Status::bad_request(format!("the log request can't be passed on: {error}")))?;
    let answer = call
        .state
        .node_proxy
        .call(node, request)
        .await
        .map_err(|error| Status::service_unavailable(error.to_string()))?;
    if answer.status() != StatusCode::OK {
        return Err(node_status(answer).await);
    }
    // A followed log ends with the listener, so that a shutdown need not cut it off.
    let chunks = answer.into_body().into_data_stream().take_until(call.closing.clone().cancelled_owned());
    let mut response = Response::new(Body::new(StreamBody::new(chunks.map_ok(Frame::data))));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

fn parameters(call: &Call) -> Result<String, Status> {
    let mut text = String::new();
    let mut push = |name: &str, value: &str| {
        let mark = if text.is_empty() { '?' } else { '&' };
        // Writing to a String can't fail.
        let _ = write!(text, "{mark}{name}={value}");
    };
    for name in FLAGS {
        if let Some(value) = call.query.flag(name)? {
            push(name, if value { "true" } else { "false" });
        }
    }
    for name in NUMBERS {
        if let Some(value) = call.query.number(name)? {
            push(name, &value.to_string());
        }
    }
    if let Some(since) = call.query.filled("sinceTime") {
        let since = pumice_objects::meta::parse_time(since)
            .ok_or_else(|| Status::bad_request("sinceTime must be a time such as 2026-01-02T03:04:05Z"))?;
        push("sinceTime", &since.to_string());
    }
    Ok(text)
}

/// The container that is meant, in upstream's words where none is clear.
fn container(pod_name: &str, pod: &Value, asked: Option<&str>) -> Result<String, Status> {
    let names = |list: &str| -> Vec<&str> {
        pod["spec"][list].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    match asked {
        Some(asked) if main.contains(&asked) || init.contains(&asked) => Ok(asked.to_owned()),
        Some(asked) => Err(Status::bad_request(format!("container {asked} is not valid for pod {pod_name}"))),
        None => match main.as_slice() {
            [only] => Ok((*only).to_owned()),
            _ => {
                let mut text = format!(
                    "a container name must be specified for pod {pod_name}, choose one of: [{}]",
                    main.join(" ")
                );
                if !init.is_empty() {
                    text.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
                }
                Err(Status::bad_request(text))
            }
        },
    }
}

/// Why a container has written nothing yet, if it never ran.
fn never_started(pod: &Value, container: &str) -> Option<String> {
    let status = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
        .find(|status| status["name"] == container)?;
    let waiting = status["state"]["waiting"].as_object()?;
    if status["lastState"]["terminated"].is_object() {
        return None;
    }
    Some(waiting.get("reason").and_then(Value::as_str).unwrap_or("ContainerCreating").to_owned())
}

/// A node's refusal as a Status with its text.
async fn node_status(answer: Response<Body>) -> Status {
    let code = answer.status().as_u16();
    let text = match Limited::new(answer.into_body(), ERROR_BYTES_MAX).collect().await {
        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).trim().to_owned(),
        Err(_) => "the node's answer broke off".to_owned(),
    };
    let reason = match code {
        400 => StatusReason::BadRequest,
        404 => StatusReason::NotFound,
        _ => StatusReason::InternalError,
    };
    Status::new(reason, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_container_must_be_clear() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let message = |asked| container("p", &pod, asked).expect_err("refused").message;
        assert_eq!(
            message(None),
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(message(Some("x")), "container x is not valid for pod p");
        assert_eq!(container("p", &pod, Some("i")).expect("found"), "i");
    }
}

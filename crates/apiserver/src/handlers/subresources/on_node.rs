//! What the subresources that a pod's node serves have in common: the container that is meant, and the node's answer.

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use pumice_objects::status::{Status, StatusReason};
use serde_json::Value;

use crate::http::body::Body;
use crate::http::respond::Answer;
use crate::nodes::NodeProxy;

/// Longest error text taken from a node, in bytes.
const ERROR_BYTES_MAX: usize = 16 * 1024;

/// The node of a pod that has one.
pub(crate) fn node(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

/// The container that is meant, in upstream's words where none is clear.
pub(crate) fn container(pod_name: &str, pod: &Value, asked: Option<&str>) -> Result<String, Status> {
    let (main, init) = (names(pod, "containers"), names(pod, "initContainers"));
    let added = names(pod, "ephemeralContainers");
    match asked {
        Some(asked) if [&main, &init, &added].iter().any(|list| list.contains(&asked)) => Ok(asked.to_owned()),
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

/// The names of one of a pod's lists of containers.
pub(crate) fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    pod["spec"][list].as_array().into_iter().flatten().filter_map(|one| one["name"].as_str()).collect()
}

/// What `node` answers with, if it is `wanted`; else its refusal.
pub(crate) async fn ask(nodes: &dyn NodeProxy, node: &str, request: Request<Body>, wanted: StatusCode) -> Answer {
    let answer = nodes.call(node, request).await;
    let answer = answer.map_err(|error| Status::service_unavailable(error.to_string()))?;
    if answer.status() == wanted { Ok(answer) } else { Err(node_status(answer).await) }
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
        429 => StatusReason::TooManyRequests,
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
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}],
            "ephemeralContainers": [{"name": "e"}]}});
        let message = |asked| container("p", &pod, asked).expect_err("refused").message;
        assert_eq!(
            message(None),
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(message(Some("x")), "container x is not valid for pod p");
        for name in ["i", "e"] {
            assert_eq!(container("p", &pod, Some(name)).expect("found"), name);
        }
    }
}

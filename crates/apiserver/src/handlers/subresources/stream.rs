//! Streams: commands run in a container, its own program's streams, and connections to a pod's ports, over a WebSocket or SPDY, which
//! the node speaks.
//!
//! Invariant: only the request's head is looked at here. The client's connection is handed to the node with the request,
//! and the node's 101 ends the request: a stream holds no room for writes, knows no time limit of one, and ends with
//! the pod, the client or the node's agent.

use form_urlencoded::byte_serialize;
use http::header::{CONNECTION, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{HeaderMap, HeaderName, Request, StatusCode};
use hyper::upgrade::OnUpgrade;
use pumice_objects::status::Status;
use serde_json::{Value, json};

use super::on_node;
use crate::context::Call;
use crate::handlers::pipeline::authorize_also;
use crate::handlers::verbs::{read, write};
use crate::http::body::Body;
use crate::http::request::Verb;
use crate::http::respond::Answer;
use crate::http::websocket::{has, is_asked};
use crate::stored::parse;

/// Which container a command runs in, where the request does not say.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// Streams that exec and attach can ask for, and what the node calls them.
const STREAMS: [(&str, &str); 3] = [("stdin", "input"), ("stdout", "output"), ("stderr", "error")];
/// Most ports of one port-forward: each takes two channels, whose numbers are a byte.
const PORTS_MAX: usize = 64;
/// What older clients, and kubectl's port-forward, ask to become, and what they speak over it.
const SPDY: &str = "spdy/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// kubectl's port-forward within a WebSocket, by its protocol.
const TUNNEL_PREFIX: &str = "spdy/";
/// Headers of the handshake, which is the node's.
const HANDSHAKE_PREFIX: &str = "sec-websocket-";

/// Answers `pods/x/exec`: the connection goes on to the agent of the pod's node.
pub(crate) async fn exec(call: &Call) -> Answer {
    let ended = "cannot exec into a container in a completed pod; current phase is ";
    let (upgrade, pod) = begin(call, ended)?;
    let mut options = stream_options(call, "PodExecOptions");
    options["command"] = call.query.all("command").collect();
    write::validate_below(call, "CONNECT", &options, false).await?;
    let container = container_of_request(call, &pod)?;
    let words = [command_parameters(call)?, stream_parameters(call)?].concat();
    hand_over(call, &pod, &container_path("exec", call, &container, &words), upgrade).await
}

/// Answers `pods/x/attach`: the connection goes on to the agent of the pod's node.
pub(crate) async fn attach(call: &Call) -> Answer {
    let ended = "cannot attach a container in a completed pod; current phase is ";
    let (upgrade, pod) = begin(call, ended)?;
    write::validate_below(call, "CONNECT", &stream_options(call, "PodAttachOptions"), false).await?;
    let container = container_of_request(call, &pod)?;
    hand_over(call, &pod, &container_path("attach", call, &container, &stream_parameters(call)?), upgrade).await
}

/// Answers `pods/x/portforward`: the connection goes on to the agent of the pod's node.
pub(crate) async fn port_forward(call: &Call) -> Answer {
    let ended = "unable to forward port because pod is not running. Current status=";
    let (upgrade, pod) = begin(call, ended)?;
    let options = json!({ "kind": "PodPortForwardOptions", "apiVersion": "v1" });
    write::validate_below(call, "CONNECT", &options, false).await?;
    let name = &call.request.name;
    // In SPDY each connection names its port.
    let ports = if speaks_spdy(&call.headers) { Vec::new() } else { ports(call)? };
    let ports: Vec<String> = ports.into_iter().map(|port| format!("port={port}")).collect();
    let path = format!("/portForward/{}/{name}?{}", call.request.namespace, ports.join("&"));
    hand_over(call, &pod, &path, upgrade).await
}

/// What is asked of a container's streams, as those who judge it see it.
fn stream_options(call: &Call, kind: &str) -> Value {
    let flag = |name: &'static str| call.query.flag(name).ok().flatten().unwrap_or(false);
    json!({
        "kind": kind, "apiVersion": "v1", "container": call.query.filled("container"),
        "stdin": flag("stdin"), "stdout": flag("stdout"), "stderr": flag("stderr"), "tty": flag("tty"),
    })
}

/// The connection that the client lets us have, and the pod, which must not have `ended`: a text that its phase completes.
fn begin(call: &Call, ended: &str) -> Result<(OnUpgrade, Value), Status> {
    let upgrade = upgrade(call)?;
    let pod = parse(&*read::fetch(call)?);
    let phase = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed"));
    match phase {
        Some(phase) => Err(Status::bad_request(format!("{ended}{phase}"))),
        None => Ok((upgrade, pod)),
    }
}

/// The connection that the client lets us have, if it may.
fn upgrade(call: &Call) -> Result<OnUpgrade, Status> {
    // A WebSocket begins with a GET, but what it does is no reading: upstream asks for the right to create as well.
    authorize_also(call, Verb::Create)?;
    let asked = is_asked(&call.headers) || has(&call.headers, &UPGRADE, |entry| entry == SPDY);
    let upgrade = if asked { call.upgrade.clone() } else { None };
    upgrade.ok_or_else(|| Status::bad_request("Upgrade request required: a WebSocket or SPDY/3.1, over HTTP/1.1"))
}

/// Whether SPDY is asked for, on its own or within a WebSocket. Who offers channels as well gets these.
fn speaks_spdy(headers: &HeaderMap) -> bool {
    let offers = |wanted: fn(&str) -> bool| has(headers, &SEC_WEBSOCKET_PROTOCOL, wanted);
    has(headers, &UPGRADE, |entry| entry == SPDY)
        || offers(|entry| entry.starts_with(TUNNEL_PREFIX)) && !offers(|entry| entry.ends_with(".channel.k8s.io"))
}

/// The container that the pod's own annotation names, if it has it.
fn default_container(pod: &Value) -> Option<&str> {
    let named = pod["metadata"]["annotations"][DEFAULT_CONTAINER].as_str()?;
    on_node::names(pod, "containers").contains(&named).then_some(named)
}

fn container_of_request(call: &Call, pod: &Value) -> Result<String, Status> {
    let asked = call.query.filled("container").or_else(|| default_container(pod));
    on_node::container(&call.request.name, pod, asked)
}

/// The node's path of a container's streams.
fn container_path(verb: &str, call: &Call, container: &str, words: &[String]) -> String {
    format!("/{verb}/{}/{}/{container}?{}", call.request.namespace, call.request.name, words.join("&"))
}

fn command_parameters(call: &Call) -> Result<Vec<String>, Status> {
    let encoded = |word: &str| byte_serialize(word.as_bytes()).collect::<String>();
    let words: Vec<String> = call.query.all("command").map(|word| format!("command={}", encoded(word))).collect();
    match words.is_empty() {
        true => Err(Status::bad_request("you must specify at least one command for the container")),
        false => Ok(words),
    }
}

fn stream_parameters(call: &Call) -> Result<Vec<String>, Status> {
    let mut words = Vec::new();
    let tty = call.query.flag("tty")?.unwrap_or(false);
    for (name, at_node) in STREAMS {
        // A terminal has one output: as upstream, what is asked besides is passed over.
        if call.query.flag(name)?.unwrap_or(false) && !(tty && name == "stderr") {
            words.push(format!("{at_node}=1"));
        }
    }
    if words.is_empty() {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    if tty {
        words.push("tty=1".to_owned());
    }
    Ok(words)
}

/// The ports, repeated or with commas between them.
fn ports(call: &Call) -> Result<Vec<u16>, Status> {
    let texts = call.query.all("ports").flat_map(|text| text.split(','));
    let ports: Option<Vec<u16>> =
        texts.map(|text| text.trim().parse().ok().filter(|port| *port > 0)).take(PORTS_MAX + 1).collect();
    match ports {
        Some(ports) if (1..=PORTS_MAX).contains(&ports.len()) => Ok(ports),
        _ => Err(Status::bad_request(format!(
            "query parameter \"ports\" is required: 1 to {PORTS_MAX} numbers from 1 to 65535"
        ))),
    }
}

/// Lets the pod's node answer, and take the client's connection.
async fn hand_over(call: &Call, pod: &Value, path: &str, upgrade: OnUpgrade) -> Answer {
    let Some(node) = on_node::node(pod) else {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", call.request.name)));
    };
    let mut request = Request::get(path)
        .body(Body::empty())
        .map_err(|error| Status::bad_request(format!("the request can't be passed on: {error}")))?;
    for (name, value) in &call.headers {
        let handshake = [&CONNECTION, &UPGRADE, &STREAM_PROTOCOL].contains(&name);
        if handshake || name.as_str().starts_with(HANDSHAKE_PREFIX) {
            request.headers_mut().append(name, value.clone());
        }
    }
    request.extensions_mut().insert(upgrade);
    on_node::ask(&*call.state.node_proxy, node, request, StatusCode::SWITCHING_PROTOCOLS).await
}

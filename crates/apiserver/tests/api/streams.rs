//! exec, attach and port-forward: what reaches the node, who may, what is refused, and bytes through a real connection.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, AttachParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use pumice_apiserver::{AdmitAll, Body, NodeProxy, NodeProxyError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use crate::harness::{ONLOOKER, PATIENCE, PODS, Server, build, pod};
use crate::pods::bind;

/// A node that remembers what it was asked, agrees to it, and sends back on channel 1 what comes on channel 0.
#[derive(Default)]
pub struct Node {
    asked: Mutex<Vec<(String, HeaderMap)>>,
}

impl NodeProxy for Node {
    fn call(
        &self,
        node: &str,
        mut request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        let asked = format!("{node} {} {}", request.method(), request.uri());
        self.asked.lock().expect("lock").push((asked, request.headers().clone()));
        let upgrade = request.extensions_mut().remove::<OnUpgrade>().expect("the client's connection");
        #[allow(clippy::disallowed_methods, reason = "ends with its connection")]
        tokio::spawn(send_back(upgrade));
        let mut answer = Response::builder().status(101).header("connection", "Upgrade").header("upgrade", "websocket");
        if let Some(key) = request.headers().get("sec-websocket-key") {
            answer = answer.header("sec-websocket-accept", derive_accept_key(key.as_bytes()));
        }
        let answer = answer.header("sec-websocket-protocol", "v4.channel.k8s.io").body(Body::empty()).expect("answer");
        Box::pin(async { Ok(answer) })
    }
}

async fn send_back(upgrade: OnUpgrade) {
    // Requests without a connection below them are never upgraded.
    let Ok(connection) = upgrade.await else { return };
    let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message {
            let mut bytes = bytes.to_vec();
            bytes[0] = 1;
            socket.send(Message::binary(bytes)).await.expect("send");
        }
    }
}

const WEBSOCKET: [(&str, &str); 4] = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-protocol", "v5.channel.k8s.io"),
];

/// Asks as over HTTP/1.1, where a connection can be taken over.
async fn ask(server: &Server, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut request = Request::builder().method(method).uri(format!("{PODS}/{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Full::default()).expect("request");
    let upgrade = hyper::upgrade::on(&mut request);
    request.extensions_mut().insert(upgrade);
    let response = server.send(request).await;
    let code = response.status().as_u16();
    let body: Value =
        serde_json::from_slice(&response.into_body().collect().await.expect("body").to_bytes()).unwrap_or_default();
    (code, body["message"].as_str().unwrap_or_default().to_owned())
}

async fn cluster() -> (Server, Arc<Node>) {
    let node = Arc::new(Node::default());
    let server = build(Arc::new(AdmitAll), node.clone()).await;
    let mut two = pod("two");
    two["spec"]["containers"] =
        json!([{"name": "a", "image": "x", "command": ["true"]}, {"name": "b", "image": "x", "command": ["true"]}]);
    let mut told = two.clone();
    told["metadata"] = json!({"name": "told", "annotations": {"kubectl.kubernetes.io/default-container": "b"}});
    for (name, object) in [("one", pod("one")), ("done", pod("done")), ("two", two), ("told", told)] {
        server.post(PODS, &object).await.is(201);
        bind(&server, name, "n1").await.is(201);
    }
    server.merge(&format!("{PODS}/done/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    server.post(PODS, &pod("free")).await.is(201);
    (server, node)
}

#[tokio::test]
async fn the_node_gets_the_request_and_the_handshake() {
    let (server, node) = cluster().await;
    let cases = [
        (
            "one/exec?command=sh&stdin=1&stdout=true&stderr=1",
            "/exec/default/one/main?command=sh&input=1&output=1&error=1",
        ),
        (
            "one/exec?command=sh&command=-c&command=a%26b+%25%0A&stdout=1&stdin=0",
            "/exec/default/one/main?command=sh&command=-c&command=a%26b+%25%0A&output=1",
        ),
        (
            "one/exec?command=sh&tty=1&stdin=1&stdout=1&stderr=1",
            "/exec/default/one/main?command=sh&input=1&output=1&tty=1",
        ),
        ("two/exec?command=sh&stdout=1&container=a", "/exec/default/two/a?command=sh&output=1"),
        ("told/exec?command=sh&stdout=1", "/exec/default/told/b?command=sh&output=1"),
        ("told/exec?command=sh&stdout=1&container=a", "/exec/default/told/a?command=sh&output=1"),
        ("one/attach?stdin=1&stdout=1&stderr=true", "/attach/default/one/main?input=1&output=1&error=1"),
        ("one/attach?command=sh&tty=1&stdin=1&stdout=1&stderr=1", "/attach/default/one/main?input=1&output=1&tty=1"),
        ("two/attach?stdout=1&container=b", "/attach/default/two/b?output=1"),
        ("told/attach?stdout=1", "/attach/default/told/b?output=1"),
        ("one/portforward?ports=80", "/portForward/default/one?port=80"),
        ("one/portforward?ports=80,81&ports=82", "/portForward/default/one?port=80&port=81&port=82"),
    ];
    for (path, wanted) in cases {
        for method in [Method::GET, Method::POST] {
            let headers = [WEBSOCKET.as_slice(), &[("authorization", "Bearer x")]].concat();
            assert_eq!(ask(&server, method, path, &headers).await.0, 101, "{path}");
            let (asked, headers) = node.asked.lock().expect("lock").pop().expect("asked");
            assert_eq!(asked, format!("n1 GET {wanted}"));
            assert_eq!(headers.len(), WEBSOCKET.len(), "the handshake and nothing else: {headers:?}");
            assert!(WEBSOCKET.iter().all(|(name, value)| headers[*name] == *value));
        }
    }
}

#[tokio::test]
async fn what_can_not_be_is_refused() {
    let (server, node) = cluster().await;
    let cases = [
        ("none/exec?command=sh&stdout=1", 404, "pods \"none\" not found"),
        ("one/exec?stdout=1", 400, "you must specify at least one command for the container"),
        ("one/exec?command=sh", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("one/exec?command=sh&stdout=0&tty=1&stderr=1", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (
            "one/exec?command=sh&stdout=maybe",
            400,
            "invalid value \"maybe\" for query parameter \"stdout\": want true or false",
        ),
        ("one/exec?command=sh&stdout=1&container=x", 400, "container x is not valid for pod one"),
        ("two/exec?command=sh&stdout=1", 400, "a container name must be specified for pod two, choose one of: [a b]"),
        (
            "done/exec?command=sh&stdout=1",
            400,
            "cannot exec into a container in a completed pod; current phase is Succeeded",
        ),
        ("free/exec?command=sh&stdout=1", 400, "pod free does not have a host assigned"),
        ("free/portforward?ports=80", 400, "pod free does not have a host assigned"),
        (
            "done/portforward?ports=80",
            400,
            "unable to forward port because pod is not running. Current status=Succeeded",
        ),
        ("one/portforward", 400, "query parameter \"ports\" is required: 1 to 64 numbers from 1 to 65535"),
        ("one/portforward?ports=0", 400, "query parameter \"ports\" is required: 1 to 64 numbers from 1 to 65535"),
        (
            "one/portforward?ports=80,65536",
            400,
            "query parameter \"ports\" is required: 1 to 64 numbers from 1 to 65535",
        ),
        ("none/attach?stdout=1", 404, "pods \"none\" not found"),
        ("one/attach", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("one/attach?stdout=1&container=x", 400, "container x is not valid for pod one"),
        ("two/attach?stdout=1", 400, "a container name must be specified for pod two, choose one of: [a b]"),
        ("done/attach?stdout=1", 400, "cannot attach a container in a completed pod; current phase is Succeeded"),
        ("free/attach?stdout=1", 400, "pod free does not have a host assigned"),
        ("one/resize?stdout=1", 404, "the server could not find the requested resource"),
    ];
    for (path, code, text) in cases {
        assert_eq!(ask(&server, Method::GET, path, &WEBSOCKET).await, (code, text.to_owned()), "{path}");
    }
    let many = format!("one/portforward?ports={}", vec!["80"; 65].join(","));
    assert_eq!(ask(&server, Method::GET, &many, &WEBSOCKET).await.0, 400);
    assert_eq!(ask(&server, Method::PUT, "one/exec?command=sh&stdout=1", &WEBSOCKET).await.0, 405);
    assert_eq!(ask(&server, Method::PUT, "one/attach?stdout=1", &WEBSOCKET).await.0, 405);
    let (exec, ports) = ("one/exec?command=sh&stdout=1", "one/portforward?ports=80");
    for (path, headers, text) in [
        (exec, vec![], "Upgrade request required"),
        (exec, vec![("upgrade", "websocket")], "Upgrade request required"),
        (exec, vec![("connection", "Upgrade"), ("upgrade", "h2c")], "Upgrade request required"),
        (ports, vec![], "Upgrade request required"),
        ("one/attach?stdout=1", vec![], "Upgrade request required"),
    ] {
        let (code, message) = ask(&server, Method::POST, path, &headers).await;
        assert_eq!(code, 400, "{headers:?}");
        assert!(message.contains(text), "{headers:?}: {message}");
    }
    // In the process there is no connection to take over.
    assert!(
        server.raw(Method::GET, &format!("{PODS}/{exec}"), &WEBSOCKET, "").await.is(400).message().contains("Upgrade")
    );
    assert!(node.asked.lock().expect("lock").is_empty());
}

/// Older clients, and `kubectl port-forward`: it is the node that agrees or refuses.
#[tokio::test]
async fn spdy_is_handed_to_the_node() {
    let (server, node) = cluster().await;
    let spdy = |protocol| [("connection", "Upgrade"), ("upgrade", "SPDY/3.1"), ("x-stream-protocol-version", protocol)];
    let mut tunnel = WEBSOCKET;
    for header in tunnel.iter_mut().filter(|(name, _)| *name == "sec-websocket-protocol") {
        header.1 = "SPDY/3.1+portforward.k8s.io";
    }
    for (path, headers, wanted) in [
        ("one/exec?command=sh&stdout=1", &spdy("v4.channel.k8s.io")[..], "/exec/default/one/main?command=sh&output=1"),
        ("one/attach?stdout=1", &spdy("v4.channel.k8s.io"), "/attach/default/one/main?output=1"),
        ("one/portforward", &spdy("portforward.k8s.io"), "/portForward/default/one?"),
        ("one/portforward", &tunnel, "/portForward/default/one?"),
    ] {
        assert_eq!(ask(&server, Method::POST, path, headers).await.0, 101, "{path}");
        let asked = node.asked.lock().expect("lock").pop().expect("the node was asked");
        assert_eq!(asked.0, format!("n1 GET {wanted}"));
        assert!(headers.iter().all(|(name, value)| asked.1[*name] == *value), "{:?}", asked.1);
    }
    let refused =
        ask(&server, Method::POST, "one/exec?command=sh&stdout=1&container=x", &spdy("v4.channel.k8s.io")).await;
    assert_eq!(refused, (400, "container x is not valid for pod one".to_owned()));
}

#[tokio::test]
async fn a_stream_needs_the_right_to_create() {
    let (server, node) = cluster().await;
    let onlooker = server.as_user(ONLOOKER);
    onlooker.get(&format!("{PODS}/one")).await.is(200);
    for (path, subresource) in [
        ("one/exec?command=sh&stdout=1", "exec"),
        ("one/attach?stdout=1", "attach"),
        ("one/portforward?ports=80", "portforward"),
    ] {
        for method in [Method::GET, Method::POST] {
            let (code, message) = ask(&onlooker, method, path, &WEBSOCKET).await;
            assert_eq!(code, 403);
            let text = format!("cannot create resource \"pods/{subresource}\"");
            assert!(message.contains(&text), "{message}");
        }
    }
    assert!(node.asked.lock().expect("lock").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_go_through_a_real_connection() {
    let (server, node) = cluster().await;
    let directory = tempfile::tempdir().expect("directory");
    let (stop, task) = server.listen(directory.path()).await;
    let kubeconfig = Kubeconfig::read_from(directory.path().join("kubeconfig")).expect("kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("config");
    let client = kube::Client::try_from(config).expect("client");
    let pods: Api<Pod> = Api::default_namespaced(client);

    let params = AttachParams::default().stdin(true).stdout(true).stderr(false);
    let mut process = pods.exec("one", ["cat"], &params).await.expect("exec");
    let (mut stdin, mut stdout) = (process.stdin().expect("stdin"), process.stdout().expect("stdout"));
    let text = "a line that comes back\n".repeat(4096);
    let sending = async {
        stdin.write_all(text.as_bytes()).await.expect("write");
        stdin.flush().await.expect("flush");
    };
    let mut back = vec![0; text.len()];
    let both = async { tokio::join!(sending, stdout.read_exact(&mut back)).1 };
    tokio::time::timeout(PATIENCE, both).await.expect("in time").expect("read");
    assert!(back == text.as_bytes(), "all of it, in its order");
    let asked = node.asked.lock().expect("lock").last().map(|(asked, _)| asked.clone());
    assert_eq!(asked.as_deref(), Some("n1 GET /exec/default/one/main?command=cat&input=1&output=1"));

    // The stream is the node's: the listener's end neither waits for it nor ends it.
    stop.cancel();
    task.await.expect("the listener ends");
    stdin.write_all(b"still").await.expect("write");
    let mut back = [0; 5];
    tokio::time::timeout(PATIENCE, stdout.read_exact(&mut back)).await.expect("in time").expect("read");
    assert_eq!(&back, b"still");
}

//! Watches over WebSockets, as fabric8's client and browsers ask for them, through a real connection.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{SinkExt, StreamExt};
use kube::config::Kubeconfig;
use pumice_auth::{Ca, Issued, client_config};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::harness::{MAPS, PATIENCE, config_map, server};
use crate::tokens;

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// Where the server listens, and who its clients are.
struct Far {
    address: String,
    authority: Ca,
    administrator: Issued,
}

impl Far {
    #[allow(clippy::disallowed_methods)]
    fn new(directory: &Path) -> Self {
        let kubeconfig = Kubeconfig::read_from(directory.join("kubeconfig")).expect("kubeconfig");
        let url = kubeconfig.clusters[0].cluster.as_ref().and_then(|one| one.server.clone()).expect("server");
        let now = jiff::Timestamp::now();
        let authority = Ca::open_or_create(directory, now).expect("authority");
        let administrator = authority.issue_client("admin", &["system:masters"], now).expect("client");
        Self { address: url.trim_start_matches("https://").to_owned(), authority, administrator }
    }

    async fn connect(&self, issued: Option<&Issued>) -> TlsStream<TcpStream> {
        let config = client_config(self.authority.pem(), issued).expect("config");
        let stream = TcpStream::connect(&self.address).await.expect("connect");
        let name = ServerName::try_from("127.0.0.1").expect("name");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("tls")
    }

    /// Opens a WebSocket; what is answered instead is the error.
    async fn open(&self, issued: Option<&Issued>, path: &str, protocols: &str) -> Result<(Socket, String), Error> {
        let mut request = format!("wss://{}{path}", self.address).into_client_request().expect("request");
        if !protocols.is_empty() {
            request.headers_mut().insert("sec-websocket-protocol", protocols.parse().expect("header"));
        }
        let (socket, response) = client_async(request, self.connect(issued).await).await?;
        let protocol = response.headers().get("sec-websocket-protocol").map(|text| text.to_str().expect("text"));
        Ok((socket, protocol.unwrap_or_default().to_owned()))
    }

    /// What a request for a WebSocket is refused with.
    async fn refused(&self, issued: Option<&Issued>, path: &str, protocols: &str) -> (u16, Value) {
        match self.open(issued, path, protocols).await {
            Err(Error::Http(answer)) => {
                let status = serde_json::from_slice(answer.body().as_deref().unwrap_or_default()).unwrap_or_default();
                (answer.status().as_u16(), status)
            }
            other => panic!("{path}: {:?}", other.map(|_| "a WebSocket")),
        }
    }
}

async fn next(socket: &mut Socket) -> Message {
    tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time").expect("a message").expect("whole")
}

/// The next event that is no bookmark, as `TYPE name`.
async fn event(socket: &mut Socket) -> String {
    loop {
        let message = next(socket).await;
        let Message::Text(text) = message else { panic!("{message:?}") };
        let event: Value = serde_json::from_str(&text).expect("one message is one event");
        if event["type"] != "BOOKMARK" {
            let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
            return format!("{} {name}", event["type"].as_str().unwrap_or_default());
        }
    }
}

/// The code with which the server ends, after whatever comes before.
async fn close(socket: &mut Socket) -> CloseCode {
    loop {
        match next(socket).await {
            Message::Close(word) => return word.expect("a code").code,
            Message::Text(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_event_is_a_message() {
    let server = server().await;
    for name in ["a", "b"] {
        server.post(MAPS, &config_map(name)).await.is(201);
    }
    let directory = tempfile::tempdir().expect("directory");
    let (stop, listening) = server.listen(directory.path()).await;
    let far = Far::new(directory.path());
    let administrator = Some(&far.administrator);
    let path = format!("{MAPS}?watch=true&allowWatchBookmarks=true");
    let (mut socket, protocol) = far.open(administrator, &path, "").await.expect("a WebSocket");
    assert_eq!(protocol, "");
    assert_eq!(event(&mut socket).await, "ADDED a");
    assert_eq!(event(&mut socket).await, "ADDED b");
    server.merge(&format!("{MAPS}/b"), &json!({"data": {"x": "a line\nand another"}})).await.is(200);
    assert_eq!(event(&mut socket).await, "MODIFIED b");
    server.delete(&format!("{MAPS}/b"), &Value::Null).await.is(200);
    assert_eq!(event(&mut socket).await, "DELETED b");

    // What the client says changes nothing, and its end ends what is counted.
    let running = "apiserver_longrunning_requests{component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",\
                   scope=\"namespace\",subresource=\"\",verb=\"WATCH\",version=\"v1\"} 1";
    assert!(server.get("/metrics").await.text.contains(running));
    socket.send(Message::text("{}")).await.expect("send");
    server.post(MAPS, &config_map("c")).await.is(201);
    assert_eq!(event(&mut socket).await, "ADDED c");
    socket.close(None).await.expect("close");
    while socket.next().await.is_some() {}
    let ended = async {
        while server.get("/metrics").await.text.contains(running) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the end of a watch is counted");

    // The watch's end, and the server's, close the socket in order.
    let (mut socket, _) =
        far.open(administrator, &format!("{MAPS}?watch=1&timeoutSeconds=0"), "").await.expect("a WebSocket");
    assert_eq!(close(&mut socket).await, CloseCode::Normal);
    drop(socket);
    let (mut socket, _) = far.open(administrator, &path, "").await.expect("a WebSocket");
    assert_eq!(event(&mut socket).await, "ADDED a");
    stop.cancel();
    assert_eq!(close(&mut socket).await, CloseCode::Normal);
    drop(socket);
    tokio::time::timeout(PATIENCE, listening).await.expect("in time").expect("the listener ends");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_said_before_the_socket() {
    let server = server().await;
    let directory = tempfile::tempdir().expect("directory");
    let (_stop, _listening) = server.listen(directory.path()).await;
    let far = Far::new(directory.path());
    let administrator = Some(&far.administrator);
    for (issued, path, code) in [
        (None, format!("{MAPS}?watch=1"), 401),
        (administrator, "/api/v1/nonsense?watch=1".to_owned(), 404),
        (administrator, format!("{MAPS}?watch=1&resourceVersion=999999"), 504),
        (administrator, format!("{MAPS}?watch=1&fieldSelector=spec.x%3Dy"), 400),
    ] {
        let (answered, status) = far.refused(issued, &path, "").await;
        assert_eq!((answered, &status["kind"]), (code, &json!("Status")), "{path}");
    }
    // Without a watch the answer is a plain one.
    let (code, list) = far.refused(administrator, MAPS, "").await;
    assert_eq!((code, &list["kind"]), (200, &json!("ConfigMapList")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_come_as_a_protocol() {
    let server = server().await;
    tokens::with_robot(&server).await;
    server
        .merge(
            &format!("{}/reader", crate::rights::at("roles")),
            &json!({"rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]},
            ]}),
        )
        .await
        .is(200);
    let token = tokens::token(&server, json!({})).await;
    let directory = tempfile::tempdir().expect("directory");
    let (_stop, _listening) = server.listen(directory.path()).await;
    let far = Far::new(directory.path());
    let bearer = |token: &str| format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
    server.post(MAPS, &config_map("a")).await.is(201);
    let path = format!("{MAPS}?watch=1");
    let (mut socket, protocol) =
        far.open(None, &path, &format!("{}, base64.binary.k8s.io", bearer(&token))).await.expect("a WebSocket");
    assert_eq!(protocol, "base64.binary.k8s.io", "never the token");
    assert_eq!(event(&mut socket).await, "ADDED a");
    let (code, _) = far.refused(None, &path, &format!("{}, x", bearer("nonsense"))).await;
    assert_eq!(code, 401);
    let (code, _) =
        far.refused(None, "/api/v1/namespaces/default/secrets?watch=1", &format!("{}, x", bearer(&token))).await;
    assert_eq!(code, 403);
}

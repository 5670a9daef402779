//! A server over memory, and short ways to ask it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use pumice_apiserver::{Admission, AdmitAll, ApiServer, Body, NoNodes, NodeProxy};
use pumice_auth::{
    Ca, Grant, Identity, MASTERS, Policy, Role, Rule, Scope, Subject, built_in, kubeconfig, server_config,
};
use pumice_store::{Options, Store};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Longest wait for a state that must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct Server {
    pub api: ApiServer,
    identity: Identity,
}

pub struct Answer {
    pub code: StatusCode,
    pub body: Value,
    pub text: String,
    pub warnings: Vec<String>,
    pub headers: http::HeaderMap,
}

pub fn administrator() -> Identity {
    Identity::new("admin", [MASTERS])
}

/// The user who may get streams but not create them.
pub const ONLOOKER: &str = "onlooker";

fn looks_into_pods() -> Grant {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    let (verbs, resources) = (owned(&["get"]), owned(&["pods", "pods/attach", "pods/exec", "pods/portforward"]));
    let rules = vec![Rule { verbs, api_groups: owned(&[""]), resources, ..Rule::default() }];
    let role = Arc::new(Role { name: "looks-into-pods".to_owned(), rules });
    Grant { subject: Subject::User(ONLOOKER.to_owned()), role, scope: Scope::Cluster }
}

pub async fn server() -> Server {
    build(Arc::new(AdmitAll), Arc::new(NoNodes)).await
}

pub async fn build(admission: Arc<dyn Admission>, nodes: Arc<dyn NodeProxy>) -> Server {
    let store = Store::in_memory(Options::default()).expect("store");
    over(store, admission, nodes).await
}

pub async fn over(store: Store, admission: Arc<dyn Admission>, nodes: Arc<dyn NodeProxy>) -> Server {
    let api = ApiServer::builder(store, Policy::new(built_in()).with([looks_into_pods()]))
        .admission(admission)
        .node_proxy(nodes)
        .bookmark_every(Duration::from_millis(20))
        .build()
        .await
        .expect("build");
    Server::of(api, administrator())
}

impl Server {
    pub fn of(api: ApiServer, identity: Identity) -> Self {
        Self { api, identity }
    }

    pub fn as_user(&self, user: &str) -> Self {
        Self { api: self.api.clone(), identity: Identity::new(user, Vec::<String>::new()) }
    }

    /// The agent of a node.
    pub fn as_node(&self, name: &str) -> Self {
        Self { api: self.api.clone(), identity: Identity::node(name) }
    }

    /// Listens with TLS; a `kubeconfig` of the administrator is in `directory`.
    #[allow(clippy::disallowed_methods)]
    pub async fn listen(&self, directory: &Path) -> (CancellationToken, JoinHandle<()>) {
        let now = jiff::Timestamp::now();
        let authority = Ca::open_or_create(directory, now).expect("authority");
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let certificate = authority.issue_server(&names, now).expect("server");
        let client = authority.issue_client("admin", &["system:masters"], now).expect("client");
        let tls = server_config(&authority, &certificate).expect("tls");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("https://{}", listener.local_addr().expect("address"));
        std::fs::write(directory.join("kubeconfig"), kubeconfig(&url, &authority, &client)).expect("write");
        let stop = CancellationToken::new();
        let (api, token) = (self.api.clone(), stop.clone());
        (stop, tokio::spawn(async move { api.serve(listener, tls, token).await }))
    }

    pub async fn send(&self, request: Request<Full<bytes::Bytes>>) -> Response<Body> {
        let mut service = self.api.client_service(self.identity.clone());
        service.call(request).await.expect("infallible")
    }

    pub async fn raw(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<bytes::Bytes>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.send(request.body(Full::new(body.into())).expect("request")).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("body").to_bytes();
        let warnings = parts.headers.get_all("warning").iter().map(|one| one.to_str().expect("text").to_owned());
        Answer {
            code: parts.status,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
            warnings: warnings.collect(),
            headers: parts.headers,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.raw(Method::GET, path, &[], "").await
    }

    pub async fn post(&self, path: &str, object: &Value) -> Answer {
        self.raw(Method::POST, path, &[], object.to_string()).await
    }

    pub async fn put(&self, path: &str, object: &Value) -> Answer {
        self.raw(Method::PUT, path, &[], object.to_string()).await
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.raw(Method::PATCH, path, &[("content-type", "application/merge-patch+json")], patch.to_string()).await
    }

    pub async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.raw(Method::DELETE, path, &[], body).await
    }

    /// Begins a watch, whose events are JSON.
    pub async fn watch(&self, path: &str) -> Lines {
        self.watch_as(path, "application/json").await
    }

    pub async fn watch_as(&self, path: &str, accept: &str) -> Lines {
        let request = Request::get(path).header("accept", accept).body(Full::default()).expect("request");
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        Lines { body: response.into_body(), buffer: Vec::new() }
    }

    /// Waits until `path` answers with this code.
    pub async fn until(&self, path: &str, code: u16) -> Answer {
        self.wait(path, &format!("{code}"), |answer| answer.code == code).await
    }

    /// Waits until the object at `path` is like this.
    pub async fn until_that(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.wait(path, "what was waited for", |answer| answer.code == 200 && holds(&answer.body)).await.body
    }

    async fn wait(&self, path: &str, what: &str, holds: impl Fn(&Answer) -> bool) -> Answer {
        let wait = async {
            let mut changes = 0;
            loop {
                let answer = self.get(path).await;
                if holds(&answer) {
                    return answer;
                }
                // Level-triggered: look again once the store has moved on, or others have had their turn.
                changes += 1;
                tokio::task::yield_now().await;
                if changes % 64 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(answer) => answer,
            Err(_) => panic!("{path} never answered {what}: {}", self.get(path).await.text),
        }
    }
}

impl Answer {
    /// Checks the code, and says what came where it is another.
    pub fn is(self, code: u16) -> Self {
        assert_eq!(self.code.as_u16(), code, "{}", self.text);
        self
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

pub struct Lines {
    body: Body,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next event, bookmarks included; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("a line of JSON"));
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event in time")?;
            self.buffer.extend_from_slice(&frame.expect("frame").into_data().expect("data"));
        }
    }

    /// The next event that is no bookmark, as `TYPE name`.
    pub async fn change(&mut self) -> String {
        loop {
            let event = self.next().await.expect("an event");
            if event["type"] != "BOOKMARK" {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
                return format!("{} {name}", event["type"].as_str().unwrap_or_default());
            }
        }
    }
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox:1", "command": ["true"]}]},
    })
}

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";

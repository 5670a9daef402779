//! Admission webhooks: real servers that speak TLS, asked by the API server. Those of conversions are tested in `versions`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use pumice_apiserver::{Admission, AdmissionRequest, Admitted, Body, Handler, NoNodes, serve_connections};
use pumice_auth::{Ca, server_config};
use pumice_objects::status::Status;
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::definitions::{WIDGETS, widget, with_widgets};
use crate::harness::{MAPS, PODS, Server, build, config_map, pod, server};

const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

type Answer = dyn Fn(&str, &Value) -> Value + Send + Sync;

/// A webhook server; what it answers is the `response` without its uid.
pub struct Hooks {
    pub port: u16,
    pub trusted: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
    /// Lets an answer to a path that begins with `/stall` go on after its head.
    released: Arc<Notify>,
    _stop: DropGuard,
    _task: JoinHandle<()>,
}

impl Hooks {
    pub async fn new(answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        Self::speaking(&[b"h2", b"http/1.1"], answer).await
    }

    #[allow(clippy::disallowed_methods)]
    async fn speaking(protocols: &[&[u8]], answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let now = jiff::Timestamp::now();
        let authority = Ca::open_or_create(directory.path(), now).expect("authority");
        let names = ["127.0.0.1".to_owned(), "hook.default.svc".to_owned()];
        let certificate = authority.issue_server(&names, now).expect("certificate");
        let mut tls = (*server_config(&authority, &certificate).expect("tls")).clone();
        tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Self::serving(tls, authority.pem(), answer).await
    }

    #[allow(clippy::disallowed_methods)]
    async fn serving(
        tls: ServerConfig,
        trusted: &str,
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("address").port();
        let (asked, connections) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let released = Arc::new(Notify::new());
        let stop = CancellationToken::new();
        let answer: Arc<Answer> = Arc::new(answer);
        let (seen, made, release) = (Arc::clone(&asked), Arc::clone(&connections), Arc::clone(&released));
        let handlers = move |_: std::net::SocketAddr, _: Option<&rustls::pki_types::CertificateDer<'static>>| {
            made.fetch_add(1, Ordering::Relaxed);
            let (answer, seen, release) = (Arc::clone(&answer), Arc::clone(&seen), Arc::clone(&release));
            let handler: Handler = Box::new(move |request| {
                let (answer, seen, release) = (Arc::clone(&answer), Arc::clone(&seen), Arc::clone(&release));
                Box::pin(async move { respond(request, answer.as_ref(), &seen, release).await.map(Body::new) })
            });
            Ok(handler)
        };
        let serving =
            serve_connections(listener, Arc::new(tls), Arc::default(), stop.clone(), Duration::ZERO, handlers);
        Self {
            port,
            trusted: BASE64.encode(trusted),
            asked,
            connections,
            released,
            _stop: stop.drop_guard(),
            _task: tokio::spawn(serving),
        }
    }

    /// A webhook about ConfigMaps at this path, with these fields beside.
    fn webhook(&self, path: &str, fields: &Value) -> Value {
        let mut webhook = json!({
            "name": format!("{}.example.com", path.trim_start_matches('/')),
            "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": { "url": format!("https://127.0.0.1:{}{path}", self.port), "caBundle": self.trusted },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"] }],
        });
        for (field, value) in fields.as_object().expect("fields") {
            webhook[field] = value.clone();
        }
        webhook
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("lock").iter().map(|(path, _)| path.clone()).collect()
    }

    pub fn last(&self) -> Value {
        self.asked.lock().expect("lock").last().expect("a request").1["request"].clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: &Answer,
    seen: &Mutex<Vec<(String, Value)>>,
    released: Arc<Notify>,
) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    seen.lock().expect("lock").push((path.clone(), review.clone()));
    if path.starts_with("/slow") {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let mut response = answer(&path, &review["request"]);
    if response["uid"].is_null() {
        response["uid"] = review["request"]["uid"].clone();
    }
    let answer = json!({ "apiVersion": review["apiVersion"], "kind": review["kind"], "response": response });
    let body = if path.starts_with("/huge") { "x".repeat(5 * 1024 * 1024) } else { answer.to_string() };
    if path.starts_with("/stall") {
        let rest = futures::stream::once(async move {
            released.notified().await;
            Bytes::from(body)
        });
        let head = futures::stream::once(async { Bytes::from_static(b" ") });
        return Response::new(Body::stream(head.chain(rest)));
    }
    Response::new(Body::from(body))
}

fn configuration(kind: &str, name: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{kind}WebhookConfiguration"),
        "metadata": { "name": name }, "webhooks": webhooks,
    })
}

async fn mutated_by(webhooks: &[Value]) -> Server {
    let server = server().await;
    server.post(MUTATING, &configuration("Mutating", "m", webhooks)).await.is(201);
    server
}

async fn judged_by(webhooks: &[Value]) -> Server {
    let server = server().await;
    server.post(VALIDATING, &configuration("Validating", "v", webhooks)).await.is(201);
    server
}

fn allowed() -> Value {
    json!({ "allowed": true })
}

fn patched(patch: &Value) -> Value {
    json!({ "allowed": true, "patchType": "JSONPatch", "patch": BASE64.encode(patch.to_string()) })
}

#[tokio::test]
async fn a_mutating_webhook_changes_the_object() {
    let hooks = Hooks::new(|_, _| patched(&json!([{ "op": "add", "path": "/data/b", "value": "2" }]))).await;
    let server = mutated_by(&[hooks.webhook("/a.b", &json!({}))]).await;
    let made = server.post(MAPS, &config_map("c")).await.is(201).body;
    assert_eq!(made["data"], json!({ "a": "1", "b": "2" }));
    let request = hooks.last();
    assert_eq!(request["operation"], "CREATE");
    assert_eq!(request["object"]["data"], json!({ "a": "1" }));
    assert_eq!(request["oldObject"], Value::Null);
    assert_eq!(request["userInfo"]["username"], "admin");
    assert_eq!(request["kind"], json!({ "group": "", "version": "v1", "kind": "ConfigMap" }));
    assert_eq!(request["resource"], json!({ "group": "", "version": "v1", "resource": "configmaps" }));
    assert_eq!((&request["name"], &request["namespace"]), (&json!("c"), &json!("default")));
    assert_eq!(request["options"]["kind"], "CreateOptions");
    server.merge(&format!("{MAPS}/c"), &json!({ "data": { "a": "3", "b": null } })).await.is(200);
    let request = hooks.last();
    assert_eq!(request["operation"], "UPDATE");
    assert_eq!(request["oldObject"]["data"], json!({ "a": "1", "b": "2" }));
    assert_eq!(server.get(&format!("{MAPS}/c")).await.body["data"], json!({ "a": "3", "b": "2" }));
    server.delete(&format!("{MAPS}/c"), &Value::Null).await.is(200);
    assert_eq!(hooks.asked().len(), 2);
    assert_eq!(hooks.connections.load(Ordering::Relaxed), 1, "the connection is used again");
}

#[tokio::test]
async fn connections_of_the_older_protocol_are_used_again() {
    let hooks = Hooks::speaking(&[b"http/1.1"], |_, _| allowed()).await;
    let server = judged_by(&[hooks.webhook("/a.b", &json!({}))]).await;
    for name in ["c", "d", "e"] {
        server.post(MAPS, &config_map(name)).await.is(201);
    }
    assert_eq!(hooks.connections.load(Ordering::Relaxed), 1);
    assert_eq!(hooks.asked().len(), 3);
}

#[tokio::test]
async fn a_validating_webhook_refuses_in_its_words() {
    let hooks = Hooks::new(|path, _| match path {
        "/plain.b" => json!({ "allowed": false }),
        "/warns.b" => json!({ "allowed": true, "warnings": ["careful"] }),
        _ => json!({ "allowed": false, "status": { "code": 418, "message": "no tea" } }),
    })
    .await;
    let server = judged_by(&[hooks.webhook("/a.b", &json!({}))]).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(418);
    assert_eq!(refused.message(), "admission webhook \"a.b.example.com\" denied the request: no tea");
    let server = judged_by(&[hooks.webhook("/plain.b", &json!({}))]).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(403);
    assert_eq!(refused.message(), "admission webhook \"plain.b.example.com\" denied the request without explanation");
    let server = judged_by(&[hooks.webhook("/warns.b", &json!({}))]).await;
    assert_eq!(server.post(MAPS, &config_map("c")).await.is(201).warnings, ["299 - \"careful\""]);
}

// INV-10
#[tokio::test]
async fn what_fails_counts_as_the_failure_policy() {
    let hooks = Hooks::new(|path, _| match path {
        "/other.b" => json!({ "allowed": true, "uid": "another" }),
        "/patch.b" => patched(&json!([{ "op": "remove", "path": "/data" }])),
        _ => allowed(),
    })
    .await;
    let nobody = json!({ "url": "https://127.0.0.1:1/", "caBundle": hooks.trusted });
    let stranger = Hooks::new(|_, _| allowed()).await;
    let untrusted = json!({ "url": format!("https://127.0.0.1:{}/", stranger.port), "caBundle": hooks.trusted });
    let service =
        |name: &str| json!({ "service": { "namespace": "default", "name": name }, "caBundle": hooks.trusted });
    for (path, fields, wanted) in [
        ("/gone.b", json!({ "clientConfig": nobody }), "dial tcp 127.0.0.1:1"),
        ("/untrusted.b", json!({ "clientConfig": untrusted }), "tls: "),
        ("/slow.b", json!({ "timeoutSeconds": 1 }), "context deadline exceeded"),
        ("/huge.b", json!({}), "has more than"),
        ("/other.b", json!({}), "expected response.uid"),
        ("/patch.b", json!({}), "may not return response.patch"),
        ("/absent.b", json!({ "clientConfig": service("absent") }), "service \"absent\" not found"),
        (
            "/condition.b",
            json!({ "matchConditions": [{ "name": "n", "expression": "object.none == 1" }] }),
            "no such key: none",
        ),
    ] {
        let server = judged_by(&[hooks.webhook(path, &fields)]).await;
        let refused = server.post(MAPS, &config_map("c")).await;
        assert!(refused.code == 500 || refused.code == 403, "{path}: {}", refused.text);
        let named = format!("failed calling webhook \"{}.example.com\"", path.trim_start_matches('/'));
        assert!(
            refused.message().contains(&named) && refused.message().contains(wanted),
            "{path}: {}",
            refused.message()
        );
        let mut fields = fields;
        fields["failurePolicy"] = json!("Ignore");
        let server = judged_by(&[hooks.webhook(path, &fields)]).await;
        server.post(MAPS, &config_map("c")).await.is(201);
    }
}

#[tokio::test]
async fn a_service_leads_to_its_pods() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let fields = json!({ "clientConfig": {
        "service": { "namespace": "default", "name": "hook", "path": "/a.b", "port": 8443 }, "caBundle": hooks.trusted } });
    let server = judged_by(&[hooks.webhook("/a.b", &fields)]).await;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "hook" },
        "spec": { "selector": { "app": "hook" }, "ports": [{ "port": 8443, "targetPort": "web" }] },
    });
    server.post("/api/v1/namespaces/default/services", &service).await.is(201);
    let refused = server.post(MAPS, &config_map("c")).await.is(500);
    assert!(refused.message().contains("no endpoints available for service \"hook\""), "{}", refused.message());
    let mut serving = pod("server");
    serving["metadata"]["labels"] = json!({ "app": "hook" });
    serving["spec"]["containers"][0]["ports"] = json!([{ "name": "web", "containerPort": hooks.port }]);
    server.post(PODS, &serving).await.is(201);
    let status = json!({ "status": { "phase": "Running", "podIP": "127.0.0.1", "podIPs": [{ "ip": "127.0.0.1" }] } });
    server.merge(&format!("{PODS}/server/status"), &status).await.is(200);
    server.post(MAPS, &config_map("c")).await.is(201);
    assert_eq!(hooks.asked(), ["/a.b"]);
}

#[tokio::test]
async fn only_what_matches_is_asked() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let rule = |resource: &str, operation: &str| json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource] }]);
    let server = judged_by(&[
        hooks.webhook("/a.deletes", &json!({ "rules": rule("configmaps", "DELETE") })),
        hooks.webhook("/b.status", &json!({ "rules": rule("pods/status", "UPDATE") })),
        hooks.webhook("/c.binding", &json!({ "rules": rule("pods/binding", "CREATE") })),
        hooks.webhook("/d.evicts", &json!({ "rules": rule("pods/eviction", "*") })),
        hooks.webhook("/e.labelled", &json!({ "objectSelector": { "matchLabels": { "x": "y" } } })),
        hooks.webhook("/f.elsewhere", &json!({ "namespaceSelector": { "matchLabels": { "x": "y" } } })),
        hooks.webhook("/g.named", &json!({ "matchConditions": [{ "name": "n", "expression": "object.metadata.name == 'n'" }] })),
        hooks.webhook("/h.configurations", &json!({ "rules": [{
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "Cluster" }] })),
    ])
    .await;
    let steps = |hooks: &Hooks| {
        std::mem::take(&mut *hooks.asked.lock().expect("lock")).into_iter().map(|(path, _)| path).collect::<Vec<_>>()
    };
    server.post(MAPS, &config_map("c")).await.is(201);
    assert!(steps(&hooks).is_empty());
    let mut labelled = config_map("n");
    labelled["metadata"]["labels"] = json!({ "x": "y" });
    server.post(MAPS, &labelled).await.is(201);
    let mut both = steps(&hooks);
    both.sort();
    assert_eq!(both, ["/e.labelled", "/g.named"]);
    server.delete(&format!("{MAPS}/c"), &Value::Null).await.is(200);
    assert_eq!(hooks.last()["oldObject"]["metadata"]["name"], "c");
    assert_eq!(steps(&hooks), ["/a.deletes"]);
    server.post(PODS, &pod("p")).await.is(201);
    let binding = json!({ "target": { "kind": "Node", "name": "n" }, "metadata": { "name": "p" } });
    server.post(&format!("{PODS}/p/binding"), &binding).await.is(201);
    server.merge(&format!("{PODS}/p/status"), &json!({ "status": { "phase": "Running" } })).await.is(200);
    server
        .post(&format!("{PODS}/p/eviction"), &json!({ "kind": "Eviction", "metadata": { "name": "p" } }))
        .await
        .is(201);
    assert_eq!(steps(&hooks), ["/c.binding", "/b.status", "/d.evicts"]);
    server.merge("/api/v1/namespaces/default", &json!({ "metadata": { "labels": { "x": "y" } } })).await.is(200);
    assert_eq!(steps(&hooks), ["/h.configurations"]);
    server.post(MAPS, &config_map("m")).await.is(201);
    assert_eq!(steps(&hooks), ["/f.elsewhere"]);
    server.delete(&format!("{VALIDATING}/v"), &Value::Null).await.is(200);
    assert!(steps(&hooks).is_empty(), "configurations are never sent");
}

// INV-9
#[tokio::test]
async fn webhooks_are_asked_by_name_and_again_if_they_wish() {
    let hooks = Hooks::new(|path, request| {
        let order = request["object"]["data"]["order"].as_str().unwrap_or_default().to_owned();
        patched(&json!([{ "op": "add", "path": "/data/order", "value": format!("{order}{}", &path[1..2]) }]))
    })
    .await;
    let server = server().await;
    let second = [hooks.webhook("/c.b", &json!({}))];
    let first =
        [hooks.webhook("/a.b", &json!({ "reinvocationPolicy": "IfNeeded" })), hooks.webhook("/b.b", &json!({}))];
    server.post(MUTATING, &configuration("Mutating", "z", &second)).await.is(201);
    server.post(MUTATING, &configuration("Mutating", "y", &first)).await.is(201);
    let made = server.post(MAPS, &config_map("c")).await.is(201).body;
    assert_eq!(made["data"]["order"], "abca");
}

#[tokio::test]
async fn a_dry_run_asks_only_those_without_side_effects() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let server = judged_by(&[hooks.webhook("/a.b", &json!({}))]).await;
    server.post(&format!("{MAPS}?dryRun=All"), &config_map("c")).await.is(201);
    assert_eq!(hooks.last()["dryRun"], true);
}

#[tokio::test]
async fn an_object_is_shown_in_the_version_that_is_asked_for() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let server = with_widgets().await;
    let rule = |version: &str| json!([{ "apiGroups": ["example.com"], "apiVersions": [version], "operations": ["*"], "resources": ["widgets", "widgets/scale"] }]);
    let webhooks = [
        hooks.webhook("/equivalent.b", &json!({ "rules": rule("v1alpha1") })),
        hooks.webhook("/exact.b", &json!({ "rules": rule("v1alpha1"), "matchPolicy": "Exact" })),
    ];
    server.post(VALIDATING, &configuration("Validating", "v", &webhooks)).await.is(201);
    server.post(WIDGETS, &widget("w")).await.is(201);
    assert_eq!(hooks.asked(), ["/equivalent.b"]);
    let request = hooks.last();
    assert_eq!(request["object"]["apiVersion"], "example.com/v1alpha1");
    assert_eq!(
        (&request["resource"]["version"], &request["requestResource"]["version"]),
        (&json!("v1alpha1"), &json!("v1"))
    );
    server.merge(&format!("{WIDGETS}/w/scale"), &json!({ "spec": { "replicas": 2 } })).await.is(200);
    let request = hooks.last();
    assert_eq!((&request["subResource"], &request["object"]["kind"]), (&json!("scale"), &json!("Scale")));
    assert_eq!(
        (&request["object"]["spec"]["replicas"], &request["oldObject"]["spec"]["replicas"]),
        (&json!(2), &json!(3))
    );
}

/// Bug: Volcano's webhooks answer the base64 of `null` about what they leave as it is, and every such write was a 500.
#[tokio::test]
async fn a_patch_of_null_or_of_nothing_leaves_the_object_as_it_is() {
    let hooks = Hooks::new(|path, _| match path {
        "/null.b" => patched(&Value::Null),
        "/empty.b" => patched(&json!([])),
        "/absent.b" => json!({ "allowed": true, "patch": null, "patchType": null }),
        "/blank.b" => json!({ "allowed": true, "patch": "" }),
        _ => patched(&json!({})),
    })
    .await;
    for path in ["/null.b", "/empty.b", "/absent.b", "/blank.b"] {
        let server = mutated_by(&[hooks.webhook(path, &json!({ "failurePolicy": "Fail" }))]).await;
        let made = server.post(MAPS, &config_map("c")).await.is(201).body;
        assert_eq!(made["data"], json!({ "a": "1" }), "{path}");
        server.merge(&format!("{MAPS}/c"), &json!({ "data": { "a": "2" } })).await.is(200);
    }
    // What is no list of operations counts as no answer.
    let server = mutated_by(&[hooks.webhook("/object.b", &json!({ "failurePolicy": "Fail" }))]).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(500);
    assert!(refused.message().contains("received undecodable patch"), "{}", refused.message());
    let server = mutated_by(&[hooks.webhook("/object.b", &json!({ "failurePolicy": "Ignore" }))]).await;
    server.post(MAPS, &config_map("c")).await.is(201);
}

#[tokio::test]
async fn a_patch_that_breaks_the_object_is_refused() {
    let hooks = Hooks::new(|path, _| match path {
        "/kind.b" => patched(&json!([{ "op": "replace", "path": "/kind", "value": "Secret" }])),
        "/type.b" => patched(&json!([{ "op": "replace", "path": "/data", "value": 3 }])),
        _ => patched(&json!([{ "op": "test", "path": "/data/a", "value": "9" }])),
    })
    .await;
    for path in ["/kind.b", "/type.b", "/test.b"] {
        let server = mutated_by(&[hooks.webhook(path, &json!({}))]).await;
        let answer = server.post(MAPS, &config_map("c")).await;
        assert!(answer.code.as_u16() >= 400, "{path}: {}", answer.text);
        server.get(&format!("{MAPS}/c")).await.is(404);
    }
}

#[tokio::test]
async fn mistakes_in_configurations_are_refused() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let server = server().await;
    for (fields, wanted) in [
        (json!({ "name": "short" }), "three segments"),
        (json!({ "sideEffects": "Some" }), "sideEffects: Unsupported value"),
        (json!({ "sideEffects": null }), "sideEffects: Required value"),
        (json!({ "admissionReviewVersions": ["v1beta1"] }), "admissionReviewVersions: Invalid value"),
        (json!({ "timeoutSeconds": 31 }), "between 1 and 30"),
        (json!({ "failurePolicy": "Maybe" }), "failurePolicy: Unsupported value"),
        (json!({ "clientConfig": {} }), "exactly one of url or service is required"),
        (json!({ "clientConfig": { "url": "http://a.b" } }), "'https' is the only allowed URL scheme"),
        (json!({ "clientConfig": { "url": "https://a.b?c=d" } }), "query parameters"),
        (json!({ "clientConfig": { "url": "https://a.b", "caBundle": "YQ==" } }), "unable to load root certificates"),
        (json!({ "clientConfig": { "service": { "name": "a" } } }), "service namespace is required"),
        (json!({ "matchConditions": [{ "name": "a", "expression": "1 +" }] }), "compilation failed"),
        (json!({ "matchPolicy": "Fuzzy" }), "matchPolicy: Unsupported value"),
        (
            json!({ "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["GET"], "resources": ["pods"] }] }),
            "operations[0]: Unsupported value",
        ),
        (json!({ "objectSelector": { "matchExpressions": [{ "key": "a", "operator": "Like" }] } }), "objectSelector"),
    ] {
        let refused =
            server.post(VALIDATING, &configuration("Validating", "v", &[hooks.webhook("/a.b", &fields)])).await;
        assert!(refused.code == 422 && refused.message().contains(wanted), "{fields}: {}", refused.text);
    }
    let twice = [hooks.webhook("/a.b", &json!({})), hooks.webhook("/a.b", &json!({}))];
    let refused = server.post(VALIDATING, &configuration("Validating", "v", &twice)).await.is(422);
    assert!(refused.message().contains("Duplicate value"), "{}", refused.message());
}

#[tokio::test]
#[allow(clippy::disallowed_methods)] // a test's own task
async fn a_change_meanwhile_is_seen() {
    let hooks = Hooks::new(|_, _| allowed()).await;
    let server = server().await;
    server.post(MAPS, &config_map("c")).await.is(201);
    let slow = [hooks
        .webhook("/slow.b", &json!({ "matchConditions": [{ "name": "n", "expression": "object.data.a == 'late'" }] }))];
    server.post(VALIDATING, &configuration("Validating", "v", &slow)).await.is(201);
    let late = server.clone();
    let writing =
        tokio::spawn(async move { late.merge(&format!("{MAPS}/c"), &json!({ "data": { "a": "late" } })).await });
    let waited = async {
        while hooks.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, waited).await.expect("the webhook is asked");
    server.merge(&format!("{MAPS}/c"), &json!({ "data": { "b": "meanwhile" } })).await.is(200);
    writing.await.expect("written").is(200);
    let now = server.get(&format!("{MAPS}/c")).await.body;
    assert_eq!(now["data"], json!({ "a": "late", "b": "meanwhile" }), "nothing is lost");
    assert_eq!(hooks.asked().len(), 2, "what was changed meanwhile is judged again");
}

#[tokio::test]
async fn a_certificate_that_signed_itself_is_its_own_bundle() {
    // As `openssl req -x509` makes it: an authority's, shown by the server.
    let key = KeyPair::generate().expect("key");
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).expect("params");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).expect("certificate");
    let secret = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("key");
    let tls = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .expect("tls");
    let hooks = Hooks::serving(tls, &certificate.pem(), |_, _| allowed()).await;
    let server = judged_by(&[hooks.webhook("/a.b", &json!({}))]).await;
    server.post(MAPS, &config_map("c")).await.is(201);
    assert_eq!(hooks.asked(), ["/a.b"]);
}

#[tokio::test]
#[allow(clippy::disallowed_methods)] // a test's own task
async fn a_connection_whose_answer_is_not_read_is_nobody_elses() {
    let hooks = Hooks::speaking(&[b"http/1.1"], |_, _| allowed()).await;
    let only = |name: &str| json!({ "matchConditions": [{ "name": "n", "expression": format!("object.metadata.name == '{name}'") }] });
    let webhooks = [hooks.webhook("/stall.b", &only("slow")), hooks.webhook("/fast.b", &only("fast"))];
    let server = judged_by(&webhooks).await;
    let slow = server.clone();
    let stalled = tokio::spawn(async move { slow.post(MAPS, &config_map("slow")).await });
    let waited = async {
        while hooks.asked().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, waited).await.expect("the webhook is asked");
    // First one, so that the head of the stalled answer has come, then as many as would take every connection that is kept.
    let path = format!("{MAPS}?dryRun=All");
    let fast = config_map("fast");
    server.post(&path, &fast).await.is(201);
    for answer in futures::future::join_all((0..8).map(|_| server.post(&path, &fast))).await {
        answer.is(201);
    }
    assert!(!stalled.is_finished());
    hooks.released.notify_one();
    stalled.await.expect("made").is(201);
}

/// Lists the keys that a ConfigMap has when it is asked.
struct Lists;

impl Admission for Lists {
    fn admit(&self, request: &AdmissionRequest<'_>, object: Option<&mut Value>) -> Result<Admitted, Status> {
        if let Some(object) = object
            && request.resource == "configmaps"
        {
            let keys: Vec<String> =
                object["data"].as_object().into_iter().flat_map(|data| data.keys().cloned()).collect();
            object["metadata"]["annotations"] = json!({ "keys": keys.join(",") });
        }
        Ok(Admitted { warnings: vec!["listed".to_owned()], ..Admitted::default() })
    }
}

// INV-9
#[tokio::test]
async fn admission_sees_what_webhooks_added() {
    let hooks = Hooks::new(|_, _| patched(&json!([{ "op": "add", "path": "/data/b", "value": "2" }]))).await;
    let server = build(Arc::new(Lists), Arc::new(NoNodes)).await;
    server.post(MUTATING, &configuration("Mutating", "m", &[hooks.webhook("/a.b", &json!({}))])).await.is(201);
    let made = server.post(MAPS, &config_map("c")).await.is(201);
    assert_eq!(made.body["metadata"]["annotations"]["keys"], "a,b");
    assert_eq!(made.warnings, ["299 - \"listed\""], "said once");
    let changed = server.merge(&format!("{MAPS}/c"), &json!({ "data": { "c": "3" } })).await.is(200).body;
    assert_eq!(changed["metadata"]["annotations"]["keys"], "a,b,c");
}

#[tokio::test]
async fn requests_for_tokens_are_judged() {
    let hooks = Hooks::new(|_, _| json!({ "allowed": false, "status": { "message": "no tokens" } })).await;
    let rules = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["serviceaccounts/token"] }]);
    let server = judged_by(&[hooks.webhook("/a.b", &json!({ "rules": rules }))]).await;
    let wanted = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {} });
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let refused = server.post(path, &wanted).await.is(403);
    assert!(refused.message().contains("no tokens"), "{}", refused.message());
    let request = hooks.last();
    assert_eq!((&request["name"], &request["subResource"]), (&json!("default"), &json!("token")));
    assert_eq!(request["object"]["kind"], "TokenRequest");
}

//! Tokens of service accounts: who they are of, how they begin, and all the ways they end.

use std::sync::{Arc, Mutex};

use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use jiff::{SignedDuration, Timestamp};
use pumice_apiserver::{ApiServer, Body, Clock};
use pumice_auth::{Policy, TokenKey, TokenKeys, built_in};
use pumice_store::{Options, Store};
use serde_json::{Value, json};
use tower::Service;

use crate::harness::{Answer, MAPS, PODS, Server, administrator, pod, server};
use crate::rights::{at, binding, role};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

fn robot() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
}

/// A request with a token and without any other identity.
pub async fn bearing(server: &Server, token: &str, method: Method, path: &str) -> Answer {
    let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
    let request = request.body(Full::<bytes::Bytes>::default()).expect("request");
    let response: Response<Body> = server.api.clone().call(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("body").to_bytes();
    Answer {
        code: parts.status,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        text: String::from_utf8_lossy(&bytes).into_owned(),
        warnings: Vec::new(),
        headers: parts.headers,
    }
}

async fn reads(server: &Server, token: &str) -> u16 {
    bearing(server, token, Method::GET, MAPS).await.code.as_u16()
}

/// Asks for a token of `robot`.
async fn ask(server: &Server, spec: Value) -> Answer {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    server.post(&format!("{ACCOUNTS}/robot/token"), &request).await
}

pub async fn token(server: &Server, spec: Value) -> String {
    ask(server, spec).await.is(201).body["status"]["token"].as_str().expect("a token").to_owned()
}

pub async fn with_robot(server: &Server) {
    server.post(ACCOUNTS, &robot()).await.is(201);
    server.post(&at("roles"), &role("Role", "reader", &["list"], &["configmaps"])).await.is(201);
    let subject = json!({"kind": "ServiceAccount", "name": "robot", "namespace": "default"});
    server.post(&at("rolebindings"), &binding("RoleBinding", "robot", "Role", "reader", &subject)).await.is(201);
}

#[tokio::test]
async fn a_token_has_the_rights_of_its_account_and_no_others() {
    let server = server().await;
    server.post(ACCOUNTS, &robot()).await.is(201);
    let token = token(&server, json!({})).await;
    let refused = bearing(&server, &token, Method::GET, MAPS).await.is(403);
    assert!(refused.message().contains("User \"system:serviceaccount:default:robot\" cannot list"), "{}", refused.text);
    server.post(&at("roles"), &role("Role", "reader", &["list"], &["configmaps"])).await.is(201);
    let subject = json!({"kind": "Group", "name": "system:serviceaccounts:default"});
    server.post(&at("rolebindings"), &binding("RoleBinding", "all", "Role", "reader", &subject)).await.is(201);
    assert_eq!(reads(&server, &token).await, 200);
    bearing(&server, &token, Method::GET, "/api/v1/namespaces/kube-system/configmaps").await.is(403);
    server.delete(&format!("{}/all", at("rolebindings")), &Value::Null).await.is(200);
    assert_eq!(reads(&server, &token).await, 403);
}

// INV-57
#[tokio::test]
async fn a_token_ends_with_its_account_and_its_pod() {
    let server = server().await;
    with_robot(&server).await;
    let mut wanted = pod("p");
    wanted["spec"]["serviceAccountName"] = json!("robot");
    let made = server.post(PODS, &wanted).await.is(201).body;
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]});
    let bound = token(&server, json!({"boundObjectRef": reference})).await;
    let free = token(&server, json!({})).await;
    assert_eq!((reads(&server, &bound).await, reads(&server, &free).await), (200, 200));

    server.delete(&format!("{PODS}/p"), &Value::Null).await.is(200);
    assert_eq!((reads(&server, &bound).await, reads(&server, &free).await), (401, 200));
    // Another pod of the same name is another.
    server.post(PODS, &wanted).await.is(201);
    assert_eq!(reads(&server, &bound).await, 401);
    ask(&server, json!({"boundObjectRef": reference})).await.is(409);

    server.delete(&format!("{ACCOUNTS}/robot"), &Value::Null).await.is(200);
    assert_eq!(reads(&server, &free).await, 401);
    server.post(ACCOUNTS, &robot()).await.is(201);
    assert_eq!(reads(&server, &free).await, 401);
}

#[tokio::test]
async fn what_is_no_token_of_ours_is_nobody_at_all() {
    let server = server().await;
    with_robot(&server).await;
    let foreign = token(&server, json!({"audiences": ["vault"]})).await;
    for text in ["", "x", "a.b.c", foreign.as_str(), &format!("{foreign}x")] {
        let refused = bearing(&server, text, Method::GET, MAPS).await.is(401);
        assert_eq!(refused.message(), "Unauthorized");
        // Not even where nobody needs to be anybody.
        bearing(&server, text, Method::GET, "/healthz").await.is(401);
    }
    // An identity that was made sure of goes first.
    server.raw(Method::GET, MAPS, &[("authorization", "Bearer x")], "").await.is(200);
}

struct Stopped(Mutex<Timestamp>);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("lock")
    }
}

#[tokio::test]
async fn a_token_ends_at_its_time() {
    let clock = Arc::new(Stopped(Mutex::new("2026-01-01T00:00:00Z".parse().expect("time"))));
    let store = Store::in_memory(Options::default()).expect("store");
    let api = ApiServer::builder(store, Policy::new(built_in()))
        .clock(clock.clone())
        .service_accounts(TokenKeys::from(TokenKey::passing().expect("key")), "the certificate")
        .build()
        .await
        .expect("build");
    let server = Server::of(api, administrator());
    with_robot(&server).await;
    let answer = ask(&server, json!({"expirationSeconds": 700})).await.is(201).body;
    assert_eq!(answer["status"]["expirationTimestamp"], "2026-01-01T00:11:40Z");
    let token = answer["status"]["token"].as_str().expect("a token").to_owned();
    assert_eq!(reads(&server, &token).await, 200);
    *clock.0.lock().expect("lock") += SignedDuration::from_secs(700);
    assert_eq!(reads(&server, &token).await, 401);

    let root = server.get(&format!("{MAPS}/kube-root-ca.crt")).await.is(200).body;
    assert_eq!(root["data"]["ca.crt"], "the certificate");
}

#[tokio::test]
async fn wishes_for_tokens_have_bounds() {
    let server = server().await;
    with_robot(&server).await;
    let short = ask(&server, json!({"expirationSeconds": 599})).await.is(422);
    let text = "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes";
    assert!(short.message().ends_with(text), "{}", short.message());
    let long = ask(&server, json!({"expirationSeconds": 100_000})).await.is(201);
    assert_eq!(long.body["spec"]["expirationSeconds"], 86_400);
    assert!(long.warnings[0].contains("shortened to 86400 seconds"), "{:?}", long.warnings);
    for (reference, code) in [
        (json!({"kind": "Pod", "apiVersion": "v1", "name": "none"}), 404),
        (json!({"kind": "Secret", "apiVersion": "v1", "name": "none"}), 404),
        (json!({"kind": "Job", "apiVersion": "v1", "name": "none"}), 400),
    ] {
        ask(&server, json!({"boundObjectRef": reference})).await.is(code);
    }
    server.post(PODS, &pod("other")).await.is(201);
    let other = json!({"kind": "Pod", "apiVersion": "v1", "name": "other"});
    assert!(
        ask(&server, json!({"boundObjectRef": other})).await.is(400).message().contains("different serviceaccount")
    );
    ask(&server, json!({"audiences": 1})).await.is(400);
    server.post(&format!("{ACCOUNTS}/none/token"), &json!({})).await.is(404);
    server.get(&format!("{ACCOUNTS}/robot/token")).await.is(405);
    server.as_user("ann").post(&format!("{ACCOUNTS}/robot/token"), &json!({})).await.is(403);
    server.as_user("system:pumice:node").post(&format!("{ACCOUNTS}/robot/token"), &json!({})).await.is(403);
}

#[tokio::test]
async fn every_namespace_has_an_account_that_comes_back() {
    let server = server().await;
    let team = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    server.post("/api/v1/namespaces", &team).await.is(201);
    let path = "/api/v1/namespaces/team/serviceaccounts/default";
    let first = server.get(path).await.is(200).body;
    server.delete(path, &Value::Null).await.is(200);
    let second = server.until(path, 200).await.body;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    server.delete("/api/v1/namespaces/team", &Value::Null).await.is(200);
    server.until("/api/v1/namespaces/team", 404).await;
    server.get(path).await.is(404);
}

#[tokio::test]
async fn a_pod_has_an_account_and_its_token_where_it_is_asked_for() {
    let server = server().await;
    let mut wanted = pod("a");
    let plain = server.post(PODS, &wanted).await.is(201).body;
    assert_eq!(plain["spec"]["serviceAccountName"], "default");
    assert!(plain["spec"]["volumes"].is_null(), "{plain}");
    wanted["metadata"]["name"] = json!("b");
    wanted["spec"]["serviceAccountName"] = json!("robot");
    let refused = server.post(PODS, &wanted).await.is(403);
    assert_eq!(
        refused.message(),
        "pods \"b\" is forbidden: error looking up service account default/robot: serviceaccount \"robot\" not found"
    );
    server.post(ACCOUNTS, &robot()).await.is(201);
    let made = server.post(PODS, &wanted).await.is(201).body;
    let volume = &made["spec"]["volumes"][0];
    assert!(volume["name"].as_str().is_some_and(|name| name.starts_with("kube-api-access-")), "{volume}");
    assert_eq!(volume["projected"]["sources"][0]["serviceAccountToken"]["path"], "token");
    assert_eq!(made["spec"]["containers"][0]["volumeMounts"][0]["name"], volume["name"]);
    wanted["metadata"]["name"] = json!("c");
    wanted["spec"]["automountServiceAccountToken"] = json!(false);
    assert!(server.post(PODS, &wanted).await.is(201).body["spec"]["volumes"].is_null());
}

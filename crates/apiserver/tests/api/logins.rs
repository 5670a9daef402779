//! Logins: tokens of an issuer, good and hostile, each beside its twin; who is suspended; what ends with a login.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use futures::future::BoxFuture;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, AttachParams, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use pumice_apiserver::{ApiServer, Clock, LoginOptions, OidcClient, PasswordCheck, PasswordCheckError};
use pumice_auth::{Issuer, IssuerSettings, Policy, built_in};
use pumice_store::{Options, Store};
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tower::Service;

use crate::harness::{Answer, MAPS, PATIENCE, PODS, Server, administrator, config_map, pod};
use crate::pods::bind;
use crate::rights::{at, binding, role, user};
use crate::streams::Node;
use crate::tokens::{self, bearing};

const NOW: Timestamp = Timestamp::constant(1_764_000_000, 0);
const TENANTS: &str = "/apis/pumice.sh/v1alpha1/tenants";

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Timestamp {
        NOW
    }
}

/// An issuer whose keys are asked for once and never change.
struct Home {
    url: String,
    key: Ed25519KeyPair,
    _serving: JoinSet<()>,
}

fn key() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).expect("a key");
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key")
}

fn part(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

impl Home {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let key = key();
        let discovery = json!({ "issuer": url, "jwks_uri": format!("{url}/keys") }).to_string();
        let public = BASE64.encode(key.public_key());
        let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": public }] }).to_string();
        let serving = JoinSet::from_iter([async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let mut head = vec![0; 8192];
                let read = socket.read(&mut head).await.unwrap_or(0);
                let is_keys = head[..read].starts_with(b"GET /keys ");
                let body = if is_keys { &keys } else { &discovery };
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
                // A test that ends hangs up.
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        }]);
        Self { url, key, _serving: serving }
    }

    fn claims(&self, other: &Value) -> Value {
        let mut claims = json!({ "iss": self.url, "aud": "pumice", "sub": "alice", "groups": ["research"], "sid": "s1",
            "iat": NOW.as_second(), "exp": NOW.as_second() + 600 });
        claims.as_object_mut().expect("claims").extend(other.as_object().expect("claims").clone());
        claims
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", part(header), part(claims));
        format!("{signed}.{}", BASE64.encode(self.key.sign(signed.as_bytes())))
    }

    fn token(&self, other: &Value) -> String {
        self.sign(&json!({ "alg": "EdDSA", "kid": "one" }), &self.claims(other))
    }

    fn options(&self) -> LoginOptions {
        let settings = IssuerSettings {
            issuer: self.url.clone(),
            client_id: "pumice".to_owned(),
            username_claim: "sub".to_owned(),
            groups_claim: "groups".to_owned(),
            ca_file: None,
            username_prefix: String::new(),
            groups_prefix: String::new(),
            id_tokens_only: true,
        };
        let client = OidcClient {
            issuer: self.url.clone(),
            client_id: "pumice".to_owned(),
            scopes: vec!["openid".to_owned()],
            certificate_authority: None,
        };
        LoginOptions { issuer: Issuer::new(&settings).expect("an issuer"), client }
    }

    /// A server over `store` that takes its tokens.
    async fn server(&self, store: Store) -> Server {
        let built = ApiServer::builder(store, Policy::new(built_in()))
            .logins(self.options())
            .clock(Arc::new(Fixed))
            .node_proxy(Arc::new(Node::default()))
            .build();
        Server::of(built.await.expect("build"), administrator())
    }

    /// The same with rights for alice, bob and their group, and the kind Tenant.
    async fn platform(&self) -> Server {
        let server = self.server(Store::in_memory(Options::default()).expect("store")).await;
        let pods = ["pods", "pods/exec", "pods/log", "configmaps"];
        let all = role("Role", "works", &["get", "list", "watch", "create"], &pods);
        server.post(&at("roles"), &all).await.is(201);
        for name in ["alice", "bob", "carol"] {
            let given = binding("RoleBinding", name, "Role", "works", &user(name));
            server.post(&at("rolebindings"), &given).await.is(201);
        }
        let is_tenants = |crd: &Value| crd["metadata"]["name"] == "tenants.pumice.sh";
        let crd = pumice_api::crds::all().into_iter().find(is_tenants).expect("the kind");
        server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await.is(201);
        server.until(TENANTS, 200).await;
        server
    }
}

async fn reads(server: &Server, token: &str) -> u16 {
    bearing(server, token, Method::GET, MAPS).await.code.as_u16()
}

fn tenant(name: &str, suspended: bool) -> Value {
    json!({ "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": { "name": name },
        "spec": { "user": name, "uid": 4001, "gid": 4001, "namespace": name, "suspended": suspended } })
}

async fn suspend(server: &Server, name: &str, suspended: bool) {
    server.merge(&format!("{TENANTS}/{name}"), &json!({ "spec": { "suspended": suspended } })).await.is(200);
}

/// What an attacker shows, each beside what is right and nearly the same.
#[tokio::test]
async fn hostile_tokens_are_refused_and_their_twins_taken() {
    let home = Home::new().await;
    let server = home.platform().await;
    let now = NOW.as_second();
    let header = json!({ "alg": "EdDSA", "kid": "one" });
    let good = || home.token(&json!({}));
    let signed_by = |key: &Ed25519KeyPair| {
        let signed = format!("{}.{}", part(&header), part(&home.claims(&json!({}))));
        format!("{signed}.{}", BASE64.encode(key.sign(signed.as_bytes())))
    };
    let unsigned = |alg: &str| format!("{}.{}.", part(&json!({ "alg": alg })), part(&home.claims(&json!({}))));
    // The public key as a shared secret: what a server would check that lets tokens choose how they are signed.
    let confused = {
        let signed = format!("{}.{}", part(&json!({ "alg": "HS256", "kid": "one" })), part(&home.claims(&json!({}))));
        let secret = hmac::Key::new(hmac::HMAC_SHA256, home.key.public_key().as_ref());
        format!("{signed}.{}", BASE64.encode(hmac::sign(&secret, signed.as_bytes())))
    };
    let changed = {
        let token = good();
        let mut parts: Vec<&str> = token.split('.').collect();
        let claims = part(&home.claims(&json!({ "sub": "bob" })));
        parts[1] = &claims;
        parts.join(".")
    };
    let (with, header_of) =
        (|other: Value| home.token(&other), |header: Value| home.sign(&header, &home.claims(&json!({}))));
    for (name, hostile, twin) in [
        ("no signature", unsigned("none"), good()),
        ("no signature, in capitals", unsigned("NONE"), good()),
        ("a shared secret", confused, good()),
        ("another key", signed_by(&key()), signed_by(&home.key)),
        ("other claims", changed, good()),
        ("another issuer", with(json!({ "iss": "https://evil.example.com" })), with(json!({ "iss": home.url }))),
        ("an issuer with a slash", with(json!({ "iss": format!("{}/", home.url) })), good()),
        ("another audience", with(json!({ "aud": "other" })), with(json!({ "aud": ["pumice"] }))),
        ("no audience", with(json!({ "aud": null })), good()),
        ("another party", with(json!({ "azp": "other" })), with(json!({ "azp": "pumice" }))),
        ("expired", with(json!({ "exp": now - 61 })), with(json!({ "exp": now - 59 }))),
        ("endless", with(json!({ "exp": "9999999999" })), with(json!({ "exp": now + 99_999 }))),
        ("of tomorrow", with(json!({ "nbf": now + 61 })), with(json!({ "nbf": now + 59 }))),
        ("issued tomorrow", with(json!({ "iat": now + 61 })), with(json!({ "iat": now + 59 }))),
        ("no user", with(json!({ "sub": "" })), good()),
        ("an access token", header_of(json!({ "alg": "EdDSA", "kid": "one", "typ": "at+jwt" })), good()),
        ("a logout token", with(json!({ "events": {} })), good()),
        ("an unknown key", header_of(json!({ "alg": "EdDSA", "kid": "two" })), header_of(header.clone())),
        ("what must be understood", header_of(json!({ "alg": "EdDSA", "kid": "one", "crit": ["x"] })), good()),
        ("cut", good()[..good().len() - 4].to_owned(), good()),
    ] {
        let refused = bearing(&server, &hostile, Method::GET, MAPS).await;
        assert_eq!((refused.code.as_u16(), refused.message()), (401, "Unauthorized"), "{name}");
        assert_eq!(reads(&server, &twin).await, 200, "the twin of {name}");
    }
    // Known, and nobody with rights: names that only look like others, and groups that nobody gets from outside.
    for name in ["\u{430}lice", "Alice", "alice2"] {
        assert_eq!(reads(&server, &with(json!({ "sub": name }))).await, 403, "{name}");
    }
    for name in ["system:admin", "pumice:administrator", "system:serviceaccount:default:default", "ali\u{200b}ce"] {
        assert_eq!(reads(&server, &with(json!({ "sub": name }))).await, 401, "{name}");
    }
    for groups in [json!("system:masters"), json!(["system:masters"]), json!([["system:masters"]]), json!({})] {
        assert_eq!(reads(&server, &with(json!({ "sub": "eve", "groups": groups }))).await, 403, "{groups}");
    }
}

#[tokio::test]
async fn anybody_is_told_how_to_log_in_and_no_more() {
    let home = Home::new().await;
    let server = home.platform().await;
    let ask = |method: Method, path: &'static str| {
        let request = Request::builder().method(method).uri(path).body(Full::<bytes::Bytes>::default());
        let response = server.api.clone().call(request.expect("request"));
        async move {
            let (parts, body) = response.await.expect("infallible").into_parts();
            (parts.status.as_u16(), body.collect().await.expect("body").to_bytes())
        }
    };
    let (code, body) = ask(Method::GET, "/pumice/login").await;
    let wanted = json!({ "apiVersion": "pumice.sh/v1alpha1", "kind": "LoginMethods",
        "oidc": { "issuer": home.url, "clientId": "pumice", "scopes": ["openid"] } });
    assert_eq!((code, serde_json::from_slice::<Value>(&body).expect("json")), (200, wanted));
    for (method, path, wanted) in [
        (Method::POST, "/pumice/login", 401),
        (Method::POST, "/pumice/logout", 400),
        (Method::GET, "/pumice/logout", 401),
        (Method::GET, "/pumice/backup", 401),
        (Method::GET, "/pumice/login/x", 401),
        (Method::GET, "/pumice", 401),
    ] {
        assert_eq!(ask(method.clone(), path).await.0, wanted, "{method} {path}");
    }
}

#[tokio::test]
async fn a_logout_ends_the_login_and_no_other_and_outlives_the_server() {
    let home = Home::new().await;
    let server = home.platform().await;
    let (first, refreshed) = (home.token(&json!({ "jti": "1" })), home.token(&json!({ "jti": "2" })));
    let elsewhere = home.token(&json!({ "sid": "s2" }));
    let next = home.token(&json!({ "iat": NOW.as_second() + 1 }));
    bearing(&server, &refreshed, Method::POST, "/pumice/logout").await.is(200);
    bearing(&server, &refreshed, Method::POST, "/pumice/logout").await.is(200);
    for (token, wanted) in [(&first, 401), (&refreshed, 401), (&elsewhere, 200), (&next, 200)] {
        assert_eq!(reads(&server, token).await, wanted);
    }
    let again = home.server(server.api.store().clone()).await;
    assert_eq!((reads(&again, &first).await, reads(&again, &elsewhere).await), (401, 200));
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": elsewhere}});
    let reviewed = server.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.is(201).body;
    assert_eq!(reviewed["status"]["user"]["username"], "alice");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": first}});
    let reviewed = server.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.is(201).body;
    assert_eq!(reviewed["status"], json!({ "error": "Unauthorized" }));
}

#[tokio::test]
async fn who_is_suspended_has_no_access_whatever_he_shows() {
    let home = Home::new().await;
    let server = home.platform().await;
    tokens::with_robot(&server).await;
    for name in ["alice", "bob"] {
        server.post(TENANTS, &tenant(name, false)).await.is(201);
    }
    // The accounts of alice's namespace are hers.
    server.merge(&format!("{TENANTS}/alice"), &json!({ "spec": { "members": ["carol"] } })).await.is(200);
    let (alice, bob) = (home.token(&json!({})), home.token(&json!({ "sub": "bob" })));
    let by_certificate = server.as_user("alice");
    let all = async || {
        let robot = tokens::token(&server, json!({})).await;
        [
            reads(&server, &alice).await,
            by_certificate.get(MAPS).await.code.as_u16(),
            server.as_user("carol").get(MAPS).await.code.as_u16(),
            reads(&server, &bob).await,
            server.get(MAPS).await.code.as_u16(),
            reads(&server, &robot).await,
        ]
    };
    assert_eq!(all().await, [200; 6]);
    suspend(&server, "alice", true).await;
    assert_eq!(all().await, [403, 403, 403, 200, 200, 200]);
    let refused = bearing(&server, &alice, Method::GET, MAPS).await;
    assert!(refused.message().contains("tenants.pumice.sh \"alice\" is forbidden: the tenant is suspended"));
    // Not for himself, and nobody acts for him.
    let as_alice = [("impersonate-user", "alice")];
    server.raw(Method::GET, MAPS, &as_alice, "").await.is(403);
    suspend(&server, "alice", false).await;
    assert_eq!(all().await, [200; 6]);
    server.delete(&format!("{TENANTS}/alice"), &Value::Null).await.is(200);
    assert_eq!(all().await, [200; 6], "what a tenant's end means is its controller's to say");
}

/// A client over a real connection that shows a token.
async fn client(directory: &std::path::Path, token: &str) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(directory.join("kubeconfig")).expect("kubeconfig");
    let options = KubeConfigOptions::default();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("config");
    config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    kube::Client::try_from(config).expect("client")
}

/// A watch and a program in a pod that a user has open.
struct Open {
    watch: std::pin::Pin<Box<dyn futures::Stream<Item = kube::Result<kube::api::WatchEvent<ConfigMap>>> + Send>>,
    input: Box<dyn tokio::io::AsyncWrite + Unpin + Send>,
    output: Box<dyn tokio::io::AsyncRead + Unpin + Send>,
    process: kube::api::AttachedProcess,
}

impl Open {
    async fn new(client: kube::Client) -> Self {
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let watch = Box::pin(maps.watch(&WatchParams::default(), "0").await.expect("watch"));
        let params = AttachParams::default().stdin(true).stdout(true).stderr(false);
        let pods: Api<Pod> = Api::default_namespaced(client);
        let mut process = pods.exec("one", ["cat"], &params).await.expect("exec");
        let (input, output) = (Box::new(process.stdin().expect("stdin")), Box::new(process.stdout().expect("stdout")));
        Self { watch, input, output, process }
    }

    /// Whether bytes come back and events come.
    async fn lives(&mut self, server: &Server, map: &str) {
        self.input.write_all(b"x").await.expect("write");
        self.input.flush().await.expect("flush");
        let mut back = [0];
        tokio::time::timeout(PATIENCE, self.output.read_exact(&mut back)).await.expect("in time").expect("read");
        server.post(MAPS, &config_map(map)).await.is(201);
        let event = tokio::time::timeout(PATIENCE, futures::StreamExt::next(&mut self.watch)).await.expect("in time");
        event.expect("an event").expect("an event");
    }

    async fn ends(mut self) {
        let ended = async {
            while let Some(Ok(_)) = futures::StreamExt::next(&mut self.watch).await {}
            // It ends, well or not.
            let _ = self.process.join().await;
        };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("it ends in time");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_with_the_suspension_and_with_the_login() {
    let home = Home::new().await;
    let server = home.platform().await;
    server.post(PODS, &pod("one")).await.is(201);
    bind(&server, "one", "n1").await.is(201);
    server.post(TENANTS, &tenant("alice", false)).await.is(201);
    let directory = tempfile::tempdir().expect("directory");
    let (stop, task) = server.listen(directory.path()).await;
    let token = |other: Value| home.token(&other);
    let mut alice = Open::new(client(directory.path(), &token(json!({}))).await).await;
    let mut bob = Open::new(client(directory.path(), &token(json!({ "sub": "bob" }))).await).await;
    alice.lives(&server, "a").await;
    bob.lives(&server, "b").await;
    suspend(&server, "alice", true).await;
    alice.ends().await;
    bob.lives(&server, "c").await;
    // From another login of his the same.
    let other = token(json!({ "sub": "bob", "sid": "s2" }));
    bearing(&server, &other, Method::POST, "/pumice/logout").await.is(200);
    bob.lives(&server, "d").await;
    bearing(&server, &token(json!({ "sub": "bob", "jti": "7" })), Method::POST, "/pumice/logout").await.is(200);
    bob.ends().await;
    stop.cancel();
    task.await.expect("the listener ends");
}

/// Knows one password, of everybody.
struct OnePassword;

impl PasswordCheck for OnePassword {
    fn check(&self, _: String, password: String) -> BoxFuture<'static, Result<bool, PasswordCheckError>> {
        Box::pin(async move {
            match password.as_str() {
                "broken" => Err(PasswordCheckError("of a test".to_owned())),
                password => Ok(password == "right"),
            }
        })
    }
}

async fn form(server: &Server, fields: &str) -> Answer {
    let request = Request::post("/pumice/token").body(Full::new(fields.to_owned().into())).expect("request");
    let response = server.api.clone().call(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let bytes: bytes::Bytes = body.collect().await.expect("body").to_bytes();
    Answer {
        code: parts.status,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        text: String::from_utf8_lossy(&bytes).into_owned(),
        warnings: Vec::new(),
        headers: parts.headers,
    }
}

async fn password(server: &Server, user: &str, password: &str) -> Answer {
    form(server, &format!("grant_type=password&username={user}&password={password}")).await
}

/// Until passwords are known to it, the same as [`Home::platform`].
async fn with_passwords() -> Server {
    let home = Home::new().await;
    let server = home.platform().await;
    let store = server.api.store().clone();
    let built = ApiServer::builder(store, Policy::new(built_in())).passwords(Arc::new(OnePassword)).build();
    Server::of(built.await.expect("build"), administrator())
}

#[tokio::test]
async fn a_password_gives_short_tokens_that_are_refreshed_and_revoked() {
    let server = with_passwords().await;
    server.post(TENANTS, &tenant("alice", false)).await.is(201);
    let given = password(&server, "alice", "right").await.is(200);
    assert_eq!(given.body["expires_in"], 900);
    assert_eq!(given.headers["cache-control"], "no-store");
    let text = |answer: &Answer, name: &str| answer.body[name].as_str().expect("a token").to_owned();
    let (access, refresh) = (text(&given, "access_token"), text(&given, "refresh_token"));
    assert_eq!(reads(&server, &access).await, 200);
    assert_eq!(reads(&server, &refresh).await, 401, "it opens nothing");
    let again = form(&server, &format!("grant_type=refresh_token&refresh_token={refresh}")).await.is(200);
    let (second, next) = (text(&again, "access_token"), text(&again, "refresh_token"));
    assert_eq!((reads(&server, &access).await, reads(&server, &second).await), (200, 200));
    // Suspended: no request, and no next token either.
    suspend(&server, "alice", true).await;
    assert_eq!(reads(&server, &second).await, 403);
    form(&server, &format!("grant_type=refresh_token&refresh_token={next}")).await.is(401);
    suspend(&server, "alice", false).await;
    assert_eq!(reads(&server, &second).await, 401, "the login has ended");
    let given = password(&server, "alice", "right").await.is(200);
    let access = text(&given, "access_token");
    bearing(&server, &access, Method::POST, "/pumice/logout").await.is(200);
    assert_eq!(reads(&server, &access).await, 401);
    bearing(&server, &access, Method::POST, "/pumice/logout").await.is(401);
}

#[tokio::test]
async fn who_guesses_learns_nothing_and_is_slowed_down() {
    let server = with_passwords().await;
    for (name, suspended) in [("alice", false), ("bob", true), ("dora", false)] {
        server.post(TENANTS, &tenant(name, suspended)).await.is(201);
    }
    let wrong = password(&server, "alice", "wrong").await.is(401);
    for (user, word) in [("nobody", "right"), ("nobody", "wrong"), ("bob", "right"), ("system%3Aadmin", "right")] {
        let answer = password(&server, user, word).await.is(401);
        assert_eq!(answer.text, wrong.text, "{user} {word}");
    }
    let broken = password(&server, "dora", "broken").await.is(503);
    assert!(!broken.text.contains("of a test") && !wrong.text.contains("alice"));
    for _ in 0..4 {
        password(&server, "alice", "wrong").await.is(401);
    }
    // The right one, too, has to wait: nobody tries passwords at a higher pace.
    let slowed = password(&server, "alice", "right").await.is(429);
    assert!(slowed.headers.contains_key("retry-after"));
    password(&server, "dora", "right").await.is(200);
    form(&server, "grant_type=password&username=alice&password=").await.is(400);
    form(&server, &"x".repeat(9_000)).await.is(400);
}

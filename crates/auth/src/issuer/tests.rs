//! An issuer on this machine: its keys, when it is away, and when it changes them.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::Response;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::*;
use crate::identity::Identity;

const NOW: Timestamp = Timestamp::constant(1_764_000_000, 0);

/// What an issuer answers, and how often its keys were asked for.
#[derive(Default)]
struct Script {
    discovery: Mutex<String>,
    keys: Mutex<String>,
    asked: AtomicUsize,
    /// Where questions for keys are sent on to.
    redirect: Mutex<Option<String>>,
    /// Whether keys come at all.
    silent: AtomicBool,
}

/// An issuer whose port is known before it answers there.
struct Home {
    script: Arc<Script>,
    address: String,
    listener: Option<TcpListener>,
    key: Ed25519KeyPair,
    running: JoinSet<()>,
}

impl Home {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let script = Arc::new(Script::default());
        let jwks_uri = format!("{address}/keys");
        *script.discovery.lock().unwrap() = json!({ "issuer": address, "jwks_uri": jwks_uri }).to_string();
        let mut home = Self { script, address, listener: Some(listener), key: key(), running: JoinSet::new() };
        home.publish("one");
        home
    }

    /// Makes a new key and publishes it alone.
    fn publish(&mut self, kid: &str) {
        self.key = key();
        let x = BASE64.encode(self.key.public_key());
        let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x }] });
        *self.script.keys.lock().unwrap() = keys.to_string();
    }

    fn serve(&mut self) {
        let listener = self.listener.take().unwrap();
        let script = Arc::clone(&self.script);
        self.running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let script = Arc::clone(&script);
                let service = service_fn(move |request: http::Request<Incoming>| {
                    let is_discovery = request.uri().path() == DISCOVERY;
                    let answer = if is_discovery {
                        script.discovery.lock().unwrap().clone()
                    } else {
                        script.asked.fetch_add(1, Ordering::Relaxed);
                        script.keys.lock().unwrap().clone()
                    };
                    let redirect = script.redirect.lock().unwrap().clone().filter(|_| !is_discovery);
                    let is_silent = !is_discovery && script.silent.load(Ordering::Relaxed);
                    async move {
                        if is_silent {
                            std::future::pending::<()>().await;
                        }
                        let mut response = Response::new(Full::new(Bytes::from(answer)));
                        if let Some(address) = redirect {
                            *response.status_mut() = http::StatusCode::FOUND;
                            response.headers_mut().insert(http::header::LOCATION, address.parse().unwrap());
                        }
                        Ok::<_, Infallible>(response)
                    }
                });
                connections.spawn(async move {
                    // A test that ends hangs up.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
    }

    fn settings(&self) -> IssuerSettings {
        IssuerSettings {
            issuer: self.address.clone(),
            client_id: "fleet".to_owned(),
            username_claim: "email".to_owned(),
            groups_claim: "roles".to_owned(),
            ca_file: None,
            username_prefix: String::new(),
            groups_prefix: String::new(),
            id_tokens_only: false,
        }
    }

    fn token(&self, kid: &str, other: &Value) -> String {
        let mut claims = json!({ "iss": self.address, "aud": "fleet", "email": "ada@example.com",
            "roles": ["research"], "exp": NOW.as_second() + 60 });
        claims.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        let part = |value: Value| BASE64.encode(value.to_string());
        let signed = format!("{}.{}", part(json!({ "alg": "EdDSA", "kid": kid })), part(claims));
        format!("{signed}.{}", BASE64.encode(self.key.sign(signed.as_bytes())))
    }

    fn asked(&self) -> usize {
        self.script.asked.load(Ordering::Relaxed)
    }
}

fn key() -> Ed25519KeyPair {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
}

fn ada() -> Identity {
    Identity::new("ada@example.com", ["research"])
}

async fn who(issuer: &Issuer, token: &str) -> Result<Identity, Unknown> {
    issuer.identify(token, NOW).await.map(|verified| verified.identity)
}

/// As if the issuer had been asked long ago.
async fn later(issuer: &Issuer) {
    issuer.0.attempt.lock().await.last = None;
}

#[tokio::test]
async fn keys_are_fetched_once_and_again_when_they_change() {
    let mut home = Home::new().await;
    home.serve();
    let issuer = Issuer::new(&home.settings()).unwrap();
    issuer.fetch().await.unwrap();
    for _ in 0..3 {
        assert_eq!(who(&issuer, &home.token("one", &json!({}))).await, Ok(ada()));
    }
    assert_eq!(home.asked(), 1);
    let stale = home.token("one", &json!({}));
    home.publish("two");
    let token = home.token("two", &json!({}));
    // Whoever makes up names of keys does not make the server ask all the time.
    assert_eq!(who(&issuer, &token).await, Err(Unknown::Token(OidcError::Key)));
    assert_eq!(home.asked(), 1);
    later(&issuer).await;
    assert_eq!(who(&issuer, &token).await, Ok(ada()));
    assert_eq!(home.asked(), 2);
    assert_eq!(who(&issuer, &stale).await, Err(Unknown::Token(OidcError::Key)), "its key was given up");
}

#[tokio::test]
async fn tokens_that_are_not_right_are_refused() {
    let mut home = Home::new().await;
    home.serve();
    let issuer = Issuer::new(&home.settings()).unwrap();
    for (other, error) in [
        (json!({ "aud": "another" }), OidcError::Audience),
        (json!({ "iss": "http://127.0.0.1:1" }), OidcError::Issuer),
        (json!({ "exp": NOW.as_second() - 3_600 }), OidcError::Expired),
        (json!({ "email": "pumice:administrators" }), OidcError::Name("email".to_owned())),
    ] {
        assert_eq!(who(&issuer, &home.token("one", &other)).await, Err(Unknown::Token(error)), "{other}");
    }
    let unsigned = format!("{}.{}.", BASE64.encode("{\"alg\":\"none\"}"), BASE64.encode("{}"));
    assert_eq!(who(&issuer, &unsigned).await, Err(Unknown::Token(OidcError::Algorithm("none".to_owned()))));
}

#[tokio::test]
async fn an_issuer_that_is_away_is_asked_again_and_its_keys_go_on_counting() {
    let mut home = Home::new().await;
    let settings = home.settings();
    let port = home.listener.take().unwrap().local_addr().unwrap();
    let issuer = Issuer::new(&settings).unwrap();
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Away(..))));
    assert_eq!(who(&issuer, &home.token("one", &json!({}))).await, Err(Unknown::Away));
    home.listener = Some(TcpListener::bind(port).await.unwrap());
    home.serve();
    later(&issuer).await;
    assert_eq!(who(&issuer, &home.token("one", &json!({}))).await, Ok(ada()));
    // What it says that can't be read changes nothing.
    *home.script.keys.lock().unwrap() = "{".to_owned();
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Keys(_))));
    *home.script.discovery.lock().unwrap() = json!({ "issuer": "other", "jwks_uri": "x" }).to_string();
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Other(_))));
    *home.script.discovery.lock().unwrap() = " ".repeat(ANSWER_BYTES_MAX + 1);
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Body(_))));
    assert_eq!(who(&issuer, &home.token("one", &json!({}))).await, Ok(ada()));
}

#[test]
fn settings_that_can_not_be_used_are_refused() {
    let settings = |issuer: &str, client_id: &str| IssuerSettings {
        issuer: issuer.to_owned(),
        client_id: client_id.to_owned(),
        username_claim: sub(),
        groups_claim: groups(),
        ca_file: None,
        username_prefix: String::new(),
        groups_prefix: String::new(),
        id_tokens_only: false,
    };
    for prefix in ["system:", "pumice:tenants"] {
        let reserved = IssuerSettings { groups_prefix: prefix.to_owned(), ..settings("http://127.0.0.1:1", "fleet") };
        assert!(matches!(Issuer::new(&reserved), Err(IssuerError::Prefix(_))), "{prefix}");
    }
    for address in ["", "login.example.com", "http://login.example.com", "ftp://127.0.0.1"] {
        let refused = Issuer::new(&settings(address, "fleet"));
        assert!(matches!(refused, Err(IssuerError::Address(_))), "{address}");
    }
    assert!(matches!(Issuer::new(&settings("https://login.example.com", "")), Err(IssuerError::Audience)));
    let missing = IssuerSettings {
        ca_file: Some(PathBuf::from("/nowhere/ca.pem")),
        ..settings("https://login.example.com", "fleet")
    };
    assert!(matches!(Issuer::new(&missing), Err(IssuerError::Trust(TrustError::Authorities(_)))));
}

#[tokio::test]
async fn an_issuer_that_leads_elsewhere_or_says_too_much_or_nothing_is_not_followed() {
    let (mut home, mut other) = (Home::new().await, Home::new().await);
    home.serve();
    other.serve();
    let issuer = Issuer::with_timeout(&home.settings(), Duration::from_millis(300)).unwrap();
    let token = home.token("one", &json!({}));
    assert_eq!(who(&issuer, &token).await, Ok(ada()));
    *home.script.redirect.lock().unwrap() = Some(format!("{}/keys", other.address));
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Status(_, 302))));
    assert_eq!(other.asked(), 0);
    *home.script.redirect.lock().unwrap() = None;
    let keys = home.script.keys.lock().unwrap().clone();
    *home.script.keys.lock().unwrap() = format!("{keys}{}", " ".repeat(ANSWER_BYTES_MAX));
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Body(_))));
    *home.script.keys.lock().unwrap() = keys;
    home.script.silent.store(true, Ordering::Relaxed);
    assert!(matches!(issuer.fetch().await, Err(IssuerError::Timeout(_))));
    // Nothing of that ends the keys that are known, and no token waits for it.
    issuer.0.current.write().unwrap().fetched = None;
    later(&issuer).await;
    let soon = tokio::time::timeout(Duration::from_millis(200), who(&issuer, &token)).await;
    assert_eq!(soon.expect("it waits for nobody"), Ok(ada()));
    home.script.silent.store(false, Ordering::Relaxed);
    assert!(issuer.fetch().await.is_ok());
    for (discovery, good) in [
        (json!({ "issuer": other.address, "jwks_uri": format!("{}/keys", home.address) }), false),
        (json!({ "issuer": home.address, "jwks_uri": "http://login.example.com/keys" }), false),
        (json!({ "issuer": home.address, "jwks_uri": format!("{}/keys", home.address) }), true),
    ] {
        *home.script.discovery.lock().unwrap() = discovery.to_string();
        assert_eq!(issuer.fetch().await.is_ok(), good, "{discovery}");
    }
}

#[tokio::test]
async fn a_token_that_was_seen_still_expires() {
    let mut home = Home::new().await;
    home.serve();
    let issuer = Issuer::new(&home.settings()).unwrap();
    let token = home.token("one", &json!({}));
    let at = |seconds: i64| Timestamp::from_second(NOW.as_second() + seconds).unwrap();
    for (seconds, good) in [(0, true), (119, true), (120, false), (0, true)] {
        assert_eq!(issuer.identify(&token, at(seconds)).await.is_ok(), good, "{seconds}");
    }
}

//! Where a webhook is, whom it must be, and one question to it.
//!
//! Invariant: a question ends within the webhook's time. Called for admission, and for conversions between versions.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pumice_store::Store;
use serde_json::Value;

use super::client::{Client, Endpoint};
use super::service;

/// A webhook as a `clientConfig` names it.
#[derive(Debug)]
pub(crate) struct Callee {
    address: Address,
    /// PEM; empty for what the machine trusts.
    trusted: String,
    timeout: Duration,
}

#[derive(Debug)]
enum Address {
    Url(String),
    Service { namespace: String, name: String, path: String, port: u16 },
}

impl Callee {
    pub(crate) fn new(config: &Value, timeout: Duration) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let address = match config["url"].as_str() {
            Some(url) => Address::Url(url.to_owned()),
            None => Address::Service {
                namespace: text(&config["service"]["namespace"]),
                name: text(&config["service"]["name"]),
                path: text(&config["service"]["path"]),
                port: config["service"]["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            },
        };
        let trusted = BASE64.decode(text(&config["caBundle"])).unwrap_or_default();
        Self { address, trusted: String::from_utf8_lossy(&trusted).into_owned(), timeout }
    }

    /// Asks, and gives the answer's body. The address is asked with its time as a parameter.
    pub(super) async fn post(&self, client: &Client, store: &Store, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let (url, endpoints) = self.endpoints(store)?;
        let url = format!("{url}?timeout={}s", self.timeout.as_secs());
        let asking = client.post(&endpoints, &url, &self.trusted, body);
        let answer = tokio::time::timeout(self.timeout, asking).await;
        let answer = answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
        answer.map_err(|cause| format!("Post {url:?}: {cause}"))
    }

    /// The address as messages name it, and where that is.
    fn endpoints(&self, store: &Store) -> Result<(String, Vec<Endpoint>), String> {
        match &self.address {
            Address::Url(url) => Ok((url.clone(), vec![Endpoint::of_url(url)?])),
            Address::Service { namespace, name, path, port } => {
                let server = format!("{name}.{namespace}.svc");
                let path = path.trim_start_matches('/');
                let url = format!("https://{server}:{port}/{path}");
                let found = service::endpoints(store, namespace, name, *port)?;
                let endpoint = |(host, port)| Endpoint { host, port, server: server.clone() };
                Ok((url, found.into_iter().map(endpoint).collect()))
            }
        }
    }
}

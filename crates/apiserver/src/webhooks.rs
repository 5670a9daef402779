//! Webhooks: where one is, whom it must be, one question to it, and the envelope of the answer.
//!
//! Invariant: an answer of another version or kind than was asked does not count. Used by admission and by conversions.

mod callee;
mod client;
mod service;

use pumice_store::Store;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(crate) use callee::Callee;
use client::Client;

/// Asks webhooks. Connections are shared by all that ask.
pub(crate) struct Webhooks {
    client: Client,
    /// In which services that webhooks name are looked up.
    store: Store,
}

impl Webhooks {
    pub(crate) fn new(store: &Store) -> Self {
        Self { client: Client::default(), store: store.clone() }
    }

    /// Asks one, and gives the answer's body.
    pub(crate) async fn ask(&self, callee: &Callee, body: Vec<u8>) -> Result<Vec<u8>, String> {
        callee.post(&self.client, &self.store, body).await
    }
}

/// The envelope of every review: which API it is of, and the answer in it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "R: DeserializeOwned")]
struct Review<R> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    response: Option<R>,
}

/// The `response` of a review of this version (`group/version`) and kind, or what is wrong with it.
pub(crate) fn response<R: DeserializeOwned>(body: &[u8], version: &str, kind: &str) -> Result<R, String> {
    let review: Review<R> = serde_json::from_slice(body)
        .map_err(|error| format!("couldn't get version/kind; json parse error: {error}"))?;
    if review.api_version != version || review.kind != kind {
        let (other, got) = (review.api_version, review.kind);
        return Err(format!("expected webhook response of {version}, Kind={kind}, got {other}, Kind={got}"));
    }
    review.response.ok_or_else(|| "webhook response was absent".to_owned())
}

//! Webhooks: where one is, whom it must be, and one question to it. Used by admission and by conversions.

mod callee;
mod client;
mod envelope;
mod service;

use pumice_store::Store;

pub(crate) use callee::Callee;
use client::Client;
pub(crate) use envelope::response;

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

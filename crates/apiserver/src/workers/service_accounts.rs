//! The service-account controller: every namespace has the account `default` and the ConfigMap with the authority's certificate.
//!
//! Invariant: made in one change with the namespace, and made again when deleted while the namespace stays. Run by the
//! server beside the collector.

use std::sync::Arc;

use futures::future::join_all;
use pumice_clock::wire_time;
use pumice_store::{ApplyError, EventKind, Watch, WatchError};
use tokio_util::sync::CancellationToken;

use crate::authn::service_accounts::{CONFIG_MAPS, NAMESPACES};
use crate::storage::Storage;
use crate::stored::parse;
use crate::strategies::service_account::{DEFAULT, ROOT_CERTIFICATE, SERVICE_ACCOUNTS};

/// Makes what namespaces lack that are there already, and replaces certificates that are no longer the authority's.
pub(crate) async fn complete(storage: &Storage) -> Result<(), ApplyError> {
    let now = wire_time(storage.clock.now());
    for namespace in storage.store.list(NAMESPACES, None).items {
        restore(storage, &namespace.key.name, &now).await?;
    }
    Ok(())
}

async fn restore(storage: &Storage, namespace: &str, now: &str) -> Result<(), ApplyError> {
    let Some(found) = storage.store.find(NAMESPACES, "", namespace) else { return Ok(()) };
    if parse(&found)["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let missing = storage.accounts.missing(&storage.store, namespace, now);
    if missing.is_empty() { Ok(()) } else { storage.store.apply_all(missing).await.map(drop) }
}

/// Makes what is lacking now. The future that it gives makes it again when somebody deletes it, until `stop`.
pub(crate) async fn start(
    storage: Arc<Storage>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, ApplyError> {
    // Nothing is missed: the watches begin before the look.
    let watches = [(SERVICE_ACCOUNTS, DEFAULT), (CONFIG_MAPS, ROOT_CERTIFICATE)].map(|(resource, name)| {
        let storage = Arc::clone(&storage);
        let watch = storage.store.watch(resource, None, None);
        async move { follow(&storage, resource, name, watch).await }
    });
    complete(&storage).await?;
    Ok(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(watches) => {}
        }
    })
}

async fn follow(storage: &Storage, resource: &str, name: &str, mut watch: Result<Watch, WatchError>) {
    loop {
        let Ok(watching) = &mut watch else { return };
        let failed = match watching.next().await {
            Ok(event) if event.kind == EventKind::Deleted && *event.object.key.name == *name => {
                let now = wire_time(storage.clock.now());
                restore(storage, &event.object.key.namespace, &now).await.err()
            }
            Ok(_) => None,
            Err(WatchError::Closed) => return,
            Err(_) => {
                watch = storage.store.watch(resource, None, None);
                complete(storage).await.err()
            }
        };
        if let Some(error) = failed {
            // Whoever deletes it once more, or the next start, brings it back.
            tracing::warn!(%error, name, "what every namespace has could not be made again");
        }
    }
}

//! What every namespace has: the account `default`, and the ConfigMap with the authority's certificate.
//!
//! Invariant: made in one change with the namespace, and made again when deleted while the namespace stays. Run by the
//! server beside the collector.

use std::sync::Arc;

use futures::future::join_all;
use pumice_clock::wire_time;
use pumice_store::{ApplyError, Change, EventKind, Expect, Key, Store, Watch, WatchError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Accounts, DEFAULT, ROOT_CERTIFICATE, SERVICE_ACCOUNTS};
use crate::render::{draft, parse};
use crate::server::State;

const CONFIG_MAPS: &str = "configmaps";
const NAMESPACES: &str = "namespaces";
/// The key of the certificate in its ConfigMap.
const CERTIFICATE_KEY: &str = "ca.crt";

impl Accounts {
    /// What `namespace` lacks. A certificate that is no longer the authority's is replaced.
    fn missing(&self, store: &Store, namespace: &str, now: &str) -> Vec<Change> {
        let metadata = |name: &str| {
            let uid = Uuid::now_v7().to_string();
            json!({ "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": now })
        };
        let mut changes = Vec::new();
        if store.find(SERVICE_ACCOUNTS, namespace, DEFAULT).is_none() {
            let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(DEFAULT) });
            changes.push(put(Key::new(SERVICE_ACCOUNTS, namespace, DEFAULT), &account, Expect::Absent));
        }
        let Some(certificate) = &self.root_certificate else { return changes };
        let key = Key::new(CONFIG_MAPS, namespace, ROOT_CERTIFICATE);
        let Some(stored) = store.get(&key) else {
            let map = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(ROOT_CERTIFICATE),
                "data": { CERTIFICATE_KEY: certificate },
            });
            changes.push(put(key, &map, Expect::Absent));
            return changes;
        };
        let mut map = parse(&stored);
        if map["data"][CERTIFICATE_KEY] != **certificate {
            map["data"] = json!({ CERTIFICATE_KEY: certificate });
            changes.push(put(key, &map, Expect::Revision(stored.revision)));
        }
        changes
    }
}

fn put(key: Key, object: &Value, expect: Expect) -> Change {
    Change::Put { key, draft: draft(object), expect }
}

/// What has to be made together with a change: that of a new namespace.
pub(crate) fn beside(state: &State, change: &Change) -> Vec<Change> {
    match change {
        Change::Put { key, expect: Expect::Absent, .. } if *key.resource == *NAMESPACES => {
            state.accounts.missing(&state.store, &key.name, &wire_time(state.clock.now()))
        }
        _ => Vec::new(),
    }
}

/// Makes what namespaces lack that are there already.
async fn complete(state: &State) -> Result<(), ApplyError> {
    let now = wire_time(state.clock.now());
    for namespace in state.store.list(NAMESPACES, None).items {
        restore(state, &namespace.key.name, &now).await?;
    }
    Ok(())
}

async fn restore(state: &State, namespace: &str, now: &str) -> Result<(), ApplyError> {
    let Some(found) = state.store.find(NAMESPACES, "", namespace) else { return Ok(()) };
    if parse(&found)["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let missing = state.accounts.missing(&state.store, namespace, now);
    if missing.is_empty() { Ok(()) } else { state.store.apply_all(missing).await.map(drop) }
}

/// Makes what is lacking now. The future that it gives makes it again when somebody deletes it, until `stop`.
pub(crate) async fn start(
    state: Arc<State>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>, ApplyError> {
    // Nothing is missed: the watches begin before the look.
    let watches = [(SERVICE_ACCOUNTS, DEFAULT), (CONFIG_MAPS, ROOT_CERTIFICATE)].map(|(resource, name)| {
        let state = Arc::clone(&state);
        let watch = state.store.watch(resource, None, None);
        async move { follow(&state, resource, name, watch).await }
    });
    complete(&state).await?;
    Ok(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = join_all(watches) => {}
        }
    })
}

async fn follow(state: &State, resource: &str, name: &str, mut watch: Result<Watch, WatchError>) {
    loop {
        let Ok(watching) = &mut watch else { return };
        let failed = match watching.next().await {
            Ok(event) if event.kind == EventKind::Deleted && *event.object.key.name == *name => {
                let now = wire_time(state.clock.now());
                restore(state, &event.object.key.namespace, &now).await.err()
            }
            Ok(_) => None,
            Err(WatchError::Closed) => return,
            Err(_) => {
                watch = state.store.watch(resource, None, None);
                complete(state).await.err()
            }
        };
        if let Some(error) = failed {
            // Whoever deletes it once more, or the next start, brings it back.
            tracing::warn!(%error, name, "what every namespace has could not be made again");
        }
    }
}

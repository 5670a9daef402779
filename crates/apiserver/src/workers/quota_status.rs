//! The status of ResourceQuotas says what is used.
//!
//! Invariant: only what [`Quotas`] counts is told; where nothing has changed, nothing is written. Run by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pumice_store::{ApplyError, Change, Expect};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::admission::pod_resources::Amounts;
use crate::admission::quota::{QUOTAS, QuotaUsage, Quotas, lock};
use crate::storage::Storage;
use crate::stored::{draft, parse};
use crate::workers::watch_trigger::WatchTrigger;

/// Changes within this time are told in one status.
const STATUS_DELAY: Duration = Duration::from_millis(50);
/// How often a status is tried against a changing quota.
const ATTEMPTS_MAX: usize = 16;

/// Keeps the status of every quota. Runs until `stop`.
pub(crate) async fn run(storage: Arc<Storage>, quotas: Arc<Quotas>, stop: CancellationToken) {
    let mut watches = WatchTrigger::default();
    loop {
        quotas.clear_left(&storage.store).await;
        // Followed before anything is looked at, so that nothing is missed.
        let mut wanted: BTreeSet<String> = BTreeSet::from([QUOTAS.to_owned()]);
        if !watches.follow(&storage.store, &wanted) {
            return;
        }
        let namespaces: BTreeSet<String> =
            storage.store.list(QUOTAS, None).items.iter().map(|object| object.key.namespace.to_string()).collect();
        quotas.retain(&namespaces);
        for namespace in &namespaces {
            let ledger = quotas.ledger(namespace);
            {
                let mut books = lock(&ledger);
                books.catch_up(&storage.store);
                wanted.extend(books.resources().cloned());
            }
            if !watches.follow(&storage.store, &wanted) {
                return;
            }
            let stand: Vec<QuotaUsage> = {
                let mut books = lock(&ledger);
                books.catch_up(&storage.store);
                books.stand().collect()
            };
            for quota in stand {
                if let Err(error) = tell(&storage, namespace, &quota).await {
                    tracing::warn!(%error, namespace, name = quota.name, "the status of a quota is old for now");
                }
            }
        }
        watches.keep(&wanted);
        tokio::select! {
            () = stop.cancelled() => return,
            () = watches.changed() => {}
            () = quotas.left_behind() => {}
        }
        tokio::time::sleep(STATUS_DELAY).await;
    }
}

/// Writes a quota's status if it says something else.
async fn tell(storage: &Storage, namespace: &str, quota: &QuotaUsage) -> Result<(), ApplyError> {
    let shown = |amounts: &Amounts| -> BTreeMap<String, String> {
        amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
    };
    let status = json!({ "hard": shown(&quota.hard), "used": shown(&quota.used) });
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = storage.store.find(QUOTAS, namespace, &quota.name) else { return Ok(()) };
        let mut object = parse(&stored);
        if object["status"] == status {
            return Ok(());
        }
        object["status"] = status.clone();
        let (key, expect) = (stored.key.clone(), Expect::Revision(stored.revision));
        match storage.commit(Change::Put { key, draft: draft(&object), expect }).await {
            Ok(_) | Err(ApplyError::NotFound(_)) => return Ok(()),
            Err(ApplyError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    // Whoever changed it so often wakes this task again.
    Ok(())
}

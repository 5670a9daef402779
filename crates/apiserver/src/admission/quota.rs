//! ResourceQuotas: nothing goes over them, and their status says what is used.
//!
//! Invariant: room is set aside before an object goes to the store and given back when the store has answered, under one
//! lock per namespace, so that creates at the same time never go over together. Where no namespace has a quota, a write
//! costs one look at a number. Called by the write verbs; its task is run by the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pumice_objects::meta;
use pumice_objects::status::Status;
use pumice_store::{ApplyError, Change, Expect, Store};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::admission::pod_resources::Amounts;
use crate::context::Call;
use crate::context::State;
use crate::stored::{draft, parse};
use crate::workers::watch_trigger::Following;

mod ledger;
mod rules;
pub(crate) mod usage;

use ledger::Ledger;

/// The store's name of quotas.
pub(crate) const QUOTAS: &str = "resourcequotas";
/// Changes within this time are told in one status.
const TOLD_AFTER: Duration = Duration::from_millis(50);
/// How often a status is tried against a changing quota.
const ATTEMPTS_MAX: usize = 16;
/// What an update can make bigger.
const GROWING: [&str; 2] = ["persistentvolumeclaims", "services"];

type Shared = Arc<Mutex<Ledger>>;

/// The books of all namespaces that have a quota.
#[derive(Default)]
pub(crate) struct Quotas {
    ledgers: Mutex<HashMap<String, Shared>>,
    /// Room set aside for writes that nobody waits for any more.
    left: Arc<Left>,
}

#[derive(Default)]
struct Left {
    holds: Mutex<Vec<Held>>,
    news: Notify,
}

struct Held {
    ledger: Shared,
    resource: Arc<str>,
    uid: String,
    ticket: u64,
}

/// Room that is set aside while the store works. Nothing where no quota counts the object.
#[must_use]
pub(crate) struct Hold {
    held: Option<Held>,
    left: Arc<Left>,
}

impl Hold {
    /// Gives the room back, now that the store has answered: what it took counts by itself.
    pub(crate) fn settle(mut self, store: &Store) {
        if let Some(held) = self.held.take() {
            held.give_back(store);
        }
    }
}

impl Held {
    fn give_back(self, store: &Store) {
        lock(&self.ledger).give_back(store, &self.resource, &self.uid, self.ticket);
    }
}

impl Drop for Hold {
    /// Nobody waited for the store's answer, but the change may still be made: the room stays until that is known.
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            lock(&self.left.holds).push(held);
            self.left.news.notify_one();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quotas {
    /// Sets room aside for an object that is about to be stored; `old` is what it replaces. 403 where there is none.
    pub(crate) fn admit(&self, call: &Call, old: Option<&Value>, new: &Value, dry_run: bool) -> Result<Hold, Status> {
        let none = || Hold { held: None, left: Arc::clone(&self.left) };
        let (store, namespace) = (&call.state.store, call.stored_namespace());
        let resource = &call.descriptor.storage;
        let counts = old.is_none() || GROWING.contains(&&**resource);
        if !counts || namespace.is_empty() || store.count(QUOTAS, Some(namespace)) == 0 {
            return Ok(none());
        }
        let ledger = self.ledger(namespace);
        let ticket = {
            let mut books = lock(&ledger);
            books.catch_up(store);
            books.set_aside(resource, call.resource(), new, old.is_none())?
        };
        let Some(ticket) = ticket else { return Ok(none()) };
        let uid = meta::uid(new).unwrap_or_default().to_owned();
        let held = Held { ledger, resource: Arc::clone(resource), uid, ticket };
        if dry_run {
            held.give_back(store);
            return Ok(none());
        }
        Ok(Hold { held: Some(held), left: Arc::clone(&self.left) })
    }

    fn ledger(&self, namespace: &str) -> Shared {
        let mut ledgers = lock(&self.ledgers);
        let made = || Arc::new(Mutex::new(Ledger::new(namespace)));
        Arc::clone(ledgers.entry(namespace.to_owned()).or_insert_with(made))
    }

    /// Gives back what was left. The store answers in order: after a flush every change before it is made or is not.
    async fn clear_left(&self, store: &Store) {
        let left = std::mem::take(&mut *lock(&self.left.holds));
        if left.is_empty() {
            return;
        }
        if let Err(error) = store.flush().await {
            tracing::warn!(%error, "room in a quota stays set aside for now");
            lock(&self.left.holds).extend(left);
            return;
        }
        left.into_iter().for_each(|held| held.give_back(store));
    }
}

/// Keeps the status of every quota. Runs until `stop`.
pub(crate) async fn keep(state: Arc<State>, stop: CancellationToken) {
    let mut watches = Following::default();
    loop {
        state.quotas.clear_left(&state.store).await;
        // Followed before anything is looked at, so that nothing is missed.
        let mut wanted: BTreeSet<String> = BTreeSet::from([QUOTAS.to_owned()]);
        if !watches.follow(&state.store, &wanted) {
            return;
        }
        let namespaces: BTreeSet<String> =
            state.store.list(QUOTAS, None).items.iter().map(|object| object.key.namespace.to_string()).collect();
        // One in which room is set aside stays: it is held by who waits.
        let is_held = |ledger: &Shared| Arc::strong_count(ledger) > 1;
        lock(&state.quotas.ledgers).retain(|namespace, ledger| namespaces.contains(namespace) || is_held(ledger));
        for namespace in &namespaces {
            let ledger = state.quotas.ledger(namespace);
            {
                let mut books = lock(&ledger);
                books.catch_up(&state.store);
                wanted.extend(books.resources().cloned());
            }
            if !watches.follow(&state.store, &wanted) {
                return;
            }
            let stand: Vec<(String, Amounts, Amounts)> = {
                let mut books = lock(&ledger);
                books.catch_up(&state.store);
                books.stand().map(|(name, hard, used)| (name.to_owned(), hard.clone(), used)).collect()
            };
            for (name, hard, used) in stand {
                if let Err(error) = tell(&state, namespace, &name, &hard, &used).await {
                    tracing::warn!(%error, namespace, name, "the status of a quota is old for now");
                }
            }
        }
        watches.keep(&wanted);
        tokio::select! {
            () = stop.cancelled() => return,
            () = watches.changed() => {}
            () = state.quotas.left.news.notified() => {}
        }
        tokio::time::sleep(TOLD_AFTER).await;
    }
}

/// Writes a quota's status if it says something else.
async fn tell(state: &State, namespace: &str, name: &str, hard: &Amounts, used: &Amounts) -> Result<(), ApplyError> {
    let shown = |amounts: &Amounts| -> BTreeMap<String, String> {
        amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
    };
    let status = json!({ "hard": shown(hard), "used": shown(used) });
    for _ in 0..ATTEMPTS_MAX {
        let Some(stored) = state.store.find(QUOTAS, namespace, name) else { return Ok(()) };
        let mut object = parse(&stored);
        if object["status"] == status {
            return Ok(());
        }
        object["status"] = status.clone();
        let (key, expect) = (stored.key.clone(), Expect::Revision(stored.revision));
        match state.commit(Change::Put { key, draft: draft(&object), expect }).await {
            Ok(_) | Err(ApplyError::NotFound(_)) => return Ok(()),
            Err(ApplyError::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    // Whoever changed it so often wakes this task again.
    Ok(())
}

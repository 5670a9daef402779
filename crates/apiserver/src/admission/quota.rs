//! ResourceQuotas: nothing goes over them.
//!
//! Invariant: room is set aside before an object goes to the store and given back when the store has answered, under one
//! lock per namespace, so that creates at the same time never go over together. Where no namespace has a quota, a write
//! costs one look at a number. Called by the write verbs; the status of quotas is written by
//! `workers::quota_status`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pumice_objects::meta;
use pumice_objects::status::Status;
use pumice_store::Store;
use serde_json::Value;
use tokio::sync::Notify;

use crate::admission::Attributes;

mod ledger;
mod rules;
pub(crate) mod usage;

use ledger::Ledger;
pub(crate) use ledger::QuotaUsage;

/// The store's name of quotas.
pub(crate) const QUOTAS: &str = "resourcequotas";
/// What an update can make bigger.
const GROWING: [&str; 2] = ["persistentvolumeclaims", "services"];

pub(crate) type Shared = Arc<Mutex<Ledger>>;

/// The books of all namespaces that have a quota.
#[derive(Default)]
pub(crate) struct Quotas {
    ledgers: Mutex<HashMap<String, Shared>>,
    /// Room set aside for writes that nobody waits for any more.
    left: Arc<Left>,
}

#[derive(Default)]
struct Left {
    reservations: Mutex<Vec<Reserved>>,
    changed: Notify,
}

struct Reserved {
    ledger: Shared,
    resource: Arc<str>,
    uid: String,
    ticket: u64,
}

/// Room that is set aside while the store works. Nothing where no quota counts the object.
#[must_use]
pub(crate) struct Reservation {
    reserved: Option<Reserved>,
    left: Arc<Left>,
}

impl Reservation {
    /// Gives the room back, now that the store has answered: what it took counts by itself.
    pub(crate) fn settle(mut self, store: &Store) {
        if let Some(reserved) = self.reserved.take() {
            reserved.give_back(store);
        }
    }
}

impl Reserved {
    fn give_back(self, store: &Store) {
        lock(&self.ledger).give_back(store, &self.resource, &self.uid, self.ticket);
    }
}

impl Drop for Reservation {
    /// Nobody waited for the store's answer, but the change may still be made: the room stays until that is known.
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            lock(&self.left.reservations).push(reserved);
            self.left.changed.notify_one();
        }
    }
}

/// A lock whose holder may have panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Quotas {
    /// Sets room aside for an object that is about to be stored; `old` is what it replaces. 403 where there is none.
    pub(crate) fn admit(
        &self,
        write: &Attributes<'_>,
        old: Option<&Value>,
        new: &Value,
        dry_run: bool,
    ) -> Result<Reservation, Status> {
        let none = || Reservation { reserved: None, left: Arc::clone(&self.left) };
        let (store, namespace) = (write.store, write.namespace);
        let resource = &write.descriptor.storage;
        let counts = old.is_none() || GROWING.contains(&&**resource);
        if !counts || namespace.is_empty() || store.count(QUOTAS, Some(namespace)) == 0 {
            return Ok(none());
        }
        let ledger = self.ledger(namespace);
        let ticket = {
            let mut books = lock(&ledger);
            books.catch_up(store);
            books.set_aside(resource, write.resource(), new, old.is_none())?
        };
        let Some(ticket) = ticket else { return Ok(none()) };
        let uid = meta::uid(new).unwrap_or_default().to_owned();
        let reserved = Reserved { ledger, resource: Arc::clone(resource), uid, ticket };
        if dry_run {
            reserved.give_back(store);
            return Ok(none());
        }
        Ok(Reservation { reserved: Some(reserved), left: Arc::clone(&self.left) })
    }

    /// The books of a namespace.
    pub(crate) fn ledger(&self, namespace: &str) -> Shared {
        let mut ledgers = lock(&self.ledgers);
        let made = || Arc::new(Mutex::new(Ledger::new(namespace)));
        Arc::clone(ledgers.entry(namespace.to_owned()).or_insert_with(made))
    }

    /// Forgets namespaces that have no quota any more. One in which room is set aside stays: it is held by who waits.
    pub(crate) fn retain(&self, namespaces: &BTreeSet<String>) {
        let is_held = |ledger: &Shared| Arc::strong_count(ledger) > 1;
        lock(&self.ledgers).retain(|namespace, ledger| namespaces.contains(namespace) || is_held(ledger));
    }

    /// Waits until room was left that nobody gives back.
    pub(crate) async fn left_behind(&self) {
        self.left.changed.notified().await;
    }

    /// Gives back what was left. The store answers in order: after a flush every change before it is made or is not.
    pub(crate) async fn clear_left(&self, store: &Store) {
        let left = std::mem::take(&mut *lock(&self.left.reservations));
        if left.is_empty() {
            return;
        }
        if let Err(error) = store.flush().await {
            tracing::warn!(%error, "room in a quota stays set aside for now");
            lock(&self.left.reservations).extend(left);
            return;
        }
        left.into_iter().for_each(|reserved| reserved.give_back(store));
    }
}

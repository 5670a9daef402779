//! The collector: deletes what has lost its owners, empties namespaces and definitions that go.
//!
//! Invariant: it decides from the store as it is, never from what it remembers; the index only tells where to look. So a
//! lost or doubled event costs a look, not an object. One task per server; runs on the store itself.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pumice_store::{EventKind, Key, Object, Store, WatchError, WatchEvent};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::storage::Storage;

mod index;
mod work;

use index::{Facts, Index};
use work::Outcome;

/// Objects worked on at a time.
const WORKERS_MAX: usize = 32;
/// Messages from watches that wait; a full queue slows the watches down, not the writers.
const QUEUE_MAX: usize = 1024;
/// How long after a failure an object is looked at again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Item {
    /// Does this object still have an owner?
    Dependent(Key),
    /// This object waits for its dependents, or wants them cut loose.
    Dying(Key),
    /// Everything in this namespace goes.
    Namespace(Arc<str>),
    /// Everything of this definition goes.
    Definition(Arc<str>),
}

enum Message {
    Snapshot(Vec<Arc<Object>>),
    Event(WatchEvent),
}

/// Follows every stored kind, those of new definitions too, and deletes what lost its owners or whose namespace or
/// definition goes, until `stop`.
pub(crate) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    let (sender, mut messages) = mpsc::channel(QUEUE_MAX);
    let mut watches = JoinSet::new();
    let mut watched = HashSet::new();
    let mut changes = storage.registry.changes();
    let mut collector = Collector::new(Arc::clone(&storage));
    changes.mark_changed();
    loop {
        if changes.has_changed().unwrap_or(false) {
            changes.borrow_and_update();
            for resource in storage.registry.load(&storage.store).stored().into_keys() {
                if watched.insert(Arc::clone(&resource)) {
                    watches.spawn(follow(storage.store.clone(), resource, sender.clone()));
                }
            }
        }
        // Before every collection has been seen once, nobody can tell who depends on whom.
        if collector.snapshots >= watched.len() {
            collector.start_work();
        }
        tokio::select! {
            () = stop.cancelled() => return,
            // Looked at above, where it is marked as seen.
            _ = changes.changed() => changes.mark_changed(),
            Some(message) = messages.recv() => collector.take(message),
            Some(done) = collector.running.join_next(), if !collector.running.is_empty() => collector.finish(done),
        }
    }
}

/// Sends a snapshot and then every change of one resource; starts over when it falls behind.
async fn follow(store: Store, resource: Arc<str>, sender: mpsc::Sender<Message>) {
    loop {
        let listing = store.list(&resource, None);
        if sender.send(Message::Snapshot(listing.items)).await.is_err() {
            return;
        }
        let mut watch = match store.watch(&resource, None, Some(listing.revision)) {
            Ok(watch) => watch,
            Err(WatchError::Closed) => return,
            Err(_) => continue,
        };
        loop {
            match watch.next().await {
                Ok(event) => {
                    if sender.send(Message::Event(event)).await.is_err() {
                        return;
                    }
                }
                Err(WatchError::Closed) => return,
                Err(_) => break,
            }
        }
    }
}

struct Collector {
    storage: Arc<Storage>,
    index: Index,
    /// Snapshots taken in, at least one for each collection once the index is complete.
    snapshots: usize,
    /// Namespaces and definitions that wait to be empty.
    emptying: HashSet<Item>,
    queue: VecDeque<Item>,
    queued: HashSet<Item>,
    busy: HashSet<Item>,
    running: JoinSet<(Item, Outcome)>,
}

impl Collector {
    fn new(storage: Arc<Storage>) -> Self {
        Self {
            storage,
            index: Index::default(),
            snapshots: 0,
            emptying: HashSet::new(),
            queue: VecDeque::new(),
            queued: HashSet::new(),
            busy: HashSet::new(),
            running: JoinSet::new(),
        }
    }

    fn push(&mut self, item: Item) {
        if self.queued.insert(item.clone()) {
            self.queue.push_back(item);
        }
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Snapshot(objects) => {
                self.snapshots += 1;
                objects.iter().for_each(|object| self.seen(object, true));
            }
            Message::Event(event) if event.kind == EventKind::Deleted => self.gone(&event.object),
            Message::Event(event) => self.seen(&event.object, false),
        }
    }

    /// Takes in a version of an object. One with the owners that it had needs no look: what becomes of an owner is an
    /// event of that owner. `missed`: events may have been lost, so everything is looked at.
    fn seen(&mut self, object: &Object, missed: bool) {
        let Some(facts) = Facts::of(object) else { return };
        let owners_changed = self.index.put(&object.key, &facts);
        if !facts.owners.is_empty() && (owners_changed || missed) {
            self.push(Item::Dependent(object.key.clone()));
        }
        if let Some(item) = facts.container(&object.key) {
            self.emptying.insert(item.clone());
            self.push(item);
        }
        if facts.waits_for_dependents {
            self.index.dying(&facts.uid, &object.key);
            self.push(Item::Dying(object.key.clone()));
            for dependent in self.index.dependents(&facts.uid) {
                self.push(Item::Dependent(dependent));
            }
        }
    }

    fn gone(&mut self, object: &Object) {
        let Some(facts) = Facts::of(object) else { return };
        for owner in self.index.remove(&object.key) {
            if let Some(waiting) = self.index.dying_key(&owner) {
                self.push(Item::Dying(waiting));
            }
        }
        for dependent in self.index.dependents(&facts.uid) {
            self.push(Item::Dependent(dependent));
        }
        self.index.forget_dying(&facts.uid);
        if let Some(item) = facts.container(&object.key) {
            self.emptying.remove(&item);
        }
        for item in
            [Item::Namespace(Arc::clone(&object.key.namespace)), Item::Definition(Arc::clone(&object.key.resource))]
        {
            if self.emptying.contains(&item) && work::is_empty(&self.storage, &item) {
                self.push(item);
            }
        }
    }

    /// Starts as much of the queue as there is room for. An item that is being worked on waits for its turn.
    fn start_work(&mut self) {
        let mut later = VecDeque::new();
        while self.running.len() < WORKERS_MAX {
            let Some(item) = self.queue.pop_front() else { break };
            if self.busy.contains(&item) {
                later.push_back(item);
                continue;
            }
            self.queued.remove(&item);
            self.busy.insert(item.clone());
            let dependents = self.dependents_of(&item);
            let storage = Arc::clone(&self.storage);
            self.running.spawn(async move {
                let outcome = work::run(&storage, &item, dependents).await;
                if outcome == Outcome::Again {
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                (item, outcome)
            });
        }
        later.append(&mut self.queue);
        self.queue = later;
    }

    fn dependents_of(&self, item: &Item) -> Vec<Key> {
        let key = match item {
            Item::Dependent(key) | Item::Dying(key) => key,
            Item::Namespace(_) | Item::Definition(_) => return Vec::new(),
        };
        let object = self.storage.store.get(key);
        let facts = object.and_then(|object| Facts::of(&object));
        facts.map(|facts| self.index.dependents(&facts.uid)).unwrap_or_default()
    }

    fn finish(&mut self, done: Result<(Item, Outcome), tokio::task::JoinError>) {
        match done {
            Ok((item, outcome)) => {
                self.busy.remove(&item);
                if outcome == Outcome::Again {
                    self.push(item);
                }
            }
            Err(error) => {
                // The object that broke the worker stays marked as busy: it is left alone until the next start.
                tracing::error!(%error, "the collector gave up on an object");
            }
        }
    }
}

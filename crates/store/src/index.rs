//! The in-memory index: live objects and a bounded window of events, per resource.
//!
//! Invariant: replaying the events of a resource above revision `r` over the objects as they were at
//! `r` gives the objects as they are, for every `r` not below the resource's floor. Changed only by
//! the writer through [`Index::publish`]; read by the store's queries and by watches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::watch;

use crate::key::Key;
use crate::object::Object;
use crate::options::{Options, Window};

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change as a watch sees it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    pub kind: EventKind,
    /// The object after the change; for a deletion its last state at the deletion's revision.
    pub object: Arc<Object>,
    /// The object before the change; `None` when it was created.
    pub previous: Option<Arc<Object>>,
}

/// Objects of one resource at one moment, ordered by namespace and name.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The global revision of that moment: a watch from here misses nothing and repeats nothing.
    pub revision: u64,
    pub items: Vec<Arc<Object>>,
}

/// The live objects and the latest changes of each resource: what reads, lists and watches are answered from.
#[derive(Debug)]
pub(crate) struct Index {
    revision: u64,
    /// Floor of a resource made from now on: nothing is known of earlier revisions.
    start: u64,
    options: Arc<Options>,
    by_resource: FxHashMap<Arc<str>, ResourceIndex>,
}

/// Objects and recent events of one resource.
#[derive(Debug)]
pub(crate) struct ResourceIndex {
    pub(crate) items: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Arc<Object>>>,
    count: usize,
    ring: VecDeque<WatchEvent>,
    ring_bytes: usize,
    window: Window,
    floor: u64,
    changed: u64,
    wake: watch::Sender<u64>,
}

impl Index {
    pub(crate) fn new(revision: u64, options: Arc<Options>, objects: Vec<Object>) -> Self {
        let mut index = Self { revision, start: revision, options, by_resource: FxHashMap::default() };
        for object in objects {
            let resource = object.key.resource.clone();
            index.resource_mut(&resource).put(Arc::new(object));
        }
        index
    }

    /// The revision of the last published change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn resource(&self, resource: &str) -> Option<&ResourceIndex> {
        self.by_resource.get(resource)
    }

    pub(crate) fn resource_mut(&mut self, resource: &Arc<str>) -> &mut ResourceIndex {
        let (start, options) = (self.start, &self.options);
        self.by_resource.entry(resource.clone()).or_insert_with(|| ResourceIndex::new(start, options.window(resource)))
    }

    /// The oldest revision from which the changes of `resource` are known.
    pub(crate) fn floor(&self, resource: &str) -> u64 {
        self.resource(resource).map_or(self.start, ResourceIndex::floor)
    }

    /// Resources with at least one object, in no order.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_resource.iter().filter(|(_, index)| index.count > 0).map(|(resource, _)| resource)
    }

    /// Every live object, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<Object>> {
        let mut all = Vec::with_capacity(self.by_resource.values().map(|index| index.count).sum());
        all.extend(
            self.by_resource.values().flat_map(|index| index.items.values().flat_map(BTreeMap::values)).cloned(),
        );
        all
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.resource(&key.resource)?.get(&key.namespace, &key.name)
    }

    /// Makes `events`, in the order of their revisions, visible and wakes the watches.
    pub(crate) fn publish(&mut self, events: Vec<WatchEvent>) {
        for event in events {
            assert!(
                event.object.revision > self.revision,
                "revision {} published after {}",
                event.object.revision,
                self.revision
            );
            self.revision = event.object.revision;
            let resource = event.object.key.resource.clone();
            self.resource_mut(&resource).record(event);
        }
        let revision = self.revision;
        for index in self.by_resource.values() {
            if index.ring.back().is_some_and(|event| event.object.revision > *index.wake.borrow()) {
                index.wake.send_replace(revision);
            }
        }
    }

    /// Wakes every watch, so that it sees that the store has closed.
    pub(crate) fn wake_all(&self) {
        for index in self.by_resource.values() {
            index.wake.send_replace(u64::MAX);
        }
    }
}

impl ResourceIndex {
    fn new(floor: u64, window: Window) -> Self {
        Self {
            items: BTreeMap::new(),
            count: 0,
            ring: VecDeque::new(),
            ring_bytes: 0,
            window,
            floor,
            changed: floor,
            wake: watch::Sender::new(floor),
        }
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.items.get(namespace)?.get(name)
    }

    /// Live objects; a namespace of `None` means all of them.
    pub(crate) fn count(&self, namespace: Option<&str>) -> usize {
        match namespace {
            None => self.count,
            Some(namespace) => self.items.get(namespace).map_or(0, BTreeMap::len),
        }
    }

    pub(crate) fn list(&self, namespace: Option<&str>) -> Vec<Arc<Object>> {
        match namespace {
            None => self.items.values().flat_map(BTreeMap::values).cloned().collect(),
            Some(namespace) => self.items.get(namespace).into_iter().flat_map(BTreeMap::values).cloned().collect(),
        }
    }

    /// The oldest revision from which a watch can start.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The revision of the last change; that of the start where there was none since.
    pub(crate) fn changed(&self) -> u64 {
        self.changed
    }

    /// Events above `revision`, oldest first.
    pub(crate) fn events_after(&self, revision: u64) -> impl Iterator<Item = &WatchEvent> {
        self.ring.range(self.first_after(revision)..)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    fn first_after(&self, revision: u64) -> usize {
        self.ring.partition_point(|event| event.object.revision <= revision)
    }

    fn put(&mut self, object: Arc<Object>) {
        let names = self.items.entry(object.key.namespace.clone()).or_default();
        if names.insert(object.key.name.clone(), object).is_none() {
            self.count += 1;
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(names) = self.items.get_mut(&key.namespace) else { return };
        if names.remove(&key.name).is_some() {
            self.count -= 1;
        }
        if names.is_empty() {
            self.items.remove(&key.namespace);
        }
    }

    fn record(&mut self, event: WatchEvent) {
        self.changed = event.object.revision;
        match event.kind {
            EventKind::Added | EventKind::Modified => self.put(event.object.clone()),
            EventKind::Deleted => self.remove(&event.object.key),
        }
        self.ring_bytes += event.object.body.len();
        self.ring.push_back(event);
        while self.ring.len() > self.window.events_max || self.ring_bytes > self.window.bytes_max {
            let Some(old) = self.ring.pop_front() else { return };
            self.ring_bytes -= old.object.body.len();
            self.floor = old.object.revision;
        }
    }
}

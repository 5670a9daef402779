//! What the rules see of the cluster: watched objects, and fresh ones where those are not enough.
//!
//! Invariant: nothing is refused, and nothing filled in, by what a watch has not told yet: an object that is not held is asked
//! for, and before a refusal everything that was looked at is read again. A job sent right after its queue finds the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pumice_apiserver::ObjectReader;
use pumice_cluster::{Change, WatchScope, watch_optional};
use serde_json::Value;
use tokio::sync::Semaphore;

/// A kind that the rules look at.
struct SeenKind {
    /// Name in the store.
    stored_as: &'static str,
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const KINDS: &[SeenKind] = &[
    SeenKind { stored_as: "namespaces", group: "", version: "v1", kind: "Namespace", plural: "namespaces" },
    SeenKind {
        stored_as: "scheduling.volcano.sh/queues",
        group: "scheduling.volcano.sh",
        version: "v1beta1",
        kind: "Queue",
        plural: "queues",
    },
];
/// Most reads for one request: a look at fresh objects may lead to others.
const ROUNDS_MAX: usize = 8;
/// Most reads at a time of all requests.
const READS_MAX: usize = 32;

/// A name in the store and a name; all objects of the former if there is no latter. All kinds are of the cluster.
type Read = (&'static str, Option<String>);
/// What was found: one object, none, or all.
type Found = BTreeMap<Read, Vec<Arc<Value>>>;

/// The objects of each kind.
pub(crate) struct Objects {
    client: Client,
    cache: RwLock<BTreeMap<&'static str, BTreeMap<String, Arc<Value>>>>,
    reads: Semaphore,
}

/// Why what the rules have to see could not be read.
#[derive(Debug, thiserror::Error)]
#[error("{what} can't be read")]
pub(crate) struct ReadError {
    what: String,
    #[source]
    source: Box<kube::Error>,
}

impl Objects {
    pub fn new(client: Client) -> Self {
        Self { client, cache: RwLock::default(), reads: Semaphore::new(READS_MAX) }
    }

    /// Follows the watches; ends only when they do.
    pub async fn follow(&self) {
        let mut changes: SelectAll<BoxStream<'static, (&'static str, Change<DynamicObject>)>> = KINDS
            .iter()
            .map(|kind| {
                let name = kind.stored_as;
                let changes = watch_optional(api(&self.client, kind), WatchScope::default());
                changes.map(move |change| (name, change)).boxed()
            })
            .collect();
        while let Some((kind, change)) = changes.next().await {
            self.take(kind, change);
        }
    }

    fn take(&self, kind: &'static str, change: Change<DynamicObject>) {
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Replace(all) => {
                cache.insert(kind, all.into_iter().filter_map(named).collect());
            }
            Change::Applied(object) => cache.entry(kind).or_default().extend(named(object)),
            Change::Deleted(object) => {
                let name = object.metadata.name.unwrap_or_default();
                cache.entry(kind).or_default().remove(&name);
            }
        }
    }

    /// Whether every kind has been listed.
    pub fn is_complete(&self) -> bool {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        KINDS.iter().all(|kind| cache.contains_key(kind.stored_as))
    }

    /// What `judge` says once it has seen everything it asks for; `is_refusal` of an answer says whether to read again
    /// what it went by.
    pub async fn judged<T>(
        &self,
        is_refusal: impl Fn(&T) -> bool,
        judge: impl Fn(&dyn ObjectReader) -> T,
    ) -> Result<T, ReadError> {
        let mut fresh = Found::new();
        for _ in 1..ROUNDS_MAX {
            let seen = Seen { objects: self, fresh: &fresh, read: Mutex::default() };
            let answer = judge(&seen);
            let read = seen.read.into_inner().unwrap_or_else(PoisonError::into_inner);
            let doubted = is_refusal(&answer);
            let wanted: Vec<Read> =
                read.into_iter().filter(|(_, is_held)| doubted || !is_held).map(|(read, _)| read).collect();
            if wanted.is_empty() {
                return Ok(answer);
            }
            for read in wanted {
                let found = self.read(&read).await?;
                fresh.insert(read, found);
            }
        }
        Ok(judge(&Seen { objects: self, fresh: &fresh, read: Mutex::default() }))
    }

    async fn read(&self, (kind, name): &Read) -> Result<Vec<Arc<Value>>, ReadError> {
        let failed = |source| ReadError {
            what: format!("{kind} {}", name.as_deref().unwrap_or("all")),
            source: Box::new(source),
        };
        let Some(row) = KINDS.iter().find(|row| row.stored_as == *kind) else { return Ok(Vec::new()) };
        let _permit = self.reads.acquire().await;
        let api = api(&self.client, row);
        let objects = match name {
            Some(name) => api.get_opt(name).await.map_err(failed)?.into_iter().collect(),
            None => api.list(&ListParams::default()).await.map_err(failed)?.items,
        };
        Ok(objects.into_iter().filter_map(named).map(|(_, value)| value).collect())
    }
}

fn api(client: &Client, seen: &SeenKind) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(seen.group, seen.version, seen.kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, seen.plural))
}

fn named(object: DynamicObject) -> Option<(String, Arc<Value>)> {
    Some((object.metadata.name.clone()?, Arc::new(serde_json::to_value(object).ok()?)))
}

/// The objects as one judgement sees them; remembers what was looked at, and whether that was there to be seen.
struct Seen<'a> {
    objects: &'a Objects,
    fresh: &'a Found,
    read: Mutex<BTreeSet<(Read, bool)>>,
}

impl Seen<'_> {
    fn note(&self, read: Read, is_held: bool) {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).insert((read, is_held));
    }
}

/// The names of namespaces of objects are not looked at: all kinds are of the cluster.
impl ObjectReader for Seen<'_> {
    fn get(&self, resource: &str, _namespace: &str, name: &str) -> Option<Value> {
        let kind = KINDS.iter().find(|kind| kind.stored_as == resource)?.stored_as;
        if let Some(all) = self.fresh.get(&(kind, None)) {
            return all.iter().find(|object| object["metadata"]["name"] == name).map(|object| Value::clone(object));
        }
        let read = (kind, Some(name.to_owned()));
        if let Some(found) = self.fresh.get(&read) {
            return found.first().map(|object| Value::clone(object));
        }
        let cache = self.objects.cache.read().unwrap_or_else(PoisonError::into_inner);
        let found = cache.get(kind).and_then(|cache| cache.get(name)).cloned();
        drop(cache);
        self.note(read, found.is_some());
        found.map(|object| Value::clone(&object))
    }

    fn list(&self, resource: &str, _namespace: Option<&str>) -> Vec<Value> {
        let Some(kind) = KINDS.iter().find(|kind| kind.stored_as == resource).map(|kind| kind.stored_as) else {
            return Vec::new();
        };
        let read = (kind, None);
        if let Some(all) = self.fresh.get(&read) {
            return all.iter().map(|object| Value::clone(object)).collect();
        }
        let cache = self.objects.cache.read().unwrap_or_else(PoisonError::into_inner);
        let found: Option<Vec<_>> = cache.get(kind).map(|cache| cache.values().cloned().collect());
        drop(cache);
        self.note(read, found.is_some());
        found.iter().flatten().map(|object| Value::clone(object)).collect()
    }
}

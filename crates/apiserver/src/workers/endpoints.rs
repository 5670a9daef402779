//! EndpointSlices of headless services: which pods stand behind a name.
//!
//! Invariant: pods are followed only while there is such a service, and parsed only in namespaces that have one; what of a pod
//! stands in no slice makes no work. A service's slices are written at most every [`WRITE_EVERY`], those of very many pods
//! less often. Slices go with their service, by the collector. Run by the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_store::{ApplyError, Change, EventKind, Expect, Key, Store, Watch, WatchError, WatchEvent};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::storage::Storage;
use crate::stored::{draft, parse};

mod slices;

use slices::{Peer, SERVICE_NAME, has_slices, selects, slices};

/// The store's name of slices.
const SLICES: &str = "discovery.k8s.io/endpointslices";
const SERVICES: &str = "services";
const PODS: &str = "pods";
/// Changes within this time are told together.
const WRITE_EVERY: Duration = Duration::from_millis(250);
/// Writing the slices of very many pods is followed by a pause of this many times its length.
const PAUSE_FACTOR: u32 = 8;

/// Follows Services and pods, and writes the slices that follow from them, until `stop` or until the store has closed.
pub(crate) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    loop {
        let ended = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow(&storage) => ended,
        };
        if matches!(ended, WatchError::Closed) {
            return;
        }
    }
}

/// What is known of one namespace with such services.
#[derive(Default)]
struct NamespaceServices {
    services: BTreeMap<String, Value>,
    pods: BTreeMap<String, Peer>,
}

#[derive(Default)]
struct Known {
    /// Whether pods are followed: those of a new place have to be read then.
    follows_pods: bool,
    namespaces: HashMap<Arc<str>, NamespaceServices>,
    /// Services whose slices are to be looked at.
    dirty: BTreeSet<(Arc<str>, String)>,
}

/// Follows services and their pods until a watch ends.
async fn follow(storage: &Storage) -> WatchError {
    match try_follow(storage).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_follow(storage: &Storage) -> Result<std::convert::Infallible, WatchError> {
    let store = &storage.store;
    let mut services = store.watch(SERVICES, None, None)?;
    let mut pods: Option<Watch> = None;
    let mut known = Known::default();
    for stored in store.list(SERVICES, None).items {
        known.service(store, &stored.key.namespace, parse(&stored), false);
    }
    loop {
        if known.namespaces.is_empty() {
            pods = None;
            known.follows_pods = false;
        } else if pods.is_none() {
            pods = Some(store.watch(PODS, None, None)?);
            known.follows_pods = true;
            known.read_pods(store);
        }
        let began = Instant::now();
        known.tell(storage).await;
        tokio::time::sleep(WRITE_EVERY.max(began.elapsed() * PAUSE_FACTOR)).await;
        if known.dirty.is_empty() {
            tokio::select! {
                event = services.next() => known.take_service(store, &event?),
                event = next(pods.as_mut()) => known.take_pod(&event?),
            }
        }
        while let Some(event) = services.try_next()? {
            known.take_service(store, &event);
        }
        while let Some(event) = pods.as_mut().map_or(Ok(None), Watch::try_next)? {
            known.take_pod(&event);
        }
    }
}

async fn next(watch: Option<&mut Watch>) -> Result<WatchEvent, WatchError> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

impl Known {
    fn take_service(&mut self, store: &Store, event: &WatchEvent) {
        let gone = event.kind == EventKind::Deleted;
        self.service(store, &event.object.key.namespace, parse(&event.object), gone);
    }

    fn service(&mut self, store: &Store, namespace: &Arc<str>, service: Value, gone: bool) {
        let name = meta::name(&service).to_owned();
        if gone || !has_slices(&service) {
            let Some(place) = self.namespaces.get_mut(namespace) else { return };
            if place.services.remove(&name).is_some() {
                self.dirty.insert((Arc::clone(namespace), name));
            }
            if place.services.is_empty() {
                self.namespaces.remove(namespace);
            }
            return;
        }
        let is_new = !self.namespaces.contains_key(namespace);
        let place = self.namespaces.entry(Arc::clone(namespace)).or_default();
        place.services.insert(name.clone(), service);
        if is_new && self.follows_pods {
            place.read_pods(store, namespace);
        }
        self.dirty.insert((Arc::clone(namespace), name));
    }

    /// Reads all pods anew: none of their changes was followed until now.
    fn read_pods(&mut self, store: &Store) {
        for (namespace, place) in &mut self.namespaces {
            place.read_pods(store, namespace);
            self.dirty.extend(place.services.keys().map(|name| (Arc::clone(namespace), name.clone())));
        }
    }

    fn take_pod(&mut self, event: &WatchEvent) {
        let key = &event.object.key;
        let Some(place) = self.namespaces.get_mut(&key.namespace) else { return };
        let now = match event.kind {
            EventKind::Deleted => None,
            EventKind::Added | EventKind::Modified => Peer::of(&parse(&event.object)),
        };
        let before = place.pods.get(&*key.name);
        if before == now.as_ref() {
            return;
        }
        for peer in before.into_iter().chain(&now) {
            let touched = place.services.iter().filter(|(_, service)| selects(service, &peer.labels));
            self.dirty.extend(touched.map(|(name, _)| (Arc::clone(&key.namespace), name.clone())));
        }
        match now {
            Some(peer) => drop(place.pods.insert(key.name.to_string(), peer)),
            None => drop(place.pods.remove(&*key.name)),
        }
    }

    /// Writes the slices that are to be otherwise. What fails is looked at again.
    async fn tell(&mut self, storage: &Storage) {
        for (namespace, name) in std::mem::take(&mut self.dirty) {
            let place = self.namespaces.get(&namespace);
            let wanted = place.and_then(|place| {
                let service = place.services.get(&name)?;
                Some(slices(service, place.pods.values().filter(|peer| selects(service, &peer.labels))))
            });
            if let Err(error) = write(storage, &namespace, &name, wanted.unwrap_or_default()).await {
                if !matches!(error, ApplyError::Conflict(_) | ApplyError::NotFound(_) | ApplyError::AlreadyExists(_)) {
                    tracing::warn!(%error, %namespace, name, "the endpoints of a service are old for now");
                }
                self.dirty.insert((namespace, name));
            }
        }
    }
}

impl NamespaceServices {
    fn read_pods(&mut self, store: &Store, namespace: &str) {
        let stored = store.list(PODS, Some(namespace)).items;
        let peers = stored.iter().filter_map(|object| Peer::of(&parse(object)));
        self.pods = peers.map(|peer| (peer.name.clone(), peer)).collect();
    }
}

/// Makes the slices of a service what they are to be. Others' slices of it stay.
async fn write(
    storage: &Storage,
    namespace: &str,
    service: &str,
    mut wanted: BTreeMap<String, Value>,
) -> Result<(), ApplyError> {
    for index in 0.. {
        let name = format!("{service}-{index}");
        let key = Key::new(SLICES, namespace, name.clone());
        let stored = storage.store.get(&key);
        match (stored, wanted.remove(&name)) {
            (None, None) => return Ok(()),
            (None, Some(mut slice)) => {
                slice["metadata"]["uid"] = json!(Uuid::now_v7().to_string());
                slice["metadata"]["creationTimestamp"] = json!(wire_time(storage.clock.now()));
                slice["metadata"]["generation"] = json!(1);
                storage.commit(Change::Put { key, draft: draft(&slice), expect: Expect::Absent }).await?;
            }
            (Some(stored), slice) => {
                let mut object = parse(&stored);
                if meta::label(&object, SERVICE_NAME) != Some(service) {
                    continue;
                }
                let expect = Expect::Revision(stored.revision);
                let Some(slice) = slice else {
                    storage.commit(Change::Delete { key, draft: draft(&object), expect }).await?;
                    continue;
                };
                let before = object.clone();
                for field in ["labels", "ownerReferences"] {
                    object["metadata"][field] = slice["metadata"][field].clone();
                }
                for field in ["endpoints", "ports"] {
                    object[field] = slice[field].clone();
                }
                if object != before {
                    meta::set_generation(&mut object, meta::generation(&before) + 1);
                    storage.commit(Change::Put { key, draft: draft(&object), expect }).await?;
                }
            }
        }
    }
    Ok(())
}

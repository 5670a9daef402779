//! The registry of resources that are served: descriptors of the built-in kinds and of those that CRDs add.
//!
//! Invariant: a [`Registry`] never changes; the whole of it is replaced when the stored definitions have changed, which
//! every request checks first, so whoever has seen a definition is served what it says. Read by every request.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pumice_store::{Listing, Object, Store};
use serde_json::Value;

use crate::kinds::aggregated::AggregatedApi;
use crate::kinds::discovery::Documents;
use crate::kinds::{DEFINITIONS, Descriptor, builtin, crd};

/// What a path names before it comes to an object. The group is empty for the core's resources.
#[derive(PartialEq, Eq, Hash)]
struct ResourcePath {
    group: String,
    version: String,
    plural: String,
}

impl ResourcePath {
    fn new(group: &str, version: &str, plural: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), plural: plural.to_owned() }
    }
}

/// One consistent set of descriptors with the documents that describe it.
pub(crate) struct Registry {
    by_path: HashMap<ResourcePath, Arc<Descriptor>>,
    ordered: Vec<Arc<Descriptor>>,
    aggregated: Vec<Arc<AggregatedApi>>,
    documents: Documents,
    /// What each stored definition gave, by its name and revision.
    defined: Defined,
}

type Defined = HashMap<(Arc<str>, u64), Vec<Arc<Descriptor>>>;

impl Registry {
    /// What `before` made of a definition that is as it was is taken over: its schema and rules are compiled once.
    fn new(definitions: &Listing, before: &Defined, aggregated: Vec<Arc<AggregatedApi>>) -> Self {
        let mut ordered = builtin::descriptors();
        let taken: Vec<String> = ordered.iter().map(|descriptor| descriptor.group.clone()).collect();
        let mut defined = Defined::new();
        for object in &definitions.items {
            let key = (Arc::clone(&object.key.name), object.revision);
            let found = match before.get(&key) {
                Some(known) => known.clone(),
                None => read(object).into_iter().map(Arc::new).collect(),
            };
            ordered.extend(found.iter().filter(|one| !taken.contains(&one.group)).cloned());
            defined.insert(key, found);
        }
        ordered.sort_by(|a, b| a.order(b));
        let by_path = ordered
            .iter()
            .map(|one| (ResourcePath::new(&one.group, &one.version, &one.plural), Arc::clone(one)))
            .collect();
        let documents = Documents::new(&ordered, &aggregated);
        Self { by_path, ordered, aggregated, documents, defined }
    }

    /// The descriptor behind a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Descriptor>> {
        self.by_path.get(&ResourcePath::new(group, version, plural))
    }

    /// The descriptor of a kind, as owner references name it.
    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Descriptor>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.ordered.iter().find(|one| one.group == group && one.version == version && one.kind == kind)
    }

    /// One descriptor for each kind of stored object.
    pub(crate) fn stored(&self) -> BTreeMap<Arc<str>, Arc<Descriptor>> {
        let mut stored = BTreeMap::new();
        for one in self.ordered.iter().filter(|one| one.review.is_none()) {
            if !stored.contains_key(&one.storage) || one.is_storage() {
                stored.insert(Arc::clone(&one.storage), Arc::clone(one));
            }
        }
        stored
    }

    /// The service that answers for a group and version in place of the store.
    pub(crate) fn aggregated(&self, group: &str, version: &str) -> Option<&Arc<AggregatedApi>> {
        self.aggregated.iter().find(|api| api.group == group && api.version == version)
    }

    /// Discovery and OpenAPI of this set.
    pub(crate) fn documents(&self) -> &Documents {
        &self.documents
    }
}

/// The current registry and how to replace it.
pub(crate) struct RegistryCell {
    current: RwLock<(Fingerprint, Arc<Registry>)>,
    aggregated: Vec<Arc<AggregatedApi>>,
    reload: Mutex<()>,
    changed: tokio::sync::watch::Sender<u64>,
}

/// How many definitions there are and the revision of the newest: differs whenever the set has changed.
type Fingerprint = (usize, u64);

fn fingerprint(listing: &Listing) -> Fingerprint {
    (listing.items.len(), listing.items.iter().map(|object| object.revision).max().unwrap_or_default())
}

impl RegistryCell {
    pub(crate) fn new(store: &Store, aggregated: Vec<AggregatedApi>) -> Self {
        let aggregated: Vec<Arc<AggregatedApi>> = aggregated.into_iter().map(Arc::new).collect();
        let listing = store.list(DEFINITIONS, None);
        let registry = Registry::new(&listing, &Defined::new(), aggregated.clone());
        Self {
            current: RwLock::new((fingerprint(&listing), Arc::new(registry))),
            aggregated,
            reload: Mutex::new(()),
            changed: tokio::sync::watch::Sender::new(0),
        }
    }

    /// The set to use for the whole of one request: that of the definitions as they are stored now. O(definitions).
    pub(crate) fn load(&self, store: &Store) -> Arc<Registry> {
        if let Some(current) = self.fresh(&store.list(DEFINITIONS, None)) {
            return current;
        }
        let _turn = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = store.list(DEFINITIONS, None);
        if let Some(current) = self.fresh(&listing) {
            return current;
        }
        let before = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1);
        let registry = Arc::new(Registry::new(&listing, &before.defined, self.aggregated.clone()));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (fingerprint(&listing), Arc::clone(&registry));
        self.changed.send_modify(|count| *count += 1);
        registry
    }

    fn fresh(&self, listing: &Listing) -> Option<Arc<Registry>> {
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
        (current.0 == fingerprint(listing)).then(|| Arc::clone(&current.1))
    }

    /// Tells when the set has changed.
    pub(crate) fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

/// What a definition adds; nothing if it can't be served.
fn read(object: &Object) -> Vec<Descriptor> {
    let definition: Value = serde_json::from_slice(&object.body).unwrap_or_default();
    let read = crd::descriptors(&definition);
    read.inspect_err(|error| tracing::warn!(%error, "a stored definition is not served")).unwrap_or_default()
}

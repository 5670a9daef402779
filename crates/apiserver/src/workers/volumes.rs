//! PersistentVolumes: claims find their volumes, folders are made for those that want one, and what is in use stays.
//!
//! Invariant: everything is decided from what is stored; a volume's side of a binding is written before its claim's, and none
//! of a claim's where a volume's failed. The folder itself is the node's to make and to take away. Where there are neither
//! claims nor volumes, nothing is parsed. Run by the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pumice_clock::wire_time;
use pumice_objects::meta;
use pumice_store::{ApplyError, Change, Expect, Key, Object};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::storage::{Storage, ends_deletion};
use crate::stored::{draft, parse};
use crate::strategies::claim::{CLAIM_PROTECTION, OLD_CLASS};
use crate::strategies::storage_class::{CLASSES, default_class};
use crate::workers::watch_trigger::WatchTrigger;

pub(crate) mod binding;

use binding::{Made, View};

/// The store's name of claims.
const CLAIMS: &str = "persistentvolumeclaims";
/// The store's name of volumes.
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";
/// Changes within this time are looked at together.
const TOGETHER: Duration = Duration::from_millis(5);
/// A look at very many claims is followed by a pause of this many times its length.
const PAUSE_FACTOR: u32 = 4;
/// How long to wait after a write that the store did not take.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Binds claims to volumes, makes volumes for claims that want folders, and lets go what nobody uses, until `stop` or until the
/// store has closed.
pub(crate) async fn run(storage: Arc<Storage>, stop: CancellationToken) {
    let mut following = WatchTrigger::default();
    loop {
        let mut resources: BTreeSet<String> = [CLAIMS, VOLUMES, CLASSES].map(str::to_owned).into();
        if !following.follow(&storage.store, &resources) {
            return;
        }
        let began = Instant::now();
        let look = Look::new(&storage);
        if look.as_ref().is_some_and(|look| look.is_held()) {
            // What pods do decides when these may go; followed before they are looked at.
            resources.insert(PODS.to_owned());
            if !following.follow(&storage.store, &resources) {
                return;
            }
        }
        following.keep(&resources);
        let written = match look {
            Some(look) => look.settle(&storage).await,
            None => Ok(()),
        };
        let again = match written {
            Ok(()) => None,
            Err(ApplyError::Conflict(_) | ApplyError::NotFound(_) | ApplyError::AlreadyExists(_)) => {
                Some(Duration::ZERO)
            }
            Err(ApplyError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "claims and volumes are old for now");
                Some(AGAIN_AFTER)
            }
        };
        let pause = TOGETHER.max(began.elapsed() * PAUSE_FACTOR);
        if !following.next_look(&stop, again, pause).await {
            return;
        }
    }
}

/// Claims and volumes as they are stored.
struct Look {
    claims: Vec<(Arc<Object>, Value)>,
    volumes: Vec<(Arc<Object>, Value)>,
}

impl Look {
    fn new(storage: &Storage) -> Option<Look> {
        let read = |resource: &str| -> Vec<(Arc<Object>, Value)> {
            let stored = storage.store.list(resource, None).items;
            let parsed = |object: Arc<Object>| {
                let value = parse(&object);
                (object, value)
            };
            stored.into_iter().map(parsed).collect()
        };
        let look = Look { claims: read(CLAIMS), volumes: read(VOLUMES) };
        (!look.claims.is_empty() || !look.volumes.is_empty()).then_some(look)
    }

    /// Whether claims wait for their pods to end.
    fn is_held(&self) -> bool {
        self.claims.iter().any(|(_, claim)| is_held(claim))
    }

    /// Writes what is to be otherwise, volumes first.
    async fn settle(self, storage: &Storage) -> Result<(), ApplyError> {
        let mut view = self.view(storage);
        let made = view.settle();
        for Made { name, object } in made {
            make(storage, &name, object).await?;
        }
        for (stored, before) in &self.volumes {
            write(storage, stored, before, view.volumes.remove(&*stored.key.name)).await?;
        }
        for (stored, before) in &self.claims {
            let key = (stored.key.namespace.to_string(), stored.key.name.to_string());
            write(storage, stored, before, view.claims.remove(&key)).await?;
        }
        Ok(())
    }

    fn view(&self, storage: &Storage) -> View {
        let classes: Vec<Value> = storage.store.list(CLASSES, None).items.iter().map(|object| parse(object)).collect();
        let default = default_class(&classes);
        let claims = self.claims.iter().map(|(stored, claim)| {
            let mut claim = claim.clone();
            if claim["spec"]["storageClassName"].is_null()
                && meta::annotation(&claim, OLD_CLASS).is_none()
                && let Some(default) = &default
            {
                // As upstream: a claim that came before there was a default class.
                claim["spec"]["storageClassName"] = json!(default);
            }
            ((stored.key.namespace.to_string(), stored.key.name.to_string()), claim)
        });
        let namespaces: BTreeSet<&Arc<str>> =
            self.claims.iter().filter(|(_, claim)| is_held(claim)).map(|(stored, _)| &stored.key.namespace).collect();
        View {
            claims: claims.collect(),
            volumes: self.volumes.iter().map(|(stored, one)| (stored.key.name.to_string(), one.clone())).collect(),
            classes: classes.into_iter().map(|class| (meta::name(&class).to_owned(), class)).collect(),
            used: namespaces.into_iter().flat_map(|namespace| used(storage, namespace)).collect(),
            host_names: self.host_names(storage),
            tenants: storage.tenants.load(&storage.store),
        }
    }

    /// The labels of the nodes that were chosen for claims.
    fn host_names(&self, storage: &Storage) -> BTreeMap<String, String> {
        let chosen = self.claims.iter().filter_map(|(_, claim)| meta::annotation(claim, binding::SELECTED_NODE));
        let chosen: BTreeSet<&str> = chosen.collect();
        let named = chosen.into_iter().filter_map(|node| {
            let found = parse(&*storage.store.find("nodes", "", node)?);
            Some((node.to_owned(), meta::label(&found, binding::HOST_NAME)?.to_owned()))
        });
        named.collect()
    }
}

fn is_held(claim: &Value) -> bool {
    meta::deletion_timestamp(claim).is_some() && meta::finalizers(claim).any(|one| one == CLAIM_PROTECTION)
}

/// The claims that pods of a namespace use which have a node and have not ended.
fn used(storage: &Storage, namespace: &str) -> Vec<(String, String)> {
    let mut used = Vec::new();
    for pod in storage.store.list(PODS, Some(namespace)).items {
        let pod = parse(&pod);
        let ended = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if ended || pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
            continue;
        }
        let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
        let names = volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str());
        used.extend(names.map(|name| (namespace.to_owned(), name.to_owned())));
    }
    used
}

async fn make(storage: &Storage, name: &str, mut object: Value) -> Result<(), ApplyError> {
    object["metadata"]["uid"] = json!(Uuid::now_v7().to_string());
    object["metadata"]["creationTimestamp"] = json!(wire_time(storage.clock.now()));
    let key = Key::new(VOLUMES, "", name);
    storage.commit(Change::Put { key, draft: draft(&object), expect: Expect::Absent }).await.map(drop)
}

async fn write(storage: &Storage, stored: &Object, before: &Value, after: Option<Value>) -> Result<(), ApplyError> {
    let Some(mut after) = after.filter(|after| after != before) else { return Ok(()) };
    if *stored.key.resource == *VOLUMES && after["status"]["phase"] != before["status"]["phase"] {
        after["status"]["lastPhaseTransitionTime"] = json!(wire_time(storage.clock.now()));
    }
    let (key, draft, expect) = (stored.key.clone(), draft(&after), Expect::Revision(stored.revision));
    let change =
        if ends_deletion(&after) { Change::Delete { key, draft, expect } } else { Change::Put { key, draft, expect } };
    storage.commit(change).await.map(drop)
}

//! Whose a namespace is: the stored Tenants by their namespaces, and the volumes that are theirs.
//!
//! Invariant: the Tenants count, never the label of a namespace alone. One whose label names a Tenant that is not there is nobody's
//! and takes no pods. The index is made anew when a Tenant has changed, which every look checks first; what is as it was is not parsed
//! again. Where there are no Tenants, a look costs one look at a number and one for a label.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pumice_api::names;
use pumice_api::tenant::{REFUSED, TenantSpec};
use pumice_store::{Object, Store};
use serde::Deserialize;
use serde_json::Value;

use crate::json_scan::field;

/// The store's name of Tenants.
const TENANTS: &str = "pumice.sh/tenants";

/// A Tenant, as far as it matters to what is in its namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespaceTenant {
    pub name: String,
    pub spec: TenantSpec,
    /// Why nothing may be made there, where its controller refused it.
    pub refused: Option<String>,
}

/// Whose a namespace is.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Tenancy {
    /// A namespace of people who are no tenants, or of the platform.
    #[default]
    None,
    Of(Arc<NamespaceTenant>),
    /// Its label names this Tenant, which is not there or has another namespace.
    Gone(String),
}

/// Tells whose a namespace is.
pub trait TenantReader: Send + Sync {
    /// Whose it is now: asked for each object of a kind that there are rules for.
    fn tenancy(&self, namespace: &str) -> Tenancy;
    /// The namespaces of the tenants that name a PersistentVolume; `None` where it is no tenant's.
    fn volume_namespaces(&self, volume: &str) -> Option<BTreeSet<String>>;
}

/// Where there are no tenants.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTenants;

impl TenantReader for NoTenants {
    fn tenancy(&self, _namespace: &str) -> Tenancy {
        Tenancy::None
    }

    fn volume_namespaces(&self, _volume: &str) -> Option<BTreeSet<String>> {
        None
    }
}

/// A Tenant that was read.
struct Known {
    revision: u64,
    created: String,
    tenant: Arc<NamespaceTenant>,
}

/// All Tenants at one moment.
#[derive(Default)]
pub(crate) struct Index {
    changed: u64,
    /// By name; nothing for what can't be read, whose namespace its label closes.
    known: HashMap<String, Arc<Known>>,
    namespaces: HashMap<String, Arc<Known>>,
    volumes: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    pub(crate) fn volume_namespaces(&self, volume: &str) -> Option<BTreeSet<String>> {
        self.volumes.get(volume).cloned()
    }

    /// Whether a claim in a namespace may have a volume. One that a Tenant names is for its tenants alone, and a tenant has those that
    /// its Tenant names, and those that were made for its claims or that an administrator has given to one.
    pub(crate) fn may_have(&self, namespace: &str, volume: &str, is_given: bool) -> bool {
        match self.volumes.get(volume) {
            Some(theirs) => theirs.contains(namespace),
            None => is_given || !self.namespaces.contains_key(namespace),
        }
    }
}

/// The Tenants of now, and how to replace them.
#[derive(Default)]
pub(crate) struct TenantsCell {
    current: RwLock<Arc<Index>>,
    reload: Mutex<()>,
}

impl TenantsCell {
    /// The Tenants as they are stored now.
    pub(crate) fn load(&self, store: &Store) -> Arc<Index> {
        let fresh = |changed: u64| Some(self.now()).filter(|index| index.changed == changed);
        if let Some(index) = fresh(store.changed([TENANTS])[0]) {
            return index;
        }
        let _turn = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken before the objects are read: what changes in between is read again at the next look.
        let changed = store.changed([TENANTS])[0];
        if let Some(index) = fresh(changed) {
            return index;
        }
        let index = Arc::new(index(changed, &store.list(TENANTS, None).items, &self.now()));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&index);
        index
    }

    /// Whose a namespace is.
    pub(crate) fn tenancy(&self, store: &Store, namespace: &str) -> Tenancy {
        let found = self.load(store).namespaces.get(namespace).map(|known| Arc::clone(&known.tenant));
        match found {
            Some(tenant) if tenant.refused.is_none() => Tenancy::Of(tenant),
            // A refused Tenant takes over no namespace that was there before it.
            Some(tenant) => match label(store, namespace) {
                Some(label) if label == tenant.name => Tenancy::Of(tenant),
                Some(label) => Tenancy::Gone(label),
                None => Tenancy::None,
            },
            None => label(store, namespace).map_or(Tenancy::None, Tenancy::Gone),
        }
    }

    fn now(&self) -> Arc<Index> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tenant that the label of a stored namespace names. Looked up for each pod that is made: only the labels are parsed, and only where
/// the text has the key.
fn label(store: &Store, namespace: &str) -> Option<String> {
    let stored = store.find("namespaces", "", namespace)?;
    let labels = field(field(&stored.body, "metadata")?, "labels")?;
    let key = names::TENANT.as_bytes();
    // A key may be written with escapes, but not by this server, which wrote the text.
    labels.windows(key.len()).position(|window| window == key)?;
    let labels: Value = serde_json::from_slice(labels).ok()?;
    labels.get(names::TENANT)?.as_str().map(str::to_owned)
}

fn index(changed: u64, stored: &[Arc<Object>], before: &Index) -> Index {
    let mut index = Index { changed, ..Index::default() };
    for object in stored {
        let same = before.known.get(&*object.key.name).filter(|known| known.revision == object.revision);
        let Some(known) = same.map_or_else(|| read(object).map(Arc::new), |known| Some(Arc::clone(known))) else {
            continue;
        };
        let spec = &known.tenant.spec;
        let volumes = spec.home.iter().chain(&spec.volumes).map(|volume| &volume.persistent_volume);
        // A refused Tenant has a claim to nothing.
        for volume in volumes.filter(|volume| !volume.is_empty() && known.tenant.refused.is_none()) {
            index.volumes.entry(volume.clone()).or_default().insert(spec.namespace.clone());
        }
        let other = index.namespaces.get(&spec.namespace);
        if other.is_none_or(|other| rank(&known) < rank(other)) {
            index.namespaces.insert(spec.namespace.clone(), Arc::clone(&known));
        }
        index.known.insert(object.key.name.to_string(), known);
    }
    index
}

/// Of two that name a namespace the one that was not refused has it, then the older one.
fn rank(known: &Known) -> (bool, &str, &str) {
    (known.tenant.refused.is_some(), &known.created, &known.tenant.name)
}

#[derive(Deserialize)]
struct Stored {
    metadata: Metadata,
    spec: TenantSpec,
    #[serde(default)]
    status: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    creation_timestamp: String,
}

fn read(object: &Object) -> Option<Known> {
    let read = serde_json::from_slice::<Stored>(&object.body);
    let Stored { metadata, spec, status } = read
        .inspect_err(|error| tracing::warn!(%error, key = ?object.key, "a stored Tenant counts for nothing"))
        .ok()?;
    let refused = (status["phase"] == REFUSED).then(|| status["message"].as_str().unwrap_or_default().to_owned());
    let tenant = Arc::new(NamespaceTenant { name: metadata.name, spec, refused });
    Some(Known { revision: object.revision, created: metadata.creation_timestamp, tenant })
}

#[cfg(test)]
mod tests {
    use pumice_store::Key;
    use serde_json::json;

    use super::*;
    use crate::stored::draft;

    fn stored(name: &str, revision: u64, namespace: &str, more: &Value) -> Arc<Object> {
        let mut body = json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:0{revision}Z")},
            "spec": {"user": name, "uid": 4001, "gid": 4001, "namespace": namespace,
                "home": {"mountPath": "/home/x", "persistentVolume": format!("{name}-home")}},
        });
        body["status"] = more.clone();
        Arc::new(Object { key: Key::new(TENANTS, "", name), revision, body: draft(&body).render(revision) })
    }

    fn owner<'a>(index: &'a Index, namespace: &str) -> Option<&'a str> {
        index.namespaces.get(namespace).map(|known| known.tenant.name.as_str())
    }

    #[test]
    fn a_namespace_is_the_older_tenants_that_was_not_refused() {
        let refused = json!({"phase": REFUSED, "message": "uid 4001 is bob's"});
        let all = [
            stored("young", 3, "one", &Value::Null),
            stored("old", 2, "one", &Value::Null),
            stored("first", 1, "one", &refused),
            stored("sorry", 4, "two", &refused),
        ];
        let found = index(9, &all, &Index::default());
        assert_eq!(
            (owner(&found, "one"), owner(&found, "two"), owner(&found, "three")),
            (Some("old"), Some("sorry"), None)
        );
        assert_eq!(found.namespaces["two"].tenant.refused.as_deref(), Some("uid 4001 is bob's"));
        assert!(found.may_have("one", "old-home", false) && !found.may_have("two", "old-home", true));
        assert!(!found.may_have("one", "other", false) && found.may_have("one", "other", true));
        assert!(found.may_have("ops", "other", false) && !found.may_have("ops", "old-home", true));
        assert!(!found.volumes.contains_key("sorry-home"));
    }

    #[test]
    fn only_what_has_changed_is_read_again() {
        let all = [stored("a", 1, "one", &Value::Null), stored("b", 2, "two", &Value::Null)];
        let before = index(2, &all, &Index::default());
        let after = index(3, &[Arc::clone(&all[0]), stored("b", 3, "three", &Value::Null)], &before);
        assert!(
            Arc::ptr_eq(&before.known["a"], &after.known["a"]) && !Arc::ptr_eq(&before.known["b"], &after.known["b"])
        );
        assert_eq!((owner(&after, "two"), owner(&after, "three")), (None, Some("b")));
        assert!(index(4, &[], &after).namespaces.is_empty());
    }
}

//! Pods by who controls them.
//!
//! Invariant: a pod stands under the owner that its newest state names, or among those that nobody controls.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use pumice_cluster::{Change, partly_read};
use pumice_machines::workload::OwnedPod;
use serde::Deserialize;

use super::Key;
use crate::cache::Cache;
use crate::index::{self, key};

/// A pod, without what no controller looks at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct SeenPod {
    /// Namespace, name, uid and version.
    pub metadata: ObjectMeta,
    /// The object of ours that controls it.
    pub owner: Option<Key>,
    pub seen: OwnedPod,
    /// Nothing holds it any more: an answer shows its last state.
    is_gone: bool,
}

impl From<Pod> for SeenPod {
    fn from(pod: Pod) -> Self {
        let seen = OwnedPod::observe(&pod);
        let ends_now =
            pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
        let is_gone = ends_now && pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        let ObjectMeta { namespace, name, uid, resource_version, owner_references, .. } = pod.metadata;
        let mut owners = owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let owner = controller.and_then(|owner| owner_key(owner, namespace.as_deref().unwrap_or_default()));
        Self {
            metadata: ObjectMeta { namespace, name, uid, resource_version, ..ObjectMeta::default() },
            owner,
            seen,
            is_gone,
        }
    }
}

partly_read!(SeenPod, Pod, metadata);

fn owner_key(owner: &OwnerReference, namespace: &str) -> Option<Key> {
    fn is<K: k8s_openapi::Resource>(owner: &OwnerReference) -> bool {
        owner.kind == K::KIND && owner.api_version == K::API_VERSION
    }
    let place = (namespace.to_owned(), owner.name.clone());
    if is::<ReplicaSet>(owner) {
        Some(Key::ReplicaSet(place))
    } else if is::<StatefulSet>(owner) {
        Some(Key::StatefulSet(place))
    } else {
        is::<Job>(owner).then_some(Key::Job(place))
    }
}

/// All pods but those of Volcano's Jobs.
#[derive(Default)]
pub(super) struct Pods {
    all: Cache<SeenPod>,
    of_owner: BTreeMap<Key, BTreeSet<String>>,
    /// By namespace: those that nobody controls.
    free: BTreeMap<String, BTreeSet<String>>,
}

impl Pods {
    pub fn is_listed(&self) -> bool {
        self.all.is_listed
    }

    /// Takes a change in, and names each pod that it was about, as it was and as it is.
    pub fn take(&mut self, change: Change<SeenPod>, mut about: impl FnMut(&SeenPod)) {
        let Self { all, of_owner, free } = self;
        let change = match change {
            // The watch may have told of its end before this.
            Change::Applied(pod) if pod.is_gone => Change::Deleted(pod),
            change => change,
        };
        if let Change::Applied(pod) = &change
            && let Some(before) = all.items.get(&key(&pod.metadata))
            && (before.owner != pod.owner || before.seen.owner_uid != pod.seen.owner_uid)
            && index::is_newer(&before.metadata, &pod.metadata)
        {
            file(of_owner, free, before, false);
            about(before);
        }
        all.take(change, |pod, is_there| {
            file(of_owner, free, pod, is_there);
            about(pod);
        });
    }

    /// The pods that an object of this key controls or did, and those of its namespace that nobody controls.
    pub fn of(&self, owner: &Key) -> Vec<&OwnedPod> {
        let (Key::Deployment(place) | Key::Job(place) | Key::ReplicaSet(place) | Key::StatefulSet(place)) = owner;
        let names = self.of_owner.get(owner).into_iter().chain(self.free.get(&place.0)).flatten();
        let pods = names.filter_map(|name| self.all.items.get(&(place.0.clone(), name.clone())));
        pods.map(|pod| &pod.seen).collect()
    }
}

fn file(
    of_owner: &mut BTreeMap<Key, BTreeSet<String>>,
    free: &mut BTreeMap<String, BTreeSet<String>>,
    pod: &SeenPod,
    is_there: bool,
) {
    fn put<K: Ord + Clone>(drawers: &mut BTreeMap<K, BTreeSet<String>>, drawer: &K, name: &str, is_there: bool) {
        if is_there {
            drawers.entry(drawer.clone()).or_default().insert(name.to_owned());
        } else if let Some(names) = drawers.get_mut(drawer) {
            names.remove(name);
            if names.is_empty() {
                drawers.remove(drawer);
            }
        }
    }
    let (namespace, name) = key(&pod.metadata);
    match (&pod.owner, &pod.seen.owner_uid) {
        (Some(owner), _) => put(of_owner, owner, &name, is_there),
        (None, None) => put(free, &namespace, &name, is_there),
        // Somebody else's.
        (None, Some(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, version: u32, owners: Value) -> SeenPod {
        serde_json::from_value(json!({"metadata": {"namespace": "n", "name": name, "uid": name,
            "resourceVersion": version.to_string(), "ownerReferences": owners}}))
        .unwrap()
    }

    #[test]
    fn a_pod_stands_under_its_newest_owner() {
        let of = |kind: &str, version: &str| json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": true}]);
        let mut pods = Pods::default();
        let mut told = Vec::new();
        let mut take = |pods: &mut Pods, change| {
            told.clear();
            pods.take(change, |pod| told.push(pod.owner.clone()));
            told.clone()
        };
        let set = Key::ReplicaSet(("n".into(), "o".into()));
        let names = |pods: &Pods, key: &Key| pods.of(key).iter().map(|pod| pod.name.clone()).collect::<Vec<_>>();
        take(
            &mut pods,
            Change::Replace(vec![
                pod("a", 1, of("ReplicaSet", "apps/v1")),
                pod("b", 2, json!([])),
                pod("c", 3, of("Job", "batch.volcano.sh/v1alpha1")),
            ]),
        );
        assert!(pods.is_listed());
        assert_eq!(names(&pods, &set), ["a", "b"]);
        assert_eq!(
            take(&mut pods, Change::Applied(pod("b", 4, of("ReplicaSet", "apps/v1")))),
            [None, Some(set.clone())]
        );
        let job = Key::Job(("n".into(), "o".into()));
        assert_eq!((names(&pods, &set).len(), names(&pods, &job).len()), (2, 0));
        // A watch that is behind.
        assert_eq!(take(&mut pods, Change::Applied(pod("b", 2, json!([])))), []);
        take(&mut pods, Change::Deleted(pod("a", 5, json!([]))));
        assert_eq!(names(&pods, &set), ["b"]);
        // What the answer to a delete shows is gone.
        let mut gone: Pod = serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "b", "uid": "b",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}}))
        .unwrap();
        take(&mut pods, Change::Applied(SeenPod::from(gone.clone())));
        assert_eq!(names(&pods, &set), [""; 0]);
        gone.metadata.finalizers = Some(vec!["held".to_owned()]);
        take(&mut pods, Change::Applied(SeenPod::from(gone)));
        assert_eq!(names(&pods, &set), ["b"], "it stands among those of nobody");
    }
}

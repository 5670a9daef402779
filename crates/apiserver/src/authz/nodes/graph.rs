//! What the pods of each node refer to.
//!
//! Invariant: it is what the store has at the moment of the question: changes since the last one are taken in first. A change of a
//! pod that leaves what it refers to costs a look at its text. A pod without a node, and one that has ended, refers to nothing.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use pumice_store::{EventKind, Object, Store, Watch};
use serde_json::Value;

use crate::json_scan::field;

const PODS: &str = "pods";

/// What pods refer to, and what is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Secret,
    ConfigMap,
    Claim,
    ResourceClaim,
    /// A service account, for its tokens.
    Account,
}

/// An object that a pod refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Reference {
    kind: Kind,
    namespace: Arc<str>,
    name: Box<str>,
}

/// The references of all pods. Made at the first question.
#[derive(Default)]
pub(super) struct NodeGraph(Mutex<Followed>);

#[derive(Default)]
struct Followed {
    watch: Option<Watch>,
    graph: Graph,
}

impl NodeGraph {
    /// Whether a pod on `node` refers to this object now.
    pub(super) fn refers(&self, store: &Store, node: &str, kind: Kind, namespace: &str, name: &str) -> bool {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        followed.catch_up(store);
        followed.graph.refers(node, &Reference { kind, namespace: namespace.into(), name: name.into() })
    }
}

impl Followed {
    fn catch_up(&mut self, store: &Store) {
        while let Some(watch) = &mut self.watch {
            match watch.try_next() {
                Ok(Some(event)) if event.kind == EventKind::Deleted => self.graph.remove(&event.object),
                Ok(Some(event)) => self.graph.put(&event.object),
                Ok(None) => return,
                // Too much has changed since, or the store has closed.
                Err(_) => self.watch = None,
            }
        }
        let listing = store.list(PODS, None);
        self.watch = store.watch(PODS, None, Some(listing.revision)).ok();
        self.graph = Graph::default();
        listing.items.iter().for_each(|pod| self.graph.put(pod));
    }
}

#[derive(Default)]
struct Graph {
    /// How many pods of a node refer to an object.
    nodes: HashMap<Arc<str>, HashMap<Reference, u32>>,
    pods: HashMap<(Arc<str>, Arc<str>), PodEntry>,
}

/// A pod that is bound and has not ended.
struct PodEntry {
    node: Arc<str>,
    references: BTreeSet<Reference>,
    /// Of the text that they follow from.
    hash: u64,
}

impl Graph {
    fn refers(&self, node: &str, reference: &Reference) -> bool {
        self.nodes.get(node).is_some_and(|references| references.contains_key(reference))
    }

    fn put(&mut self, pod: &Object) {
        let (spec, status) =
            (field(&pod.body, "spec").unwrap_or_default(), field(&pod.body, "status").unwrap_or_default());
        if matches!(field(status, "phase"), Some(b"\"Succeeded\"" | b"\"Failed\"")) {
            return self.remove(pod);
        }
        let claims = field(status, "resourceClaimStatuses").unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        (spec, claims).hash(&mut hasher);
        let hash = hasher.finish();
        let key = (Arc::clone(&pod.key.namespace), Arc::clone(&pod.key.name));
        if self.pods.get(&key).is_some_and(|known| known.hash == hash) {
            return;
        }
        self.remove(pod);
        let node = field(spec, "nodeName").and_then(|text| serde_json::from_slice::<String>(text).ok());
        let Some(node) = node.filter(|node| !node.is_empty()) else { return };
        let spec: Value = serde_json::from_slice(spec).unwrap_or_default();
        let claims: Value = serde_json::from_slice(claims).unwrap_or_default();
        let references = references(&pod.key.namespace, &pod.key.name, &spec, &claims);
        let node =
            self.nodes.get_key_value(&*node).map_or_else(|| node.as_str().into(), |(known, _)| Arc::clone(known));
        let of_node = self.nodes.entry(Arc::clone(&node)).or_default();
        for reference in &references {
            *of_node.entry(reference.clone()).or_default() += 1;
        }
        self.pods.insert(key, PodEntry { node, references, hash });
    }

    fn remove(&mut self, pod: &Object) {
        let key = (Arc::clone(&pod.key.namespace), Arc::clone(&pod.key.name));
        let Some(PodEntry { node, references, .. }) = self.pods.remove(&key) else { return };
        let Some(of_node) = self.nodes.get_mut(&node) else { return };
        for reference in references {
            if let Some(count) = of_node.get_mut(&reference) {
                *count -= 1;
                if *count == 0 {
                    of_node.remove(&reference);
                }
            }
        }
        if of_node.is_empty() {
            self.nodes.remove(&node);
        }
    }
}

/// All that a node reads for a pod.
fn references(namespace: &Arc<str>, pod: &str, spec: &Value, claim_statuses: &Value) -> BTreeSet<Reference> {
    let mut found = Found { namespace, references: BTreeSet::new() };
    found.add(Kind::Account, &spec["serviceAccountName"]);
    for secret in list(&spec["imagePullSecrets"]) {
        found.add(Kind::Secret, &secret["name"]);
    }
    let containers = ["initContainers", "containers", "ephemeralContainers"].map(|field| &spec[field]);
    for container in containers.into_iter().flat_map(list) {
        for source in list(&container["envFrom"]) {
            found.add(Kind::ConfigMap, &source["configMapRef"]["name"]);
            found.add(Kind::Secret, &source["secretRef"]["name"]);
        }
        for source in list(&container["env"]).map(|variable| &variable["valueFrom"]) {
            found.add(Kind::ConfigMap, &source["configMapKeyRef"]["name"]);
            found.add(Kind::Secret, &source["secretKeyRef"]["name"]);
        }
    }
    for volume in list(&spec["volumes"]) {
        found.add(Kind::ConfigMap, &volume["configMap"]["name"]);
        found.add(Kind::Secret, &volume["secret"]["secretName"]);
        found.add(Kind::Claim, &volume["persistentVolumeClaim"]["claimName"]);
        if let (true, Some(name)) = (volume["ephemeral"].is_object(), volume["name"].as_str()) {
            // As the controller that makes the claim calls it.
            found.add_named(Kind::Claim, &format!("{pod}-{name}"));
        }
        for source in list(&volume["projected"]["sources"]) {
            found.add(Kind::ConfigMap, &source["configMap"]["name"]);
            found.add(Kind::Secret, &source["secret"]["name"]);
        }
    }
    for claim in list(&spec["resourceClaims"]).chain(list(claim_statuses)) {
        found.add(Kind::ResourceClaim, &claim["resourceClaimName"]);
    }
    found.references
}

struct Found<'a> {
    namespace: &'a Arc<str>,
    references: BTreeSet<Reference>,
}

impl Found<'_> {
    fn add(&mut self, kind: Kind, name: &Value) {
        self.add_named(kind, name.as_str().unwrap_or_default());
    }

    fn add_named(&mut self, kind: Kind, name: &str) {
        if !name.is_empty() {
            self.references.insert(Reference { kind, namespace: Arc::clone(self.namespace), name: name.into() });
        }
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use pumice_store::{Change, Expect, Key, Options};
    use serde_json::json;

    use super::*;
    use crate::stored::draft;

    fn pod(name: &str, node: &str, secret: &str, phase: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": secret}}]}]},
            "status": {"phase": phase},
        })
    }

    async fn put(store: &Store, pod: &Value) {
        let key = Key::new(PODS, "ns", pod["metadata"]["name"].as_str().expect("a name"));
        let expect = store.get(&key).map_or(Expect::Absent, |stored| Expect::Revision(stored.revision));
        store.apply(Change::Put { key, draft: draft(pod), expect }).await.expect("stored");
    }

    #[tokio::test]
    async fn it_is_what_the_store_has() {
        let store = Store::in_memory(Options::default()).expect("a store");
        let graph = NodeGraph::default();
        let refers = |node: &str| graph.refers(&store, node, Kind::Secret, "ns", "s");
        assert!(!refers("n1"));
        put(&store, &pod("a", "", "s", "Pending")).await;
        assert!(!refers("n1"), "it has no node");
        put(&store, &pod("a", "n1", "s", "Pending")).await;
        put(&store, &pod("b", "n1", "s", "Running")).await;
        assert!(refers("n1") && !refers("n2"));
        assert!(
            !graph.refers(&store, "n1", Kind::ConfigMap, "ns", "s")
                && !graph.refers(&store, "n1", Kind::Secret, "no", "s")
        );
        put(&store, &pod("a", "n1", "s", "Succeeded")).await;
        assert!(refers("n1"), "another one needs it");
        let stored = store.find(PODS, "ns", "b").expect("stored");
        let (key, expect) = (stored.key.clone(), Expect::Revision(stored.revision));
        store.apply(Change::Delete { key, draft: draft(&json!({})), expect }).await.expect("deleted");
        assert!(!refers("n1"));
        let state = graph.0.lock().expect("nobody panicked");
        assert!(state.graph.nodes.is_empty() && state.graph.pods.is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn more_changes_than_the_window_has_are_listed() {
        let store = Store::in_memory(Options { window_events_max: 4, ..Options::default() }).expect("a store");
        let graph = NodeGraph::default();
        assert!(!graph.refers(&store, "n1", Kind::Secret, "ns", "s"));
        for index in 0..20 {
            put(&store, &pod(&format!("p{index}"), "n1", "s", "Running")).await;
        }
        assert!(graph.refers(&store, "n1", Kind::Secret, "ns", "s"));
        assert_eq!(graph.0.lock().expect("nobody panicked").graph.pods.len(), 20);
    }

    #[test]
    fn every_reference_of_a_pod_is_found() {
        let spec = json!({
            "serviceAccountName": "robot",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "s1"}}]}],
            "ephemeralContainers": [{"envFrom": [{"configMapRef": {"name": "c0"}}]}],
            "containers": [{"envFrom": [{"configMapRef": {"name": "c1"}}], "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                {"name": "C", "value": "plain"},
            ]}],
            "volumes": [
                {"name": "a", "configMap": {"name": "c3"}}, {"name": "b", "secret": {"secretName": "s3"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "p1"}}, {"name": "d", "ephemeral": {}},
                {"name": "e", "projected": {"sources": [{"configMap": {"name": "c4"}}, {"secret": {"name": "s4"}}]}},
            ],
            "resourceClaims": [{"name": "x", "resourceClaimName": "r1"}],
        });
        let found = references(&"ns".into(), "pod", &spec, &json!([{"name": "y", "resourceClaimName": "r2"}]));
        let names =
            |kind| found.iter().filter(|one| one.kind == kind).map(|one| &*one.name).collect::<Vec<_>>().join(",");
        assert_eq!(names(Kind::Secret), "pull,s1,s2,s3,s4");
        assert_eq!(names(Kind::ConfigMap), "c0,c1,c2,c3,c4");
        assert_eq!(names(Kind::Claim), "p1,pod-d");
        assert_eq!(names(Kind::ResourceClaim), "r1,r2");
        assert_eq!(names(Kind::Account), "robot");
    }
}

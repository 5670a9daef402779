//! The pods on this node by name, for those who answer questions about them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// Which pod has which directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodIndex {
    pods: Arc<RwLock<HashMap<(String, String), Indexed>>>,
}

#[derive(Debug, Clone)]
struct Indexed {
    dir: PathBuf,
    disk: DiskRules,
    ended: bool,
}

/// What of a pod's spec says how it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DiskRules {
    /// Whether it has a limit that is kept to by measuring.
    pub limited: bool,
    /// Whether its files stay in their projects, where they have one.
    pub by_project: bool,
}

/// A pod on this node that has not ended.
pub(crate) struct IndexedPod {
    pub namespace: String,
    pub name: String,
    pub dir: PathBuf,
    /// How what it keeps on disk is measured.
    pub disk: DiskRules,
}

impl PodIndex {
    /// Names the directory of a pod; once more when more is known of it.
    pub(crate) fn insert(&self, namespace: &str, name: &str, dir: PathBuf, disk: DiskRules) {
        let mut pods = self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        let ended = pods.get(&key).is_some_and(|pod| pod.ended && pod.dir == dir);
        pods.insert(key, Indexed { dir, disk, ended });
    }

    /// Notes that a pod has ended: it stays for those who ask about it, who measures need not look at it.
    pub(crate) fn end(&self, namespace: &str, name: &str, dir: &Path) {
        let mut pods = self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let pod = pods.get_mut(&(namespace.to_owned(), name.to_owned()));
        if let Some(pod) = pod.filter(|pod| pod.dir == dir) {
            pod.ended = true;
        }
    }

    /// Forgets a pod, unless another one of the same name has taken its place.
    pub(crate) fn remove(&self, namespace: &str, name: &str, dir: &PathBuf) {
        let mut pods = self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if pods.get(&key).is_some_and(|pod| pod.dir == *dir) {
            pods.remove(&key);
        }
    }

    /// All pods that have not ended, in no order. There may be very many that have.
    pub(crate) fn unended(&self) -> Vec<IndexedPod> {
        let pods = self.pods.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let each = pods.iter().filter(|(_, pod)| !pod.ended).map(|((namespace, name), pod)| IndexedPod {
            namespace: namespace.clone(),
            name: name.clone(),
            dir: pod.dir.clone(),
            disk: pod.disk,
        });
        each.collect()
    }

    /// The directory of a pod that is on this node.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<PathBuf> {
        let pods = self.pods.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        pods.get(&(namespace.to_owned(), name.to_owned())).map(|pod| pod.dir.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_that_has_ended_is_found_and_not_measured() {
        let index = PodIndex::default();
        let insert = |dir: &str| index.insert("ns", "p", dir.into(), DiskRules::default());
        let unended = || index.unended().into_iter().map(|pod| pod.dir).collect::<Vec<_>>();
        insert("first");
        index.end("ns", "p", Path::new("another"));
        assert_eq!(unended(), [Path::new("first")]);
        index.end("ns", "p", Path::new("first"));
        insert("first");
        assert_eq!((unended(), index.get("ns", "p")), (vec![], Some("first".into())));
        insert("second");
        assert_eq!(unended(), [Path::new("second")], "another pod of the name");
    }
}

//! The pods on this node by name, for those who answer questions about them.

use std::collections::HashMap;
use std::path::PathBuf;
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
}

/// What of a pod's spec says how it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DiskRules {
    /// Whether it has a limit that is kept to by measuring.
    pub limited: bool,
    /// Whether its files stay in their projects, where they have one.
    pub by_project: bool,
}

/// A pod on this node.
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
        pods.insert((namespace.to_owned(), name.to_owned()), Indexed { dir, disk });
    }

    /// Forgets a pod, unless another one of the same name has taken its place.
    pub(crate) fn remove(&self, namespace: &str, name: &str, dir: &PathBuf) {
        let mut pods = self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        if pods.get(&key).is_some_and(|pod| pod.dir == *dir) {
            pods.remove(&key);
        }
    }

    /// All pods, in no order.
    pub(crate) fn all(&self) -> Vec<IndexedPod> {
        let pods = self.pods.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let each = pods.iter().map(|((namespace, name), pod)| IndexedPod {
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

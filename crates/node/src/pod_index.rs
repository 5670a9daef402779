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
    disk_limited: bool,
}

/// A pod on this node.
pub(crate) struct IndexedPod {
    pub namespace: String,
    pub name: String,
    pub dir: PathBuf,
    /// Whether it has a limit of disk that is kept to by measuring.
    pub disk_limited: bool,
}

impl PodIndex {
    /// Names the directory of a pod; once more when more is known of it.
    pub(crate) fn insert(&self, namespace: &str, name: &str, dir: PathBuf, disk_limited: bool) {
        let mut pods = self.pods.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        pods.insert((namespace.to_owned(), name.to_owned()), Indexed { dir, disk_limited });
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
            disk_limited: pod.disk_limited,
        });
        each.collect()
    }

    /// The directory of a pod that is on this node.
    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<PathBuf> {
        let pods = self.pods.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        pods.get(&(namespace.to_owned(), name.to_owned())).map(|pod| pod.dir.clone())
    }
}

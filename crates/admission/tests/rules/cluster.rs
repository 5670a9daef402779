//! A cluster for the rules to look at, as plain lists.

use pumice_admission::View;
use pumice_api::scheduling::Queue;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// What the rules can see.
#[derive(Default)]
pub struct Cluster {
    /// Every queue.
    pub queues: Vec<Queue>,
    /// Annotations of namespaces: namespace, key, value.
    pub annotations: Vec<(&'static str, &'static str, &'static str)>,
}

impl View for Cluster {
    fn queue(&self, name: &str) -> Option<Queue> {
        self.queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(name)).cloned()
    }

    fn queues(&self) -> Vec<Queue> {
        self.queues.clone()
    }

    fn namespace_annotation(&self, namespace: &str, key: &str) -> Option<String> {
        let found = self.annotations.iter().find(|(at, named, _)| *at == namespace && *named == key);
        found.map(|(_, _, value)| (*value).to_owned())
    }
}

/// The object behind its JSON.
pub fn typed<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).expect("reads")
}

/// A queue from its JSON.
pub fn queue(value: Value) -> Queue {
    typed(&value)
}

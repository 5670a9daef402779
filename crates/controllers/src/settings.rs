//! A controller's configuration in a ConfigMap, which may change or be absent.
//!
//! Invariant: a text that can't be read changes nothing: what was read before stays, and an event on the ConfigMap says why.

use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{Api, Client};
use pumice_cluster::events::{Occurrence, Severity};
use pumice_cluster::{Change, EventRecorder, WatchScope, watch_optional};

use pumice_clock as clock;

/// Where a configuration stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsLocation {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    pub name: String,
    /// The key in its data.
    pub key: String,
}

impl SettingsLocation {
    pub(crate) fn new(namespace: &str, name: &str, key: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() }
    }
}

/// The configuration of a controller, as it stands in its ConfigMap.
pub(crate) struct Settings {
    location: SettingsLocation,
    recorder: EventRecorder,
    /// Whether the ConfigMap, or its absence, was seen.
    pub is_listed: bool,
    text: Option<String>,
}

impl Settings {
    pub fn new(location: SettingsLocation, recorder: EventRecorder) -> Self {
        Self { location, recorder, is_listed: false, text: None }
    }

    pub fn watch(&self, client: &Client) -> BoxStream<'static, Change<ConfigMap>> {
        let maps = Api::namespaced(client.clone(), &self.location.namespace);
        watch_optional(maps, WatchScope::fields(format!("metadata.name={}", self.location.name))).boxed()
    }

    /// Takes a change in; the new text, `None` within for none, if it is another one.
    pub fn take(&mut self, change: Change<ConfigMap>) -> Option<Option<&str>> {
        let first = !self.is_listed;
        let map = match change {
            Change::Replace(all) => {
                self.is_listed = true;
                all.into_iter().next()
            }
            Change::Applied(map) => Some(map),
            Change::Deleted(_) => None,
        };
        let text = map.and_then(|map| map.data?.remove(&self.location.key));
        if text == self.text && !first {
            return None;
        }
        self.text = text;
        Some(self.text.as_deref())
    }

    /// Says what is wrong with the text.
    pub fn complain(&self, message: String) {
        let SettingsLocation { namespace, name, .. } = &self.location;
        tracing::warn!(namespace, config_map = name, message, "the configuration is not taken as it is");
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(namespace.clone()),
            name: Some(name.clone()),
            ..ObjectReference::default()
        };
        let (severity, reason) = (Severity::Warning, "InvalidConfiguration".to_owned());
        self.recorder.record(Occurrence { about, severity, reason, message, at: clock::now() });
    }
}

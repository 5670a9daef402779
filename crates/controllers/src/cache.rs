//! What is known of one kind, for controllers of few objects.
//!
//! Invariant: an object never goes back to an older version of itself, so that the answer of a call and the watch may come in
//! any order.

use std::collections::BTreeMap;

use kube::Resource;
use pumice_cluster::Change;

use crate::index::{Key, is_newer, key};

/// The objects of one kind.
pub(crate) struct Cache<K> {
    pub items: BTreeMap<Key, K>,
    /// Whether a complete list was taken in.
    pub is_listed: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), is_listed: false }
    }
}

impl<K: Resource> Cache<K> {
    /// Takes a change in; tells `about` every object that came, changed or went, and whether it is there now.
    pub fn take(&mut self, change: Change<K>, mut about: impl FnMut(&K, bool)) {
        match change {
            Change::Replace(all) => {
                self.is_listed = true;
                self.items.values().for_each(|object| about(object, false));
                self.items = all.into_iter().map(|object| (key(object.meta()), object)).collect();
                self.items.values().for_each(|object| about(object, true));
            }
            Change::Applied(object) => {
                let key = key(object.meta());
                if self.items.get(&key).is_some_and(|held| !is_newer(held.meta(), object.meta())) {
                    return;
                }
                about(&object, true);
                self.items.insert(key, object);
            }
            Change::Deleted(object) => {
                let key = key(object.meta());
                let is_held = self.items.get(&key).is_some_and(|held| held.meta().uid == object.meta().uid);
                if is_held && let Some(held) = self.items.remove(&key) {
                    about(&held, false);
                }
            }
        }
    }

    /// Those of one namespace.
    pub fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = &K> {
        let from = (namespace.to_owned(), String::new());
        self.items.range(from..).take_while(move |((of, _), _)| of == namespace).map(|(_, object)| object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(uid: &str, version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some("x".into());
        object.metadata.uid = Some(uid.into());
        object.metadata.resource_version = Some(version.into());
        object
    }

    #[test]
    fn an_object_never_gets_older() {
        let mut shelf = Cache::default();
        let version = |shelf: &Cache<ConfigMap>| {
            shelf.items.values().next().and_then(|object| object.metadata.resource_version.clone())
        };
        shelf.take(Change::Replace(vec![object("u", "9")]), |_, _| {});
        assert!(shelf.is_listed);
        shelf.take(Change::Applied(object("u", "8")), |_, _| panic!("older"));
        assert_eq!(version(&shelf).as_deref(), Some("9"));
        shelf.take(Change::Applied(object("u", "10")), |_, there| assert!(there));
        // Another one of that name.
        shelf.take(Change::Applied(object("v", "11")), |_, _| {});
        shelf.take(Change::Deleted(object("u", "10")), |_, _| panic!("long gone"));
        assert_eq!(version(&shelf).as_deref(), Some("11"));
        shelf.take(Change::Deleted(object("v", "12")), |_, there| assert!(!there));
        assert_eq!(version(&shelf), None);
    }
}

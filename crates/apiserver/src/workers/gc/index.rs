//! Who depends on whom, by uid.
//!
//! Invariant: holds only objects that name owners; anything else is looked up in the store.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use pumice_store::{Key, Object};
use serde::Deserialize;

use super::Item;
use crate::json_scan::field;
use crate::kinds::DEFINITIONS;
use crate::storage::{FOREGROUND, ORPHAN};

/// What the collector reads of an object.
pub(super) struct Facts {
    pub(super) uid: String,
    /// Uids of its owners.
    pub(super) owners: Vec<String>,
    pub(super) waits_for_dependents: bool,
    is_dying: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
    #[serde(default)]
    finalizers: Option<Vec<String>>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Owner {
    #[serde(default)]
    uid: String,
}

impl Facts {
    /// Reads the metadata and skips the rest.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let metadata = serde_json::from_slice::<Metadata<'_>>(field(&object.body, "metadata")?).ok()?;
        let finalizers = metadata.finalizers.unwrap_or_default();
        let is_dying = metadata.deletion_timestamp.is_some();
        Some(Self {
            uid: metadata.uid.into_owned(),
            owners: metadata.owner_references.unwrap_or_default().into_iter().map(|owner| owner.uid).collect(),
            waits_for_dependents: is_dying && finalizers.iter().any(|one| one == FOREGROUND || one == ORPHAN),
            is_dying,
        })
    }

    /// The work of emptying this object, if it is a namespace or a definition on its way out.
    pub(super) fn container(&self, key: &Key) -> Option<Item> {
        if !self.is_dying {
            return None;
        }
        if *key.resource == *"namespaces" {
            return Some(Item::Namespace(Arc::clone(&key.name)));
        }
        if *key.resource == *DEFINITIONS {
            let (plural, group) = key.name.split_once('.')?;
            return Some(Item::Definition(Arc::from(format!("{group}/{plural}"))));
        }
        None
    }
}

#[derive(Default)]
pub(super) struct Index {
    owners: HashMap<Key, Vec<String>>,
    dependents: HashMap<String, HashSet<Key>>,
    dying: HashMap<String, Key>,
}

impl Index {
    /// Whether the object has other owners than before, or is new.
    pub(super) fn put(&mut self, key: &Key, facts: &Facts) -> bool {
        if self.owners.get(key).map_or(&[][..], Vec::as_slice) == facts.owners {
            return false;
        }
        self.remove(key);
        if facts.owners.is_empty() {
            return true;
        }
        for owner in &facts.owners {
            self.dependents.entry(owner.clone()).or_default().insert(key.clone());
        }
        self.owners.insert(key.clone(), facts.owners.clone());
        true
    }

    /// Forgets an object, and gives its owners.
    pub(super) fn remove(&mut self, key: &Key) -> Vec<String> {
        let owners = self.owners.remove(key).unwrap_or_default();
        for owner in &owners {
            if let Some(dependents) = self.dependents.get_mut(owner) {
                dependents.remove(key);
                if dependents.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        owners
    }

    pub(super) fn dependents(&self, owner: &str) -> Vec<Key> {
        self.dependents.get(owner).into_iter().flatten().cloned().collect()
    }

    pub(super) fn dying(&mut self, uid: &str, key: &Key) {
        self.dying.insert(uid.to_owned(), key.clone());
    }

    pub(super) fn dying_key(&self, uid: &str) -> Option<Key> {
        self.dying.get(uid).cloned()
    }

    pub(super) fn forget_dying(&mut self, uid: &str) {
        self.dying.remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(owners: &[&str]) -> Facts {
        let owners = owners.iter().map(|owner| (*owner).to_owned()).collect();
        Facts { uid: String::new(), owners, waits_for_dependents: false, is_dying: false }
    }

    #[test]
    fn the_graph_follows_the_last_version() {
        let mut index = Index::default();
        let key = Key::new("pods", "a", "x");
        assert!(!index.put(&key, &facts(&[])), "nobody owned it, nobody does");
        assert!(index.put(&key, &facts(&["u1", "u2"])));
        assert!(!index.put(&key, &facts(&["u1", "u2"])));
        assert!(index.put(&key, &facts(&["u2"])));
        assert!(index.dependents("u1").is_empty());
        assert_eq!(index.dependents("u2"), std::slice::from_ref(&key));
        assert_eq!(index.remove(&key), ["u2"]);
        assert!(index.dependents("u2").is_empty() && index.dependents.is_empty());
    }
}

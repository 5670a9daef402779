//! What was learned of earlier runs, by namespace.
//!
//! Invariant: as the watch has told it last; a server that has no ResourceProfiles has none. A profile makes no work for the
//! jobs that run: what a job starts with is fixed by then.

use std::collections::{BTreeMap, HashMap};

use pumice_api::profile::ResourceProfile;
use pumice_cluster::Change;

use super::{Index, key};

static NONE: BTreeMap<String, ResourceProfile> = BTreeMap::new();

/// Profiles by namespace and name.
#[derive(Default)]
pub(super) struct Profiles {
    by_namespace: HashMap<String, BTreeMap<String, ResourceProfile>>,
}

impl Index {
    pub fn profile_changed(&mut self, change: Change<ResourceProfile>) {
        let all = &mut self.profiles.by_namespace;
        match change {
            Change::Replace(profiles) => {
                all.clear();
                profiles.into_iter().for_each(|profile| put(all, profile));
            }
            Change::Applied(profile) => put(all, profile),
            Change::Deleted(profile) => {
                let (namespace, name) = key(&profile.metadata);
                if let Some(of_namespace) = all.get_mut(&namespace) {
                    of_namespace.remove(&name);
                    if of_namespace.is_empty() {
                        all.remove(&namespace);
                    }
                }
            }
        }
    }

    /// The profiles of a namespace, by name.
    pub fn profiles_of(&self, namespace: &str) -> &BTreeMap<String, ResourceProfile> {
        self.profiles.by_namespace.get(namespace).unwrap_or(&NONE)
    }
}

fn put(all: &mut HashMap<String, BTreeMap<String, ResourceProfile>>, mut profile: ResourceProfile) {
    profile.metadata.managed_fields = None;
    let (namespace, name) = key(&profile.metadata);
    all.entry(namespace).or_default().insert(name, profile);
}

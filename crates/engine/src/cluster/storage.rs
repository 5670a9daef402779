//! Volumes: claims, volumes, storage classes, what nodes can attach; and which volume each waiting claim will get.
//!
//! Invariant: `users` counts the pods with a place by claim; a claim that waits for its first pod has a volume in
//! `chosen` from the moment that a pod of it has a place, if there is one that fits, and nobody else takes that one.
//! Called by `Tables`; the rules of what may go where are with the plugin `predicates`.

use rustc_hash::FxHashMap;

use crate::cluster::node_matching::{holds, matches_term};
use crate::cluster::nodes::NodeRow;
use crate::cluster::objects::Versioned;
use crate::cluster::table::key_of;
use crate::cluster::use_counts::{Change, Users};
use crate::facts::{CsiNodeFacts, StorageClassFacts, VolumeClaimFacts, VolumeFacts};

#[derive(Debug, Default)]
pub(crate) struct Storage {
    /// By `namespace/name`.
    pub(crate) claims: Versioned<VolumeClaimFacts>,
    pub(crate) volumes: Versioned<VolumeFacts>,
    pub(crate) classes: Versioned<StorageClassFacts>,
    /// By the node's name.
    pub(crate) csi_nodes: Versioned<CsiNodeFacts>,
    /// See [`Config::nodes_meet_claims`](crate::Config::nodes_meet_claims).
    pub(crate) nodes_meet_claims: bool,
    /// Pods with a place, by claim.
    users: Users,
    /// The volume that a waiting claim will get, by claim.
    chosen: FxHashMap<String, String>,
    /// The claim that will get it, by volume.
    taken: FxHashMap<String, String>,
}

impl Storage {
    /// A claim as it is now; false if it was so already.
    pub(crate) fn upsert_claim(&mut self, facts: &VolumeClaimFacts) -> bool {
        let key = key_of(&facts.namespace, &facts.name);
        if facts.bound {
            self.give_back(&key);
        }
        self.claims.upsert(key, facts)
    }

    /// A claim is gone; false if it was not there.
    pub(crate) fn remove_claim(&mut self, key: &str) -> bool {
        self.give_back(key);
        self.claims.remove(key)
    }

    /// Counts a pod that has got a place on `node` (`sign` 1), or lost it (-1).
    pub(crate) fn count(&mut self, namespace: &str, claims: &[String], node: &NodeRow, sign: i32) {
        for name in claims {
            let key = key_of(namespace, name);
            match self.users.count(&key, sign) {
                Change::Last => self.give_back(&key),
                Change::First => self.choose(&key, node),
                Change::Neither => {}
            }
        }
    }

    /// Pods with a place that use the claim.
    pub(crate) fn users(&self, key: &str) -> u32 {
        self.users.get(key)
    }

    /// The volume that a waiting claim will get.
    pub(crate) fn chosen(&self, key: &str) -> Option<&str> {
        self.chosen.get(key).map(String::as_str)
    }

    fn choose(&mut self, key: &str, node: &NodeRow) {
        let Some(claim) = self.claims.all.get(key).filter(|claim| self.waits(claim)) else { return };
        let candidates = self.candidates(claim);
        let found = candidates.into_iter().find(|volume| reaches(volume, node)).map(|volume| volume.name.clone());
        if let Some(volume) = found {
            self.taken.insert(volume.clone(), key.to_owned());
            self.chosen.insert(key.to_owned(), volume);
        }
    }

    fn give_back(&mut self, key: &str) {
        if let Some(volume) = self.chosen.remove(key) {
            self.taken.remove(&volume);
        }
    }

    /// The nodes meet claims by themselves, where neither volumes nor classes are there.
    pub(crate) fn binds_nothing(&self) -> bool {
        self.nodes_meet_claims && self.volumes.all.is_empty() && self.classes.all.is_empty()
    }

    /// The claim is bound to nothing yet, and the node is to be chosen first.
    pub(crate) fn waits(&self, claim: &VolumeClaimFacts) -> bool {
        !claim.bound && claim.volume.is_empty() && self.classes.all.get(&claim.class).is_some_and(|class| class.waits)
    }

    /// Free volumes that suit a claim: those kept for it first, then the smallest. O(volumes).
    pub(crate) fn candidates(&self, claim: &VolumeClaimFacts) -> Vec<&VolumeFacts> {
        if claim.selected_node.is_some() {
            // A provisioner is at work for it.
            return Vec::new();
        }
        let key = key_of(&claim.namespace, &claim.name);
        let suits = |volume: &&VolumeFacts| {
            let mine = volume.claim.as_deref() == Some(key.as_str());
            let free = volume.claim.is_none() && volume.available && !self.taken.contains_key(&volume.name);
            let selected = claim.selector.as_ref().is_none_or(|selector| {
                let label = |key: &String| volume.labels.get(key).map(String::as_str);
                selector.requirements.iter().all(|requirement| holds(requirement, label(&requirement.key)))
            });
            (mine || free && selected)
                && volume.class == claim.class
                && volume.block == claim.block
                && volume.bytes >= claim.bytes
                && claim.access_modes.iter().all(|mode| volume.access_modes.contains(mode))
        };
        let mut found: Vec<&VolumeFacts> = self.volumes.all.values().filter(suits).collect();
        found.sort_by_key(|volume| (volume.claim.is_none(), volume.bytes, &volume.name));
        found
    }
}

/// Whether pods on the node can use the volume.
pub(crate) fn reaches(volume: &VolumeFacts, node: &NodeRow) -> bool {
    volume.node_terms.as_ref().is_none_or(|terms| terms.iter().any(|term| matches_term(term, node)))
}

crate::save::saved! {
    Storage { claims, volumes, classes, csi_nodes, nodes_meet_claims, users, chosen, taken };
}

//! Container images: how many nodes hold each, and which of them pods ask for. A score by images depends on all nodes
//! that hold them, so what changes here is told to the search through the nodes' log.
//!
//! Invariant: `holders` counts the known nodes that list an image. Called by `Tables`.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::cluster::nodes::{NodeRow, Nodes};
use crate::ids::NodeId;

/// Smaller images are not worth going for.
const BYTES_MIN: i64 = 23 << 20;
/// More than this an image counts no more.
const BYTES_MAX: i64 = 1000 << 20;
const SCORE_MAX: i64 = 100;

#[derive(Debug, Default)]
pub(crate) struct Images {
    holders: FxHashMap<String, ImageHolders>,
    /// Classes of pods that ask for an image.
    users: FxHashMap<String, u32>,
    changed: BTreeSet<String>,
    /// Nodes there were when scores were last found good.
    nodes: u32,
}

/// Where an image is.
#[derive(Debug, Default, Clone, Copy)]
struct ImageHolders {
    nodes: i64,
    /// No node says that it is larger.
    bytes_max: i64,
}

impl Images {
    /// A node's list was `old` and is `new`.
    pub(crate) fn node_changed(&mut self, old: &BTreeMap<String, i64>, new: &BTreeMap<String, i64>) {
        let mut count = |name: &String, sign: i64| {
            let held = self.holders.entry(name.clone()).or_default();
            held.nodes += sign;
            if held.nodes == 0 {
                self.holders.remove(name);
            }
            self.changed.insert(name.clone());
        };
        old.keys().filter(|name| !new.contains_key(*name)).for_each(|name| count(name, -1));
        new.keys().filter(|name| !old.contains_key(*name)).for_each(|name| count(name, 1));
        for (name, bytes) in new.iter().filter(|(name, bytes)| old.get(*name) != Some(*bytes)) {
            let held = self.holders.entry(name.clone()).or_default();
            held.bytes_max = held.bytes_max.max(*bytes);
        }
    }

    /// A class of pods that asks for these images comes (`sign` 1) or goes (-1).
    pub(crate) fn count_users(&mut self, images: &[String], sign: i32) {
        for name in images {
            let users = self.users.entry(name.clone()).or_default();
            *users = users.checked_add_signed(sign).expect("users follow the classes");
            if *users == 0 {
                self.users.remove(name);
            }
        }
    }

    /// Tells the search of nodes whose scores have changed with what others hold. O(nodes) where there are any.
    pub(crate) fn settle(&mut self, nodes: &mut Nodes) {
        let all = std::mem::replace(&mut self.nodes, nodes.known) != nodes.known;
        let changed = std::mem::take(&mut self.changed);
        let matters = |name: &&String| self.holders.contains_key(*name);
        let names: Vec<&String> = if all {
            self.users.keys().filter(matters).collect()
        } else {
            changed.iter().filter(|name| self.users.contains_key(*name)).filter(matters).collect()
        };
        if names.is_empty() {
            return;
        }
        let holds = |row: &NodeRow| names.iter().any(|name| row.images.contains_key(*name));
        let affected: Vec<NodeId> = nodes.table.iter().filter(|(_, row)| holds(row)).map(|(id, _)| id).collect();
        affected.into_iter().for_each(|node| nodes.note_use(node));
    }

    /// Kubernetes' ImageLocality, 0 to 100: bytes of the pod's images that are there, each by how widespread it is.
    pub(crate) fn score(&self, images: &[String], row: &NodeRow, known: u32) -> i64 {
        if row.images.is_empty() {
            return 0;
        }
        self.sum(images, known, |name, _| row.images.get(name).copied().unwrap_or(0))
    }

    /// The most that `score` can be on any node.
    pub(crate) fn score_max(&self, images: &[String], known: u32) -> i64 {
        self.sum(images, known, |_, held| held.bytes_max)
    }

    fn sum(&self, images: &[String], known: u32, bytes: impl Fn(&String, ImageHolders) -> i64) -> i64 {
        if images.is_empty() || known == 0 {
            return 0;
        }
        let part = |name: &String| {
            let held = self.holders.get(name).copied().unwrap_or_default();
            (bytes(name, held) as f64 * (held.nodes as f64 / f64::from(known))) as i64
        };
        let most = BYTES_MAX.saturating_mul(i64::try_from(images.len()).unwrap_or(i64::MAX));
        let sum = images.iter().map(part).fold(0_i64, i64::saturating_add).clamp(BYTES_MIN, most);
        i64::try_from(i128::from(SCORE_MAX) * i128::from(sum - BYTES_MIN) / i128::from(most - BYTES_MIN)).unwrap_or(0)
    }
}

crate::save::saved! {
    Images { holders, users, changed, nodes };
    ImageHolders as "Held" { nodes, bytes_max };
}

//! Would a minimum fit if nothing ran? Answers are kept for equal minima until a node's offers or facts change.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::diagnosis::{self, Findings};
use super::{Finder, Search};
use crate::ids::{ClassId, DimId, NodeId};
use crate::policy::Policy;
use crate::reasons::Check;
use crate::resource_dims::PODS;
use crate::world::minimum::Part;
use crate::world::tables::Tables;

/// Answers kept; beyond it all are dropped.
const ANSWERS_MAX: usize = 8192;

/// So many pods of a class, of which a minimum consists.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PodsOfClass {
    class: ClassId,
    /// The class's generation: ids are given out again.
    generation: u64,
    count: u32,
}

type Key = Vec<PodsOfClass>;

/// What is known of the empty cluster, in one version of what nodes offer.
#[derive(Debug, Default)]
pub(super) struct EmptyCluster {
    offers_version: u64,
    answers: FxHashMap<Key, Option<Arc<Unplaced>>>,
}

/// The first class that found no room.
#[derive(Debug)]
pub(crate) struct Unplaced {
    pub(crate) class: ClassId,
    /// How many pods of it did.
    pub(crate) found_room: u32,
    /// What the nodes say to the next one.
    pub(crate) findings: Findings,
}

impl Finder {
    /// What does not fit the empty cluster; nothing if all of it does. O(nodes) for a minimum not asked about before.
    pub(crate) fn unplaced_on_empty(
        &mut self,
        tables: &Tables,
        policy: &Policy,
        parts: &[Part],
    ) -> Option<Arc<Unplaced>> {
        let offers_version = tables.nodes.offers_version;
        if self.empty.offers_version != offers_version || self.empty.answers.len() >= ANSWERS_MAX {
            self.empty = EmptyCluster { offers_version, answers: FxHashMap::default() };
        }
        let entry = |part: &Part| PodsOfClass {
            class: part.class,
            generation: tables.classes.row(part.class).generation,
            count: part.count,
        };
        let key: Key = parts.iter().map(entry).collect();
        if let Some(answer) = self.empty.answers.get(&key) {
            return answer.clone();
        }
        let answer = self.fill_empty(tables, policy, parts).map(Arc::new);
        self.empty.answers.insert(key, answer.clone());
        answer
    }

    /// Fills an imagined empty cluster, largest pods first, each on the first nodes with room.
    fn fill_empty(&mut self, tables: &Tables, policy: &Policy, parts: &[Part]) -> Option<Unplaced> {
        let mut taken: FxHashMap<(NodeId, DimId), i64> = FxHashMap::default();
        let mut parts = parts.to_vec();
        parts.sort_by_key(|part| Reverse(tables.size(part.class)));
        for part in parts {
            let row = tables.classes.row(part.class);
            // Pods that take a host port can't share a node.
            let most = if row.template.host_ports.is_empty() { i64::MAX } else { 1 };
            let mut left = i64::from(part.count);
            let class_memos = self.note(tables, part.class);
            for node in tables.nodes.ids() {
                let free = |dim| tables.nodes.allocatable(node, dim) - taken.get(&(node, dim)).copied().unwrap_or(0);
                let room = row.demand.iter().map(|(dim, amount)| free(dim).max(0) / amount).min().unwrap_or(left);
                let placed = room.min(most).min(left);
                if placed == 0 || !class_memos.allows(tables, policy, row, node) {
                    continue;
                }
                for (dim, amount) in row.demand.iter() {
                    *taken.entry((node, dim)).or_default() += amount * placed;
                }
                left -= placed;
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                let found_room = part.count - u32::try_from(left).unwrap_or(part.count);
                let free =
                    |node, dim| tables.nodes.allocatable(node, dim) - taken.get(&(node, dim)).copied().unwrap_or(0);
                // A node that is empty but for this very class can refuse it by its host port only.
                let port = |node| {
                    (most == 1 && free(node, PODS) < tables.nodes.allocatable(node, PODS)).then_some(Check::HostPort)
                };
                let of_facts = |node| policy.check_facts(tables, row, node);
                let findings = diagnosis::scan(of_facts, tables, policy, Search::of_class(part.class), free, port);
                return Some(Unplaced { class: part.class, found_room, findings });
            }
        }
        None
    }
}

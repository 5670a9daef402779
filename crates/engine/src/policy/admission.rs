//! Which groups are admitted, or refused, alike: one of them answers for all. Called by the pending index and by `enqueue`.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::Policy;
use crate::config::Switch;
use crate::ids::GroupId;
use crate::plugin::Alike;
use crate::world::tables::Tables;

impl Policy {
    /// What tells the group apart from others that ask for the same in the same place; nothing if it is like no other.
    pub(crate) fn admits_alike(&self, tables: &Tables, group: GroupId) -> Option<u64> {
        let mut hasher = FxHasher::default();
        for slot in &self.plugins {
            match slot.plugin.admits_alike(tables, group) {
                Alike::Key(key) => key.hash(&mut hasher),
                Alike::Unsaid if slot.ours => {}
                Alike::Unsaid | Alike::Alone => return None,
            }
        }
        Some(hasher.finish())
    }

    /// Whether the order of groups begins with what goes before the order of namespaces, so that whose turn it is does
    /// not depend on who else has one.
    pub(crate) fn ranks_representative(&self) -> bool {
        let ranking = self.with(Switch::JobOrder).enumerate().filter(|(_, plugin)| plugin.ranks());
        !self.fairness.namespaces || ranking.last().is_none_or(|(place, _)| place == 0)
    }

    /// Whether a queue may be owed more where it was not owed less.
    pub(crate) fn preemptive_in_part(&self) -> bool {
        self.with(Switch::Preemptive).any(|plugin| plugin.preemptive_in_part())
    }
}

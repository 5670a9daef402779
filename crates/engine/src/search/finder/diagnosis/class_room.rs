//! What the nodes that may take a class have of one dimension: how much in all, how many lack it, which comes nearest.
//!
//! Invariant: equal to what a look at each of these nodes gives, however it came about.

use super::node_checks::NodeChecks;
use super::room_index::{Change, RoomIndex};
use crate::ids::{DimId, NodeId};

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ClassRoom {
    /// Free on all of them.
    free: i128,
    /// Nodes with too little.
    pub(super) lacking: u32,
    /// The one of these that lacks least, and how much.
    pub(super) best: Option<(i64, NodeId)>,
}

/// The same, as of a position in the room index.
#[derive(Debug, Default)]
pub(super) struct CachedClassRoom(Option<(u64, ClassRoom)>);

impl CachedClassRoom {
    /// As it is now. O(what has changed), and O(nodes) where the nearest node got worse.
    pub(super) fn bring_up(
        &mut self,
        room_index: &RoomIndex,
        of_facts: &NodeChecks,
        dim: DimId,
        requested: i64,
    ) -> &ClassRoom {
        let kept = self.0.take().and_then(|(position, rooms)| {
            let changes = room_index.since(dim, position)?.iter().filter(|change| of_facts.allow(change.node));
            rooms.follow(requested, changes)
        });
        let look_at_all = || {
            let (mut rooms, column) = (ClassRoom::default(), room_index.rooms(dim));
            for node in of_facts.allowed() {
                rooms.look(node, requested, column.get(node.index()).copied().unwrap_or(0));
            }
            rooms
        };
        let rooms = kept.unwrap_or_else(look_at_all);
        &self.0.insert((room_index.end(dim), rooms)).1
    }
}

impl ClassRoom {
    /// Looks at one more node; false if it has too little.
    pub(super) fn look(&mut self, node: NodeId, requested: i64, free: i64) -> bool {
        self.free += i128::from(free.max(0));
        let missing = requested.saturating_sub(free);
        if missing <= 0 {
            return true;
        }
        self.lacking += 1;
        self.come_nearer(missing, node);
        false
    }

    /// Free on all of them.
    pub(super) fn free(&self) -> i64 {
        i64::try_from(self.free).unwrap_or(i64::MAX)
    }

    fn come_nearer(&mut self, missing: i64, node: NodeId) {
        if self.best.is_none_or(|best| (missing, node) < best) {
            self.best = Some((missing, node));
        }
    }

    /// What becomes of it by the changes. Nothing if the nearest node is not so any more.
    fn follow<'a>(mut self, requested: i64, changes: impl Iterator<Item = &'a Change>) -> Option<Self> {
        for Change { node, before, after } in changes {
            self.free += i128::from((*after).max(0)) - i128::from((*before).max(0));
            let (was, is) = (requested.saturating_sub(*before), requested.saturating_sub(*after));
            self.lacking = self.lacking + u32::from(is > 0) - u32::from(was > 0);
            if self.best.is_some_and(|(_, best)| best == *node) && (is <= 0 || is > was) {
                return None;
            }
            if is > 0 {
                self.come_nearer(is, *node);
            }
        }
        Some(self)
    }
}

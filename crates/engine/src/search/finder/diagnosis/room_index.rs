//! How the room on the nodes changes, dimension by dimension, for all classes that keep what they know of it.
//!
//! Invariant: what was written from a position on leads from the room there was then to the room there is; what was
//! taken back in between is not in it. Called by `diagnosis`.

use crate::ids::{DimId, NodeId};
use crate::world::tables::Tables;

/// Changes kept before a reader has to start over.
const KEPT_MIN: usize = 4096;

#[derive(Debug, Default)]
pub(in crate::search::finder) struct RoomIndex {
    /// How far the log of changed nodes has been read.
    seen: Option<u64>,
    pages: Vec<Page>,
}

/// How the room in one dimension has changed.
#[derive(Debug, Default)]
struct Page {
    /// As of the last change.
    rooms: Vec<i64>,
    base: u64,
    changes: Vec<Change>,
}

/// One node has another room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) node: NodeId,
    pub(super) before: i64,
    pub(super) after: i64,
}

impl RoomIndex {
    /// Writes down what has changed. O(changed nodes x dimensions).
    pub(in crate::search::finder) fn refresh(&mut self, tables: &Tables) {
        let (log, span) = (&tables.nodes.use_log, tables.nodes.table.span());
        let changed = self.seen.and_then(|seen| log.since(seen));
        self.pages.resize_with(tables.dims.len().max(self.pages.len()), Page::default);
        for (dim, page) in self.pages.iter_mut().enumerate() {
            page.rooms.resize(span, 0);
            let column = tables.nodes.rooms(DimId::from(dim));
            match changed {
                Some(changed) => changed.iter().for_each(|node| page.note(*node, column)),
                None => (0..span).for_each(|node| page.note(node.into(), column)),
            }
        }
        self.seen = Some(log.end());
    }

    /// Where the changes of a dimension end.
    pub(super) fn end(&self, dim: DimId) -> u64 {
        self.pages.get(dim.index()).map_or(0, |page| page.base + page.changes.len() as u64)
    }

    /// What has changed since `position`, or `None` when that has been dropped.
    pub(super) fn since(&self, dim: DimId, position: u64) -> Option<&[Change]> {
        let page = self.pages.get(dim.index())?;
        page.changes.get(usize::try_from(position.checked_sub(page.base)?).ok()?..)
    }

    /// The room on all nodes, by their ids.
    pub(super) fn rooms(&self, dim: DimId) -> &[i64] {
        self.pages.get(dim.index()).map_or(&[], |page| &page.rooms)
    }
}

impl Page {
    fn note(&mut self, node: NodeId, column: &[i64]) {
        let after = column.get(node.index()).copied().unwrap_or(0);
        let before = std::mem::replace(&mut self.rooms[node.index()], after);
        if before == after {
            return;
        }
        if self.changes.len() >= KEPT_MIN.max(4 * self.rooms.len()) {
            self.base += self.changes.len() as u64;
            self.changes.clear();
        }
        self.changes.push(Change { node, before, after });
    }
}

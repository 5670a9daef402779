//! What nodes keep, noted and put back: for trials that look what would be without some of it.
//!
//! Invariant: after `put_back` every node keeps what it kept, to the unit. Called by `Tables::sketch`.

use super::{Lift, Reservations};
use crate::ids::{DimId, GroupId, NodeId};
use crate::world::tables::Tables;

/// See the module.
#[derive(Debug)]
pub(crate) struct Kept {
    amounts: Vec<(NodeId, DimId, i64)>,
    lifted: Option<Lift>,
    freed_for: Option<GroupId>,
    seen: u64,
}

impl Tables {
    pub(crate) fn kept(&self) -> Kept {
        let Reservations { lifted, freed_for, seen, .. } = self.reservations;
        let nodes = self.reservations.places.keys().filter(|node| self.nodes.table.get(node.index()).is_some());
        let dims = || (0..self.dims.len()).map(DimId::from);
        let amounts = nodes.flat_map(|node| dims().map(|dim| (*node, dim, self.nodes.held(*node, dim)))).collect();
        Kept { amounts, lifted, freed_for, seen }
    }

    pub(crate) fn put_back(&mut self, kept: &Kept) {
        for (node, dim, amount) in &kept.amounts {
            self.nodes.hold(*node, *dim, *amount);
        }
        let Reservations { lifted, freed_for, seen, .. } = &mut self.reservations;
        (*lifted, *freed_for, *seen) = (kept.lifted, kept.freed_for, kept.seen);
    }
}

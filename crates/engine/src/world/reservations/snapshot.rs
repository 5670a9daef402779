//! What nodes keep, noted and put back: for trials that look what would be without some of it.
//!
//! Invariant: after `put_back` every node keeps what it kept, to the unit. Called by `Tables::begin_dry_run`.

use super::{Lift, Reservations};
use crate::ids::{DimId, GroupId, NodeId};
use crate::world::tables::Tables;

/// See the module.
#[derive(Debug)]
pub(crate) struct ReservationSnapshot {
    amounts: Vec<ReservedAmount>,
    lifted: Option<Lift>,
    freed_for: Option<GroupId>,
    seen: u64,
}

/// What a node keeps of a resource.
#[derive(Debug, Clone, Copy)]
struct ReservedAmount {
    node: NodeId,
    dim: DimId,
    amount: i64,
}

impl Tables {
    pub(crate) fn reservation_snapshot(&self) -> ReservationSnapshot {
        let Reservations { lifted, freed_for, seen, .. } = self.reservations;
        let nodes = self.reservations.places.keys().filter(|node| self.nodes.table.get(node.index()).is_some());
        let dims = || (0..self.dims.len()).map(DimId::from);
        let reserved = |node: NodeId, dim: DimId| ReservedAmount { node, dim, amount: self.nodes.reserved(node, dim) };
        let amounts = nodes.flat_map(|node| dims().map(|dim| reserved(*node, dim))).collect();
        ReservationSnapshot { amounts, lifted, freed_for, seen }
    }

    pub(crate) fn put_back(&mut self, reservation_snapshot: &ReservationSnapshot) {
        for ReservedAmount { node, dim, amount } in reservation_snapshot.amounts.iter().copied() {
            self.nodes.set_reserved(node, dim, amount);
        }
        let Reservations { lifted, freed_for, seen, .. } = &mut self.reservations;
        (*lifted, *freed_for, *seen) =
            (reservation_snapshot.lifted, reservation_snapshot.freed_for, reservation_snapshot.seen);
    }
}

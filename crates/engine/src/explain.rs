//! What more there is to say of a waiting group than the checks that failed: worked out when somebody asks, so that it costs
//! neither a cycle nor memory. Called by `World::reasons` and by the views of groups. O(nodes that keep room).

use std::collections::BTreeSet;

use crate::ids::{GroupId, TimeMs};
use crate::reasons::{Expected, Reason, Reasons};
use crate::world::ends::Surety;
use crate::world::reservations::{Prospect, Reservation};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Nodes and groups that a reason names.
const NAMED_MAX: usize = 5;

/// Adds what reservations have to do with it.
pub(crate) fn explain(tables: &Tables, group: GroupId, now: TimeMs, reasons: &mut Reasons) {
    if let Some(reservation) = tables.reservations.of(group) {
        reasons.expected = reservation.prospect.as_ref().map(|prospect| expected(reservation, prospect));
        reasons.reasons.push(reserved(reservation, now));
    } else if let Some(kept) = kept_for_others(tables, group, now) {
        reasons.reasons.push(kept);
    }
}

fn expected(reservation: &Reservation, prospect: &Prospect) -> Expected {
    Expected { at: prospect.at, promised: reservation.hard && prospect.surety == Surety::Certain }
}

fn reserved(reservation: &Reservation, now: TimeMs) -> Reason {
    let places = reservation.prospect.as_ref().map_or(&[][..], |prospect| &prospect.places);
    Reason::Reserved {
        in_ms: reservation.prospect.as_ref().map(|prospect| prospect.at.0.saturating_sub(now.0).max(0)),
        hard: reservation.hard,
        promised: reservation.prospect.as_ref().is_some_and(|prospect| expected(reservation, prospect).promised),
        nodes: places.iter().take(NAMED_MAX).map(|place| place.name.to_string()).collect(),
        count: u32::try_from(places.len()).unwrap_or(u32::MAX),
    }
}

/// Nodes that could take a pod of the group this moment but for what is kept there.
fn kept_for_others(tables: &Tables, group: GroupId, now: TimeMs) -> Option<Reason> {
    let pending = |row: &&crate::world::tasks::TaskRow| row.state == TaskState::Pending;
    let first = tables.groups.row(group).tasks.iter().map(|task| tables.task(*task)).find(pending)?;
    let class = tables.classes.row(first.class);
    let (mut nodes, mut holders) = (0_u32, BTreeSet::new());
    for (node, places) in tables.reservations.places() {
        if tables.nodes.fits_but_for_kept(node, &class.demand) {
            nodes += 1;
            holders.extend(places);
        }
    }
    let reservations = holders.iter().filter_map(|place| tables.reservations.all.get(*place));
    let until = reservations.clone().filter_map(|one| Some(one.prospect.as_ref()?.at)).min()?;
    let groups = reservations.take(NAMED_MAX).map(|one| tables.groups.row(one.group).key()).collect();
    Some(Reason::KeptForOthers { groups, nodes, in_ms: until.0.saturating_sub(now.0).max(0) })
}

//! What more there is to say of a waiting group than the checks that failed: worked out when somebody asks, so that it costs
//! neither a cycle nor memory. Called by `World::reasons` and by the views of groups. O(nodes that keep room).

mod could;
mod dry_run;
mod holders;
mod maintenance_windows;
mod node;
mod position;
mod queue;
mod queue_view;
mod spared;
mod unblock_probes;
mod why;

pub use could::Could;
pub use holders::{Holder, ResourceHolders};
pub use node::NodeWhy;
pub use position::Line;
pub use queue::QueueWhy;
pub use queue_view::QueueView;
pub use spared::Spared;
pub use why::Why;
pub(crate) use {maintenance_windows::closed, why::why};

use std::collections::BTreeSet;

use crate::deadlines::late_end;
use crate::ids::{GroupId, TaskId, TimeMs};
use crate::reasons::{Expected, Reason, Reasons};
use crate::search::start_estimate::Guess;
use crate::world::end_times::Confidence;
use crate::world::reservations::Reservation;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Nodes and groups that a reason names.
const NAMED_MAX: usize = 5;

/// Adds what reservations have to do with it.
pub(crate) fn explain(tables: &Tables, group: GroupId, now: TimeMs, guess: Option<Guess>, reasons: &mut Reasons) {
    let reservation = tables.reservations.of(group);
    let promise = reservation.and_then(promise);
    let expected = |guess: Guess| {
        let by = |lead_ms: i64| promise.map_or(now.plus_ms(lead_ms), |promise| now.plus_ms(lead_ms).min(promise));
        let (at, early, late) = (by(guess.lead_ms), by(guess.early_ms), promise.unwrap_or(by(guess.late_ms)));
        Expected { as_of: now, at, early, late, promised: promise.is_some() }
    };
    reasons.expected = guess.map(expected);
    let late = guess.and_then(|guess| late_end(tables, group, Some(guess), now));
    if let (Some(deadline), Some(end)) = (tables.groups.row(group).deadline, late) {
        reasons.reasons.push(Reason::DeadlineMiss { late_ms: end.0.saturating_sub(deadline.0) });
    }
    if let Some(reservation) = reservation {
        reasons.reasons.push(reserved(reservation, now));
    } else if let Some(kept) = kept_for_others(tables, group, now) {
        reasons.reasons.push(kept);
    }
}

/// When a group starts at the latest.
fn promise(reservation: &Reservation) -> Option<TimeMs> {
    let forecast = reservation.forecast.as_ref()?;
    (reservation.hard && forecast.confidence == Confidence::Certain).then_some(forecast.at)
}

fn reserved(reservation: &Reservation, now: TimeMs) -> Reason {
    let places = reservation.forecast.as_ref().map_or(&[][..], |forecast| &forecast.places);
    Reason::Reserved {
        in_ms: reservation.forecast.as_ref().map(|forecast| forecast.at.0.saturating_sub(now.0).max(0)),
        hard: reservation.hard,
        promised: promise(reservation).is_some(),
        nodes: places.iter().take(NAMED_MAX).map(|place| (&place.name).into()).collect(),
        count: u32::try_from(places.len()).unwrap_or(u32::MAX),
    }
}

/// Nodes that could take a pod of the group this moment but for what is kept there.
fn kept_for_others(tables: &Tables, group: GroupId, now: TimeMs) -> Option<Reason> {
    let pending = |task: &TaskId| tables.task(*task).state == TaskState::Pending;
    let first = tables.groups.row(group).tasks.iter().copied().find(pending)?;
    let class = tables.classes.row(tables.task(first).class);
    let barring = tables.barring(first);
    let (mut nodes, mut holders) = (0_u32, BTreeSet::new());
    for (node, places) in tables.reservations.places() {
        if tables.nodes.fits_but_for_reserved(node, &class.demand)
            && tables.maintenance_windows.on(node, &barring).is_none()
        {
            nodes += 1;
            holders.extend(places);
        }
    }
    let reservations = holders.iter().filter_map(|place| tables.reservations.all.get(*place));
    let until = reservations.clone().filter_map(|one| Some(one.forecast.as_ref()?.at)).min()?;
    let groups = reservations.take(NAMED_MAX).map(|one| tables.groups.row(one.group).key()).collect();
    Some(Reason::KeptForOthers { groups, nodes, in_ms: until.0.saturating_sub(now.0).max(0) })
}

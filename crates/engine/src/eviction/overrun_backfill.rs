//! Overrun backfill: pods that went before a reservation because runs of their kind are short, and are still there.
//!
//! Invariant: only pods that may be evicted leave, only for a reservation that has turned hard, and only where all that it
//! still lacks comes free by it: then its group starts as soon as they are gone. What has a limit is ended by that, and is
//! never asked to leave. Called at the start of every cycle, once the reservations are up to date.

use super::statement::Victim;
use super::{maintenance, statement, whole_gangs};
use crate::ids::{GroupId, NodeId, TaskId, TimeMs};
use crate::session::Session;
use crate::world::eviction_records::OVERRUN;
use crate::world::reservations::{Amounts, Reservation, ReservedRoom};

/// The reason that evictions give.
pub(crate) const NAME: &str = OVERRUN;

pub(crate) fn end(session: &mut Session<'_>) {
    for place in 0..session.tables.reservations.all.len() {
        let reservation = &session.tables.reservations.all[place];
        let group = session.tables.groups.row(reservation.group).key();
        let victims = in_the_way(session, reservation).unwrap_or_default();
        for victim in whole_gangs::with_fellows(session, victims) {
            let was = session.tables.task(victim).state;
            session.evict(victim);
            let message = "it went before that, and has run longer than nearly all of its kind".to_owned();
            statement::evict_saying(session, NAME, Victim { task: victim, was }, Some(&group), message);
        }
    }
}

/// The backfilled pods that overran, without which the reservation's places are free. Nothing where more than they is in the way.
fn in_the_way(session: &Session<'_>, reservation: &Reservation) -> Option<Vec<TaskId>> {
    if !reservation.hard {
        return None;
    }
    let forecast = reservation.forecast.as_ref()?;
    let limits = &session.tables.reservations.of_limits;
    let lacks_limit = |of: &Vec<(GroupId, Amounts)>| {
        of.iter().any(|(group, amounts)| *group == reservation.group && !amounts.is_empty())
    };
    if limits.values().any(lacks_limit) {
        return None;
    }
    let mut victims = Vec::new();
    for place in &forecast.places {
        victims.extend(on_place(session, place)?);
    }
    Some(victims)
}

fn on_place(session: &Session<'_>, place: &ReservedRoom) -> Option<Vec<TaskId>> {
    let (tables, node) = (&*session.tables, place.node);
    let mut lacks = place.amounts.clone();
    lacks.iter_mut().for_each(|(dim, amount)| *amount = amount.saturating_sub(tables.nodes.future_idle(node, *dim)));
    let mut victims = Vec::new();
    for (_, task) in overrunning(session, node) {
        if lacks.iter().all(|(_, amount)| *amount <= 0) {
            break;
        }
        let demand = &tables.classes.row(tables.task(task).class).demand;
        if lacks.iter().any(|(dim, amount)| *amount > 0 && demand.get(*dim) > 0) {
            lacks.iter_mut().for_each(|(dim, amount)| *amount = amount.saturating_sub(demand.get(*dim)));
            victims.push(task);
        }
    }
    lacks.iter().all(|(_, amount)| *amount <= 0).then_some(victims)
}

/// Those on a node that are overdue and may leave, the longest overdue first.
fn overrunning(session: &Session<'_>, node: NodeId) -> Vec<(TimeMs, TaskId)> {
    let tables = &*session.tables;
    let Some(row) = tables.nodes.table.get(node.index()) else { return Vec::new() };
    let overdue = |task: &TaskId| {
        let row = tables.task(*task);
        let due = row.backfilled_until.filter(|due| *due < session.now && row.preemptable && !row.of_daemon_set)?;
        let leaves = maintenance::may_leave(session, *task) && session.policy.may_leave(tables, *task);
        leaves.then_some((due, *task))
    };
    let mut overdue: Vec<(TimeMs, TaskId)> = row.tasks.iter().filter_map(overdue).collect();
    overdue.sort_unstable();
    overdue
}

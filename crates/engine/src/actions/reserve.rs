//! Reservations: the group that is next in its queue and does not fit gets the earliest time and nodes at which it will.
//!
//! Others pass it only where they end before, or take what it does not need: EASY backfill. After an age bound it turns
//! hard: its nodes are fixed, and only what a limit ends in time passes. So it starts no later than the longest limit that
//! ran on its nodes then, whatever comes after it in the order. Where no end is known nothing is kept, and nothing is
//! promised. One in each queue, a few in all. Called by `enqueue` and `allocate`, and at the start of a cycle.

use rustc_hash::FxHashSet;

use super::enqueue::{is_possible, some_pod_fits_a_node};
use super::fair_share_order::Outcome;
use crate::config::Reserving;
use crate::facts::GroupPhase;
use crate::ids::{ClassId, GroupId, QueueId, TaskId, TimeMs};
use crate::reasons::Reason;
use crate::search::reservation_forecast;
use crate::session::Cycle;
use crate::world::end_times::Confidence;
use crate::world::groups::GroupRow;
use crate::world::maintenance_windows::is_closed;
use crate::world::minimum::{Missing, Past};
use crate::world::namespace_shares::Counted;
use crate::world::reservations::Gate;
use crate::world::reservations::{Forecast, Lift, Reservation};
use crate::world::tasks::TaskState;

/// Groups that wait too, and are looked at for one whose turn it is.
const OTHERS_LOOKED_AT_MAX: usize = 64;

/// The queues in which the first that can't go on has been met in this cycle.
pub(crate) type Fronts = FxHashSet<QueueId>;

/// Drops what is no longer wanted, brings the others up to date, and keeps room for them.
pub(crate) fn settle(cycle: &mut Cycle<'_>) {
    let waiting = &cycle.tables.groups.waiting;
    cycle.tables.reservations.front.retain(|_, (group, _)| waiting.contains(group));
    if cycle.tables.reservations.all.is_empty() {
        cycle.tables.reservations.of_limits.clear();
        return;
    }
    let settings = cycle.config.reserving();
    let before = std::mem::take(&mut cycle.tables.reservations.all);
    let count = before.len();
    let (mut changed, mut looked) = (false, false);
    for mut reservation in before {
        let Some(settings) = settings.filter(|_| stands(cycle, &reservation)) else { continue };
        looked |= cycle.now >= reservation.renew_at;
        changed |= renew(cycle, &mut reservation, settings);
        cycle.tables.reservations.all.push(reservation);
    }
    cycle.tables.reservations.put_hard_first();
    if changed || cycle.tables.reservations.all.len() != count {
        cycle.tables.reservations_changed(cycle.now);
    } else if looked || !cycle.tables.maintenance_windows.all.is_empty() {
        // Ends that were learned may have come nearer, a window may have begun or be over.
        cycle.tables.keep_again(cycle.now);
    } else {
        cycle.tables.refresh_kept(cycle.now);
    }
    keep_of_limits(cycle);
}

/// Works out what of their limits queues are to keep for those that wait for room there.
fn keep_of_limits(cycle: &mut Cycle<'_>) {
    cycle.tables.reservations.of_limits.clear();
    for place in 0..cycle.tables.reservations.all.len() {
        let reservation = &cycle.tables.reservations.all[place];
        let group = reservation.group;
        for (queue, amounts) in reservation_forecast::of_limits(cycle.tables, cycle.policy, reservation, cycle.now) {
            cycle.tables.reservations.of_limits.entry(queue).or_default().push((group, amounts));
        }
    }
}

/// Whether the group still waits, and its queue still may have what it waits for.
fn stands(cycle: &Cycle<'_>, reservation: &Reservation) -> bool {
    let tables = &*cycle.tables;
    let row = tables.groups.table.get(reservation.group.index());
    let Some(row) = row.filter(|row| row.uid == reservation.uid && row.queue == reservation.queue) else {
        return false;
    };
    row.exists()
        && !row.ended
        && row.phase != GroupPhase::Pending
        && row.pending() > 0
        && (!row.is_coming() || tables.waits_for_its_sum(row))
        && cycle.policy.job_valid(tables, reservation.group).is_none()
        && cycle.policy.overused(tables, row.queue).is_none()
}

/// Works out the prospect anew where it is time to. True if it has changed.
fn renew(cycle: &mut Cycle<'_>, reservation: &mut Reservation, settings: Reserving) -> bool {
    let turns_hard = reservation.since.plus_ms(settings.age_bound_ms);
    let old = reservation.forecast.as_ref();
    let overdue = old.is_some_and(|forecast| forecast.at < cycle.now);
    let lost = old.is_some_and(|forecast| !is_usable(cycle, reservation.group, forecast));
    let hardens = !reservation.hard && cycle.now >= turns_hard;
    let due = cycle.now >= reservation.renew_at;
    let renewed = if hardens || lost || old.is_none() && due {
        reservation.hard |= hardens;
        find(cycle, reservation.group, reservation.hard)
    } else if reservation.hard && (due || overdue) {
        let places = old.map_or(&[][..], |forecast| &forecast.places);
        let there = reservation_forecast::at_places(cycle.tables, cycle.policy, reservation.group, places, cycle.now);
        match there {
            Some(forecast) if forecast.confidence == Confidence::Certain => Some(forecast),
            // Where nothing can be promised nothing is lost by going where it can.
            _ => certain(cycle, reservation.group).or(there).or_else(|| find(cycle, reservation.group, false)),
        }
    } else if due || overdue {
        find(cycle, reservation.group, false)
    } else {
        wake(cycle, reservation, turns_hard);
        return false;
    };
    reservation.renew_at = renew_at(cycle);
    let changed = hardens || reservation.forecast != renewed;
    reservation.forecast = renewed;
    wake(cycle, reservation, turns_hard);
    changed
}

fn renew_at(cycle: &Cycle<'_>) -> TimeMs {
    cycle.now.plus_ms(reservation_forecast::renewal_ms(cycle.tables))
}

/// A cycle is wanted when it turns hard, and when its group was to start.
fn wake(cycle: &mut Cycle<'_>, reservation: &Reservation, turns_hard: TimeMs) {
    if !reservation.hard {
        cycle.wake_at(turns_hard);
    }
    if let Some(forecast) = reservation.forecast.as_ref().filter(|forecast| forecast.at > cycle.now) {
        cycle.wake_at(forecast.at);
    }
}

/// Where ends that are enforced are enough, a hard one goes by these alone: only then anything is promised.
fn find(cycle: &Cycle<'_>, group: GroupId, hard: bool) -> Option<Forecast> {
    let promised = if hard { certain(cycle, group) } else { None };
    promised
        .or_else(|| reservation_forecast::forecast(cycle.tables, cycle.policy, group, Confidence::Expected, cycle.now))
}

/// The first nodes of which ends that are enforced say when it fits.
fn certain(cycle: &Cycle<'_>, group: GroupId) -> Option<Forecast> {
    reservation_forecast::forecast(cycle.tables, cycle.policy, group, Confidence::Certain, cycle.now)
}

/// Whether all of its nodes are there and may take pods of the group.
fn is_usable(cycle: &Cycle<'_>, group: GroupId, forecast: &Forecast) -> bool {
    let tables = &*cycle.tables;
    let classes = classes(cycle, group);
    let run = tables.run_of_group(group, classes.iter().copied());
    forecast.places.iter().all(|place| {
        let row = tables.nodes.table.get(place.node.index());
        let there = row.is_some_and(|row| row.known && row.name == place.name)
            && !is_closed(&tables.closed_times(group, place.node, run), forecast.at.max(cycle.now));
        let allows =
            |class: &ClassId| cycle.policy.check_facts(tables, tables.classes.row(*class), place.node).is_none();
        there && classes.iter().any(allows)
    })
}

/// The classes of the group's waiting pods.
fn classes(cycle: &Cycle<'_>, group: GroupId) -> Vec<ClassId> {
    let tables = &*cycle.tables;
    if let Some(representative) = cycle
        .pending_index
        .representative(group)
        .filter(|representative| tables.task(*representative).state == TaskState::Pending)
    {
        return vec![tables.task(representative).class];
    }
    let tasks = tables.groups.row(group).tasks.iter().map(|task| tables.task(*task));
    let mut classes: Vec<ClassId> =
        tasks.filter(|task| task.state == TaskState::Pending).map(|task| task.class).collect();
    classes.sort_unstable();
    classes.dedup();
    classes
}

/// Whether all of the group's waiting pods are over before any that is lifted needs its room, if they start now.
pub(crate) fn passes(cycle: &Cycle<'_>, group: GroupId, lift: Lift) -> bool {
    classes(cycle, group).into_iter().all(|class| class_passes(cycle, group, class, lift))
}

/// The same for its pods of one class.
pub(crate) fn class_passes(cycle: &Cycle<'_>, group: GroupId, class: ClassId, lift: Lift) -> bool {
    let most = lift.from.0.saturating_sub(cycle.now.0);
    cycle.tables.passes_for(group, class, lift.confidence).is_some_and(|run| run <= most)
}

/// A group could not start. If it is next in its queue, and has been for long enough, room is reserved for it.
pub(crate) fn consider(cycle: &mut Cycle<'_>, group: GroupId, fronts: &mut Fronts) {
    let Some(settings) = cycle.config.reserving() else { return };
    let row = cycle.tables.groups.row(group);
    let (queue, uid) = (row.queue, row.uid.clone());
    let has_begun = row.counts.ready() >= row.min_member.max(1);
    let started = has_begun && !cycle.tables.waits_for_its_sum(row);
    if started || fronts.contains(&queue) || !waits_for_room(cycle, group) {
        return;
    }
    if has_begun && !some_pod_fits_a_node(cycle, group) {
        return;
    }
    fronts.insert(queue);
    let reservation = cycle.tables.reservations.in_queue(queue);
    let outranked = reservation.filter(|reservation| outranks(cycle, group, reservation)).map(|one| one.group);
    let holder = reservation.map(|reservation| reservation.group);
    let full = cycle.tables.reservations.all.len() >= settings.most;
    if holder.is_some() && outranked.is_none() || holder.is_none() && full {
        return;
    }
    if !is_next(cycle, (queue, Gate::Nodes), group, settings) || !is_possible(cycle, group) {
        return;
    }
    cycle.tables.reservations.all.retain(|other| Some(other.group) != outranked);
    if outranked.is_some() {
        // What was kept for that one is free, and others have had their turn.
        cycle.wake_at(cycle.now);
    }
    let since = since_next(cycle, queue, group);
    let hard = cycle.now >= since.plus_ms(settings.age_bound_ms);
    let forecast = find(cycle, group, hard);
    let reservation = Reservation { group, uid, queue, since, hard, forecast, renew_at: renew_at(cycle) };
    wake(cycle, &reservation, since.plus_ms(settings.age_bound_ms));
    cycle.tables.reservations.all.push(reservation);
    cycle.tables.reservations.put_hard_first();
    cycle.tables.reservations_changed(cycle.now);
}

/// A turn of a group, with what is kept for it free. Once it starts, or others leave for it, its reservation is over.
pub(crate) fn with_its_own(
    cycle: &mut Cycle<'_>,
    group: GroupId,
    turn: impl FnOnce(&mut Cycle<'_>) -> Outcome,
) -> Outcome {
    if cycle.tables.reservations.of(group).is_none() {
        return turn(cycle);
    }
    let waiting = cycle.tables.groups.row(group).pending();
    cycle.tables.free_for(group, cycle.now);
    let outcome = turn(cycle);
    cycle.tables.keep_for(group, cycle.now);
    let row = cycle.tables.groups.row(group);
    if cycle.tables.waits_for_its_sum(row) {
        if row.pending() < waiting {
            renew_for_next(cycle, group);
        }
    } else if row.is_coming() {
        cycle.tables.reservations.all.retain(|other| other.group != group);
        cycle.tables.reservations_changed(cycle.now);
        // What was kept beyond what it took is free, and others have had their turn.
        cycle.wake_at(cycle.now);
    }
    outcome
}

/// Some of the pods of a group that has begun have their room: what is reserved is for those that still wait.
fn renew_for_next(cycle: &mut Cycle<'_>, group: GroupId) {
    let Some(place) = cycle.tables.reservations.all.iter().position(|one| one.group == group) else { return };
    let forecast = find(cycle, group, cycle.tables.reservations.all[place].hard);
    cycle.tables.reservations.all[place].forecast = forecast;
    cycle.tables.reservations_changed(cycle.now);
}

/// Ends the soft reservation of a group that wants one pod, where a namespace that holds less of the queue waits for as large a
/// one: whose turn it is was not known when the room was reserved. Nothing that larger pods wait for goes to smaller ones.
/// True if it was ended.
pub(crate) fn gives_way(cycle: &mut Cycle<'_>, group: GroupId) -> bool {
    let row = cycle.tables.groups.row(group);
    let (queue, namespace) = (row.queue, row.namespace_id);
    let soft = cycle.tables.reservations.of(group).is_some_and(|reservation| !reservation.hard);
    let Some(task) = row.tasks.first().copied().filter(|_| row.tasks.len() == 1) else { return false };
    if !soft || row.declared_min > 1 || !cycle.policy.shares_among_namespaces(cycle.tables, queue) {
        return false;
    }
    // Where nothing asked to be admitted it was not looked at who is still there.
    cycle.tables.settle_promises();
    let tables = &*cycle.tables;
    let row = tables.groups.row(group);
    let wanted = &tables.classes.row(tables.task(task).class).demand;
    let goes_first = |other: &&GroupId| {
        let other = tables.groups.row(**other);
        let holds_less = || {
            other.namespace_id != namespace
                && other.priority >= row.priority
                && tables.compare_tenants(queue, other.namespace_id, namespace, Counted::Usage).is_lt()
        };
        let pending = |task: &&TaskId| tables.task(**task).state == TaskState::Pending;
        let first = other.tasks.iter().find(pending).map(|task| tables.task(*task).class);
        let is_as_large = |class: ClassId| {
            let demand = &tables.classes.row(class).demand;
            wanted.iter().all(|(dim, amount)| demand.get(dim) >= amount)
        };
        holds_less() && first.is_some_and(is_as_large)
    };
    let promised = tables.inqueue_demand.of(queue, false).map(|promised| &promised.groups);
    if !promised.into_iter().flatten().take(OTHERS_LOOKED_AT_MAX).any(|other| goes_first(&other)) {
        return false;
    }
    cycle.tables.reservations.all.retain(|other| other.group != group);
    cycle.tables.reservations_changed(cycle.now);
    true
}

/// The group could not start with what is kept for it. Its reservation is over if it is not room that it lacks.
pub(crate) fn still_stuck(cycle: &mut Cycle<'_>, group: GroupId) {
    let over = !waits_for_room(cycle, group);
    let reservations = &mut cycle.tables.reservations.all;
    let Some(place) = reservations.iter().position(|other| other.group == group) else { return };
    if over {
        reservations.remove(place);
        return cycle.tables.reservations_changed(cycle.now);
    }
    let hard = reservations[place].hard;
    if reservations[place].forecast.as_ref().is_some_and(|forecast| forecast.at <= cycle.now) {
        // What would fit by what is free now and did not, because of where other pods are, is not worth keeping room for.
        let forecast = find(cycle, group, hard).filter(|forecast| forecast.at > cycle.now);
        cycle.tables.reservations.all[place].forecast = forecast;
        cycle.tables.reservations_changed(cycle.now);
    }
}

/// Whether the group goes before the one that has the reservation: by its priority, or, until that is hard, by a nearer
/// deadline.
fn outranks(cycle: &Cycle<'_>, group: GroupId, reservation: &Reservation) -> bool {
    let (row, holder) = (cycle.tables.groups.row(group), cycle.tables.groups.row(reservation.group));
    let deadline = |row: &GroupRow| row.deadline.filter(|_| !reservation.hard).unwrap_or(TimeMs(i64::MAX));
    (holder.priority, deadline(row)) < (row.priority, deadline(holder))
}

/// Whether what it lacks is room, so that it helps to keep some.
fn waits_for_room(cycle: &Cycle<'_>, group: GroupId) -> bool {
    let alike = cycle.pending_index.task_class_of(group).and_then(|task_class| task_class.failure.as_deref());
    let reasons = cycle.failures.get(&group).or(alike).map_or(&[][..], |failure| &failure.reasons);
    let of_room = |reason: &Reason| {
        matches!(reason, Reason::NodesUnfit(_) | Reason::NoDomain(_) | Reason::QueueLimit { never: false, .. })
    };
    reasons.first().is_some_and(of_room) && !reasons.iter().any(Reason::is_of_share)
}

/// Whether the group has been the first in its queue for long enough.
fn is_next(cycle: &mut Cycle<'_>, place: (QueueId, Gate), group: GroupId, settings: Reserving) -> bool {
    let entry = cycle.tables.reservations.front.entry(place).or_insert((group, cycle.now));
    if entry.0 != group {
        *entry = (group, cycle.now);
    }
    let at = entry.1.plus_ms(settings.after_ms);
    if cycle.now < at {
        cycle.wake_at(at);
    }
    cycle.now >= at
}

/// Since when the group has been the first, be it to be admitted or to be placed.
fn since_next(cycle: &Cycle<'_>, queue: QueueId, group: GroupId) -> TimeMs {
    let front = &cycle.tables.reservations.front;
    let of = |gate| front.get(&(queue, gate)).filter(|(first, _)| *first == group).map(|(_, since)| *since);
    [of(Gate::Admission), of(Gate::Nodes)].into_iter().flatten().min().unwrap_or(cycle.now)
}

/// Whether the first group of the queue that could not be admitted may be.
pub(crate) fn seeks(cycle: &Cycle<'_>, queue: QueueId) -> bool {
    let reservations = &cycle.tables.reservations;
    let room = cycle.config.reserving().is_some_and(|settings| reservations.all.len() < settings.most);
    room && reservations.in_queue(queue).is_none() && cycle.policy.overused(cycle.tables, queue).is_none()
}

/// A group that would fit alone could not be admitted, because so much was promised already. If it is next in its queue,
/// and has been for long enough, it is: its pods are what room is reserved for.
pub(crate) fn admits(cycle: &mut Cycle<'_>, group: GroupId, missing: &Missing, fronts: &mut Fronts) -> bool {
    let Some(settings) = cycle.config.reserving() else { return false };
    let tables = &*cycle.tables;
    let queue = tables.groups.row(group).queue;
    if fronts.contains(&queue) {
        return false;
    }
    fronts.insert(queue);
    // What is promised to a group that has begun is reserved for nobody else, whatever the order and the queue.
    if !seeks(cycle, queue) || tables.beside_sums(group, missing, Past::Waiting).is_some() {
        return false;
    }
    let promised = tables.inqueue_demand.of(queue, false).map(|promised| &promised.groups);
    let has_begun = |other: GroupId| {
        let row = tables.groups.row(other);
        row.sum_until.is_some() && row.phase != GroupPhase::Inqueue
    };
    let before = |other: &GroupId| has_begun(*other) || cycle.policy.job_order(tables, *other, group).is_lt();
    if promised.into_iter().flatten().any(before) {
        return false;
    }
    is_next(cycle, (queue, Gate::Admission), group, settings)
}

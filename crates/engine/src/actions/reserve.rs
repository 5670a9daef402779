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
use crate::session::Session;
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
pub(crate) fn settle(session: &mut Session<'_>) {
    let waiting = &session.tables.groups.waiting;
    session.tables.reservations.front.retain(|_, (group, _)| waiting.contains(group));
    if session.tables.reservations.all.is_empty() {
        session.tables.reservations.of_limits.clear();
        return;
    }
    let settings = session.config.reserving();
    let before = std::mem::take(&mut session.tables.reservations.all);
    let count = before.len();
    let (mut changed, mut looked) = (false, false);
    for mut reservation in before {
        if let Some(settings) = settings
            && stands(session, &reservation)
        {
            looked |= session.now >= reservation.renew_at;
            changed |= renew(session, &mut reservation, settings);
            session.tables.reservations.all.push(reservation);
        }
    }
    session.tables.reservations.put_hard_first();
    if changed || session.tables.reservations.all.len() != count {
        session.tables.reservations_changed(session.now);
    } else if looked || !session.tables.maintenance_windows.all.is_empty() {
        // Ends that were learned may have come nearer, a window may have begun or be over.
        session.tables.keep_again(session.now);
    } else {
        session.tables.refresh_reserved(session.now);
    }
    keep_of_limits(session);
}

/// Works out what of their limits queues are to keep for those that wait for room there.
fn keep_of_limits(session: &mut Session<'_>) {
    session.tables.reservations.of_limits.clear();
    for place in 0..session.tables.reservations.all.len() {
        let reservation = &session.tables.reservations.all[place];
        let group = reservation.group;
        for (queue, amounts) in
            reservation_forecast::of_limits(session.tables, session.policy, reservation, session.now)
        {
            session.tables.reservations.of_limits.entry(queue).or_default().push((group, amounts));
        }
    }
}

/// Whether the group still waits, and its queue still may have what it waits for.
fn stands(session: &Session<'_>, reservation: &Reservation) -> bool {
    let tables = &*session.tables;
    let row = tables.groups.table.get(reservation.group.index());
    let Some(row) = row.filter(|row| row.uid == reservation.uid && row.queue == reservation.queue) else {
        return false;
    };
    row.exists()
        && !row.ended
        && row.phase != GroupPhase::Pending
        && row.pending() > 0
        && (!row.is_coming() || tables.waits_for_its_sum(row))
        && session.policy.job_valid(tables, reservation.group).is_none()
        && session.policy.overused(tables, row.queue).is_none()
}

/// Works out the forecast anew where it is time to. True if it has changed.
fn renew(session: &mut Session<'_>, reservation: &mut Reservation, settings: Reserving) -> bool {
    let turns_hard = reservation.since.plus_ms(settings.age_bound_ms);
    let old = reservation.forecast.as_ref();
    let overdue = old.is_some_and(|forecast| forecast.at < session.now);
    let lost = old.is_some_and(|forecast| !is_usable(session, reservation.group, forecast));
    let hardens = !reservation.hard && session.now >= turns_hard;
    let due = session.now >= reservation.renew_at;
    let renewed = if hardens || lost || old.is_none() && due {
        reservation.hard |= hardens;
        find(session, reservation.group, reservation.hard)
    } else if reservation.hard && (due || overdue) {
        let places = old.map_or(&[][..], |forecast| &forecast.places);
        let there =
            reservation_forecast::at_places(session.tables, session.policy, reservation.group, places, session.now);
        match there {
            Some(forecast) if forecast.confidence == Confidence::Certain => Some(forecast),
            // Where nothing can be promised nothing is lost by going where it can.
            _ => certain(session, reservation.group).or(there).or_else(|| find(session, reservation.group, false)),
        }
    } else if due || overdue {
        find(session, reservation.group, false)
    } else {
        wake(session, reservation, turns_hard);
        return false;
    };
    reservation.renew_at = renew_at(session);
    let changed = hardens || reservation.forecast != renewed;
    reservation.forecast = renewed;
    wake(session, reservation, turns_hard);
    changed
}

fn renew_at(session: &Session<'_>) -> TimeMs {
    session.now.plus_ms(reservation_forecast::renewal_ms(session.tables))
}

/// A cycle is wanted when it turns hard, and when its group was to start.
fn wake(session: &mut Session<'_>, reservation: &Reservation, turns_hard: TimeMs) {
    if !reservation.hard {
        session.wake_at(turns_hard);
    }
    if let Some(forecast) = reservation.forecast.as_ref().filter(|forecast| forecast.at > session.now) {
        session.wake_at(forecast.at);
    }
}

/// Where ends that are enforced are enough, a hard one goes by these alone: only then anything is promised.
fn find(session: &Session<'_>, group: GroupId, hard: bool) -> Option<Forecast> {
    let promised = if hard { certain(session, group) } else { None };
    promised.or_else(|| {
        reservation_forecast::forecast(session.tables, session.policy, group, Confidence::Expected, session.now)
    })
}

/// The first nodes of which ends that are enforced say when it fits.
fn certain(session: &Session<'_>, group: GroupId) -> Option<Forecast> {
    reservation_forecast::forecast(session.tables, session.policy, group, Confidence::Certain, session.now)
}

/// Whether all of its nodes are there and may take pods of the group.
fn is_usable(session: &Session<'_>, group: GroupId, forecast: &Forecast) -> bool {
    let tables = &*session.tables;
    let classes = classes(session, group);
    let run = tables.run_of_group(group, classes.iter().copied());
    forecast.places.iter().all(|place| {
        let row = tables.nodes.table.get(place.node.index());
        let there = row.is_some_and(|row| row.known && row.name == place.name)
            && !is_closed(&tables.closed_times(group, place.node, run), forecast.at.max(session.now));
        let allows =
            |class: &ClassId| session.policy.check_facts(tables, tables.classes.row(*class), place.node).is_none();
        there && classes.iter().any(allows)
    })
}

/// The classes of the group's waiting pods.
fn classes(session: &Session<'_>, group: GroupId) -> Vec<ClassId> {
    let tables = &*session.tables;
    if let Some(representative) = session
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
pub(crate) fn passes(session: &Session<'_>, group: GroupId, lift: Lift) -> bool {
    classes(session, group).into_iter().all(|class| class_passes(session, group, class, lift))
}

/// The same for its pods of one class.
pub(crate) fn class_passes(session: &Session<'_>, group: GroupId, class: ClassId, lift: Lift) -> bool {
    let most = lift.from.0.saturating_sub(session.now.0);
    session.tables.backfills_for(group, class, lift.confidence).is_some_and(|run| run <= most)
}

/// A group could not start. If it is next in its queue, and has been for long enough, room is reserved for it.
pub(crate) fn consider(session: &mut Session<'_>, group: GroupId, fronts: &mut Fronts) {
    let Some(settings) = session.config.reserving() else { return };
    let row = session.tables.groups.row(group);
    let (queue, uid) = (row.queue, row.uid.clone());
    let has_begun = row.counts.ready() >= row.min_member.max(1);
    let started = has_begun && !session.tables.waits_for_its_sum(row);
    if started || fronts.contains(&queue) || !waits_for_room(session, group) {
        return;
    }
    if has_begun && !some_pod_fits_a_node(session, group) {
        return;
    }
    fronts.insert(queue);
    let reservation = session.tables.reservations.in_queue(queue);
    let outranked = reservation.filter(|reservation| outranks(session, group, reservation)).map(|one| one.group);
    let holder = reservation.map(|reservation| reservation.group);
    let full = session.tables.reservations.all.len() >= settings.most;
    if holder.is_some() && outranked.is_none() || holder.is_none() && full {
        return;
    }
    if !is_next(session, queue, Gate::Nodes, group, settings) || !is_possible(session, group) {
        return;
    }
    session.tables.reservations.all.retain(|other| Some(other.group) != outranked);
    if outranked.is_some() {
        // What was kept for that one is free, and others have had their turn.
        session.wake_at(session.now);
    }
    let since = since_next(session, queue, group);
    let hard = session.now >= since.plus_ms(settings.age_bound_ms);
    let forecast = find(session, group, hard);
    let reservation = Reservation { group, uid, queue, since, hard, forecast, renew_at: renew_at(session) };
    wake(session, &reservation, since.plus_ms(settings.age_bound_ms));
    session.tables.reservations.all.push(reservation);
    session.tables.reservations.put_hard_first();
    session.tables.reservations_changed(session.now);
}

/// A turn of a group, with what is kept for it free. Once it starts, or others leave for it, its reservation is over.
pub(crate) fn with_its_own(
    session: &mut Session<'_>,
    group: GroupId,
    turn: impl FnOnce(&mut Session<'_>) -> Outcome,
) -> Outcome {
    if session.tables.reservations.of(group).is_none() {
        return turn(session);
    }
    let waiting = session.tables.groups.row(group).pending();
    session.tables.free_for(group, session.now);
    let outcome = turn(session);
    session.tables.keep_for(group, session.now);
    let row = session.tables.groups.row(group);
    if session.tables.waits_for_its_sum(row) {
        if row.pending() < waiting {
            renew_for_next(session, group);
        }
    } else if row.is_coming() {
        session.tables.reservations.all.retain(|other| other.group != group);
        session.tables.reservations_changed(session.now);
        // What was kept beyond what it took is free, and others have had their turn.
        session.wake_at(session.now);
    }
    outcome
}

/// Some of the pods of a group that has begun have their room: what is reserved is for those that still wait.
fn renew_for_next(session: &mut Session<'_>, group: GroupId) {
    let Some(place) = session.tables.reservations.all.iter().position(|one| one.group == group) else { return };
    let forecast = find(session, group, session.tables.reservations.all[place].hard);
    session.tables.reservations.all[place].forecast = forecast;
    session.tables.reservations_changed(session.now);
}

/// Ends the soft reservation of a group that wants one pod, where a namespace that holds less of the queue waits for as large a
/// one: whose turn it is was not known when the room was reserved. Nothing that larger pods wait for goes to smaller ones.
/// True if it was ended.
pub(crate) fn gives_way(session: &mut Session<'_>, group: GroupId) -> bool {
    let row = session.tables.groups.row(group);
    let (queue, namespace) = (row.queue, row.namespace_id);
    let soft = session.tables.reservations.of(group).is_some_and(|reservation| !reservation.hard);
    let Some(task) = row.tasks.first().copied() else { return false };
    if !soft
        || row.tasks.len() > 1
        || row.declared_min > 1
        || !session.policy.shares_among_namespaces(session.tables, queue)
    {
        return false;
    }
    // Where nothing asked to be admitted it was not looked at who is still there.
    session.tables.settle_inqueue_demand();
    let tables = &*session.tables;
    let row = tables.groups.row(group);
    let wanted = &tables.classes.row(tables.task(task).class).demand;
    let goes_first = |other: &&GroupId| {
        let other = tables.groups.row(**other);
        let holds_less = || {
            other.namespace_id != namespace
                && other.priority >= row.priority
                && tables.compare_namespaces(queue, other.namespace_id, namespace, Counted::Usage).is_lt()
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
    session.tables.reservations.all.retain(|other| other.group != group);
    session.tables.reservations_changed(session.now);
    true
}

/// The group could not start with what is kept for it. Its reservation is over if it is not room that it lacks.
pub(crate) fn still_stuck(session: &mut Session<'_>, group: GroupId) {
    let over = !waits_for_room(session, group);
    let reservations = &mut session.tables.reservations.all;
    let Some(place) = reservations.iter().position(|other| other.group == group) else { return };
    if over {
        reservations.remove(place);
        return session.tables.reservations_changed(session.now);
    }
    let hard = reservations[place].hard;
    if reservations[place].forecast.as_ref().is_some_and(|forecast| forecast.at <= session.now) {
        // What would fit by what is free now and did not, because of where other pods are, is not worth keeping room for.
        let forecast = find(session, group, hard).filter(|forecast| forecast.at > session.now);
        session.tables.reservations.all[place].forecast = forecast;
        session.tables.reservations_changed(session.now);
    }
}

/// Whether the group goes before the one that has the reservation: by its priority, or, until that is hard, by a nearer
/// deadline.
fn outranks(session: &Session<'_>, group: GroupId, reservation: &Reservation) -> bool {
    let (row, holder) = (session.tables.groups.row(group), session.tables.groups.row(reservation.group));
    if reservation.hard {
        return holder.priority < row.priority;
    }
    let deadline = |row: &GroupRow| row.deadline.unwrap_or(TimeMs(i64::MAX));
    (holder.priority, deadline(row)) < (row.priority, deadline(holder))
}

/// Whether what it lacks is room, so that it helps to keep some.
fn waits_for_room(session: &Session<'_>, group: GroupId) -> bool {
    let alike = session.pending_index.task_class_of(group).and_then(|task_class| task_class.failure.as_deref());
    let reasons = session.failures.get(&group).or(alike).map_or(&[][..], |failure| &failure.reasons);
    let of_room = |reason: &Reason| {
        matches!(reason, Reason::NodesUnfit(_) | Reason::NoDomain(_) | Reason::QueueLimit { never: false, .. })
    };
    reasons.first().is_some_and(of_room) && !reasons.iter().any(Reason::is_of_share)
}

/// Whether the group has been the first in its queue for long enough.
fn is_next(session: &mut Session<'_>, queue: QueueId, gate: Gate, group: GroupId, settings: Reserving) -> bool {
    let entry = session.tables.reservations.front.entry((queue, gate)).or_insert((group, session.now));
    if entry.0 != group {
        *entry = (group, session.now);
    }
    let at = entry.1.plus_ms(settings.after_ms);
    if session.now < at {
        session.wake_at(at);
    }
    session.now >= at
}

/// Since when the group has been the first, be it to be admitted or to be placed.
fn since_next(session: &Session<'_>, queue: QueueId, group: GroupId) -> TimeMs {
    let front = &session.tables.reservations.front;
    let of = |gate| front.get(&(queue, gate)).filter(|(first, _)| *first == group).map(|(_, since)| *since);
    [of(Gate::Admission), of(Gate::Nodes)].into_iter().flatten().min().unwrap_or(session.now)
}

/// Whether the first group of the queue that could not be admitted may be.
pub(crate) fn seeks(session: &Session<'_>, queue: QueueId) -> bool {
    let reservations = &session.tables.reservations;
    let room = session.config.reserving().is_some_and(|settings| reservations.all.len() < settings.most);
    room && reservations.in_queue(queue).is_none() && session.policy.overused(session.tables, queue).is_none()
}

/// A group that would fit alone could not be admitted, because so much was promised already. If it is next in its queue,
/// and has been for long enough, it is: its pods are what room is reserved for.
pub(crate) fn admits(session: &mut Session<'_>, group: GroupId, missing: &Missing, fronts: &mut Fronts) -> bool {
    let Some(settings) = session.config.reserving() else { return false };
    let tables = &*session.tables;
    let queue = tables.groups.row(group).queue;
    if fronts.contains(&queue) {
        return false;
    }
    fronts.insert(queue);
    // What is promised to a group that has begun is reserved for nobody else, whatever the order and the queue.
    if !seeks(session, queue) || tables.beside_sums(group, missing, Past::Waiting).is_some() {
        return false;
    }
    let promised = tables.inqueue_demand.of(queue, false).map(|promised| &promised.groups);
    let has_begun = |other: GroupId| {
        let row = tables.groups.row(other);
        row.sum_until.is_some() && row.phase != GroupPhase::Inqueue
    };
    let before = |other: &GroupId| has_begun(*other) || session.policy.job_order(tables, *other, group).is_lt();
    if promised.into_iter().flatten().any(before) {
        return false;
    }
    is_next(session, queue, Gate::Admission, group, settings)
}

//! Reservations: room that is kept for groups that are next and do not fit yet.
//!
//! Invariant: what a node keeps is what its reservations will need there beyond what will have been given back by then, and
//! nothing where none is. It is no part of a node's use. Made and dropped by the action `reserve`; the nodes' column is
//! set here alone, and never inside a trial that may be rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ids::{DimId, GroupId, NodeId, QueueId, TimeMs};
use crate::world::end_times::Confidence;
use crate::world::tables::Tables;

/// Amounts by dimension; what is not listed is 0.
pub(crate) type Amounts = SmallVec<[(DimId, i64); 4]>;

/// What a group will have of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReservedRoom {
    pub(crate) node: NodeId,
    /// The node's name: an id may have been given out again.
    pub(crate) name: Arc<str>,
    pub(crate) amounts: Amounts,
}

/// Where and when a group is expected to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Forecast {
    pub(crate) at: TimeMs,
    /// Whether ends that are enforced are enough for it.
    pub(crate) confidence: Confidence,
    pub(crate) places: Vec<ReservedRoom>,
}

/// In which of its two ways a group waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Gate {
    Admission,
    Nodes,
}

/// Room that is kept for a group which is next and does not fit yet.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) group: GroupId,
    /// The group's uid, or its key where it has none: an id may have been given out again.
    pub(crate) uid: Arc<str>,
    pub(crate) queue: QueueId,
    pub(crate) since: TimeMs,
    /// Its nodes are fixed, and only what is certain to end in time passes it.
    pub(crate) hard: bool,
    /// Nothing where it is not known when it can start: then nothing is kept for it.
    pub(crate) forecast: Option<Forecast>,
    /// When the forecast was worked out, and when it is to be worked out again.
    pub(crate) renew_at: TimeMs,
}

/// Which reservations keep nothing: those that need their room no earlier than `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Lift {
    pub(crate) from: TimeMs,
    /// What is only expected to end in time does not pass a hard one.
    pub(crate) confidence: Confidence,
}

impl Lift {
    /// All of them, for those who come before.
    pub(crate) const ALL: Self = Self { from: TimeMs(i64::MIN), confidence: Confidence::Certain };

    fn lifts(self, reservation: &Reservation) -> bool {
        let later = reservation.forecast.as_ref().is_none_or(|forecast| forecast.at >= self.from);
        later && (self.confidence == Confidence::Certain || !reservation.hard)
    }
}

impl Reservation {
    fn at(&self) -> Option<(TimeMs, Confidence)> {
        let forecast = self.forecast.as_ref()?;
        Some((forecast.at, forecast.confidence))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Reservations {
    /// Hard ones first, in the order in which they turned hard; the others in the order in which they were made. Each was
    /// worked out with those before it in mind.
    pub(crate) all: Vec<Reservation>,
    /// In each queue the first that could not go on, and since when that is so.
    pub(crate) front: FxHashMap<(QueueId, Gate), (GroupId, TimeMs)>,
    /// What each node is to keep, by reservation.
    places: BTreeMap<NodeId, SmallVec<[(usize, Amounts); 1]>>,
    /// What of their limits queues are to keep, for whom, in the order of the reservations.
    pub(crate) of_limits: FxHashMap<QueueId, Vec<(GroupId, Amounts)>>,
    /// Which of them keep nothing for now, so that those may look who end in time.
    lifted: Option<Lift>,
    /// What is kept for this group is free for now.
    freed_for: Option<GroupId>,
    /// How far the log of nodes' use has been read.
    seen: u64,
}

impl Reservations {
    pub(crate) fn of(&self, group: GroupId) -> Option<&Reservation> {
        self.all.iter().find(|reservation| reservation.group == group)
    }

    /// What was promised is not taken by one that was made before and turns hard later.
    pub(crate) fn put_hard_first(&mut self) {
        self.all.sort_by_key(|one| !one.hard);
    }

    pub(crate) fn in_queue(&self, queue: QueueId) -> Option<&Reservation> {
        self.all.iter().find(|reservation| reservation.queue == queue)
    }

    /// What is kept of a queue's limit.
    pub(crate) fn reserved_of_limit(&self, queue: QueueId, dim: DimId) -> i64 {
        let all = self.of_limits.get(&queue).into_iter().flatten();
        let counted = all.take_while(|(group, _)| self.freed_for != Some(*group));
        counted
            // What has started, or is over, keeps nothing any more.
            .filter(|(group, _)| self.of(*group).is_some_and(|one| !self.is_lifted(one)))
            .flat_map(|(_, amounts)| amounts)
            .filter(|(other, _)| *other == dim)
            .fold(0, |sum: i64, (_, amount)| sum.saturating_add(*amount))
    }

    /// The nodes that are to keep room, each with the places of its reservations in `all`.
    pub(crate) fn places(&self) -> impl Iterator<Item = (NodeId, impl Iterator<Item = usize>)> {
        self.places.iter().map(|(node, wants)| (*node, wants.iter().map(|(index, _)| *index)))
    }

    /// Whether any room is kept, or would be.
    pub(crate) fn keep_any(&self) -> bool {
        !self.places.is_empty()
    }

    fn is_lifted(&self, reservation: &Reservation) -> bool {
        self.lifted.is_some_and(|lift| lift.lifts(reservation))
    }

    /// The ways in which others may pass some or all of them: those first that lift the fewest.
    pub(crate) fn lifts(&self) -> Vec<Lift> {
        let starts = |hard: bool| {
            let alike = self.all.iter().filter(|one| hard || !one.hard);
            let mut starts: Vec<TimeMs> = alike.filter_map(|one| Some(one.forecast.as_ref()?.at)).collect();
            starts.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
            starts.dedup();
            starts
        };
        // Where none is hard an expected end is as good as one that is certain.
        let certain = if self.all.iter().any(|one| one.hard) { starts(true) } else { Vec::new() };
        let with = |confidence| move |from| Lift { from, confidence };
        let certain = certain.into_iter().map(with(Confidence::Certain));
        certain.chain(starts(false).into_iter().map(with(Confidence::Expected))).collect()
    }

    fn index_places(&mut self) {
        self.places.clear();
        for (index, reservation) in self.all.iter().enumerate() {
            for place in reservation.forecast.iter().flat_map(|forecast| &forecast.places) {
                self.places.entry(place.node).or_default().push((index, place.amounts.clone()));
            }
        }
    }
}

impl Tables {
    /// Some keep nothing until `keep_again`, so that those may look who end in time, or come before.
    pub(crate) fn lift_reservations(&mut self, lift: Lift, now: TimeMs) {
        self.reservations.lifted = Some(lift);
        self.settle_places(now);
    }

    /// Keeps what the reservations need again, after `lift_reservations`.
    pub(crate) fn keep_again(&mut self, now: TimeMs) {
        self.reservations.lifted = None;
        self.settle_places(now);
        self.reservations.seen = self.nodes.use_log.end();
    }

    fn settle_places(&mut self, now: TimeMs) {
        let nodes: Vec<NodeId> = self.reservations.places.keys().copied().collect();
        for node in nodes {
            self.settle_place(node, None, now);
        }
    }

    /// What is kept for the group is free, and what is kept for those that came after it, until `keep_for`.
    pub(crate) fn free_for(&mut self, group: GroupId, now: TimeMs) {
        self.reservations.freed_for = Some(group);
        self.settle_places_of(group, Some(group), now);
    }

    /// Keeps what the group needs again, after `free_for`.
    pub(crate) fn keep_for(&mut self, group: GroupId, now: TimeMs) {
        self.reservations.freed_for = None;
        self.settle_places_of(group, None, now);
    }

    fn settle_places_of(&mut self, group: GroupId, except: Option<GroupId>, now: TimeMs) {
        let from = self.reservations.all.iter().skip_while(|one| one.group != group);
        let places = from.filter_map(|one| one.forecast.as_ref()).flat_map(|forecast| &forecast.places);
        let nodes: BTreeSet<NodeId> = places.map(|place| place.node).collect();
        for node in nodes {
            self.settle_place(node, except, now);
        }
    }

    /// The reservations have changed: works out anew where room is to be kept.
    pub(crate) fn reservations_changed(&mut self, now: TimeMs) {
        let before: Vec<NodeId> = self.reservations.places.keys().copied().collect();
        self.reservations.index_places();
        for node in before.into_iter().filter(|node| !self.reservations.places.contains_key(node)).collect::<Vec<_>>() {
            self.clear(node);
        }
        match self.reservations.lifted {
            Some(lift) => self.lift_reservations(lift, now),
            None => self.keep_again(now),
        }
    }

    /// Takes in what has changed on nodes since the last time. O(changed nodes and what runs there).
    pub(crate) fn refresh_reserved(&mut self, now: TimeMs) {
        if self.reservations.places.is_empty() {
            return;
        }
        let Some(changed) = self.nodes.use_log.since(self.reservations.seen) else { return self.keep_again(now) };
        let places = &self.reservations.places;
        let mut changed: Vec<NodeId> = changed.iter().copied().filter(|node| places.contains_key(node)).collect();
        changed.sort_unstable();
        changed.dedup();
        for node in changed {
            self.settle_place(node, None, now);
        }
        self.reservations.seen = self.nodes.use_log.end();
    }

    fn clear(&mut self, node: NodeId) {
        for dim in (0..self.dims.len()).map(DimId::from) {
            if self.nodes.table.get(node.index()).is_some() && self.nodes.reserved(node, dim) != 0 {
                self.nodes.set_reserved(node, dim, 0);
            }
        }
    }

    /// Works out what the node is to keep: for each reservation what it and those before it need there, less what will
    /// have been given back by then; the most of these.
    fn settle_place(&mut self, node: NodeId, except: Option<GroupId>, now: TimeMs) {
        let Some(row) = self.nodes.table.get(node.index()) else { return };
        let mut wants: SmallVec<[(TimeMs, Confidence, &Amounts); 2]> = SmallVec::new();
        let end = except.and_then(|group| self.reservations.all.iter().position(|one| one.group == group));
        for (index, amounts) in self.reservations.places.get(&node).into_iter().flatten() {
            let reservation = &self.reservations.all[*index];
            if end.is_some_and(|end| *index >= end) {
                break;
            }
            // While somebody else has the node nothing of it is kept from them.
            if !self.reservations.is_lifted(reservation) && !self.is_of_others(reservation.group, node) {
                wants.extend(reservation.at().map(|(at, confidence)| (at, confidence, amounts)));
            }
        }
        wants.sort_by_key(|(at, ..)| *at);
        let mut kept: BTreeMap<DimId, i64> = BTreeMap::new();
        let mut needed: BTreeMap<DimId, i64> = BTreeMap::new();
        for (at, confidence, amounts) in wants {
            for (dim, amount) in amounts {
                let cell = needed.entry(*dim).or_default();
                *cell = cell.saturating_add(*amount);
            }
            let mut given_back: BTreeMap<DimId, i64> = BTreeMap::new();
            for task in row.tasks.iter() {
                let holds = self.task(*task).state.holds_node();
                if holds && self.end_of(*task, confidence, now).is_some_and(|end| end <= at) {
                    for (dim, amount) in self.classes.row(self.task(*task).class).demand.iter() {
                        let cell = given_back.entry(dim).or_default();
                        *cell = cell.saturating_add(amount);
                    }
                }
            }
            for (dim, needed) in &needed {
                let missing = needed.saturating_sub(given_back.get(dim).copied().unwrap_or(0));
                let cell = kept.entry(*dim).or_default();
                *cell = (*cell).max(missing);
            }
        }
        for dim in (0..self.dims.len()).map(DimId::from) {
            let amount = kept.get(&dim).copied().unwrap_or(0);
            if self.nodes.reserved(node, dim) != amount {
                self.nodes.set_reserved(node, dim, amount);
            }
        }
    }
}

/// What nodes keep, noted before a trial that looks what would be without some of it, and put back to the unit.
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

crate::save::saved_enum!(Gate { Admission, Nodes });
crate::save::saved! {
    Lift { from, confidence as "surety" };
    ReservedRoom as "Place" { node, name, amounts };
    Forecast as "Prospect" { at, confidence as "surety", places };
    Reservation { group, uid, queue, since, hard, forecast as "prospect", renew_at };
    Reservations { all, front, places, of_limits, lifted, freed_for, seen };
}

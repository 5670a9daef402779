//! The earliest time at which a group's minimum will fit, or the next pod of a sum that it was promised, and where, if
//! nothing is placed before it.
//!
//! Works on what nodes offer, what runs there and when that ends. Pods that depend on where others are, or have to lie
//! together in the network, are taken for pods that do not: for them the time is a lower bound, and their turn at that time
//! is what tells. O(pods on the nodes that suit), and a logarithm.

use smallvec::SmallVec;

use crate::ids::{ClassId, DimId, GroupId, NodeId, QueueId, TimeMs};
use crate::policy::Policy;
use crate::resource_dims::Demand;
use crate::world::end_times::Confidence;
use crate::world::maintenance_windows::{ClosedTimes, is_closed};
use crate::world::minimum::{Part, awaited};
use crate::world::reservations::{Amounts, Forecast, Reservation, ReservedRoom};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// What runs is looked at anew after so long at least.
const RENEW_MS: i64 = 1_000;
/// Each millisecond after which what runs is looked at anew stands for so many pods (`renewal_ms`).
const PODS_A_MS: i64 = 20;

/// What a node will have.
struct NodeRoom {
    node: NodeId,
    /// The parts whose pods it may take.
    suits: SmallVec<[bool; 4]>,
    /// Free now, by the dimensions that are asked for.
    free: SmallVec<[i64; 4]>,
    /// What comes free, in order.
    ends: Vec<(TimeMs, SmallVec<[i64; 4]>)>,
    /// When the group can't start there, whatever is free.
    closed: ClosedTimes,
}

/// The same of what a queue may hold.
struct Headroom {
    free: SmallVec<[i64; 4]>,
    ends: Vec<(TimeMs, SmallVec<[i64; 4]>)>,
}

struct RoomOverTime<'a> {
    tables: &'a Tables,
    /// The largest pods first.
    parts: Vec<Part>,
    dims: Vec<DimId>,
    nodes: Vec<NodeRoom>,
    queues: Vec<Headroom>,
}

/// When and where the group will fit. Nothing where that can't be told: it asks for a sum only, or it takes the end of
/// something whose end is not known.
pub(crate) fn forecast(
    tables: &Tables,
    policy: &Policy,
    group: GroupId,
    confidence: Confidence,
    now: TimeMs,
) -> Option<Forecast> {
    let mut parts = awaited(tables, group).parts;
    if parts.is_empty() {
        return None;
    }
    parts.sort_by_key(|part| std::cmp::Reverse(tables.size(part.class)));
    let rooms = RoomOverTime::new(tables, policy, group, parts, confidence, now);
    let at = rooms.first(now, |time| rooms.fill(time).is_some())?;
    let places = rooms.fill(at)?;
    Some(Forecast { at, confidence, places })
}

/// When the group will have these places, by ends that are enforced or else by those that are expected.
pub(crate) fn at_places(
    tables: &Tables,
    policy: &Policy,
    group: GroupId,
    places: &[ReservedRoom],
    now: TimeMs,
) -> Option<Forecast> {
    let parts = awaited(tables, group).parts;
    let of = |confidence| {
        let rooms = RoomOverTime::new(tables, policy, group, parts.clone(), confidence, now);
        let first = rooms.first(now, |time| rooms.has_room(places, time));
        first.map(|at| Forecast { at, confidence, places: places.to_vec() })
    };
    of(Confidence::Certain).or_else(|| of(Confidence::Expected))
}

/// What of the limits of the group's queue, and of those above it, is to be kept for it: what it needs beyond what will
/// have been given back by then. Nothing where the limit leaves enough for all: of a hard one, that waits.
pub(crate) fn of_limits(
    tables: &Tables,
    policy: &Policy,
    reservation: &Reservation,
    now: TimeMs,
) -> Vec<(QueueId, Amounts)> {
    let (group, Some(forecast)) = (reservation.group, &reservation.forecast) else { return Vec::new() };
    let needed = awaited(tables, group).total;
    let mut kept = Vec::new();
    for queue in limited(tables, policy, tables.groups.row(group).queue) {
        let row = tables.queues.row(queue);
        let held = row.tree.in_use();
        let at = |amounts: &[i64], dim: DimId| amounts.get(dim.index()).copied().unwrap_or(0);
        // What waits in the queue may make a limit bind that does not yet; what it waits for is among that.
        let asked = |dim: DimId| if reservation.hard { at(&row.tree.pending, dim) } else { at(&needed, dim) };
        let binding = row.capability.iter().filter(|(dim, limit)| {
            at(&needed, *dim) > 0 && asked(*dim).max(at(&needed, *dim)).saturating_add(at(&held, *dim)) > *limit
        });
        let dims: Vec<DimId> = binding.map(|(dim, _)| *dim).collect();
        if dims.is_empty() {
            continue;
        }
        let mut amounts: Amounts = dims.iter().map(|dim| (*dim, at(&needed, *dim))).collect();
        for (end, class) in ends_in(tables, queue, forecast.confidence, now) {
            if end <= forecast.at {
                for (dim, amount) in &mut amounts {
                    *amount = amount.saturating_sub(tables.classes.row(class).demand.get(*dim));
                }
            }
        }
        amounts.retain(|(_, amount)| *amount > 0);
        kept.push((queue, amounts));
    }
    kept
}

/// The queue, and those above it where queues are asked along their tree, that have a limit.
fn limited(tables: &Tables, policy: &Policy, queue: QueueId) -> Vec<QueueId> {
    let queues = &tables.queues;
    let above: &[QueueId] = if policy.follows_queue_tree() { &queues.row(queue).ancestors } else { &[] };
    let line = std::iter::once(queue).chain(above.iter().copied());
    line.filter(|queue| !queues.row(*queue).capability.is_empty()).collect()
}

/// When what a queue's pods hold, and those of queues below it, is given back. O(pods).
fn ends_in(
    tables: &Tables,
    queue: QueueId,
    confidence: Confidence,
    now: TimeMs,
) -> impl Iterator<Item = (TimeMs, ClassId)> {
    let holding = tables.tasks.iter().filter(|(_, row)| row.state.holds_node());
    holding.filter_map(move |(task, row)| {
        let of = tables.groups.row(row.group?).queue;
        let below = of == queue || tables.queues.row(of).ancestors.contains(&queue);
        if below { Some((tables.end_of(task, confidence, now)?, row.class)) } else { None }
    })
}

/// After how many milliseconds what runs is looked at anew: where much runs after as many as `PODS_A_MS` goes into the
/// pods, so that it takes a small part of all time.
pub(crate) fn renewal_ms(tables: &Tables) -> i64 {
    RENEW_MS.max(i64::try_from(tables.tasks.span()).unwrap_or(i64::MAX) / PODS_A_MS)
}

impl<'a> RoomOverTime<'a> {
    fn new(
        tables: &'a Tables,
        policy: &Policy,
        group: GroupId,
        parts: Vec<Part>,
        confidence: Confidence,
        now: TimeMs,
    ) -> Self {
        let mut dims: Vec<DimId> = Vec::new();
        for (dim, _) in parts.iter().flat_map(|part| tables.classes.row(part.class).demand.iter()) {
            if !dims.contains(&dim) {
                dims.push(dim);
            }
        }
        let amounts = |demand: &Demand| -> SmallVec<[i64; 4]> { dims.iter().map(|dim| demand.get(*dim)).collect() };
        let run = tables.run_of_group(group, parts.iter().map(|part| part.class));
        let mut nodes = Vec::new();
        for node in tables.nodes.ids() {
            let suits = |part: &Part| policy.check_facts(tables, tables.classes.row(part.class), node).is_none();
            let suits: SmallVec<[bool; 4]> = parts.iter().map(suits).collect();
            if !suits.contains(&true) {
                continue;
            }
            let mut free: SmallVec<[i64; 4]> = dims.iter().map(|dim| tables.nodes.allocatable(node, *dim)).collect();
            let mut ends = Vec::new();
            for task in &tables.nodes.row(node).tasks {
                let row = tables.task(*task);
                if !row.state.holds_node() && row.state != TaskState::Pipelined
                    || row.group == Some(group) && row.state == TaskState::Pipelined
                {
                    continue;
                }
                let amounts = amounts(&tables.classes.row(row.class).demand);
                free.iter_mut().zip(&amounts).for_each(|(free, amount)| *free = free.saturating_sub(*amount));
                if let Some(end) = tables.end_of(*task, confidence, now) {
                    ends.push((end, amounts));
                }
            }
            nodes.push(NodeRoom { node, suits, free, ends, closed: tables.closed_times(group, node, run) });
        }
        let mut rooms = Self { tables, parts, dims, nodes, queues: Vec::new() };
        rooms.count_reservations(group, confidence);
        rooms.nodes.iter_mut().for_each(|room_of| room_of.ends.sort_by_key(|(end, _)| *end));
        for queue in limited(tables, policy, tables.groups.row(group).queue) {
            rooms.limit_to(queue, confidence, now);
        }
        rooms
    }

    /// What was reserved before is for others from their start on, as long as they are expected to run: where only what is
    /// enforced counts, as long as they may, and for good where nothing ends them or their start is a guess.
    fn count_reservations(&mut self, group: GroupId, confidence: Confidence) {
        for reservation in self.tables.reservations.all.iter().take_while(|other| other.group != group) {
            let Some(forecast) = &reservation.forecast else { continue };
            let parts = awaited(self.tables, reservation.group).parts;
            let run = match (confidence, forecast.confidence) {
                (Confidence::Expected, _) => self.tables.typical_run_of_all(reservation.group, &parts),
                (Confidence::Certain, Confidence::Certain) => self.tables.longest_run_of_all(&parts),
                (Confidence::Certain, Confidence::Expected) => None,
            };
            for place in &forecast.places {
                let Ok(at) = self.nodes.binary_search_by_key(&place.node, |room_of| room_of.node) else {
                    continue;
                };
                let room_of = &mut self.nodes[at];
                let of =
                    |dim: &DimId| place.amounts.iter().find(|(other, _)| other == dim).map_or(0, |(_, amount)| *amount);
                let amounts: SmallVec<[i64; 4]> = self.dims.iter().map(of).collect();
                room_of.free.iter_mut().zip(&amounts).for_each(|(free, amount)| *free = free.saturating_sub(*amount));
                if let Some(run) = run {
                    room_of.ends.push((forecast.at.plus_ms(run), amounts));
                }
            }
        }
    }

    /// A queue's limit is room, too.
    fn limit_to(&mut self, queue: QueueId, confidence: Confidence, now: TimeMs) {
        let row = self.tables.queues.row(queue);
        let held = row.tree.in_use();
        let limit = |dim: &DimId| {
            let limit = row.capability.iter().find(|(other, _)| other == dim).map(|(_, limit)| *limit);
            limit.map_or(i64::MAX / 4, |limit| limit.saturating_sub(held.get(dim.index()).copied().unwrap_or(0)))
        };
        let free: SmallVec<[i64; 4]> = self.dims.iter().map(limit).collect();
        let amounts = |class: ClassId| {
            let demand = &self.tables.classes.row(class).demand;
            self.dims.iter().map(|dim| demand.get(*dim)).collect()
        };
        let ends = ends_in(self.tables, queue, confidence, now);
        let mut ends: Vec<(TimeMs, SmallVec<[i64; 4]>)> = ends.map(|(end, class)| (end, amounts(class))).collect();
        ends.sort_by_key(|(end, _)| *end);
        self.queues.push(Headroom { free, ends });
    }

    /// The first time at which `holds` says so. Room only grows with time but where a node closes or opens: between two
    /// such moments what holds once holds.
    fn first(&self, now: TimeMs, holds: impl Fn(TimeMs) -> bool) -> Option<TimeMs> {
        let closed = self.nodes.iter().flat_map(|room_of| &room_of.closed);
        let mut edges: Vec<TimeMs> = closed.flat_map(|(last, to)| [Some(last.plus_ms(1)), *to]).flatten().collect();
        edges.sort_unstable();
        edges.dedup();
        let phase = |time: &TimeMs| edges.partition_point(|edge| edge <= time);
        let times = self.times(now);
        let mut rest = &times[..];
        while let Some(begin) = rest.first().map(phase) {
            let (between, later) = rest.split_at(rest.partition_point(|time| phase(time) == begin));
            let found = between.partition_point(|time| !holds(*time));
            if let Some(at) = between.get(found) {
                return Some(*at);
            }
            rest = later;
        }
        None
    }

    /// The times at which something comes free or a node opens, in order; now is the first.
    fn times(&self, now: TimeMs) -> Vec<TimeMs> {
        let of_nodes = self.nodes.iter().flat_map(|room_of| &room_of.ends);
        let of_queues = self.queues.iter().flat_map(|queue| &queue.ends);
        let opened = self.nodes.iter().flat_map(|room_of| &room_of.closed).filter_map(|(_, to)| *to);
        let mut times: Vec<TimeMs> = of_nodes.chain(of_queues).map(|(end, _)| *end).collect();
        times.extend(opened.filter(|to| *to > now));
        times.push(now);
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Where the minimum goes at that time, if all of it does. Nodes that have least of it free now come first: what is
    /// free is of use to others until then.
    fn fill(&self, at: TimeMs) -> Option<Vec<ReservedRoom>> {
        if !self.queues_allow(at) {
            return None;
        }
        let mut left: Vec<(&NodeRoom, SmallVec<[i64; 4]>)> =
            self.nodes.iter().map(|room_of| (room_of, free_at(&room_of.free, &room_of.ends, at))).collect();
        let mut taken: Vec<SmallVec<[i64; 4]>> = vec![self.dims.iter().map(|_| 0).collect(); left.len()];
        for (index, part) in self.parts.iter().enumerate() {
            let wants = self.wants(part.class);
            let most = self.most_on_a_node(part.class);
            let room = |free: &[i64]| fits(free, &wants).min(most);
            let mut candidates: Vec<(i64, i64, usize)> = Vec::new();
            let may = |room_of: &NodeRoom| room_of.suits[index] && !is_closed(&room_of.closed, at);
            for (place, (room_of, free)) in left.iter().enumerate().filter(|(_, (room_of, _))| may(room_of)) {
                let then = room(free);
                if then > 0 {
                    candidates.push((room(&room_of.free).max(0), then, place));
                }
            }
            let mut needed = i64::from(part.count);
            if candidates.iter().map(|(_, then, _)| *then).fold(0, i64::saturating_add) < needed {
                return None;
            }
            candidates.sort_unstable_by_key(|(now, then, place)| (*now, std::cmp::Reverse(*then), *place));
            for (_, then, place) in candidates {
                let count = then.min(needed);
                for ((free, taken), amount) in left[place].1.iter_mut().zip(&mut taken[place]).zip(&wants) {
                    *free = free.saturating_sub(amount.saturating_mul(count));
                    *taken = taken.saturating_add(amount.saturating_mul(count));
                }
                needed -= count;
                if needed == 0 {
                    break;
                }
            }
        }
        Some(self.places(&taken))
    }

    /// Whether the places are free at that time.
    fn has_room(&self, places: &[ReservedRoom], at: TimeMs) -> bool {
        let is_free = |place: &ReservedRoom| {
            let Ok(index) = self.nodes.binary_search_by_key(&place.node, |room_of| room_of.node) else {
                return false;
            };
            let room_of = &self.nodes[index];
            if is_closed(&room_of.closed, at) {
                return false;
            }
            let free = free_at(&room_of.free, &room_of.ends, at);
            place.amounts.iter().all(|(dim, amount)| {
                let index = self.dims.iter().position(|other| other == dim);
                index.is_some_and(|index| *amount <= free[index])
            })
        };
        self.queues_allow(at) && places.iter().all(is_free)
    }

    fn places(&self, taken: &[SmallVec<[i64; 4]>]) -> Vec<ReservedRoom> {
        let used = self.nodes.iter().zip(taken).filter(|(_, taken)| taken.iter().any(|amount| *amount > 0));
        let place = |(room_of, taken): (&NodeRoom, &SmallVec<[i64; 4]>)| {
            let amounts = self.dims.iter().copied().zip(taken.iter().copied());
            let amounts: Amounts = amounts.filter(|(_, amount)| *amount > 0).collect();
            ReservedRoom { node: room_of.node, name: self.tables.nodes.row(room_of.node).name.clone(), amounts }
        };
        used.map(place).collect()
    }

    fn queues_allow(&self, at: TimeMs) -> bool {
        let mut wanted: SmallVec<[i64; 4]> = self.dims.iter().map(|_| 0).collect();
        for part in &self.parts {
            for (sum, amount) in wanted.iter_mut().zip(self.wants(part.class)) {
                *sum = sum.saturating_add(amount.saturating_mul(i64::from(part.count)));
            }
        }
        let allows = |queue: &Headroom| {
            let free = free_at(&queue.free, &queue.ends, at);
            wanted.iter().zip(&free).all(|(wanted, free)| *wanted == 0 || wanted <= free)
        };
        self.queues.iter().all(allows)
    }

    fn wants(&self, class: ClassId) -> SmallVec<[i64; 4]> {
        let demand = &self.tables.classes.row(class).demand;
        self.dims.iter().map(|dim| demand.get(*dim)).collect()
    }

    /// Pods that take a host port can't share a node.
    fn most_on_a_node(&self, class: ClassId) -> i64 {
        if self.tables.classes.row(class).template.host_ports.is_empty() { i64::MAX } else { 1 }
    }
}

fn free_at(free: &[i64], ends: &[(TimeMs, SmallVec<[i64; 4]>)], at: TimeMs) -> SmallVec<[i64; 4]> {
    let mut free: SmallVec<[i64; 4]> = free.into();
    for (_, amounts) in ends.iter().take_while(|(end, _)| *end <= at) {
        free.iter_mut().zip(amounts).for_each(|(free, amount)| *free = free.saturating_add(*amount));
    }
    free
}

/// How many pods fit into what is free.
fn fits(free: &[i64], wants: &[i64]) -> i64 {
    let asked = free.iter().zip(wants).filter(|(_, amount)| **amount > 0);
    asked.map(|(free, amount)| free.max(&0) / amount).min().unwrap_or(i64::MAX)
}

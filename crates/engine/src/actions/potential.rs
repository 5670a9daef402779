//! Why queues never take the same room from each other in turns: each reclaim makes a potential fall.
//!
//! A queue's *excess* is what it and all below it hold above its share, in parts of the cluster. A queue reclaims
//! without adding to the excess of its own or of those above it, or it makes the sum of all excesses fall: it takes
//! back only what the taker holds above its share by more than the task adds to its own. So the sum never rises, and
//! what leaves it equal brings a queue nearer to its share. But what allocate lends in between raises it again, so who
//! takes beyond its share takes only from those that could not take it back. Called by `victims` and `gang_eviction`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::cycle::Cycle;
use crate::dims::{Demand, PODS};
use crate::ids::{DimId, QueueId, TaskId};
use crate::share;
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;

/// Excesses are counted in parts of this of the cluster.
const WHOLE: i128 = 1 << 32;

/// By how much what queues hold would change.
type Changes = BTreeMap<QueueId, Change>;

#[derive(Debug, Clone)]
struct Change {
    delta: Vec<i64>,
    shares: Vec<(DimId, i64)>,
    /// All that it has no share of is excess. Queues above have a say only in what they have a share of.
    whole: bool,
}

/// Whether giving `demand` to `queue` at the cost of `victims` brings the cluster nearer to its shares, and stays so.
/// Where no plugin knows shares, yes.
pub(super) fn falls(cycle: &mut Cycle<'_>, queue: QueueId, demand: &Demand, victims: &[TaskId]) -> bool {
    if cycle.policy.shares(cycle.tables, queue).is_none() {
        return true;
    }
    let (alone, both) = differences(cycle, queue, demand, victims);
    let nearer = alone <= 0 || both < 0;
    let settled = both < 0 && is_within(cycle, queue, demand, victims) && all_borrow(cycle, demand, victims);
    nearer && (settled || !may_return(cycle, queue, demand, victims))
}

/// Whether each victim's queue, without those before it, holds more than its share of something that is taken from it.
fn all_borrow(cycle: &Cycle<'_>, demand: &Demand, victims: &[TaskId]) -> bool {
    let tables = &*cycle.tables;
    let mut lost: BTreeMap<QueueId, Vec<i64>> = BTreeMap::new();
    victims.iter().all(|victim| {
        let row = tables.task(*victim);
        let Some(queue) = queue_of(tables, *victim) else { return false };
        let gone = lost.entry(queue).or_default();
        let (held, shares) = (&tables.queues.row(queue).tree, cycle.policy.shares(tables, queue).unwrap_or_default());
        let loses = &tables.classes.row(row.class).demand;
        let borrows = loses
            .iter()
            .filter(|(dim, _)| *dim != PODS && demand.get(*dim) > 0)
            .any(|(dim, _)| held.promised(dim).saturating_sub(share::at(gone, dim)) > share_of(&shares, dim));
        loses.add_to(gone, 1);
        borrows
    })
}

/// Whether the queue and those above it that lose nothing keep within their shares in all that they take: then nobody
/// can take it back.
fn is_within(cycle: &Cycle<'_>, queue: QueueId, demand: &Demand, victims: &[TaskId]) -> bool {
    let tables = &*cycle.tables;
    let loses = |at: QueueId| {
        let below = |loser: QueueId| loser == at || tables.queues.row(loser).ancestors.contains(&at);
        victims.iter().filter_map(|victim| queue_of(tables, *victim)).any(below)
    };
    let keeps = |at: QueueId| {
        let (held, shares) = (&tables.queues.row(at).tree, cycle.policy.shares(tables, at).unwrap_or_default());
        let share = |dim: DimId| share_of(&shares, dim);
        let mut taken = demand.iter().filter(|(dim, _)| *dim != PODS && (at == queue || share(*dim) > 0));
        taken.all(|(dim, amount)| held.promised(dim).saturating_add(amount) <= share(dim))
    };
    let mut above = tables.queues.row(queue).ancestors.iter().copied();
    keeps(queue) && above.all(|at| loses(at) || keeps(at))
}

/// Whether any of the victims could reclaim what it loses once the taker holds it, or its queue for other pods: it would
/// hold less than its share of what the taker takes from it.
fn may_return(cycle: &mut Cycle<'_>, taker: QueueId, demand: &Demand, victims: &[TaskId]) -> bool {
    let savepoint = cycle.tables.savepoint();
    victims.iter().for_each(|victim| cycle.vacate(*victim));
    cycle.tables.queues.charge(taker, TaskState::Pipelined, demand, 1);
    let (tables, policy) = (&*cycle.tables, &*cycle.policy);
    let owed = |queue: QueueId, lost: &Demand| {
        let held = &tables.queues.row(queue).tree;
        let shares = policy.shares(tables, queue).unwrap_or_default();
        let taken = |dim: DimId| dim != PODS && demand.get(dim) > 0 && lost.get(dim) > 0;
        shares.iter().any(|(dim, share)| taken(*dim) && held.promised(*dim) < *share)
    };
    let returns = victims.iter().any(|victim| {
        let row = tables.task(*victim);
        let Some(queue) = queue_of(tables, *victim) else { return false };
        let lost = &tables.classes.row(row.class).demand;
        owed(queue, lost) || policy.preemptive(tables, queue, lost)
    });
    cycle.tables.queues.charge(taker, TaskState::Pipelined, demand, -1);
    cycle.rollback(savepoint);
    returns
}

fn queue_of(tables: &Tables, task: TaskId) -> Option<QueueId> {
    tables.task(task).group.map(|group| tables.groups.row(group).queue)
}

/// What is not named is no share.
fn share_of(shares: &[(DimId, i64)], dim: DimId) -> i64 {
    shares.iter().find(|(named, _)| *named == dim).map_or(0, |(_, share)| *share)
}

/// By how much the sum of the excesses changes for what the queue gets, and for that and what the victims lose.
fn differences(cycle: &Cycle<'_>, queue: QueueId, demand: &Demand, victims: &[TaskId]) -> (i128, i128) {
    let tables = &*cycle.tables;
    let mut changes = Changes::new();
    add(cycle, &mut changes, queue, demand, 1);
    // What the losers name counts for the taker, too.
    let losers = victims.iter().filter_map(|victim| {
        let row = tables.task(*victim);
        Some((queue_of(tables, *victim)?, &tables.classes.row(row.class).demand))
    });
    let losers: Vec<(QueueId, &Demand)> = losers.collect();
    let mut both = changes.clone();
    for (loser, demand) in losers {
        add(cycle, &mut both, loser, demand, -1);
    }
    let divided: Vec<DimId> = (0..tables.dims.len())
        .map(DimId::from)
        .filter(|dim| *dim != PODS && both.values().any(|change| change.shares.iter().any(|(named, _)| named == dim)))
        .collect();
    (excess(tables, &divided, &changes), excess(tables, &divided, &both))
}

/// In the queue and all above it.
fn add(cycle: &Cycle<'_>, changes: &mut Changes, queue: QueueId, demand: &Demand, sign: i64) {
    let above = cycle.tables.queues.row(queue).ancestors.iter().copied();
    for at in std::iter::once(queue).chain(above) {
        let change = match changes.entry(at) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let Some(shares) = cycle.policy.shares(cycle.tables, at) else { continue };
                place.insert(Change { delta: Vec::new(), shares, whole: false })
            }
        };
        change.whole |= at == queue;
        demand.add_to(&mut change.delta, sign);
    }
}

/// By how much the sum of the excesses changes.
fn excess(tables: &Tables, divided: &[DimId], changes: &Changes) -> i128 {
    let of_queue = |queue: &QueueId| -> i128 {
        let Change { delta, shares, whole } = &changes[queue];
        let held = &tables.queues.row(*queue).tree;
        let in_one = |dim: &DimId| {
            let share = share_of(shares, *dim);
            if share <= 0 && !whole {
                return 0;
            }
            let above = |held: i64| i128::from(held.saturating_sub(share).max(0));
            let now = held.promised(*dim);
            let total = i128::from(tables.nodes.total.get(dim.index()).copied().unwrap_or(0).max(1));
            (above(now.saturating_add(share::at(delta, *dim))) - above(now)) * WHOLE / total
        };
        divided.iter().map(in_one).sum()
    };
    changes.keys().map(of_queue).sum()
}

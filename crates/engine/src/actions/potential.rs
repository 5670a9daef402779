//! Why queues never take the same room from each other in turns: each reclaim makes a potential fall.
//!
//! A queue's *excess* is what it holds above its deserved share, in parts of the cluster, over the dimensions its
//! share names (all, where it names none). A queue reclaims without adding to its own excess, or it makes the sum of
//! all excesses fall: it takes back only what the taker holds above its share by more than the task adds to its own.
//! So the sum never rises, and what leaves it equal brings a queue nearer to its share. Called by `victims`.

use rustc_hash::FxHashMap;

use crate::cycle::Cycle;
use crate::dims::{Demand, PODS};
use crate::ids::{DimId, QueueId, TaskId};
use crate::world::queues::Sums;
use crate::world::tables::Tables;

/// Excesses are counted in parts of this of the cluster.
const WHOLE: i128 = 1 << 32;

/// Whether giving `demand` to `queue` at the cost of `victims` brings the cluster nearer to its shares. Where no
/// plugin knows shares, yes.
pub(super) fn falls(cycle: &Cycle<'_>, queue: QueueId, demand: &Demand, victims: &[TaskId]) -> bool {
    let tables = &*cycle.tables;
    let Some(shares) = cycle.policy.shares(tables, queue) else { return true };
    let taken: Vec<(DimId, i64)> = demand.iter().collect();
    let added = change(tables, queue, &shares, |dim| amount_of(&taken, dim));
    if added <= 0 {
        return true;
    }
    let mut lost: FxHashMap<QueueId, Vec<i64>> = FxHashMap::default();
    for victim in victims {
        let row = tables.task(*victim);
        let Some(group) = row.group else { continue };
        let sum = lost.entry(tables.groups.row(group).queue).or_default();
        tables.classes.row(row.class).demand.add_to(sum, -1);
    }
    let freed = lost.into_iter().map(|(loser, amounts)| {
        let shares = cycle.policy.shares(tables, loser).unwrap_or_default();
        change(tables, loser, &shares, |dim| amounts.get(dim.index()).copied().unwrap_or(0))
    });
    added + freed.sum::<i128>() < 0
}

fn amount_of(amounts: &[(DimId, i64)], dim: DimId) -> i64 {
    amounts.iter().find(|(other, _)| *other == dim).map_or(0, |(_, amount)| *amount)
}

/// By how much a queue's excess changes.
fn change(tables: &Tables, queue: QueueId, shares: &[(DimId, i64)], delta: impl Fn(DimId) -> i64) -> i128 {
    let held = &tables.queues.row(queue).tree;
    let dims = (0..tables.dims.len()).map(DimId::from).filter(|dim| *dim != PODS && delta(*dim) != 0);
    let in_one = |dim: DimId| {
        let share = match shares.iter().find(|(other, _)| *other == dim) {
            Some((_, share)) => *share,
            None if shares.is_empty() => 0,
            None => return 0,
        };
        let total = i128::from(tables.nodes.total[dim.index()].max(1));
        let excess = |more: i64| i128::from(held_of(held, dim).saturating_add(more).saturating_sub(share).max(0));
        (excess(delta(dim)) - excess(0)) * WHOLE / total
    };
    dims.map(in_one).sum()
}

fn held_of(held: &Sums, dim: DimId) -> i64 {
    held.promised(dim)
}

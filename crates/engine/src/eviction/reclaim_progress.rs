//! Why queues never take the same room from each other in turns: each reclaim makes a potential fall.
//!
//! A queue's *excess* is what it and all below it hold above its share, in parts of the cluster. A queue reclaims
//! without adding to the excess of its own or of those above it, or it makes the sum of all excesses fall: it takes
//! back only what the taker holds above its share by more than the task adds to its own. So the sum never rises, and
//! what leaves it equal brings a queue nearer to its share. But what allocate lends in between raises it again, so who
//! takes beyond its share takes only from those that could not take it back.
//!
//! What lies idle is taken from nobody, so it is enough if all that holds of what is short: a queue that holds more
//! than its share of cpu that nobody wants gets its GPUs back. Called by `victim_search` and `gang_eviction`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::whole_gangs;
use crate::ids::{DimId, QueueId, TaskId};
use crate::resource_dims::{Demand, PODS};
use crate::session::Session;
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

/// Room that a queue is to get at the cost of others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taking<'a> {
    pub(super) queue: QueueId,
    pub(super) demand: &'a Demand,
    pub(super) victims: &'a [TaskId],
    /// What there is too little of without the victims; nothing where they leave for another reason.
    pub(super) short: &'a [DimId],
}

/// Which dimensions are looked at.
#[derive(Debug, Clone, Copy)]
enum Look {
    All,
    Short,
}

impl Taking<'_> {
    /// Whether it brings the cluster nearer to its shares, and stays so. Where no plugin knows shares, yes.
    pub(super) fn is_right(&self, session: &mut Session<'_>) -> bool {
        if session.policy.shares(session.tables, self.queue).is_none() {
            return true;
        }
        let is_idle = |dim: DimId| dim != PODS && !self.short.contains(&dim);
        let some_is_idle = !self.short.is_empty() && self.demand.iter().any(|(dim, _)| is_idle(dim));
        self.is_right_in(session, Look::All) || some_is_idle && self.is_right_in(session, Look::Short)
    }

    fn is_right_in(&self, session: &mut Session<'_>, look: Look) -> bool {
        let (alone, both) = self.differences(session, look);
        let nearer = alone <= 0 || both < 0;
        let settled = both < 0 && self.is_within(session, look) && self.all_borrow(session, look);
        nearer && (settled || !self.may_return(session, look))
    }

    fn counts(&self, look: Look, dim: DimId) -> bool {
        dim != PODS && (matches!(look, Look::All) || self.short.contains(&dim))
    }

    /// What of `amounts` counts.
    fn part(&self, look: Look, amounts: &Demand) -> Demand {
        Demand(amounts.iter().filter(|(dim, _)| self.counts(look, *dim)).collect())
    }

    /// Whether each victim's queue, without those before it, holds more than its share of something that is taken from it. Of a
    /// group that leaves as one that is asked once: it is one large victim.
    fn all_borrow(&self, session: &Session<'_>, look: Look) -> bool {
        let tables = &*session.tables;
        let whole = session.config.gangs_leave_whole;
        let mut lost: BTreeMap<QueueId, Vec<i64>> = BTreeMap::new();
        let mut before = None;
        self.victims.iter().all(|victim| {
            let Some(queue) = queue_of(tables, *victim) else { return false };
            let gone = lost.entry(queue).or_default();
            let of = before.replace(*victim);
            if whole && of.is_some_and(|of| whole_gangs::are_one(tables, of, *victim)) {
                demand_of(tables, *victim).add_to(gone, 1);
                return true;
            }
            let held = &tables.queues.row(queue).tree;
            let shares = session.policy.shares(tables, queue).unwrap_or_default();
            let loses = demand_of(tables, *victim);
            let borrows = loses
                .iter()
                .filter(|(dim, _)| self.counts(look, *dim) && self.demand.get(*dim) > 0)
                .any(|(dim, _)| held.promised(dim).saturating_sub(share::at(gone, dim)) > share_of(&shares, dim));
            loses.add_to(gone, 1);
            borrows
        })
    }

    /// Whether the queue and those above it that lose nothing keep within their shares in all that they take: then nobody
    /// can take it back.
    fn is_within(&self, session: &Session<'_>, look: Look) -> bool {
        let tables = &*session.tables;
        let loses = |at: QueueId| {
            let below = |loser: QueueId| loser == at || tables.queues.row(loser).ancestors.contains(&at);
            self.victims.iter().filter_map(|victim| queue_of(tables, *victim)).any(below)
        };
        let keeps = |at: QueueId| {
            let (held, shares) = (&tables.queues.row(at).tree, session.policy.shares(tables, at).unwrap_or_default());
            let share = |dim: DimId| share_of(&shares, dim);
            let counts = |dim: DimId| self.counts(look, dim) && (at == self.queue || share(dim) > 0);
            let mut taken = self.demand.iter().filter(|(dim, _)| counts(*dim));
            taken.all(|(dim, amount)| held.promised(dim).saturating_add(amount) <= share(dim))
        };
        let mut above = tables.queues.row(self.queue).ancestors.iter().copied();
        keeps(self.queue) && above.all(|at| loses(at) || keeps(at))
    }

    /// Whether any of the victims could reclaim what it loses once the taker holds it, or its queue for other pods: it would
    /// hold less than its share of what the taker takes from it.
    fn may_return(&self, session: &mut Session<'_>, look: Look) -> bool {
        let savepoint = session.tables.savepoint();
        self.victims.iter().for_each(|victim| session.vacate(*victim));
        session.tables.queues.charge(self.queue, TaskState::Pipelined, self.demand, 1);
        let (tables, policy) = (&*session.tables, &*session.policy);
        let owed = |queue: QueueId, lost: &Demand| {
            let held = &tables.queues.row(queue).tree;
            let shares = policy.shares(tables, queue).unwrap_or_default();
            let taken = |dim: DimId| self.demand.get(dim) > 0 && lost.get(dim) > 0;
            shares.iter().any(|(dim, share)| taken(*dim) && held.promised(*dim) < *share)
        };
        let returns = self.victims.iter().any(|victim| {
            let Some(queue) = queue_of(tables, *victim) else { return false };
            let lost = self.part(look, demand_of(tables, *victim));
            owed(queue, &lost) || policy.preemptive(tables, queue, &lost)
        });
        session.tables.queues.charge(self.queue, TaskState::Pipelined, self.demand, -1);
        session.rollback(savepoint);
        returns
    }

    /// By how much the sum of the excesses changes for what the queue gets, and for that and what the victims lose.
    fn differences(&self, session: &Session<'_>, look: Look) -> (i128, i128) {
        let tables = &*session.tables;
        let mut changes = Changes::new();
        add(session, &mut changes, self.queue, self.demand, 1);
        // What the losers name counts for the taker, too.
        let mut both = changes.clone();
        for victim in self.victims {
            if let Some(loser) = queue_of(tables, *victim) {
                add(session, &mut both, loser, demand_of(tables, *victim), -1);
            }
        }
        let is_named = |dim: DimId| both.values().any(|change| change.shares.iter().any(|(named, _)| *named == dim));
        let dims = (0..tables.dims.len()).map(DimId::from);
        let divided: Vec<DimId> = dims.filter(|dim| self.counts(look, *dim) && is_named(*dim)).collect();
        (excess(tables, &divided, &changes), excess(tables, &divided, &both))
    }
}

fn queue_of(tables: &Tables, task: TaskId) -> Option<QueueId> {
    tables.task(task).group.map(|group| tables.groups.row(group).queue)
}

fn demand_of(tables: &Tables, task: TaskId) -> &Demand {
    &tables.classes.row(tables.task(task).class).demand
}

/// What is not named is no share.
fn share_of(shares: &[(DimId, i64)], dim: DimId) -> i64 {
    shares.iter().find(|(named, _)| *named == dim).map_or(0, |(_, share)| *share)
}

/// In the queue and all above it.
fn add(session: &Session<'_>, changes: &mut Changes, queue: QueueId, demand: &Demand, sign: i64) {
    let above = session.tables.queues.row(queue).ancestors.iter().copied();
    for at in std::iter::once(queue).chain(above) {
        let change = match changes.entry(at) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let Some(shares) = session.policy.shares(session.tables, at) else { continue };
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

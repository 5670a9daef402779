//! The penalty for short jobs: one that ended sooner than its pool's cutoff after it began counts for its queue until then,
//! when it is decided whose turn it is. So a queue of short jobs does not begin one after the other before all others.
//!
//! Invariant: the penalty changes the order of queues and nothing else: no share, no limit, nobody's run. While one counts,
//! queues have their turn by what they hold of the pool for their weight; else the engine's own order counts.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::Resources;
use pumice_engine::plugin::{Alike, ClassRow, GroupId, Plugin, QueueId, Tables, TimeMs};
use pumice_ledger::Ended;

use super::limits::LimitHandoff;
use crate::away;

/// Its name in the configuration.
pub const NAME: &str = "shortjobs";
/// Parts of a pool in which it is counted.
const WHOLE: i128 = 1 << 40;
/// Jobs of a pool that count at once; more change little.
const JOBS_MAX: usize = 10_000;

/// What ended early and still counts.
#[derive(Debug, Default)]
pub struct Penalties {
    /// By pool.
    jobs: BTreeMap<String, Vec<Penalty>>,
}

/// A job that ended early, as it counts for its queue.
#[derive(Debug)]
struct Penalty {
    /// Until when it counts, in milliseconds.
    until_ms: i64,
    queue: String,
    /// What it asked for, and so had while it ran.
    requests: Resources,
}

impl Penalties {
    /// Takes in what has ended; `cutoffs` are milliseconds by pool.
    pub fn take(&mut self, ended: Vec<Ended>, cutoffs: &BTreeMap<String, i64>) {
        for Ended { queue, pool, requests, started, at } in ended {
            let Some(cutoff_ms) = cutoffs.get(&pool) else { continue };
            let until_ms = started.0.saturating_add(*cutoff_ms);
            let jobs = self.jobs.entry(pool).or_default();
            if until_ms > at.0 && jobs.len() < JOBS_MAX {
                jobs.push(Penalty { until_ms, queue, requests });
            }
        }
    }

    /// What still counts in a pool, by queue.
    pub fn of(&mut self, pool: &str, now: pumice_ledger::TimeMs) -> BTreeMap<String, Resources> {
        let mut all: BTreeMap<String, Resources> = BTreeMap::new();
        let Some(jobs) = self.jobs.get_mut(pool) else { return all };
        jobs.retain(|job| job.until_ms > now.0);
        for Penalty { queue, requests, .. } in jobs {
            let sum = all.entry(queue.clone()).or_default();
            for (name, amount) in requests {
                let sum = sum.entry(name.clone()).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        all
    }
}

/// Orders queues by what they hold and what counts as held, while any penalty counts.
#[derive(Debug)]
pub struct ShortJobPenalty {
    handoff: Arc<LimitHandoff>,
    total: Resources,
    penalties: BTreeMap<String, Resources>,
}

impl ShortJobPenalty {
    /// Penalties are handed over by the handoff.
    pub fn new(handoff: Arc<LimitHandoff>) -> Self {
        Self { handoff, total: Resources::new(), penalties: BTreeMap::new() }
    }

    /// What the queue holds and what counts as held, of what is scarcest, for its weight.
    fn cost(&self, tables: &Tables, queue: QueueId) -> i128 {
        let row = tables.queue(queue);
        let held = tables.queue_allocated(queue);
        let penalty = self.penalties.get(away::home_of(row.name()).unwrap_or(row.name()));
        let part = |(name, total): (&String, &i64)| {
            let more = penalty.and_then(|penalty| penalty.get(name)).copied().unwrap_or(0);
            let held = held.get(name).copied().unwrap_or(0).saturating_add(more);
            if *total > 0 { i128::from(held) * WHOLE / i128::from(*total) } else { 0 }
        };
        self.total.iter().map(part).max().unwrap_or(0) / i128::from(row.weight().max(1))
    }
}

impl Plugin for ShortJobPenalty {
    fn open(&mut self, tables: &Tables, _now: TimeMs) {
        self.penalties.clone_from(&self.handoff.given().penalties);
        self.total = if self.penalties.is_empty() { Resources::new() } else { tables.total() };
    }

    fn scores_nodes(&self) -> bool {
        false
    }

    fn checks_use_of(&self, _class: &ClassRow) -> bool {
        false
    }

    fn admits_alike(&self, _tables: &Tables, _group: GroupId) -> Alike {
        Alike::Key(0)
    }

    fn queue_order(&self, tables: &Tables, left: QueueId, right: QueueId) -> Ordering {
        if self.penalties.is_empty() {
            return Ordering::Equal;
        }
        let key = |queue| (Reverse(tables.queue(queue).priority()), self.cost(tables, queue));
        key(left).cmp(&key(right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_early_counts_until_the_cutoff() {
        let ended = |queue: &str, pool: &str, started, at| Ended {
            queue: queue.to_owned(),
            pool: pool.to_owned(),
            requests: [("cpu".to_owned(), 1000)].into(),
            started: pumice_ledger::TimeMs(started),
            at: pumice_ledger::TimeMs(at),
        };
        let mut penalties = Penalties::default();
        let all =
            vec![ended("a", "p", 0, 50), ended("a", "p", 20, 60), ended("b", "p", 0, 100), ended("b", "other", 0, 1)];
        penalties.take(all, &[("p".to_owned(), 100)].into());
        for (pool, now, cores) in [("p", 60, Some(2000)), ("p", 100, Some(1000)), ("p", 120, None), ("other", 60, None)]
        {
            let found = penalties.of(pool, pumice_ledger::TimeMs(now));
            assert_eq!(found.get("a").map(|held| held["cpu"]), cores, "{pool} {now}");
            assert!(!found.contains_key("b"));
        }
    }
}

//! What holds jobs back beside room: Armada's limits, as the configuration and queues set them, and what a round is given
//! of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::Resources;
use pumice_ledger::{ClassLimit, Queue};

use crate::away::AwayRules;
use crate::market::MarketRules;
use crate::placement::Placements;
use crate::rate_limits::{Grant, Rate, RateLimits};

/// Limits of the whole fleet.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Constraints {
    /// What jobs of a priority class may hold in one queue, by class.
    pub per_queue: BTreeMap<String, ClassLimit>,
    /// What one round may start.
    pub per_round: ClassLimit,
    /// How fast jobs may start.
    pub rates: RateLimits,
    /// Resources of a pool that are on no node, such as licences: by resource and pool, in whole units.
    pub floating: BTreeMap<String, BTreeMap<String, i64>>,
    /// Queues that hold no more than this part of their share lose nothing for balance.
    pub protected: Protected,
    /// Who may be away from home.
    pub away: AwayRules,
    /// Up to how long after its start a job that has ended counts in the order of queues, milliseconds by pool.
    pub short_jobs: BTreeMap<String, i64>,
    /// Pools in which bids decide.
    pub markets: BTreeMap<String, MarketRules>,
    /// How fast runs of a pool may be made to leave so that queues get their shares.
    pub preemption_rates: BTreeMap<String, Rate>,
    /// How nodes are filled.
    pub placements: Placements,
}

/// The part of its fair share up to which a queue is left alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Protected {
    pub fraction: f64,
    /// In a pool; goes before the other.
    pub by_pool: BTreeMap<String, f64>,
}

impl Default for Protected {
    fn default() -> Self {
        Self { fraction: 1.0, by_pool: BTreeMap::new() }
    }
}

impl Protected {
    /// The protected fraction of a fair share in a pool: its own where it has one, else that of all pools.
    pub fn of(&self, pool: &str) -> f64 {
        self.by_pool.get(pool).copied().unwrap_or(self.fraction)
    }
}

impl Constraints {
    /// Which part of a pool jobs of the class may hold in the queue, by resource; what is not named has no limit. The queue's
    /// own word goes before the class's, and that of a pool before that of all.
    pub fn fractions(&self, pool: &str, class: &str, queue: &BTreeMap<String, ClassLimit>) -> BTreeMap<String, f64> {
        let mut fractions = BTreeMap::new();
        for limit in self.per_queue.get(class).into_iter().chain(queue.get(class)) {
            fractions.extend(fractions_in(limit, pool));
        }
        fractions
    }

    /// Which part of a pool one round may start.
    pub fn round_fractions(&self, pool: &str) -> BTreeMap<String, f64> {
        fractions_in(&self.per_round, pool)
    }
}

fn fractions_in(limit: &ClassLimit, pool: &str) -> BTreeMap<String, f64> {
    let mut fractions = limit.fraction.clone();
    fractions.extend(limit.by_pool.get(pool).into_iter().flatten().map(|(name, part)| (name.clone(), *part)));
    fractions
}

/// What is held in a pool: by queue and priority class, and of what is on no node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolUsage {
    /// By queue and class.
    pub classes: BTreeMap<(Arc<str>, Arc<str>), Resources>,
    pub floating: Resources,
}

impl PoolUsage {
    /// Adds (`sign` 1) or takes back (-1) what a run holds.
    pub fn count(&mut self, queue: &Arc<str>, class: &Arc<str>, requests: &Resources, floating: &Resources, sign: i64) {
        let key = (queue.clone(), class.clone());
        let amounts = self.classes.entry(key.clone()).or_default();
        add(amounts, requests, sign);
        if amounts.is_empty() {
            self.classes.remove(&key);
        }
        add(&mut self.floating, floating, sign);
    }
}

fn add(amounts: &mut Resources, more: &Resources, sign: i64) {
    for (name, amount) in more {
        let sum = amounts.entry(name.clone()).or_default();
        *sum = sum.saturating_add(amount.saturating_mul(sign));
        if *sum == 0 {
            amounts.remove(name);
        }
    }
}

/// What a round is given: it may start so much beside what is held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Allowance {
    /// Jobs that may start.
    pub grant: Grant,
    pub usage: PoolUsage,
    /// Limits of queues that have some of their own.
    pub queues: BTreeMap<String, BTreeMap<String, ClassLimit>>,
    /// What counts as held in the order of queues, by queue.
    pub penalties: BTreeMap<String, Resources>,
}

impl Allowance {
    /// What is held, and the limits of these queues.
    pub fn new<'q>(grant: Grant, usage: PoolUsage, queues: impl IntoIterator<Item = &'q Queue>) -> Self {
        let limited = queues.into_iter().filter(|queue| !queue.limits.is_empty());
        let queues = limited.map(|queue| (queue.name.clone(), queue.limits.clone())).collect();
        Self { grant, usage, queues, penalties: BTreeMap::new() }
    }

    /// Whose jobs were short.
    pub fn with_penalties(self, penalties: BTreeMap<String, Resources>) -> Self {
        Self { penalties, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(all: &[(&str, f64)], pool: &[(&str, f64)]) -> ClassLimit {
        let amounts = |list: &[(&str, f64)]| list.iter().map(|(name, part)| ((*name).to_owned(), *part)).collect();
        ClassLimit { fraction: amounts(all), by_pool: [("p".to_owned(), amounts(pool))].into() }
    }

    #[test]
    fn the_nearest_word_counts() {
        let class = limit(&[("cpu", 0.5), ("memory", 0.5)], &[("cpu", 0.4)]);
        let constraints = Constraints { per_queue: [("c".to_owned(), class)].into(), ..Constraints::default() };
        let of = |queue: &BTreeMap<String, ClassLimit>, pool, class| {
            let fractions = constraints.fractions(pool, class, queue);
            fractions.into_iter().map(|(name, part)| format!("{name} {part}")).collect::<Vec<_>>().join(", ")
        };
        let own = [("c".to_owned(), limit(&[("cpu", 0.3)], &[("memory", 0.2)]))].into();
        for (queue, pool, class, wanted) in [
            (&BTreeMap::new(), "other", "c", "cpu 0.5, memory 0.5"),
            (&BTreeMap::new(), "p", "c", "cpu 0.4, memory 0.5"),
            (&own, "p", "c", "cpu 0.3, memory 0.2"),
            (&own, "p", "another", ""),
        ] {
            assert_eq!(of(queue, pool, class), wanted);
        }
    }

    #[test]
    fn what_is_given_back_is_forgotten() {
        let (queue, class): (Arc<str>, Arc<str>) = ("q".into(), "c".into());
        let (cores, licences) = ([("cpu".to_owned(), 1_000)].into(), [("licence".to_owned(), 2)].into());
        let mut usage = PoolUsage::default();
        usage.count(&queue, &class, &cores, &licences, 1);
        usage.count(&queue, &class, &cores, &licences, 1);
        assert_eq!((usage.classes[&(queue.clone(), class.clone())]["cpu"], usage.floating["licence"]), (2_000, 4));
        usage.count(&queue, &class, &cores, &licences, -1);
        usage.count(&queue, &class, &cores, &licences, -1);
        assert_eq!(usage, PoolUsage::default());
    }
}

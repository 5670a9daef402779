//! Rounds of the pools, as the leader sees them: when one begins, what it is told, and what becomes of what it finds.
//!
//! Invariant: a pool is either here or in its round, never in both; what a round found is settled before the next begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use pumice_engine::Delta;
use pumice_fleet_scheduling::{Bids, Pool, PoolView, queue_delta};
use pumice_ledger::{JobId, Proposal, TimeMs};

use super::explain::LastRound;
use super::{ROUND_EVERY, Term};

/// What one round found.
pub(super) struct Found {
    pub(super) window: PoolView,
    pub(super) pool: Pool,
    pub(super) proposals: Vec<Proposal>,
    pub(super) last: LastRound,
}

/// A pool that waits for its next round.
pub(super) struct Waiting {
    pub(super) window: PoolView,
    pub(super) pool: Pool,
    pub(super) last: LastRound,
}

impl Term {
    pub(super) fn ensure_pool(&mut self, name: &str) {
        if self.pools.contains_key(name) || self.busy.contains(name) {
            return;
        }
        let pool = Pool::within(name, &self.classes, self.constraints.clone());
        let definitions = self.ledger.queues().filter_map(|queue| queue.definition);
        let known: Vec<Delta> = definitions.map(queue_delta).collect();
        self.pool_updates.entry(name.to_owned()).or_default().extend(known);
        let window = PoolView::within(name, self.limits, self.constraints.clone());
        self.pools.insert(name.to_owned(), Waiting { window, pool, last: LastRound::default() });
    }

    /// Queues bid this from now on: market pools have a round.
    pub(super) fn bid(&mut self, bids: Arc<Bids>) {
        self.bids = bids;
        let now = TimeMs(clock::now_ms());
        for pool in self.constraints.markets.keys() {
            self.again.insert(pool.clone(), now);
        }
    }

    /// Starts a round in each pool that has something new.
    pub(super) fn start_rounds(&mut self) {
        let unsettled: BTreeSet<&String> = self.unsettled.iter().map(|(name, _)| name).collect();
        let now = pumice_engine::TimeMs(TimeMs(clock::now_ms()).0);
        let news = |(name, waiting): &(&String, &Waiting)| {
            let wakes = waiting.pool.wakes().is_some_and(|at| at <= now);
            let changed = self.changed.get(name.as_str()).is_some_and(|changed| !changed.is_empty());
            let told = self.pool_updates.get(name.as_str()).is_some_and(|told| !told.is_empty());
            let again = self.again.get(name.as_str()).is_some_and(|at| at.0 <= now.0);
            (changed || told || wakes || again) && !unsettled.contains(name)
        };
        let pools = self.pools.len() + self.busy.len();
        let due: Vec<String> = self.pools.iter().filter(news).map(|(name, _)| name.clone()).collect();
        for name in due {
            let Some(Waiting { mut window, mut pool, last }) = self.pools.remove(&name) else { continue };
            let deltas = self.pool_updates.remove(&name).unwrap_or_default();
            let changed = self.changed.remove(&name).unwrap_or_default();
            window.bid(&self.bids);
            let told = window.sync(&self.ledger, &changed);
            let bids = pool.is_market().then(|| Arc::clone(&self.bids));
            let grant = self.rates.grant(TimeMs(now.0), pools);
            let penalties = self.penalties.of(&name, TimeMs(now.0));
            pool.allow(window.allowance(&self.ledger, grant).with_penalties(penalties));
            self.again.remove(&name);
            self.busy.insert(name);
            self.rounds.spawn_blocking(move || {
                let began = clock::monotonic();
                if let Some(bids) = bids {
                    pool.bid(bids);
                }
                pool.apply(&deltas);
                pool.take_in(told);
                let proposals = pool.round(now);
                let last = last.next(began.elapsed(), &proposals);
                Found { window, pool, proposals, last }
            });
        }
    }

    pub(super) fn found(&mut self, found: Found) {
        let name = found.pool.name().to_owned();
        self.busy.remove(&name);
        let Found { window, pool, proposals, last } = found;
        self.metrics.round(&name, Duration::from_millis(last.took_ms));
        if pool.is_market() {
            self.metrics.spot_price(&name, pool.spot_price().map(|price| price.0));
        }
        self.take_rates(&proposals);
        if pool.cut_short() {
            let now = TimeMs(clock::now_ms());
            let later = now.plus(i64::try_from(ROUND_EVERY.as_millis()).unwrap_or(i64::MAX));
            self.again.insert(name.clone(), self.rates.next().map_or(later, |at| at.max(later)));
        }
        self.pools.insert(name.clone(), Waiting { window, pool, last });
        if !proposals.is_empty() {
            self.dirty = true;
            self.inbox.proposals.extend(proposals.iter().cloned());
            self.unsettled.push((name, proposals));
        }
    }

    /// Counts what a round wants to start, though the ledger may leave some of it: rates are limits.
    fn take_rates(&mut self, proposals: &[Proposal]) {
        let mut started: BTreeMap<&str, u32> = BTreeMap::new();
        for proposal in proposals {
            for (id, pods) in proposal.starts() {
                if let Some(job) = self.ledger.job(id) {
                    *started.entry(self.ledger.owner(job).0).or_default() += pods;
                }
            }
        }
        for (queue, jobs) in started {
            self.rates.take(queue, jobs, TimeMs(clock::now_ms()));
        }
    }

    pub(super) fn settle(&mut self, leased: &BTreeSet<JobId>) {
        let now = pumice_engine::TimeMs(TimeMs(clock::now_ms()).0);
        for (name, proposals) in std::mem::take(&mut self.unsettled) {
            let Some(waiting) = self.pools.get_mut(&name) else { continue };
            for proposal in &proposals {
                let taken = match proposal {
                    Proposal::Lease { .. } | Proposal::LeaseVolcanoJob { .. } => {
                        proposal.starts().iter().all(|(job, _)| leased.contains(job))
                    }
                    Proposal::Preempt { run, .. } => {
                        self.ledger.run(*run).is_some_and(|row| row.phase == pumice_ledger::RunPhase::Stopping)
                    }
                    Proposal::Reject { .. } => true,
                };
                waiting.pool.settle(proposal, taken, now);
            }
        }
    }
}

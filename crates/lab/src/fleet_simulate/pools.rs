//! The pools of the simulated fleet: the server's own windows and rounds, and when each is due.
//!
//! Invariant: a pool has a round as soon as something is new, as the server's leader starts them, but no sooner after its last
//! one than rounds are apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pumice_engine::{Delta, TimeMs};
use pumice_fleet_scheduling::{Constraints, Penalties, Pool, PoolView, Rates, group_of, node_delta, queue_delta};
use pumice_ledger::{Changes, Ended, Entry, Event, JobId, Ledger, Proposal, Queue, RunPhase};

use super::Stopwatch;
use super::clusters::Clusters;
use super::run::EPOCH_MS;
use super::scheduling::Scheduling;

/// The pools of the fleet, and what their rounds have in common.
pub(super) struct Pools {
    pools: BTreeMap<String, Side>,
    round_every_ms: i64,
    rates: Rates,
    penalties: Penalties,
    constraints: Arc<Constraints>,
}

/// A pool with its engine, and when its next round is.
struct Side {
    window: PoolView,
    pool: Pool,
    changed: Changes,
    pending: Vec<Delta>,
    /// The earliest time of its next round.
    not_before: i64,
    /// When there is another, since limits cut the last one short.
    again: Option<i64>,
}

/// What rounds found: proposals by pool.
pub(super) struct Found {
    pub proposals: Vec<(String, Vec<Proposal>)>,
    pub took: Vec<Duration>,
}

impl Pools {
    pub(super) fn new(clusters: &Clusters, queues: &[Queue], scheduling: &Scheduling, round_every_ms: i64) -> Self {
        let mut pools: BTreeMap<String, Side> = BTreeMap::new();
        for node in &clusters.nodes {
            let side = pools.entry(node.pool.clone()).or_insert_with(|| Side {
                window: PoolView::within(&node.pool, scheduling.limits, scheduling.constraints.clone()),
                pool: Pool::within(&node.pool, &scheduling.classes, scheduling.constraints.clone()),
                changed: Changes::default(),
                pending: queues.iter().map(queue_delta).collect(),
                not_before: EPOCH_MS,
                again: None,
            });
            side.pending.push(node_delta(&node.cluster, node.facts.clone()));
        }
        let (rates, constraints) = (Rates::new(scheduling.constraints.rates), scheduling.constraints.clone());
        Self { pools, round_every_ms, rates, penalties: Penalties::default(), constraints }
    }

    /// What the ledger says has changed.
    pub(super) fn changed(&mut self, changed: &Changes) {
        self.pools.values_mut().for_each(|side| side.changed.extend(changed));
    }

    /// What the ledger says has ended.
    pub(super) fn ended(&mut self, ended: Vec<Ended>) {
        self.penalties.take(ended, &self.constraints.short_jobs);
    }

    /// When the next round is due, and whether something is new.
    pub(super) fn next(&self) -> Option<(i64, bool)> {
        self.pools.values().filter_map(Side::due).min_by_key(|(at, is_new)| (*at, !is_new))
    }

    /// The rounds that are due.
    pub(super) fn rounds(&mut self, ledger: &Ledger, now: i64, watch: Stopwatch<'_>) -> Found {
        let mut found = Found { proposals: Vec::new(), took: Vec::new() };
        let pools = self.pools.len();
        for (name, side) in &mut self.pools {
            if side.due().is_none_or(|(at, _)| at > now) {
                continue;
            }
            let deltas = std::mem::take(&mut side.pending);
            let told = side.window.sync(ledger, &std::mem::take(&mut side.changed));
            let grant = self.rates.grant(pumice_ledger::TimeMs(now), pools);
            let penalties = self.penalties.of(name, pumice_ledger::TimeMs(now));
            side.pool.allow(side.window.allowance(ledger, grant).with_penalties(penalties));
            let began = watch();
            side.pool.apply(&deltas);
            side.pool.take_in(told);
            let proposals = side.pool.round(TimeMs(now));
            found.took.push(watch().saturating_sub(began));
            take_rates(&mut self.rates, ledger, &proposals, now);
            side.not_before = now.saturating_add(self.round_every_ms);
            let next = self.rates.next().map_or(side.not_before, |at| at.0.max(side.not_before));
            side.again = side.pool.cut_short().then_some(next);
            found.proposals.push((name.clone(), proposals));
        }
        found
    }

    /// Tells the pools what the ledger took of their proposals.
    pub(super) fn settle(&mut self, ledger: &Ledger, entries: &[Entry], found: &Found, now: i64) {
        let mut leased: BTreeSet<(JobId, &str)> = BTreeSet::new();
        for event in entries.iter().flat_map(|entry| &entry.events) {
            if let Event::Leased { run, pool, .. } = event {
                leased.insert((run.job, pool));
            }
        }
        for (name, proposals) in &found.proposals {
            let Some(side) = self.pools.get_mut(name) else { continue };
            for proposal in proposals {
                let taken = match proposal {
                    Proposal::Lease { .. } | Proposal::LeaseVolcanoJob { .. } => {
                        proposal.starts().iter().all(|(job, _)| leased.contains(&(*job, name.as_str())))
                    }
                    Proposal::Preempt { run, .. } => {
                        ledger.run(*run).is_some_and(|run| run.phase == RunPhase::Stopping)
                    }
                    Proposal::Reject { .. } => true,
                };
                side.pool.settle(proposal, taken, TimeMs(now));
            }
        }
    }

    /// Why a job waits, in the words of the first pool that looked at it.
    pub(super) fn why(&mut self, ledger: &Ledger, id: JobId) -> Option<String> {
        let (namespace, group) = group_of(ledger, id, ledger.job(id)?);
        self.pools.values_mut().find_map(|side| side.pool.why(&namespace, &group))
    }
}

impl Side {
    /// When its next round is due, and whether something is new.
    fn due(&self) -> Option<(i64, bool)> {
        if !self.changed.is_empty() || !self.pending.is_empty() {
            return Some((self.not_before, true));
        }
        let again = self.again.map(|at| (at, false));
        let wakes = self.pool.wakes().map(|at| (at.0.max(self.not_before), false));
        again.into_iter().chain(wakes).min()
    }
}

/// Counts what a round wants to start, though the ledger may leave some of it: rates are limits.
fn take_rates(rates: &mut Rates, ledger: &Ledger, proposals: &[Proposal], now: i64) {
    let mut started: BTreeMap<&str, u32> = BTreeMap::new();
    for proposal in proposals {
        for (id, pods) in proposal.starts() {
            if let Some(job) = ledger.job(id) {
                *started.entry(ledger.owner(job).0).or_default() += pods;
            }
        }
    }
    for (queue, jobs) in started {
        rates.take(queue, jobs, pumice_ledger::TimeMs(now));
    }
}

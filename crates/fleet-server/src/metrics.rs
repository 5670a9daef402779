//! What the fleet's server says of itself: Armada's names where it has some, ours where it has none.
//!
//! Invariant: no page costs more the longer queues are. Counters are counted as things happen; gauges are a [`Snapshot`] of
//! what the leader keeps counted, so only the server that leads has them. Lines are told apart by queues, pools, classes
//! and clusters, never by jobs or by what strangers write into a path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pumice_ledger::TimeMs;
use pumice_metrics::{Counts, Histogram, Page};

use crate::database::{Seq, Writes};

mod lifecycle;
mod requests;
mod shares;
mod snapshot;
#[cfg(test)]
mod tests;

pub(crate) use lifecycle::{LifecycleEvent, Lifecycles};
pub(crate) use requests::CallKey;
pub use snapshot::{ClusterCounts, NodeCounts, Snapshot};

/// Pools whose rounds are counted one by one; what comes later counts as the last of them.
const POOLS_MAX: usize = 1_000;
/// Milliseconds that a round or a commit may take.
const CYCLE_MS: [f64; 14] =
    [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1_000.0, 2_500.0, 5_000.0, 10_000.0, 30_000.0];
/// Nobody leads, or follows, here.
const NEVER: i64 = i64::MIN;

/// What is counted as it happens. Shared by the listener and the leader.
#[derive(Debug)]
pub struct Metrics {
    /// Since when this server leads, milliseconds since 1970.
    leads_since: AtomicI64,
    /// Up to which entry this server follows the one that leads.
    follows: AtomicI64,
    states: Counts<4>,
    errors: Counts<4>,
    scheduled: Counts<3>,
    preempted: Counts<4>,
    commits: Histogram,
    rounds: Mutex<BTreeMap<String, Arc<Histogram>>>,
    outcomes: Counts<2>,
    removed: Counts<1>,
    /// When bids were last told, milliseconds since 1970, and how often they were not.
    bids_told: AtomicI64,
    bids_missed: AtomicU64,
    market_prices: Mutex<BTreeMap<String, f64>>,
    requests: requests::Requests,
    writes: Arc<Writes>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Metrics {
    /// Nothing was counted but what the database says of its writes.
    pub fn new(writes: Arc<Writes>) -> Self {
        Self {
            leads_since: AtomicI64::new(NEVER),
            follows: AtomicI64::new(NEVER),
            states: Counts::new(["queue", "pool", "state", "priorState"]),
            errors: Counts::new(["queue", "pool", "category", "subcategory"]),
            scheduled: Counts::new(["pool", "queue", "priority_class"]),
            preempted: Counts::new(["pool", "queue", "priority_class", "type"]),
            commits: Histogram::new(&CYCLE_MS),
            rounds: Mutex::default(),
            outcomes: Counts::new(["pool", "outcome"]),
            removed: Counts::new(["table"]),
            bids_told: AtomicI64::new(NEVER),
            bids_missed: AtomicU64::new(0),
            market_prices: Mutex::default(),
            requests: requests::Requests::default(),
            writes,
        }
    }

    /// This server leads from now on, or no more.
    pub(crate) fn leads(&self, since: Option<TimeMs>) {
        self.leads_since.store(since.map_or(NEVER, |since| since.0), Ordering::Relaxed);
        self.market_prices.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Since when this server leads.
    pub(crate) fn leads_since(&self) -> Option<TimeMs> {
        Some(self.leads_since.load(Ordering::Relaxed)).filter(|since| *since != NEVER).map(TimeMs)
    }

    /// This server follows another one that leads, up to an entry, or none.
    pub(crate) fn follows(&self, position: Option<Seq>) {
        self.follows.store(position.map_or(NEVER, |position| position.0), Ordering::Relaxed);
    }

    /// A commit of the leader, from reading what is new to the answer of the database.
    pub(crate) fn committed(&self, took: Duration) {
        self.commits.observe(took);
    }

    /// So many rows of what is over were removed.
    pub(crate) fn removed(&self, table: &str, rows: usize) {
        self.removed.add_many([table], rows as u64);
    }

    /// A round of a pool has ended.
    pub(crate) fn round(&self, pool: &str, took: Duration) {
        self.outcomes.add([pool, "success"]);
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let key = if rounds.len() >= POOLS_MAX && !rounds.contains_key(pool) {
            rounds.keys().next_back().cloned().unwrap_or_default()
        } else {
            pool.to_owned()
        };
        rounds.entry(key).or_insert_with(|| Arc::new(Histogram::new(&CYCLE_MS))).observe(took);
    }

    /// Bids were told at that time, or were not.
    pub(crate) fn bids_told(&self, at: Option<TimeMs>) {
        match at {
            Some(at) => self.bids_told.store(at.0, Ordering::Relaxed),
            None => drop(self.bids_missed.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// The price of a market pool, of which nothing costs anything where it has none.
    pub(crate) fn spot_price(&self, pool: &str, price: Option<f64>) {
        let mut market_prices = self.market_prices.lock().unwrap_or_else(PoisonError::into_inner);
        if market_prices.len() < POOLS_MAX || market_prices.contains_key(pool) {
            market_prices.insert(pool.to_owned(), price.unwrap_or_default());
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, call: CallKey, code: tonic::Code, took: Duration) {
        self.requests.count(call, code, took);
    }

    /// What decisions said that are written now.
    pub(crate) fn count_events(&self, told: Vec<LifecycleEvent>) {
        for told in told {
            let LifecycleEvent { queue, pool, kind } = told;
            match kind {
                lifecycle::Kind::State { state, prior } => self.states.add([&queue, &pool, state, prior]),
                lifecycle::Kind::Scheduled { class } => self.scheduled.add([&pool, &queue, &class]),
                lifecycle::Kind::Preempted { class, by } => self.preempted.add([&pool, &queue, &class, by]),
                lifecycle::Kind::Error { category, subcategory } => {
                    self.errors.add([&queue, &pool, &category, &subcategory]);
                }
            }
        }
    }

    /// The page: what was counted, and what the leader knows where this server leads.
    pub fn page(&self, head: Seq, snapshot: Option<&Snapshot>) -> String {
        let mut page = Page::default();
        let leads = self.leads_since();
        page.gauge("pumice_fleet_leader", "Whether this server leads the fleet", u64::from(leads.is_some()));
        if let Some(since) = leads {
            let help = "Since when this server leads the fleet, seconds since 1970";
            page.gauge("pumice_fleet_leader_since_seconds", help, u64::try_from(since.0 / 1_000).unwrap_or(0));
        }
        let position = u64::try_from(head.0).unwrap_or(0);
        page.counter("pumice_fleet_log_position", "Entries ever written to the log", position);
        if let Ok(followed) = u64::try_from(self.follows.load(Ordering::Relaxed)) {
            let help = "The entry of the log up to which this server follows the one that leads";
            page.gauge("pumice_fleet_followed_position", help, followed);
        }
        if let Some(snapshot) = snapshot {
            snapshot.write(&mut page);
        }
        self.write_counters(&mut page);
        self.write_prices(&mut page);
        page.log_lines_lost();
        self.requests.write(&mut page);
        self.writes.write(&mut page);
        page.into_text()
    }

    /// Nothing where nobody was ever asked for bids.
    fn write_prices(&self, page: &mut Page) {
        let (told, missed) = (self.bids_told.load(Ordering::Relaxed), self.bids_missed.load(Ordering::Relaxed));
        if told != NEVER {
            let help = "Unix timestamp of the bids that count";
            let seconds = u64::try_from(told / 1_000).unwrap_or(0);
            page.gauge("armada_scheduler_bid_price_cache_last_refresh_timestamp_seconds", help, seconds);
        }
        if told != NEVER || missed > 0 {
            page.counter("pumice_fleet_bid_failures_total", "Questions for bids without an answer of use", missed);
        }
        let market_prices = self.market_prices.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !market_prices.is_empty() {
            page.head("armada_scheduler_spot_price", "gauge", "Spot price for given pool");
        }
        for (pool, price) in market_prices {
            // Prometheus' word for it is another one.
            let price = if price == f64::INFINITY { "+Inf".to_owned() } else { price.to_string() };
            page.line("armada_scheduler_spot_price", &[("pool", &pool)], price);
        }
    }

    fn write_counters(&self, page: &mut Page) {
        let name = |name: &str| format!("armada_scheduler_{name}");
        page.counts(&name("job_state_counter_by_queue"), "Job states at queue level", &self.states);
        let help = "Failed jobs by error classification at the queue level";
        page.counts(&name("job_error_classification_by_queue"), help, &self.errors);
        page.counts(&name("scheduled_jobs"), "Number of events scheduled", &self.scheduled);
        page.counts(&name("preempted_jobs"), "Number of jobs preempted", &self.preempted);
        let help = "Number of scheduling attempts per pool by outcome";
        page.counts(&name("pool_scheduling_outcome"), help, &self.outcomes);
        let help = "Rows of what is over that retention has removed";
        page.counts("pumice_fleet_removed_rows_total", help, &self.removed);
        let help = "Time to fold what is new, decide and write, in milliseconds";
        page.histogram(&name("reconciliation_cycle_times"), help, &[], &self.commits);
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let times = name("pool_scheduling_cycle_times");
        page.head(&times, "histogram", "Time taken to schedule on a given pool, in milliseconds");
        for (pool, histogram) in &rounds {
            page.classes(&times, &[("pool", pool)], histogram);
        }
    }
}

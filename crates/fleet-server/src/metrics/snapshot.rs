//! What only the leader knows, at one moment: queues, pools, clusters and shares.
//!
//! Invariant: made from what is counted already. O(queues · pools · classes + nodes), whatever waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use pumice_ledger::{Ages, Counter, Ledger, QueueView, RunPhase, TimeMs, UsageKey};
use pumice_metrics::Page;

use super::shares::{Amounts, Asking, Shares, shares};
use crate::health::{ExecutorHealth, Known, Stuck};

/// Seconds that jobs may wait or run: Armada's.
const AGES: [i64; 9] = [60, 600, 1_800, 3_600, 10_800, 43_200, 86_400, 172_800, 604_800];
/// Which of them a run may be leased without a pod.
const STUCK_AFTER: usize = 1;
/// The pool that waiting jobs are counted in where none is known.
const DEFAULT_POOL: &str = "default";

/// Nodes of a cluster in one pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeCounts {
    /// How many there are.
    pub nodes: usize,
    /// How many take new pods.
    pub open: usize,
    /// What all of them offer.
    pub capacity: Amounts,
    /// What those offer that take new pods.
    pub available: Amounts,
}

/// A cluster and its executor.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterCounts {
    pub name: String,
    /// When its executor was last heard.
    pub heard: TimeMs,
    /// It has a session.
    pub connected: bool,
    /// The executor's release, as far as it says.
    pub release: String,
    /// How far its clock was ahead of this server's when it last told.
    pub ahead_ms: Option<i64>,
    /// By pool.
    pub pools: BTreeMap<String, NodeCounts>,
    /// What pods use, by queue and pool.
    pub used: BTreeMap<(String, String), Amounts>,
}

#[derive(Debug, Clone, PartialEq)]
struct Counted {
    ages: Ages,
    requests: Amounts,
}

impl Counted {
    fn of(counter: &Counter, now: TimeMs) -> Self {
        Self { ages: counter.ages(now, &AGES), requests: counter.requests().clone() }
    }
}

/// The numbers of one queue.
#[derive(Debug, Clone, PartialEq)]
struct QueueCounts {
    name: String,
    /// None where nobody has made it.
    factor: Option<f64>,
    cordoned: bool,
    owned: bool,
    waiting: usize,
    shapes: usize,
    /// By priority class.
    queued: Vec<(String, Counted)>,
    usage: Vec<(UsageKey, Counted)>,
}

/// A pool, and which accounting role it has for jobs that may start in any.
#[derive(Clone, Copy)]
struct PoolRole<'s> {
    pool: &'s str,
    role: &'static str,
}

/// Jobs of a queue and a priority class that wait, as they count in a pool.
struct QueuedIn<'s> {
    queue: &'s str,
    class: &'s str,
    counted: &'s Counted,
    pool: PoolRole<'s>,
}

/// What a queue is due of a pool, and has.
struct QueueShares<'s> {
    pool: &'s str,
    queue: &'s str,
    weight: f64,
    shares: Shares,
}

/// What the leader knows, at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    now: TimeMs,
    queues: Vec<QueueCounts>,
    clusters: Vec<ClusterCounts>,
    /// With runs or nodes.
    pools: BTreeSet<String>,
    /// After how many milliseconds runs of a silent cluster have failed; 0 = never.
    silent_max_ms: i64,
}

impl Snapshot {
    /// What a ledger has at `now`, and clusters beside it, of which runs fail after a silence of `silent_max_ms`, where that is
    /// more than 0.
    pub fn of(now: TimeMs, ledger: &Ledger, clusters: Vec<ClusterCounts>, silent_max_ms: i64) -> Self {
        let mut queues: Vec<QueueCounts> =
            ledger.queues().filter(is_worth_telling).map(|view| queue(view, now)).collect();
        queues.sort_by(|left, right| left.name.cmp(&right.name));
        let usage = queues.iter().flat_map(|queue| &queue.usage).map(|(usage, _)| usage.pool.clone());
        let offered = clusters.iter().flat_map(|cluster| cluster.pools.keys().cloned());
        let pools = usage.chain(offered).collect();
        Self { now, queues, clusters, pools, silent_max_ms }
    }

    /// What a doctor has to know of it.
    pub fn known(&self) -> Known {
        let executors = self.clusters.iter().map(|cluster| ExecutorHealth {
            name: cluster.name.clone(),
            connected: cluster.connected,
            silent_ms: self.now.since(cluster.heard),
            release: cluster.release.clone(),
            ahead_ms: cluster.ahead_ms,
            nodes: cluster.pools.values().map(|counts| counts.nodes).sum(),
            open: cluster.pools.values().map(|counts| counts.open).sum(),
        });
        let open = |pool: &String| {
            let counts = self.clusters.iter().filter_map(|cluster| cluster.pools.get(pool));
            (pool.clone(), counts.map(|counts| counts.open).sum())
        };
        let waiting = |is: fn(&QueueCounts) -> bool| {
            let queues = self.queues.iter().filter(move |queue| queue.waiting > 0 && is(queue));
            queues.map(|queue| (queue.name.clone(), queue.waiting)).collect()
        };
        let ownerless = self.queues.iter().filter(|queue| queue.factor.is_some() && !queue.owned);
        Known {
            executors: executors.collect(),
            undefined: waiting(|queue| queue.factor.is_none()),
            ownerless: ownerless.map(|queue| queue.name.clone()).collect(),
            cordoned: waiting(|queue| queue.cordoned),
            pools: self.pools.iter().map(open).collect(),
            waiting: self.queues.iter().map(|queue| queue.waiting).sum(),
            stuck: self.stuck(),
            silent_max_ms: self.silent_max_ms,
        }
    }

    /// Runs that were leased long ago and have no pod.
    fn stuck(&self) -> Vec<Stuck> {
        let mut stuck: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for queue in &self.queues {
            for (usage, counted) in queue.usage.iter().filter(|(usage, _)| usage.phase == RunPhase::Leased) {
                let young = counted.ages.within.get(STUCK_AFTER).copied().unwrap_or_default();
                let old = counted.ages.count.saturating_sub(young);
                if old > 0 {
                    *stuck.entry((&usage.cluster, &queue.name)).or_default() += old;
                }
            }
        }
        let told = stuck.into_iter().map(|((cluster, queue), runs)| {
            let (cluster, queue) = (cluster.to_owned(), queue.to_owned());
            Stuck { cluster, queue, runs }
        });
        told.collect()
    }

    /// When this was so.
    pub fn at(&self) -> TimeMs {
        self.now
    }

    pub(super) fn write(&self, page: &mut Page) {
        self.write_queues(page);
        self.write_queued(page);
        self.write_held(page);
        self.write_used(page);
        self.write_clusters(page);
        self.write_executors(page);
        self.write_shares(page);
    }

    fn write_queues(&self, page: &mut Page) {
        each(page, "armada_queue_size", "Number of jobs in a queue", &self.queues, |queue, line| {
            line(&[&names(&queue.name)[..], &[("state", "validated")]].concat(), &queue.waiting);
        });
        each(page, "armada_queue_priority", "Queue priority factor", &self.queues, |queue, line| {
            if let Some(factor) = &queue.factor {
                line(&names(&queue.name), factor);
            }
        });
        let help = "Number of distinct scheduling keys requested by a queue";
        each(page, "armada_queue_distinct_scheduling_keys", help, &self.queues, |queue, line| {
            line(&names(&queue.name), &queue.shapes);
        });
        each(
            page,
            "armada_scheduler_pool_info",
            "Information about the pools that are currently being scheduled",
            &self.pools,
            |pool, line| {
                line(&[("pool", pool)], &1);
            },
        );
    }

    /// A job may start in any pool: it counts in each, in one of them as primary.
    fn write_queued(&self, page: &mut Page) {
        let first = self.pools.iter().find(|pool| *pool == DEFAULT_POOL).or(self.pools.first());
        let primary = first.map_or(DEFAULT_POOL, String::as_str);
        let others = self.pools.iter().map(String::as_str).filter(|pool| *pool != primary);
        let mut pools = vec![PoolRole { pool: primary, role: "primary" }];
        pools.extend(others.map(|pool| PoolRole { pool, role: "secondary" }));
        let name = "armada_queue_resource_queued";
        page.head(name, "gauge", "Resource required by queued jobs");
        for QueuedIn { queue, class, counted, pool: PoolRole { pool, role } } in self.queued(&pools) {
            for (resource, amount) in &counted.requests {
                let labels = [("pool", pool), ("priorityClass", class), ("queueName", queue), ("queue", queue)];
                let more = [("resourceType", resource.as_str()), ("accounting_role", role)];
                page.line(name, &[&labels[..], &more].concat(), whole(resource, *amount));
            }
        }
        let name = "armada_job_queued_seconds";
        page.head(name, "histogram", "Queued time for Armada jobs");
        for QueuedIn { queue, class, counted, pool: PoolRole { pool, role } } in self.queued(&pools) {
            let labels = [("pool", pool), ("priorityClass", class), ("queueName", queue), ("queue", queue)];
            ages(page, name, &[&labels[..], &[("accounting_role", role)]].concat(), &counted.ages);
        }
    }

    fn queued<'s>(&'s self, pools: &'s [PoolRole<'s>]) -> impl Iterator<Item = QueuedIn<'s>> {
        self.queues.iter().flat_map(move |queue| {
            queue.queued.iter().flat_map(move |(class, counted)| {
                pools.iter().map(move |pool| QueuedIn { queue: &queue.name, class, counted, pool: *pool })
            })
        })
    }

    fn write_held(&self, page: &mut Page) {
        let name = "armada_queue_resource_allocated";
        page.head(name, "gauge", "Resource allocated to running jobs of a queue");
        for queue in &self.queues {
            let mut sums: BTreeMap<[&str; 3], Amounts> = BTreeMap::new();
            for (usage, counted) in &queue.usage {
                add(sums.entry([&usage.cluster, &usage.pool, &usage.class]).or_default(), &counted.requests);
            }
            for ([cluster, pool, class], amounts) in sums {
                let labels = [("cluster", cluster), ("pool", pool), ("priorityClass", class)];
                let labels = [&labels[..], &names(&queue.name)].concat();
                write_amounts(page, name, &labels, &amounts);
            }
        }
        let name = "armada_queue_leased_pod_count";
        page.head(name, "gauge", "Number of leased pods");
        for queue in &self.queues {
            let mut sums: BTreeMap<[&str; 3], usize> = BTreeMap::new();
            for (usage, counted) in &queue.usage {
                *sums.entry([&usage.cluster, &usage.pool, phase(usage.phase)]).or_default() += counted.ages.count;
            }
            for ([cluster, pool, phase], count) in sums {
                let labels = [("cluster", cluster), ("pool", pool), ("phase", phase)];
                page.line(name, &[&labels[..], &names(&queue.name)].concat(), count);
            }
        }
        let name = "armada_job_run_time_seconds";
        page.head(name, "histogram", "Run time for Armada jobs");
        for queue in &self.queues {
            let mut sums: BTreeMap<[&str; 2], Ages> = BTreeMap::new();
            for (usage, counted) in queue.usage.iter().filter(|(usage, _)| usage.phase != RunPhase::Stopping) {
                sums.entry([&usage.pool, &usage.class]).or_default().add(&counted.ages);
            }
            for ([pool, class], sum) in sums {
                let labels = [&[("pool", pool), ("priorityClass", class)][..], &names(&queue.name)].concat();
                ages(page, name, &labels, &sum);
            }
        }
    }

    fn write_used(&self, page: &mut Page) {
        let name = "armada_queue_resource_used";
        page.head(name, "gauge", "Resource actually being used by running jobs of a queue");
        for cluster in &self.clusters {
            for ((queue, pool), amounts) in &cluster.used {
                let labels = [("cluster", cluster.name.as_str()), ("pool", pool.as_str())];
                write_amounts(page, name, &[&labels[..], &names(queue)].concat(), amounts);
            }
        }
    }

    fn write_clusters(&self, page: &mut Page) {
        let mut write = |name: &str, help: &str, of: fn(&NodeCounts) -> (&Amounts, usize)| {
            page.head(name, "gauge", help);
            for cluster in &self.clusters {
                for (pool, counts) in &cluster.pools {
                    let labels = [("cluster", cluster.name.as_str()), ("pool", pool.as_str())];
                    let (amounts, nodes) = of(counts);
                    write_amounts(page, name, &labels, amounts);
                    page.line(name, &[&labels[..], &[("resourceType", "nodes")]].concat(), nodes);
                }
            }
        };
        write("armada_cluster_capacity", "Cluster capacity", |counts| (&counts.capacity, counts.nodes));
        let help = "Cluster capacity available for Armada jobs";
        write("armada_cluster_available_capacity", help, |counts| (&counts.available, counts.open));
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^53 milliseconds")]
    fn write_executors(&self, page: &mut Page) {
        let help = "When something was last heard of a cluster's executor, seconds since 1970";
        each(page, "pumice_fleet_executor_last_seen_seconds", help, &self.clusters, |cluster, line| {
            line(&[("cluster", &cluster.name)], &(cluster.heard.0 as f64 / 1e3));
        });
        let help = "Whether a cluster's executor has a session";
        each(page, "pumice_fleet_executor_connected", help, &self.clusters, |cluster, line| {
            line(&[("cluster", &cluster.name)], &u8::from(cluster.connected));
        });
        let help = "How far the clock of a cluster's executor is ahead of this server's, in seconds";
        each(page, "pumice_fleet_executor_clock_ahead_seconds", help, &self.clusters, |cluster, line| {
            if let Some(ahead_ms) = cluster.ahead_ms {
                line(&[("cluster", &cluster.name)], &(ahead_ms as f64 / 1e3));
            }
        });
    }

    fn write_shares(&self, page: &mut Page) {
        let told: Vec<QueueShares<'_>> = self.pools.iter().flat_map(|pool| self.shares(pool)).collect();
        let mut write = |name: &str, help: &str, of: fn(&Shares) -> f64| {
            let name = format!("armada_scheduler_{name}");
            page.head(&name, "gauge", help);
            for QueueShares { pool, queue, shares, .. } in &told {
                page.line(&name, &[("pool", *pool), ("queue", *queue)], of(shares));
            }
        };
        write("fair_share", "Fair share of each queue", |shares| shares.fair);
        write("adjusted_fair_share", "Adjusted Fair share of each queue", |shares| shares.adjusted);
        let help = "Adjusted Fair share of each queue, not capped by demand";
        write("uncapped_adjusted_fair_share", help, |shares| shares.uncapped);
        write("actual_share", "Actual Fair share of each queue", |shares| shares.actual);
        write("demand", "Demand of each queue", |shares| shares.demand);
        let name = "armada_scheduler_queue_weight";
        page.head(name, "gauge", "Weight of the queue after multipliers have been applied");
        for QueueShares { pool, queue, weight, .. } in &told {
            page.line(name, &[("pool", *pool), ("queue", *queue)], weight);
        }
        let name = "armada_scheduler_fairness_error";
        let help = "Cumulative delta between adjusted fair share and actual share for all users who are below their fair share";
        each(page, name, help, &self.pools, |pool, line| {
            let here = told.iter().filter(|one| one.pool == pool);
            let error: f64 = here.map(|one| (one.shares.adjusted - one.shares.actual).max(0.0)).sum();
            line(&[("pool", pool)], &error);
        });
    }

    /// Queues that have or want something of a pool.
    fn shares<'s>(&'s self, pool: &'s str) -> Vec<QueueShares<'s>> {
        let mut total = Amounts::new();
        for counts in self.clusters.iter().filter_map(|cluster| cluster.pools.get(pool)) {
            add(&mut total, &counts.capacity);
        }
        let mut names = Vec::new();
        let mut asking = Vec::new();
        for queue in &self.queues {
            let mut allocated = Amounts::new();
            for (_, counted) in queue.usage.iter().filter(|(usage, _)| usage.pool == pool) {
                add(&mut allocated, &counted.requests);
            }
            if allocated.is_empty() && queue.waiting == 0 {
                continue;
            }
            let mut demanded = allocated.clone();
            queue.queued.iter().for_each(|(_, counted)| add(&mut demanded, &counted.requests));
            names.push(queue.name.as_str());
            asking.push(Asking {
                weight: queue.factor.map_or(0.0, |factor| 1.0 / factor.max(1.0)),
                allocated,
                demanded,
            });
        }
        let weights: Vec<f64> = asking.iter().map(|queue| queue.weight).collect();
        let found = shares(&total, &asking);
        let of_queues = names.into_iter().zip(weights).zip(found);
        of_queues.map(|((queue, weight), shares)| QueueShares { pool, queue, weight, shares }).collect()
    }
}

fn is_worth_telling(view: &QueueView<'_>) -> bool {
    view.definition.is_some() || view.active > 0 || !view.usage.is_empty()
}

fn queue(view: QueueView<'_>, now: TimeMs) -> QueueCounts {
    QueueCounts {
        name: view.name.to_owned(),
        factor: view.definition.map(|queue| queue.priority_factor),
        cordoned: view.definition.is_some_and(|queue| queue.cordoned),
        owned: view.definition.is_some_and(|queue| !queue.user_owners.is_empty() || !queue.group_owners.is_empty()),
        waiting: view.waiting,
        shapes: view.shapes,
        queued: view.queued.iter().map(|(class, counter)| (class.clone(), Counted::of(counter, now))).collect(),
        usage: view.usage.iter().map(|(usage, counter)| (usage.clone(), Counted::of(counter, now))).collect(),
    }
}

/// Armada has a queue's name twice.
fn names(queue: &str) -> [(&str, &str); 2] {
    [("queueName", queue), ("queue", queue)]
}

fn phase(phase: RunPhase) -> &'static str {
    match phase {
        RunPhase::Leased => "Leased",
        RunPhase::Pending => "Pending",
        RunPhase::Running => "Running",
        RunPhase::Stopping => "Stopping",
    }
}

pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        match sum.get_mut(name) {
            Some(sum) => *sum += amount,
            None => drop(sum.insert(name.clone(), *amount)),
        }
    }
}

/// A gauge with lines for each of several things.
fn each<T>(
    page: &mut Page,
    name: &str,
    help: &str,
    things: impl IntoIterator<Item = T>,
    mut lines: impl FnMut(T, &mut dyn FnMut(&[(&str, &str)], &dyn Display)),
) {
    page.head(name, "gauge", help);
    for thing in things {
        lines(thing, &mut |labels, value| page.line(name, labels, value));
    }
}

fn write_amounts(page: &mut Page, name: &str, labels: &[(&str, &str)], amounts: &Amounts) {
    for (resource, amount) in amounts {
        page.line(name, &[labels, &[("resourceType", resource.as_str())]].concat(), whole(resource, *amount));
    }
}

/// An amount in whole units.
#[allow(clippy::cast_precision_loss, reason = "metrics are of floating point")]
fn whole(resource: &str, amount: i128) -> f64 {
    if resource == "cpu" { amount as f64 / 1e3 } else { amount as f64 }
}

fn ages(page: &mut Page, name: &str, labels: &[(&str, &str)], ages: &Ages) {
    let bounds: Vec<String> = AGES.iter().map(i64::to_string).collect();
    let bucket = format!("{name}_bucket");
    let classes = bounds.iter().map(String::as_str).zip(ages.within.iter().copied());
    for (bound, count) in classes.chain([("+Inf", ages.count)]) {
        page.line(&bucket, &[labels, &[("le", bound)]].concat(), count);
    }
    page.line(&format!("{name}_sum"), labels, ages.sum_seconds);
    page.line(&format!("{name}_count"), labels, ages.count);
}

//! Armada's table D, its full rounds, through our whole round: what is queued meets the nodes, the ledger takes it, and it is
//! written to SQLite. Its CPU time, of another day on a machine like this one, is of the round in memory alone.

use std::collections::{BTreeMap, BTreeSet};

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_fleet_scheduling::{Pool, PoolView, ViewLimits};
use pumice_fleet_server::database::{Changed, Database, Epoch, Expect, Seq};
use pumice_ledger::{
    Changes, Entry, Event, Inbox, JobId, Ledger, PodRef, Proposal, Report, ReportKind, Retries, TimeMs,
};

use crate::homes::Homes;
use crate::start;
use crate::took::{Took, Watch};
use crate::work::{self, BEGIN, Jobs, POOL, QUEUES};

/// Nodes, queued jobs, and Armada's milliseconds for the first round and for one with nothing to do.
const TABLE: [(usize, usize, f64, f64); 3] =
    [(10, 3_200, 21.0, 28.0), (100, 32_000, 340.0, 460.0), (1_000, 320_000, 4_200.0, 7_400.0)];
/// A job's cores and GiB; a node has room for [`PER_NODE`].
const SMALL: (u32, u32) = (1, 4);
const PER_NODE: usize = 32;
const SUBMITTED_TOGETHER: usize = 50_000;

pub async fn run(setting: &Setting, figures: &mut Figures, homes: &mut Homes) -> anyhow::Result<()> {
    let most = setting.size(TABLE[2].1).max(TABLE[0].1);
    for (nodes, jobs, fill, steady) in TABLE.into_iter().filter(|(_, jobs, ..)| *jobs <= most) {
        let home = homes.make("sqlite").await?;
        let log = home.open().await?;
        for entry in work::queue_entries() {
            log.request(entry, Expect::QueueAbsent { policies: Vec::new() }).await?;
        }
        let mut scene = Scene::new(&log, nodes).await?;
        let stored = scene.store(jobs).await?;
        let mut add = |figure: &str, value: f64, unit: &str| {
            figures.add(&format!("whole/{nodes}/{figure}"), value, unit, 1);
        };
        add("store_cpu", stored.cpu.as_secs_f64() * 1e3, "ms");
        for (of, placed, theirs) in [("fill", nodes * PER_NODE, fill), ("steady", 0, steady)] {
            let round = scene.round().await?;
            anyhow::ensure!(round.leased.len() == placed, "{} are placed instead of {placed}", round.leased.len());
            anyhow::ensure!(round.others == 0, "nothing but leases is proposed");
            let whole = round.sync.and(round.round).and(round.commit);
            add(&format!("{of}_cpu"), whole.cpu.as_secs_f64() * 1e3, "ms");
            add(&format!("{of}_wall"), whole.wall.as_secs_f64() * 1e3, "ms");
            add(&format!("{of}_sync_cpu"), round.sync.cpu.as_secs_f64() * 1e3, "ms");
            add(&format!("{of}_round_cpu"), round.round.cpu.as_secs_f64() * 1e3, "ms");
            add(&format!("{of}_commit_cpu"), round.commit.cpu.as_secs_f64() * 1e3, "ms");
            add(&format!("{of}_less_cpu_than_armada"), theirs / (whole.cpu.as_secs_f64() * 1e3), "x");
            if of == "fill" {
                let each = scene.shares();
                let (least, most) = (each.values().min().copied(), each.values().max().copied());
                add("queues_apart", (most.unwrap_or_default() - least.unwrap_or_default()) as f64, "jobs");
                let started = scene.run_all(&round.leased).await?;
                add("started_cpu", started.cpu.as_secs_f64() * 1e3, "ms");
            }
        }
        log.close().await;
        home.remove().await?;
    }
    Ok(())
}

struct Scene<'l> {
    log: &'l Database,
    epoch: Epoch,
    position: Seq,
    ledger: Ledger,
    window: PoolView,
    pool: Pool,
    jobs: Jobs,
    now: TimeMs,
    changed: Changes,
}

/// What a whole round took and did.
struct Round {
    sync: Took,
    round: Took,
    commit: Took,
    leased: BTreeSet<JobId>,
    /// Proposals other than leases.
    others: usize,
}

impl Scene<'_> {
    async fn new(log: &Database, nodes: usize) -> anyhow::Result<Box<Scene<'_>>> {
        let epoch = start::lead(log).await?;
        let loaded = log.load().await?;
        let position = loaded.position;
        let ledger = loaded.restore(work::classes())?;
        let mut pool = Pool::new(POOL, &work::classes());
        pool.apply(&work::fleet(nodes, nodes));
        let (window, jobs) = (PoolView::new(POOL, ViewLimits::default()), Jobs::new(&[SMALL]));
        let changed = Changes::default();
        Ok(Box::new(Scene { log, epoch, position, ledger, window, pool, jobs, now: BEGIN, changed }))
    }

    /// Queues them, as many in each queue; what the leader's part of that took.
    async fn store(&mut self, jobs: usize) -> anyhow::Result<Took> {
        let mut took = Took::default();
        let each = jobs / QUEUES;
        for queue in 0..QUEUES {
            let mut left = each;
            while left > 0 {
                let some = left.min(1_000);
                let submission = self.jobs.submission(self.now, &work::queue_name(queue), "set", some);
                self.log.submit(vec![submission]).await?;
                left -= some;
            }
            if (queue + 1) * each % SUBMITTED_TOGETHER < each || queue + 1 == QUEUES {
                let watch = Watch::of_process();
                self.commit(Inbox::default()).await?;
                took = took.and(watch.took());
            }
        }
        Ok(took)
    }

    /// A round as the leader has it, all CPU of this process counted.
    async fn round(&mut self) -> anyhow::Result<Round> {
        self.now = self.now.plus(1_000);
        let now = pumice_engine::TimeMs(self.now.0);
        let watch = Watch::of_process();
        let changed = std::mem::take(&mut self.changed);
        let told = self.window.sync(&self.ledger, &changed);
        let sync = watch.took();
        let watch = Watch::of_process();
        self.pool.take_in(told);
        let proposals = self.pool.round(now);
        let round = watch.took();
        let watch = Watch::of_process();
        let leased = self.commit(Inbox { proposals: proposals.clone(), ..Inbox::default() }).await?;
        let mut others = 0;
        for proposal in &proposals {
            let taken = match proposal {
                Proposal::Lease { jobs, .. } => jobs.iter().all(|(job, _)| leased.contains(job)),
                _ => {
                    others += 1;
                    false
                }
            };
            self.pool.settle(proposal, taken, now);
        }
        Ok(Round { sync, round, commit: watch.took(), leased, others })
    }

    /// The pods of all of them run; what it took to write that.
    async fn run_all(&mut self, jobs: &BTreeSet<JobId>) -> anyhow::Result<Took> {
        let reports = jobs.iter().filter_map(|job| {
            let run = self.ledger.current(*job)?;
            let at = self.ledger.run(run)?.at.clone();
            let pod =
                PodRef { namespace: "research".to_owned(), name: format!("armada-{run}-0"), uid: run.to_string() };
            Some(Report { cluster: at.cluster, run, kind: ReportKind::Running(pod, at.node) })
        });
        let reports = reports.collect();
        let watch = Watch::of_process();
        self.commit(Inbox { reports, ..Inbox::default() }).await?;
        Ok(watch.took())
    }

    /// Folds what was submitted, decides, and writes; what was leased.
    async fn commit(&mut self, inbox: Inbox) -> anyhow::Result<BTreeSet<JobId>> {
        let mut leased = BTreeSet::new();
        let (ledger, now, leased_by) = (&mut self.ledger, self.now, &mut leased);
        let committed = self.log.commit(self.epoch, self.position, move |tail| {
            for (_, entry) in &tail {
                ledger.fold(entry);
            }
            let decided = ledger.decide(now, inbox, Retries::default());
            leased_by.extend(decided.iter().flat_map(leases));
            Changed::of(ledger, decided)
        });
        self.position = committed.await?.head;
        self.changed.extend(&self.ledger.take_changed());
        Ok(leased)
    }

    /// Runs by queue.
    fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for (_, run) in self.ledger.runs() {
            *shares.entry(self.ledger.owner_of_run(run).0.to_owned()).or_default() += 1;
        }
        shares
    }
}

fn leases(entry: &Entry) -> impl Iterator<Item = JobId> + '_ {
    entry.events.iter().filter_map(|event| match event {
        Event::Leased { run, .. } => Some(run.job),
        _ => None,
    })
}

//! Queued jobs beside a fleet that is full but for one core of each node: what they hold in memory, and what rounds cost.
//!
//! No database and no executors: a ledger, a window and a pool, driven as the leader drives them. A round is what the
//! leader does on a pool's own thread, `sync` what it does on its own before that.

use std::time::Duration;

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_fleet_scheduling::{Pool, PoolView, ViewLimits};
use pumice_ledger::{
    Entry, Event, Inbox, JobId, Ledger, NodeRef, PodRef, Proposal, Report, ReportKind, Retries, RunId, TimeMs,
};

use crate::memory;
use crate::took::{Took, timed};
use crate::work::{self, BEGIN, Jobs, POOL, QUEUES};

const QUEUED: [usize; 3] = [10_000, 100_000, 1_000_000];
const NODES: usize = 10_000;
const CLUSTERS: usize = 5;
const CORES: i64 = 32;
/// Cores and GiB of jobs.
const KINDS: [(u32, u32); 5] = [(1, 4), (1, 2), (2, 8), (4, 16), (8, 64)];
/// Jobs of one entry.
const REQUEST: usize = 1_000;
const SETS: usize = 20;
/// Jobs that end, and come, between two steady rounds, and between two of the greatest.
const ENDS: usize = 1_000;
const MANY_ENDS: usize = 10_000;
const ROUNDS: usize = 10;
const MANY_ROUNDS: usize = 3;

pub fn run(setting: &Setting, figures: &mut Figures) {
    let mut steady = Vec::new();
    for full in QUEUED {
        let name = format!("queued/{}k", full / 1_000);
        let queued = setting.size(full);
        let mut scene = Scene::new(setting.size(NODES), queued, figures, &name);
        scene.first(figures, &name);
        let mut rounds = |figures: &mut Figures, of: &str, ends: usize, rounds: usize| {
            let rounds: Vec<Round> = (0..rounds).map(|_| scene.after(ends)).collect();
            tell(figures, &format!("{name}/{of}"), &rounds)
        };
        let ends = setting.size(ENDS);
        steady.push(rounds(figures, "steady", ends, ROUNDS));
        rounds(figures, "many", setting.size(MANY_ENDS), MANY_ROUNDS);
        rounds(figures, "idle", 0, ROUNDS);
        assert_eq!(scene.ledger.lint(), Vec::<String>::new());
    }
    if let (Some(least), Some(most)) = (steady.first(), steady.last()) {
        let growth = most.as_secs_f64() / least.as_secs_f64().max(1e-6);
        figures.add("queued/growth", growth, "ratio", ROUNDS);
    }
}

struct Scene {
    ledger: Ledger,
    window: PoolView,
    pool: Pool,
    jobs: Jobs,
    running: Vec<RunId>,
    now: TimeMs,
    drawn: u64,
    queued: usize,
}

/// What a round took, part by part.
#[derive(Clone, Copy)]
struct Round {
    sync: Took,
    round: Took,
    decide: Took,
    placed: usize,
    preempted: usize,
}

impl Scene {
    fn new(nodes: usize, queued: usize, figures: &mut Figures, name: &str) -> Scene {
        let per_cluster = nodes.div_ceil(CLUSTERS);
        let (mut ledger, mut pool) = (Ledger::new(work::classes()), Pool::new(POOL, &work::classes()));
        pool.apply(&work::fleet(nodes, per_cluster));
        work::queue_entries().for_each(|entry| fold(&mut ledger, &entry));
        let (window, jobs) = (PoolView::new(POOL, ViewLimits::default()), Jobs::new(&KINDS));
        let (running, now, drawn) = (Vec::new(), BEGIN, 0);
        let mut scene = Scene { ledger, window, pool, jobs, running, now, drawn, queued: 0 };
        (0..nodes).for_each(|node| scene.fill(node, per_cluster));
        // The pool knows what runs before anything waits.
        scene.round();
        memory::count();
        scene.queue(queued);
        figures.add(&format!("{name}/ledger_bytes_per_job"), memory::held() / queued as f64, "B", queued);
        scene
    }

    /// Jobs that run on a node, all of its cores but one.
    fn fill(&mut self, node: usize, per_cluster: usize) {
        let (cluster, name) = work::place(node, per_cluster);
        let queue = work::queue_name(node);
        let mut entry = Entry::new(self.now, &queue, "running");
        entry.shapes = self.jobs.shapes();
        let (mut free, mut said) = (CORES - 1, Vec::new());
        while free > 0 {
            let job = self.jobs.next(self.now).submitted;
            let cores = self.jobs.cores(job.shape);
            if cores > free {
                continue;
            }
            free -= cores;
            let run = RunId { job: job.job, attempt: 1 };
            let pod =
                PodRef { namespace: "research".to_owned(), name: format!("armada-{run}-0"), uid: run.to_string() };
            let at = NodeRef { cluster: cluster.clone(), node: name.clone() };
            entry.events.push(Event::Submitted(job));
            said.push(Event::Leased { run, at, pool: POOL.to_owned(), away: None, places: Vec::new() });
            said.push(Event::Running { run, pod, node: name.clone() });
            self.running.push(run);
        }
        entry.events.extend(said);
        fold(&mut self.ledger, &entry);
    }

    /// As requests bring them.
    fn queue(&mut self, jobs: usize) {
        let mut left = jobs;
        while left > 0 {
            let some = REQUEST.min(left).min(jobs.div_ceil(QUEUES));
            let number = self.queued / REQUEST.min(jobs.div_ceil(QUEUES)).max(1);
            let set = format!("set-{}", number / QUEUES % SETS);
            let submission = self.jobs.submission(self.now, &work::queue_name(number), &set, some);
            fold(&mut self.ledger, &work::entry(&submission));
            left -= some;
            self.queued += some;
            // As the leader does with every commit, though nobody syncs yet.
            self.ledger.take_touched();
        }
    }

    /// The first round that knows of them.
    fn first(&mut self, figures: &mut Figures, name: &str) {
        let first = self.round();
        memory::rest();
        // Those that were placed are held, too.
        let jobs = self.queued + first.placed;
        figures.add(&format!("{name}/bytes_per_job"), memory::held() / jobs as f64, "B", jobs);
        tell(figures, &format!("{name}/first"), &[first]);
        self.queue(first.placed);
    }

    /// A round after so many ended and as many came.
    fn after(&mut self, ends: usize) -> Round {
        self.end(ends);
        if ends > 0 {
            self.queue(ends);
        }
        self.round()
    }

    /// Jobs that end, any of those that run.
    fn end(&mut self, ends: usize) {
        let mut reports = Vec::with_capacity(ends);
        for _ in 0..ends.min(self.running.len()) {
            self.drawn += 1;
            let drawn = work::mix(self.drawn) % self.running.len() as u64;
            let run = self.running.swap_remove(usize::try_from(drawn).expect("an index"));
            reports.extend(self.report(run, ReportKind::Succeeded));
        }
        self.decide(Inbox { reports, ..Inbox::default() });
    }

    fn report(&self, run: RunId, kind: ReportKind) -> Option<Report> {
        // One that had to make room meanwhile is told as gone by its end.
        let cluster = self.ledger.run(run)?.at.cluster.clone();
        Some(Report { cluster, run, kind })
    }

    fn decide(&mut self, inbox: Inbox) -> Vec<Entry> {
        let decided = self.ledger.decide(self.now, inbox, Retries::default());
        self.ledger.take_touched();
        decided
    }

    /// Sync, round, and what the ledger takes of it; then the pods run.
    fn round(&mut self) -> Round {
        self.now = self.now.plus(1_000);
        let now = pumice_engine::TimeMs(self.now.0);
        let changed = self.ledger.take_changed();
        let (told, sync) = timed(|| self.window.sync(&self.ledger, &changed));
        let (proposals, round) = timed(|| {
            self.pool.take_in(told);
            self.pool.round(now)
        });
        let inbox = Inbox { proposals: proposals.clone(), ..Inbox::default() };
        let (entries, decide) = timed(|| self.decide(inbox));
        let mut placed: Vec<RunId> = Vec::new();
        let mut preempted = 0;
        for event in entries.iter().flat_map(|entry| &entry.events) {
            match event {
                Event::Leased { run, .. } => placed.push(*run),
                Event::RunPreempted { .. } => preempted += 1,
                _ => {}
            }
        }
        for proposal in &proposals {
            let taken = match proposal {
                Proposal::Lease { jobs, .. } => jobs.iter().all(|(job, _)| self.is_leased(*job)),
                _ => true,
            };
            self.pool.settle(proposal, taken, now);
        }
        let reports = placed.iter().filter_map(|run| {
            let kind = ReportKind::Running(PodRef::default(), self.ledger.run(*run)?.at.node.clone());
            self.report(*run, kind)
        });
        let reports = reports.collect();
        self.decide(Inbox { reports, ..Inbox::default() });
        self.queued -= placed.len();
        self.running.extend(&placed);
        Round { sync, round, decide, placed: placed.len(), preempted }
    }

    fn is_leased(&self, job: JobId) -> bool {
        self.ledger.current(job).is_some()
    }
}

fn fold(ledger: &mut Ledger, entry: &Entry) {
    let refused = ledger.fold(entry);
    assert!(refused.is_empty(), "{refused:?}");
}

/// The middle of each part; gives that of sync and round together, of CPU.
fn tell(figures: &mut Figures, name: &str, rounds: &[Round]) -> Duration {
    let middle = |part: &dyn Fn(&Round) -> Duration| {
        let mut all: Vec<Duration> = rounds.iter().map(part).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let mut add =
        |figure: &str, value: f64, unit: &str| figures.add(&format!("{name}/{figure}"), value, unit, rounds.len());
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    add("sync", ms(middle(&|round| round.sync.wall)), "ms");
    add("round", ms(middle(&|round| round.round.wall)), "ms");
    add("round_most", ms(rounds.iter().map(|round| round.round.wall).max().unwrap_or_default()), "ms");
    add("sync_cpu", ms(middle(&|round| round.sync.cpu)), "ms");
    add("round_cpu", ms(middle(&|round| round.round.cpu)), "ms");
    add("decide_cpu", ms(middle(&|round| round.decide.cpu)), "ms");
    let placed: usize = rounds.iter().map(|round| round.placed).sum();
    add("placed", placed as f64 / rounds.len() as f64, "jobs");
    let preempted: usize = rounds.iter().map(|round| round.preempted).sum();
    if preempted > 0 {
        add("preempted", preempted as f64 / rounds.len() as f64, "runs");
    }
    middle(&|round| round.sync.and(round.round).cpu)
}

//! Jobs submitted through the API by many at a time, beside what the same database takes of the same bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pumice_bench::figures::Figures;
use pumice_bench::machine;
use pumice_bench::setting::Setting;
use pumice_fleet_server::api::Api;
use pumice_fleet_server::database::{Database, Expect};
use pumice_wire::api::JobSubmitRequestItem;
use pumice_wire::api::submit_server::Submit as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::homes::Homes;
use crate::raw;
use crate::took::Watch;
use crate::work::{self, QUEUES};

/// How jobs are submitted.
struct Way {
    name: &'static str,
    /// At the same time.
    callers: usize,
    /// Of one request.
    jobs: usize,
    /// Of all requests.
    total: usize,
    /// Whether each job has arguments of its own; else all share one specification.
    distinct: bool,
}

const WAYS: [Way; 3] = [
    Way { name: "single", callers: 256, jobs: 1, total: 60_000, distinct: true },
    Way { name: "batch", callers: 8, jobs: 1_000, total: 400_000, distinct: false },
    Way { name: "distinct", callers: 8, jobs: 1_000, total: 200_000, distinct: true },
];
/// A way is given up after this.
const LIMIT: Duration = Duration::from_secs(60);
const SYNCS: usize = 200;
pub async fn run(setting: &Setting, figures: &mut Figures, homes: &mut Homes, kind: &str) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    figures.times(&format!("submit/{kind}/sync"), &machine::sync_times(folder.path(), SYNCS));
    for way in &WAYS {
        if let Err(error) = one(setting, figures, homes, kind, way).await {
            eprintln!("NOT MEASURED submit/{kind}/{}: {error:#}", way.name);
        }
    }
    Ok(())
}

/// What came of it.
struct Outcome {
    jobs: usize,
    wall: Duration,
    cpu: Duration,
    /// Transactions, as far as they were seen one by one.
    commits: usize,
}

async fn one(setting: &Setting, figures: &mut Figures, homes: &mut Homes, kind: &str, way: &Way) -> anyhow::Result<()> {
    let home = homes.make(kind).await?;
    let log = home.open().await?;
    let empty = home.disk_bytes().await?;
    for entry in work::queue_entries() {
        log.request(entry, Expect::QueueAbsent { policies: Vec::new() }).await?;
    }
    let jobs = way.jobs.min(setting.size(way.jobs * 10));
    let requests = (setting.size(way.total) / jobs).max(way.callers);
    let outcome = submitted(&log, way, jobs, requests).await?;
    log.close().await;
    let disk = home.disk_bytes().await? - empty;
    let content = home.content_bytes().await? as f64 / outcome.jobs as f64;
    let written = raw::Written {
        jobs,
        entry_bytes: home.body_bytes("log").await?,
        spec_bytes: home.body_bytes("specs").await?,
        distinct: way.distinct,
    };
    home.remove().await?;

    let mut add = |figure: &str, value: f64, unit: &str| {
        figures.add(&format!("submit/{kind}/{}/{figure}", way.name), value, unit, outcome.jobs);
    };
    let rate = outcome.jobs as f64 / outcome.wall.as_secs_f64();
    let per_transaction = outcome.jobs.div_ceil(outcome.commits.max(1));
    add("rate", rate, "jobs/s");
    add("cpu_per_job", outcome.cpu.as_secs_f64() * 1e6 / outcome.jobs as f64, "us");
    add("jobs_per_transaction", per_transaction as f64, "jobs");
    add("bytes_per_job", content, "B");
    add("disk_bytes_per_job", disk as f64 / outcome.jobs as f64, "B");

    let home = homes.make(kind).await?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bytes of a job
    let load = raw::Load { rows: outcome.jobs, row_bytes: content as usize, rows_per_transaction: per_transaction };
    let raw = raw::append(&home, load, LIMIT).await?;
    home.remove().await?;
    add("raw", raw, "rows/s");
    add("share_of_raw", rate / raw, "ratio");
    let home = homes.make(kind).await?;
    let rows = raw::rows(&home, load, written, LIMIT).await?;
    home.remove().await?;
    add("raw_rows", rows, "jobs/s");
    add("share_of_raw_rows", rate / rows, "ratio");
    Ok(())
}

/// Lets the callers submit until all is done.
async fn submitted(log: &Arc<Database>, way: &Way, jobs: usize, requests: usize) -> anyhow::Result<Outcome> {
    let stopping = CancellationToken::new();
    let api = work::api(log, &stopping);
    let items = Arc::new(items(way, jobs * requests));
    let next = Arc::new(AtomicUsize::new(0));
    let mut head = log.head();
    let mut counting = JoinSet::new();
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    counting.spawn(async move {
        while head.changed().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let watch = Watch::of_process();
    let mut callers = JoinSet::new();
    for caller in 0..way.callers {
        let (api, items, next) = (api.clone(), items.clone(), next.clone());
        callers.spawn(async move { call(&api, caller, &items, jobs, requests, &next).await });
    }
    let mut done = 0;
    while let Some(called) = callers.join_next().await {
        done += called??;
    }
    let took = watch.took();
    counting.shutdown().await;
    Ok(Outcome { jobs: done, wall: took.wall, cpu: took.cpu, commits: commits.load(Ordering::Relaxed) })
}

fn items(way: &Way, jobs: usize) -> Vec<JobSubmitRequestItem> {
    if way.distinct { (0..jobs).map(|seed| work::item(1, 4, seed)).collect() } else { vec![work::item(1, 4, 0)] }
}

/// One caller; how many jobs were taken.
async fn call(
    api: &Api,
    caller: usize,
    items: &[JobSubmitRequestItem],
    jobs: usize,
    requests: usize,
    next: &AtomicUsize,
) -> anyhow::Result<usize> {
    let (who, began, mut done) = (work::who(), Instant::now(), 0);
    let (queue, job_set) = (work::queue_name(caller), format!("set-{}", caller / QUEUES));
    while began.elapsed() < LIMIT {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= requests {
            break;
        }
        let some = (number * jobs..(number + 1) * jobs).map(|job| items[job % items.len()].clone());
        let request = work::request(&queue, &job_set, some.collect());
        let answer = api.submit_jobs(work::asked(&who, request)).await?.into_inner();
        anyhow::ensure!(answer.job_response_items.len() == jobs, "all jobs are answered");
        done += jobs;
    }
    Ok(done)
}

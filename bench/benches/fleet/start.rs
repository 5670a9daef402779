//! How soon a leader starts with many queued jobs, how soon one takes over from another, and how quickly one takes in what
//! was submitted while nobody led.

use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_fleet_scheduling::{PoolView, ViewLimits};
use pumice_fleet_server::database::{Changed, Database, Epoch, Expect, Seq};
use pumice_ledger::{Inbox, Ledger, Retries};

use crate::homes::Homes;
use crate::memory;
use crate::takeover;
use crate::took::{Took, Watch, timed};
use crate::work::{self, BEGIN, Jobs, POOL};

const QUEUED: [usize; 3] = [10_000, 100_000, 1_000_000];
const KINDS: [(u32, u32); 5] = [(1, 4), (1, 2), (2, 8), (4, 16), (8, 64)];
const REQUEST: usize = 1_000;
/// Requests that are handed in together.
const TOGETHER: usize = 10;
/// Jobs of one commit of the leader.
const COMMIT: usize = 50_000;
const SETS: usize = 20;

pub async fn run(setting: &Setting, figures: &mut Figures, homes: &mut Homes, kind: &str) -> anyhow::Result<()> {
    let home = homes.make(kind).await?;
    let mut log = home.open().await?;
    for entry in work::queue_entries() {
        log.request(entry, Expect::QueueAbsent { policies: Vec::new() }).await?;
    }
    let mut jobs = Jobs::new(&KINDS);
    let (mut queued, mut taken_in) = (0, Took::default());
    for full in QUEUED {
        let size = setting.size(full);
        let epoch = lead(&log).await?;
        let loaded = log.load().await?;
        let mut position = loaded.position;
        let mut ledger = loaded.restore(work::classes())?;
        while queued < size {
            let some = COMMIT.min(size - queued);
            submit(&log, &mut jobs, queued, some).await?;
            queued += some;
            let watch = Watch::of_process();
            position = commit(&log, epoch, position, &mut ledger).await?;
            taken_in = taken_in.and(watch.took());
        }
        drop(ledger);
        log.resign(epoch).await?;
        log.close().await;

        let watch = Watch::of_process();
        log = home.open().await?;
        let open = watch.took();
        let loaded = log.load().await?;
        let load = watch.took();
        anyhow::ensure!(loaded.jobs.len() == queued, "all that is queued is loaded");
        let mut ledger = loaded.restore(work::classes())?;
        let all = watch.took();
        anyhow::ensure!(ledger.jobs().count() == queued, "the ledger has all that is queued");
        let changed = ledger.take_changed();
        let (_, sync) = timed(|| PoolView::new(POOL, ViewLimits::default()).sync(&ledger, &changed));

        let mut add = |figure: &str, value: f64, unit: &str| {
            figures.add(&format!("start/{kind}/{}k/{figure}", full / 1_000), value, unit, queued);
        };
        add("open", open.wall.as_secs_f64(), "s");
        add("load", (load.wall - open.wall).as_secs_f64(), "s");
        add("restore", (all.wall - load.wall).as_secs_f64(), "s");
        add("all", all.wall.as_secs_f64(), "s");
        add("all_cpu", all.cpu.as_secs_f64(), "s");
        add("first_sync", sync.wall.as_secs_f64(), "s");
        drop(ledger);
        // Once more, since counting takes time.
        memory::count();
        let ledger = log.load().await?.restore(work::classes())?;
        add("peak_bytes_per_job", memory::peak() / queued as f64, "B");
        memory::rest();
        let mut waiting = ledger.first(&work::queue_name(0), 2, 2).into_iter();
        drop(ledger);
        let (Some(one), Some(other)) = (waiting.next(), waiting.next()) else { anyhow::bail!("two jobs wait") };
        // A file of SQLite is of one process.
        let second = if kind == "sqlite" { log.clone() } else { home.open().await? };
        let takeover = takeover::measure(&log, &second, [one, other]).await?;
        figures.add(&format!("start/{kind}/{}k/follow", full / 1_000), takeover.follows.as_secs_f64(), "s", queued);
        figures.add(&format!("start/{kind}/{}k/takeover", full / 1_000), takeover.decides.as_secs_f64(), "s", queued);
        // Those that were cancelled.
        queued -= 2;
        if kind != "sqlite" {
            second.close().await;
        }
    }
    let each = |took: std::time::Duration| took.as_secs_f64() * 1e6 / queued as f64;
    figures.add(&format!("start/{kind}/taken_in"), each(taken_in.wall), "us/job", queued);
    figures.add(&format!("start/{kind}/taken_in_cpu"), each(taken_in.cpu), "us/job", queued);
    log.close().await;
    home.remove().await
}

/// Requests of [`REQUEST`] jobs, as many of them as there are jobs.
pub async fn submit(log: &Database, jobs: &mut Jobs, queued: usize, some: usize) -> anyhow::Result<()> {
    let mut batch = Vec::new();
    let mut left = some;
    while left > 0 {
        let size = REQUEST.min(left);
        let number = (queued + some - left) / REQUEST;
        let set = format!("set-{}", number / work::QUEUES % SETS);
        batch.push(jobs.submission(BEGIN, &work::queue_name(number), &set, size));
        left -= size;
        if batch.len() == TOGETHER || left == 0 {
            log.submit(std::mem::take(&mut batch)).await?;
        }
    }
    Ok(())
}

pub async fn lead(log: &Database) -> anyhow::Result<Epoch> {
    log.lead("bench").await?.ok_or_else(|| anyhow::anyhow!("nobody else leads"))
}

/// A commit of the leader with what was submitted since.
pub async fn commit(log: &Database, epoch: Epoch, after: Seq, ledger: &mut Ledger) -> anyhow::Result<Seq> {
    let decided = log.commit(epoch, after, |tail| {
        for (_, entry) in &tail {
            ledger.fold(entry);
        }
        let decided = ledger.decide(BEGIN, Inbox::default(), Retries::default());
        Changed::of(ledger, decided)
    });
    let committed = decided.await?;
    ledger.take_changed();
    Ok(committed.head)
}

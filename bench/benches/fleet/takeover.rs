//! How soon another server decides when the one that leads is killed, with many queued jobs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use pumice_fleet_server::database::{Database, Expect, JobState, Seq};
use pumice_fleet_server::leader::{Input, Leader};
use pumice_fleet_server::metrics::Metrics;
use pumice_ledger::{Entry, Event, Filter, JobId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::work;

/// For what has to come.
const DEADLINE: Duration = Duration::from_secs(300);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const PAGE_OF_FOLLOWER: &str = "pumice_fleet_followed_position";

/// What was waited for.
pub struct Takeover {
    /// From the kill to a cancellation that was asked for then.
    pub decides: Duration,
    /// Until a server that follows has read everything.
    pub follows: Duration,
}

/// A server that leads or follows, until it is dropped, as if its process were killed.
struct Server {
    metrics: Arc<Metrics>,
    _inputs: mpsc::Sender<Input>,
    stopping: CancellationToken,
    running: JoinSet<()>,
}

impl Server {
    fn start(log: &Arc<Database>) -> Server {
        let metrics = Arc::new(Metrics::default());
        let (leader, _inputs) = Leader::new(Arc::clone(log), work::leader_options());
        let (mut running, stopping) = (JoinSet::new(), CancellationToken::new());
        running.spawn(leader.counting(Arc::clone(&metrics)).run(stopping.clone()));
        Server { metrics, _inputs, stopping, running }
    }

    /// It leads no more.
    async fn stop(mut self) {
        self.stopping.cancel();
        while self.running.join_next().await.is_some() {}
    }

    /// Up to which entry it follows.
    fn followed(&self) -> Option<Seq> {
        let page = self.metrics.page(Seq(0), None);
        let line = page.lines().find_map(|line| line.strip_prefix(PAGE_OF_FOLLOWER)?.trim().parse().ok());
        line.map(Seq)
    }
}

/// A server leads, another one follows, and the first is killed. `jobs` wait, and are cancelled one by one.
pub async fn measure(first: &Arc<Database>, second: &Arc<Database>, jobs: [JobId; 2]) -> anyhow::Result<Takeover> {
    let leads = Server::start(first);
    cancelled(first, jobs[0]).await.context("the first server leads")?;
    let began = Instant::now();
    let follower = Server::start(second);
    let head = *second.head().borrow();
    while follower.followed().is_none_or(|followed| followed < head) {
        ensure!(began.elapsed() < DEADLINE, "a server follows");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let follows = began.elapsed();
    let killed = Instant::now();
    drop(leads);
    cancelled(second, jobs[1]).await.context("the second server leads")?;
    let decides = killed.elapsed();
    follower.stop().await;
    Ok(Takeover { decides, follows })
}

/// Cancels a job, and waits until that is decided.
async fn cancelled(log: &Database, job: JobId) -> anyhow::Result<()> {
    let began = Instant::now();
    let event = Event::CancelAsked { jobs: vec![job], filter: Filter::Active, reason: "bench".to_owned() };
    let rows = log.jobs(&[job]).await?;
    let row = rows.first().context("the job is there")?;
    let entry = Entry { events: vec![event], ..Entry::new(work::BEGIN, &row.queue, &row.job_set) };
    log.request(entry, Expect::Any).await?;
    while log.jobs(&[job]).await?.first().is_none_or(|row| row.state != JobState::Cancelled) {
        ensure!(began.elapsed() < DEADLINE, "job {job} is cancelled");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

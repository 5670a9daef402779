//! How late events are while batches are submitted and a leader folds them: from commit to message on a stream of the API,
//! and from asking to cancel a job to the event that says it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt as _;
use pumice_bench::figures::Figures;
use pumice_bench::setting::Setting;
use pumice_fleet_server::api::{Api, MessageId};
use pumice_fleet_server::database::{Database, Expect, Seq};
use pumice_fleet_server::leader::Leader;
use pumice_wire::api::event_message::Events;
use pumice_wire::api::event_server::Event as _;
use pumice_wire::api::submit_server::Submit as _;
use pumice_wire::api::{JobCancelRequest, JobSetRequest};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::homes::Homes;
use crate::work;

/// Who submits batches of this many jobs meanwhile.
const CALLERS: usize = 8;
const BATCH: usize = 1_000;
/// For how long, and at least.
const SECONDS: usize = 20;
const SECONDS_MIN: usize = 3;
/// Between two single jobs, and between two that are cancelled.
const EVERY: Duration = Duration::from_millis(40);
/// Streams have this long to tell what is left when nothing more is submitted.
const REST: Duration = Duration::from_secs(90);
/// The job sets that are looked at beside the first of the load.
const SINGLE: &str = "single";
const CANCELLED: &str = "cancelled";

pub async fn run(setting: &Setting, figures: &mut Figures, homes: &mut Homes, kind: &str) -> anyhow::Result<()> {
    let home = homes.make(kind).await?;
    let log = home.open().await?;
    for entry in work::queue_entries() {
        log.request(entry, Expect::QueueAbsent { policies: Vec::new() }).await?;
    }
    let stopping = CancellationToken::new();
    let (leader, _inputs) = Leader::new(Arc::clone(&log), work::leader_options());
    let mut leading = JoinSet::new();
    leading.spawn(leader.run(stopping.clone()));
    let lasts = Duration::from_secs(setting.size(SECONDS).max(SECONDS_MIN) as u64);
    let outcome = loaded(&log, &stopping, lasts).await;
    stopping.cancel();
    while leading.join_next().await.is_some() {}
    log.close().await;
    home.remove().await?;
    outcome?.tell(figures, kind);
    Ok(())
}

/// When each head of the log was there. A thread of its own sees them also while all others are busy.
#[derive(Clone, Default)]
struct Commits(Arc<Mutex<Vec<(Seq, Instant)>>>);

impl Commits {
    fn watch(log: &Database, stopping: CancellationToken) -> anyhow::Result<Commits> {
        let commits = Commits::default();
        let (seen, mut head) = (commits.clone(), log.head());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async {
                while let Some(Ok(())) = stopping.run_until_cancelled(head.changed()).await {
                    let seq = *head.borrow_and_update();
                    seen.0.lock().expect("nobody panics with it").push((seq, Instant::now()));
                }
            });
        });
        Ok(commits)
    }

    /// From an entry's commit to each time.
    fn lags(&self, told: &[(Seq, Instant)]) -> Vec<Duration> {
        let commits = self.0.lock().expect("nobody panics with it");
        let lag = |(seq, at): &(Seq, Instant)| {
            let place = commits.partition_point(|(head, _)| head < seq);
            commits.get(place).map(|(_, committed)| at.saturating_duration_since(*committed))
        };
        told.iter().filter_map(lag).collect()
    }
}

/// What a stream told.
#[derive(Default)]
struct Told {
    /// The entry of each message, and when it came.
    messages: Vec<(Seq, Instant)>,
    /// By job, when it was told that it is to be cancelled, and that it is.
    cancelling: BTreeMap<String, Instant>,
    cancelled: BTreeMap<String, Instant>,
}

/// Reads a set's stream until there were `wanted` messages, as soon as that is known.
async fn follow(api: Api, job_set: String, wanted: tokio::sync::watch::Receiver<usize>) -> anyhow::Result<Told> {
    let request = JobSetRequest { id: job_set, queue: work::queue_name(0), watch: true, ..JobSetRequest::default() };
    let mut stream = api.get_job_set_events(work::asked(&work::who(), request)).await?.into_inner();
    let (mut told, mut wanted) = (Told::default(), wanted);
    loop {
        let message = tokio::select! {
            message = stream.next() => message.context("a stream that watches goes on")??,
            // The number is known now.
            changed = wanted.changed() => {
                changed?;
                if told.messages.len() >= *wanted.borrow() { return Ok(told) }
                continue;
            }
        };
        let (id, now): (MessageId, _) = (message.id.parse()?, Instant::now());
        told.messages.push((id.seq, now));
        match message.message.and_then(|message| message.events) {
            Some(Events::Cancelling(event)) => drop(told.cancelling.insert(event.job_id, now)),
            Some(Events::Cancelled(event)) => drop(told.cancelled.insert(event.job_id, now)),
            _ => {}
        }
        if told.messages.len() >= *wanted.borrow() {
            return Ok(told);
        }
    }
}

struct Outcome {
    jobs: usize,
    wall: Duration,
    commits: Commits,
    single: Told,
    batches: Told,
    cancels: Told,
    /// When it was asked for, by job.
    asked: BTreeMap<String, Instant>,
    /// Until streams had told everything.
    rest: Duration,
}

/// A stream, and where it learns how many messages there are.
struct Stream {
    wanted: tokio::sync::watch::Sender<usize>,
    reading: JoinSet<anyhow::Result<Told>>,
}

impl Stream {
    fn of(api: &Api, job_set: &str) -> Stream {
        let (wanted, known) = tokio::sync::watch::channel(usize::MAX);
        let mut reading = JoinSet::new();
        reading.spawn(follow(api.clone(), job_set.to_owned(), known));
        Stream { wanted, reading }
    }

    async fn end(mut self, wanted: usize) -> anyhow::Result<Told> {
        self.wanted.send_replace(wanted);
        let told = tokio::time::timeout(REST, self.reading.join_next()).await;
        told.context("a stream did not tell everything in time")?.context("it reads")??
    }
}

async fn loaded(log: &Arc<Database>, stopping: &CancellationToken, lasts: Duration) -> anyhow::Result<Outcome> {
    let api = work::api(log, stopping);
    let cancels = usize::try_from(lasts.as_millis() / EVERY.as_millis())? + 1;
    let to_cancel = submit(&api, 0, CANCELLED, cancels).await?;
    let streams = [SINGLE, &set(0), CANCELLED].map(|job_set| Stream::of(&api, job_set));
    let commits = Commits::watch(log, stopping.clone())?;

    let began = Instant::now();
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let api = api.clone();
        callers.spawn(async move {
            let mut jobs = 0;
            while began.elapsed() < lasts {
                jobs += submit(&api, caller, &set(caller), BATCH).await?.len();
            }
            anyhow::Ok((caller, jobs))
        });
    }
    let singles = async {
        let mut jobs = 0;
        while began.elapsed() < lasts {
            jobs += submit(&api, 0, SINGLE, 1).await?.len();
            tokio::time::sleep(EVERY).await;
        }
        anyhow::Ok(jobs)
    };
    let (singles, asked) = tokio::try_join!(singles, cancel(&api, to_cancel, began + lasts))?;
    let (mut all, mut of_first) = (0, 0);
    while let Some(called) = callers.join_next().await {
        let (caller, jobs) = called??;
        all += jobs;
        if caller == 0 {
            of_first = jobs;
        }
    }
    let wall = began.elapsed();

    let ended = Instant::now();
    let [single, batches, cancelled] = streams;
    // A submission is told as submitted and as queued; a cancellation as asked for and as done.
    let wanted = [2 * singles, 2 * of_first, 2 * cancels + 2 * asked.len()];
    let (single, batches, cancels) =
        tokio::try_join!(single.end(wanted[0]), batches.end(wanted[1]), cancelled.end(wanted[2]))?;
    Ok(Outcome { jobs: all, wall, commits, single, batches, cancels, asked, rest: ended.elapsed() })
}

fn set(caller: usize) -> String {
    format!("batches-{caller}")
}

async fn submit(api: &Api, caller: usize, job_set: &str, jobs: usize) -> anyhow::Result<Vec<String>> {
    // Callers are of one queue, as streams are.
    let request = work::request(&work::queue_name(0), job_set, vec![work::item(1, 4, caller); jobs]);
    let answer = api.submit_jobs(work::asked(&work::who(), request)).await?.into_inner();
    Ok(answer.job_response_items.into_iter().map(|item| item.job_id).collect())
}

/// Asks to cancel them one by one; when each was asked for.
async fn cancel(api: &Api, jobs: Vec<String>, until: Instant) -> anyhow::Result<BTreeMap<String, Instant>> {
    let mut asked = BTreeMap::new();
    for job in jobs {
        if Instant::now() >= until {
            break;
        }
        let (queue, job_set_id) = (work::queue_name(0), CANCELLED.to_owned());
        let request = JobCancelRequest { queue, job_set_id, job_ids: vec![job.clone()], ..JobCancelRequest::default() };
        asked.insert(job, Instant::now());
        api.cancel_jobs(work::asked(&work::who(), request)).await?;
        tokio::time::sleep(EVERY).await;
    }
    Ok(asked)
}

impl Outcome {
    fn tell(&self, figures: &mut Figures, kind: &str) {
        let name = |figure: &str| format!("lag/{kind}/{figure}");
        figures.add(&name("rate"), self.jobs as f64 / self.wall.as_secs_f64(), "jobs/s", self.jobs);
        figures.times(&name("single"), &self.commits.lags(&self.single.messages));
        figures.times(&name("batches"), &self.commits.lags(&self.batches.messages));
        figures.add(&name("rest"), self.rest.as_secs_f64(), "s", 1);
        for (figure, told) in [("cancelling", &self.cancels.cancelling), ("cancelled", &self.cancels.cancelled)] {
            let since = |(job, at): (&String, &Instant)| Some(at.saturating_duration_since(*self.asked.get(job)?));
            figures.times(&name(figure), &told.iter().filter_map(since).collect::<Vec<_>>());
        }
    }
}

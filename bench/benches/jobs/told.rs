//! What is written of jobs and their groups, told by the store of this process as it is committed.
//!
//! Invariant: read on a thread of its own, so that the times are those of the writes also when all cores are busy.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pumice_store::{EventKind, Store, Watch, WatchEvent};
use serde::Deserialize;
use tokio::sync::watch;

/// How the store names them.
const JOBS: &str = "batch.volcano.sh/jobs";
const GROUPS: &str = "scheduling.volcano.sh/podgroups";
/// Made by nobody that is measured, and large.
const DEFINITIONS: &str = "apiextensions.k8s.io/";
const SECOND: Duration = Duration::from_secs(1);

/// What was written.
pub struct Told {
    seen: Arc<Mutex<Seen>>,
    completed: watch::Receiver<usize>,
}

/// Writes of jobs.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    /// Changes of all jobs, which are writes of their status: nobody changes anything else.
    pub changes: usize,
    /// Most changes of one job within a second.
    pub changes_a_second_most: usize,
    /// Jobs that have completed.
    pub completed: usize,
    /// Bytes of the largest job or group at any time.
    pub largest: usize,
    recent: HashMap<Arc<str>, VecDeque<Instant>>,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    state: State,
}

#[derive(Default, Deserialize)]
struct State {
    #[serde(default)]
    phase: String,
}

impl Told {
    /// Begins now.
    pub fn start(store: &Store) -> anyhow::Result<Told> {
        let (jobs, groups) = (store.watch(JOBS, None, None)?, store.watch(GROUPS, None, None)?);
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (sender, completed) = watch::channel(0);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let told = Arc::clone(&seen);
        // Ends with the store.
        std::thread::Builder::new()
            .name("told".to_owned())
            .spawn(move || runtime.block_on(follow(jobs, groups, &told, &sender)))?;
        Ok(Told { seen, completed })
    }

    /// What was written so far.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Waits until so many jobs have completed.
    pub async fn completed(&mut self, jobs: usize, limit: Duration) -> anyhow::Result<()> {
        let all = tokio::time::timeout(limit, self.completed.wait_for(|completed| *completed >= jobs)).await;
        let all = all.with_context(|| format!("{} of {jobs} jobs completed in {limit:?}", lock(&self.seen).completed));
        all?.context("the watch of jobs ended").map(drop)
    }
}

async fn follow(mut jobs: Watch, mut groups: Watch, seen: &Mutex<Seen>, completed: &watch::Sender<usize>) {
    loop {
        let (event, of_job) = tokio::select! {
            event = jobs.next() => (event, true),
            event = groups.next() => (event, false),
        };
        let (Ok(event), at) = (event, Instant::now()) else { return };
        let mut seen = lock(seen);
        seen.largest = seen.largest.max(event.object.body.len());
        if of_job {
            seen.take(&event, at);
            completed.send_if_modified(|told| std::mem::replace(told, seen.completed) != seen.completed);
        }
    }
}

impl Seen {
    fn take(&mut self, event: &WatchEvent, at: Instant) {
        if event.kind != EventKind::Modified {
            return;
        }
        self.changes += 1;
        let recent = self.recent.entry(Arc::clone(&event.object.key.name)).or_default();
        recent.retain(|earlier| at.duration_since(*earlier) < SECOND);
        recent.push_back(at);
        self.changes_a_second_most = self.changes_a_second_most.max(recent.len());
        let phase = |body: &[u8]| serde_json::from_slice::<Job>(body).map(|job| job.status.state.phase);
        let has_completed = |body: &[u8]| phase(body).is_ok_and(|phase| phase == "Completed");
        let before = event.previous.as_ref().is_some_and(|object| has_completed(&object.body));
        self.completed += usize::from(!before && has_completed(&event.object.body));
    }
}

/// The largest object there is but for definitions: what it is and its bytes.
pub fn largest(store: &Store) -> (String, usize) {
    let resources = store.resources().into_iter().filter(|resource| !resource.starts_with(DEFINITIONS));
    let largest = resources.filter_map(|resource| {
        let object = store.list(&resource, None).items.into_iter().max_by_key(|object| object.body.len())?;
        Some((format!("{resource} {}", object.key.name), object.body.len()))
    });
    largest.max_by_key(|(_, bytes)| *bytes).unwrap_or_default()
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // Counts are whole at every moment.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

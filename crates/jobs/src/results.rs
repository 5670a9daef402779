//! What came of the records of a job, in their order, from the job alone: its pods say where their results are.
//!
//! Invariant: each record of the job gives one row, whether anything was told of it or not; rows are read as they are asked
//! for, so memory is that of some shards. Called by `jobctl results`, and by what tells of a job's end.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::ready;
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Container;
use pumice_api::batch::Job;

use crate::Connection;
use crate::bundle::store::FOLDER_FLAG;
use crate::bundle::{Bundle, ChunkId, Location, RunId, Status, Store, collect_if, location, statuses};
use crate::error::{Error, Failure, Remedy};
use crate::exit_code::Exit;
use crate::render::RULE_VARIABLE;
use crate::shards::Plan;
use crate::shards::report::Report;

/// Keys that a summary names of each kind.
const KEYS_NAMED: usize = 5;
/// Keys read from a bundle in one go.
const KEYS_READ: u64 = 256;

/// A job without results.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// Its pods record nothing.
    #[error(
        "job {job} records no results: a job over --array, --days or --params does, where its pods see a folder for it or reach ConfigMaps"
    )]
    NoRun { job: String },
    /// Its rule can't be read here.
    #[error("the records of job {job} can't be told: {problem}")]
    Rule { job: String, problem: String },
}

impl Failure for ResultsError {
    fn exit(&self) -> Exit {
        match self {
            ResultsError::NoRun { .. } => Exit::NotFound,
            ResultsError::Rule { .. } => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            ResultsError::NoRun { .. } => Remedy::Do(format!("jobctl submit --array 0-9 {FOLDER_FLAG} -- COMMAND")),
            ResultsError::Rule { .. } => Remedy::Unknown,
        }
    }
}

/// The results of a job, as its pods find them.
#[derive(Debug)]
pub struct Results {
    plan: Plan,
    store: Arc<dyn Store>,
    run: RunId,
    /// What has the keys, where they can't be computed.
    bundle: Option<Bundle>,
    /// The keys that were read last, and the number of the first.
    window: Mutex<(u64, Vec<String>)>,
    /// What the last rows came to that were read to their end, until it is asked for.
    counted: Arc<Mutex<Option<Counted>>>,
}

/// What a look at all records counts on its way.
#[derive(Debug, Clone, Default)]
struct Counted {
    records: u64,
    succeeded: u64,
    failed: Numbered,
    missing: Numbered,
}

/// How many records, and the numbers of the first of them.
#[derive(Debug, Clone, Default)]
struct Numbered {
    count: u64,
    first: Vec<u64>,
}

impl Counted {
    /// Takes note of the next record.
    fn note(&mut self, status: Option<Status>) {
        let record = self.records;
        self.records += 1;
        let numbered = match status {
            Some(Status::Succeeded) => {
                self.succeeded += 1;
                return;
            }
            Some(Status::Failed) => &mut self.failed,
            None => &mut self.missing,
        };
        numbered.count += 1;
        if numbered.first.len() < KEYS_NAMED {
            numbered.first.push(record);
        }
    }
}

/// A record, and what was told of it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub key: String,
    /// How it ended; `None` if nothing was told of it.
    pub status: Option<Status>,
    /// The attempt that told so, from 1; 0 if none did.
    pub attempts: u32,
    pub report: Report,
}

impl Row {
    /// The word for its status.
    pub fn word(&self) -> &'static str {
        word(self.status)
    }
}

/// The word for a status.
pub fn word(status: Option<Status>) -> &'static str {
    match status {
        Some(Status::Succeeded) => "succeeded",
        Some(Status::Failed) => "failed",
        None => "missing",
    }
}

/// How many records, and the first of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Named {
    pub count: u64,
    /// The keys of the first ones.
    pub keys: Vec<String>,
}

/// The records of a job in numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResultCounts {
    pub records: u64,
    pub succeeded: u64,
    /// Those of which the last attempt failed.
    pub failed: Named,
    /// Those that nothing was told of.
    pub missing: Named,
}

impl ResultCounts {
    /// Whether nothing was told of any record.
    pub fn is_blank(&self) -> bool {
        self.missing.count == self.records
    }

    /// Whether every record succeeded; then none failed and none is missing.
    pub fn is_whole(&self) -> bool {
        self.succeeded == self.records
    }
}

impl fmt::Display for ResultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} records succeeded", self.succeeded, self.records)?;
        for (what, Named { count, keys }) in [("failed", &self.failed), ("missing", &self.missing)] {
            if *count > 0 {
                write!(f, "; {what}: {}", keys.join(", "))?;
                let more = count.saturating_sub(keys.len() as u64);
                if more > 0 {
                    write!(f, " and {more} more")?;
                }
            }
        }
        Ok(())
    }
}

/// What a job's pods are told of the run that they record.
struct RecordedRun<'j> {
    /// The rule that says which records a pod has.
    rule: &'j str,
    location: Location,
    run: RunId,
}

/// The run of the first task that records results.
fn recorded_run(job: &Job) -> Option<RecordedRun<'_>> {
    let containers =
        job.spec.tasks.iter().filter_map(|task| task.template.spec.as_ref()).flat_map(|pod| &pod.containers);
    containers.into_iter().find_map(|container| {
        let location: Location = variable(container, location::VARIABLE)?.parse().ok()?;
        let run = location.run.clone()?;
        Some(RecordedRun { rule: variable(container, RULE_VARIABLE)?, location, run })
    })
}

fn variable<'c>(container: &'c Container, name: &str) -> Option<&'c str> {
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.as_deref()
}

impl Results {
    /// Whether a job's pods record results.
    pub fn are_of(job: &Job) -> bool {
        recorded_run(job).is_some()
    }

    /// Opens the results of a job.
    pub async fn open(connection: &Connection, job: &Job) -> Result<Self, Error> {
        let name = || job.metadata.name.clone().unwrap_or_default();
        let RecordedRun { rule, location, run } =
            recorded_run(job).ok_or_else(|| ResultsError::NoRun { job: name() })?;
        let plan = Plan::parse(rule).map_err(|error| ResultsError::Rule { job: name(), problem: error.to_string() })?;
        let store = location.address.open(Some(connection), plan.pods()).await?;
        Self::at(store, plan, location.root, run).await
    }

    /// The results of a run at a place. The root is that of the bundle with the records, where they can't be computed.
    pub async fn at(store: Arc<dyn Store>, plan: Plan, root: ChunkId, run: RunId) -> Result<Self, Error> {
        let bundle = match plan.bundle() {
            Some(_) => Some(Bundle::open(Arc::clone(&store), root).await?),
            None => None,
        };
        Ok(Results { plan, store, run, bundle, window: Mutex::default(), counted: Arc::default() })
    }

    /// The records whose status is wanted, in order. When all were read, [`Results::counts`] knows the numbers.
    pub fn rows<W>(&self, wanted: W) -> impl Stream<Item = Result<Row, Error>> + '_
    where
        W: Fn(Option<Status>) -> bool + Send + 'static,
    {
        let counting = Arc::new(Mutex::new(Counted::default()));
        let counted = Arc::clone(&counting);
        let wanted = move |status| {
            locked(&counting).note(status);
            wanted(status)
        };
        let all_read = stream::once(async move {
            *locked(&self.counted) = Some(locked(&counted).clone());
        });
        let rows = collect_if(Arc::clone(&self.store), self.run.clone(), slices(&self.plan), wanted);
        let rows = rows.chain(all_read.filter_map(|()| ready(None)));
        rows.map_err(Error::from).and_then(move |row| async move {
            let Some(outcome) = row.outcome else {
                let key = self.key(row.record).await?;
                return Ok(Row { key, status: None, attempts: 0, report: Report::default() });
            };
            let (status, attempts) = (Some(outcome.status), outcome.attempt);
            Ok(Row { key: outcome.key, status, attempts, report: Report::read(outcome.value) })
        })
    }

    /// The records in numbers: those of the rows that were read last if they were read to their end, else read anew without
    /// what they gave.
    pub async fn counts(&self) -> Result<ResultCounts, Error> {
        let before = locked(&self.counted).take();
        let counted = match before {
            Some(counted) => counted,
            None => self.count().await?,
        };
        let Counted { records, succeeded, failed, missing } = counted;
        Ok(ResultCounts { records, succeeded, failed: self.named(failed).await?, missing: self.named(missing).await? })
    }

    async fn count(&self) -> Result<Counted, Error> {
        let mut counted = Counted::default();
        let mut rows = std::pin::pin!(statuses(Arc::clone(&self.store), self.run.clone(), slices(&self.plan)));
        while let Some(row) = rows.next().await {
            counted.note(row?.status());
        }
        Ok(counted)
    }

    async fn named(&self, numbered: Numbered) -> Result<Named, Error> {
        let mut keys = Vec::with_capacity(numbered.first.len());
        for record in numbered.first {
            keys.push(self.key(record).await?);
        }
        Ok(Named { count: numbered.count, keys })
    }

    /// The key of a record by its number. Neighbours are read with it, as rows come in order.
    async fn key(&self, record: u64) -> Result<String, Error> {
        let Some(bundle) = &self.bundle else {
            let key = u32::try_from(record).ok().and_then(|index| self.plan.shards().key(index));
            return Ok(key.unwrap_or_default());
        };
        let found =
            |(first, keys): &(u64, Vec<String>)| keys.get(usize::try_from(record.checked_sub(*first)?).ok()?).cloned();
        if let Some(key) = found(&locked(&self.window)) {
            return Ok(key);
        }
        // One that the bundle lacks is asked for, too: the error says so.
        let end = bundle.records().min(record.saturating_add(KEYS_READ)).max(record.saturating_add(1));
        let window = (record, bundle.keys(record..end).await?);
        let key = found(&window).unwrap_or_default();
        *locked(&self.window) = window;
        Ok(key)
    }
}

/// What is behind these locks is whole between any two lines.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The records of each pod, from pod 0 on.
fn slices(plan: &Plan) -> impl Iterator<Item = Range<u64>> + Send + use<> {
    let plan = plan.clone();
    (0..plan.pods()).map_while(move |pod| plan.slice(pod)).map(|slice| slice.start.into()..slice.end.into())
}

//! Bundles: what a job's workers are given and what came out of them, for the client and for the worker in a pod.
//!
//! Invariant: no platform is asked and no thread or runtime is started. Files are read and written by the thread that asks,
//! with the interpreter set free; so a worker may fork. Records are taken from Python a few at a time.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::executor::block_on;
use futures::stream::{BoxStream, StreamExt};
use pumice_jobs::bundle::{
    Bundle, BundleError, BundleWriter, EntryName, Folder, Location, LocationError, Mark, Name, Outcome, Reader,
    Recorder, Row, RunId, RunKey, RunKeyError, Slice, Status, StoreAddress, StoreError, collect_shard,
};
use pumice_jobs::{Error, error};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::{exception, misuse, raised};

/// Most records, and about the most bytes, that are taken from Python before they are packed.
const BATCH_RECORDS: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// What errors name where the folder of bundles has to be another one.
const CACHE_VARIABLE: &str = "PUMICE_CACHE";

/// A record's result, as Python has it: its number, key, attempt, whether it succeeded, its bytes, and where it is from if the
/// run's key does not mark it.
type ResultRow<'py> = (u64, String, u32, bool, Bound<'py, PyBytes>, Option<(String, &'static str)>);

/// Packs a job into a folder of bundles, which is made, under a fresh run; what its workers find it by.
#[pyfunction]
pub fn write_bundle(
    py: Python<'_>,
    folder: PathBuf,
    attachments: BTreeMap<String, PyBackedBytes>,
    records: &Bound<'_, PyAny>,
) -> PyResult<String> {
    let address = StoreAddress::folder(&folder).map_err(|error| failed(py, error))?;
    let store = py.detach(|| Folder::make(&folder)).map_err(|error| failed(py, error))?.on_caller();
    let run = RunId::fresh().map_err(|error| failed(py, error))?;
    let mut writer = BundleWriter::new(Arc::new(store));
    for (name, content) in attachments {
        done(py, async { writer.attach(&name, &mut &content[..]).await })?;
    }
    let mut records = records.try_iter()?;
    loop {
        let batch = batch(&mut records)?;
        if batch.is_empty() {
            break;
        }
        done(py, async {
            for (key, value) in batch {
                writer.record(&key, value).await?;
            }
            Ok::<_, BundleError>(())
        })?;
        py.check_signals()?;
    }
    let root = done(py, writer.finish())?.root;
    Ok(Location { address, root, run: Some(run) }.to_string())
}

/// The next records, each a pair of its key and its bytes.
fn batch<'py>(records: &mut impl Iterator<Item = PyResult<Bound<'py, PyAny>>>) -> PyResult<Vec<(String, Bytes)>> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    while batch.len() < BATCH_RECORDS && bytes < BATCH_BYTES {
        let Some(record) = records.next() else { break };
        let (key, value): (String, PyBackedBytes) = record?.extract()?;
        bytes += value.len();
        batch.push((key, Bytes::copy_from_slice(&value)));
    }
    Ok(batch)
}

/// The records of one shard, and the log of their results, in a worker.
#[pyclass(frozen, module = "pumice._core")]
pub struct BundleSlice {
    folder: Folder,
    bundle: Bundle,
    slice: Slice,
    attempt: u32,
    reader: Mutex<Reader>,
    recorder: Mutex<Recorder>,
}

#[pymethods]
impl BundleSlice {
    /// The slice of the shard of that index, of `chunk` records each; results are marked with the key.
    #[new]
    #[pyo3(signature = (bundle, shard, chunk, attempt, key=None))]
    fn open(py: Python<'_>, bundle: &str, shard: u32, chunk: u64, attempt: u32, key: Option<&str>) -> PyResult<Self> {
        let key = read_key(py, key)?;
        let RunPlace { folder, location, run } = found(py, bundle)?;
        let store = Arc::new(folder.clone());
        let bundle = done(py, Bundle::open(store.clone(), location.root))?;
        let slice = Slice { run, shard, records: records_of(shard, chunk, bundle.records()) };
        let recorder = done(py, Recorder::with_key(store, slice.clone(), attempt, key))?;
        let reader = Mutex::new(bundle.reader());
        Ok(BundleSlice { folder, bundle, slice, attempt, reader, recorder: Mutex::new(recorder) })
    }

    #[getter]
    fn total(&self) -> u64 {
        self.bundle.records()
    }

    #[getter]
    fn attempt(&self) -> u32 {
        self.attempt
    }

    fn attachment<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
        if self.bundle.attachments().all(|(known, _)| known != name) {
            return Ok(None);
        }
        let mut content = Vec::new();
        done(py, self.bundle.attachment(name, &mut content))?;
        Ok(Some(PyBytes::new(py, &content)))
    }

    /// Numbers of the records that nobody has done yet: those never begun before those that an attempt ended under, and
    /// these before those that failed. So one that ends every attempt keeps no other from its own.
    fn left(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| {
            let recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
            let mut left: Vec<u64> = recorder.left().collect();
            if self.attempt > 1 {
                left.sort_by_cached_key(|record| {
                    (recorder.logged(*record).is_some(), self.folder.has_checkpoint(&self.slice.run, *record))
                });
            }
            left
        })
    }

    fn record<'py>(&self, py: Python<'py>, number: u64) -> PyResult<(String, Bound<'py, PyBytes>)> {
        let read = || block_on(self.reader.lock().unwrap_or_else(PoisonError::into_inner).record(number));
        let record = py.detach(read).map_err(|error| failed(py, error))?;
        Ok((record.key, PyBytes::new(py, &record.value)))
    }

    fn make_checkpoint(&self, py: Python<'_>, number: u64) -> PyResult<String> {
        let made =
            py.detach(|| self.folder.make_checkpoint(&self.slice.run, number)).map_err(|error| failed(py, error))?;
        Ok(made.display().to_string())
    }

    /// Brings results into the log, durably, and gives the numbers of those that stand there now.
    fn write(&self, py: Python<'_>, results: Vec<(u64, String, bool, PyBackedBytes)>) -> PyResult<Vec<u64>> {
        let write = || -> Result<Vec<u64>, BundleError> {
            let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
            for (number, key, success, value) in &results {
                let status = if *success { Status::Succeeded } else { Status::Failed };
                block_on(recorder.record(*number, key, status, Bytes::copy_from_slice(value)))?;
            }
            let flushed = block_on(recorder.flush())?;
            for (number, _, success, _) in &results {
                if *success {
                    self.folder.remove_empty_checkpoint(&self.slice.run, *number)?;
                }
            }
            Ok(flushed.recorded)
        };
        py.detach(write).map_err(|error| failed(py, error))
    }
}

/// The results of one run, for who submitted it.
#[pyclass(frozen, module = "pumice._core")]
pub struct BundleResults {
    folder: Folder,
    run: RunId,
    total: u64,
    chunk: u64,
    key: Option<RunKey>,
}

#[pymethods]
impl BundleResults {
    #[new]
    #[pyo3(signature = (bundle, total, chunk, key=None))]
    fn open(py: Python<'_>, bundle: &str, total: u64, chunk: u64, key: Option<&str>) -> PyResult<Self> {
        let key = read_key(py, key)?;
        let RunPlace { folder, run, .. } = found(py, bundle)?;
        Ok(BundleResults { folder, run, total, chunk, key })
    }

    /// What stands in the log of a shard: successes, and last failures.
    fn shard(&self, shard: u32) -> BundleRows {
        let slice = Slice { run: self.run.clone(), shard, records: records_of(shard, self.chunk, self.total) };
        let rows = collect_shard(Arc::new(self.folder.clone()), slice, self.key.clone()).boxed();
        BundleRows { folder: self.folder.clone(), run: self.run.clone(), rows: Mutex::new(rows) }
    }

    /// Whether a record was begun, and has not succeeded.
    fn begun(&self, number: u64) -> bool {
        self.folder.has_checkpoint(&self.run, number)
    }

    fn remove(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.folder.remove_run(&self.run)).map_err(|error| failed(py, error))
    }
}

/// Results as they are read.
#[pyclass(frozen, module = "pumice._core")]
pub struct BundleRows {
    folder: Folder,
    run: RunId,
    rows: Mutex<BoxStream<'static, Result<Row, BundleError>>>,
}

#[pymethods]
impl BundleRows {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<ResultRow<'py>>> {
        let next = py.detach(|| {
            let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
            // Of a record of which nothing was told there is nothing to tell.
            loop {
                match block_on(rows.next())? {
                    Ok(Row { outcome: None, .. }) => {}
                    row => break Some(row),
                }
            }
        });
        let Some(row) = next.transpose().map_err(|error| failed(py, error))? else { return Ok(None) };
        let unmarked = self.unmarked(&row);
        Ok(row.outcome.map(|Outcome { record, key, attempt, status, value }| {
            (record, key, attempt, status == Status::Succeeded, PyBytes::new(py, &value), unmarked)
        }))
    }
}

impl BundleRows {
    /// The file of a result that the run's key does not mark, and what its mark is.
    fn unmarked(&self, row: &Row) -> Option<(String, &'static str)> {
        let origin = row.origin?;
        let mark = match origin.mark {
            Mark::Right => return None,
            Mark::Missing => "missing",
            Mark::Wrong => "wrong",
            Mark::Unchecked => "unchecked",
        };
        let entry = EntryName { run: self.run.clone(), shard: row.shard, number: origin.number };
        Some((self.folder.path_of(&Name::Entry(entry)).display().to_string(), mark))
    }
}

/// The key of a run, if one is given.
fn read_key(py: Python<'_>, text: Option<&str>) -> PyResult<Option<RunKey>> {
    text.map(str::parse).transpose().map_err(|error: RunKeyError| misuse(py, &error.to_string()))
}

/// Where a run has its records and records its results.
struct RunPlace {
    /// The open folder of the location.
    folder: Folder,
    location: Location,
    run: RunId,
}

/// Opens the folder that a text names, which has to say a run.
fn found(py: Python<'_>, bundle: &str) -> PyResult<RunPlace> {
    let location: Location = bundle.parse().map_err(|error: LocationError| failed(py, error))?;
    let StoreAddress::Folder(path) = &location.address else {
        return Err(misuse(py, &format!("{} is no folder, and only those can be opened here", location.address)));
    };
    let run = location.run.clone().ok_or_else(|| misuse(py, &format!("{bundle} says no run: write #ROOT/RUN")))?;
    let folder = py.detach(|| Folder::open(path)).map_err(|error| failed(py, error))?;
    Ok(RunPlace { folder: folder.on_caller(), location, run })
}

/// The numbers of a shard's records.
fn records_of(shard: u32, chunk: u64, total: u64) -> Range<u64> {
    let first = u64::from(shard).saturating_mul(chunk).min(total);
    first..first.saturating_add(chunk).min(total)
}

/// Runs to its end what waits for files only, with the interpreter set free.
fn done<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl Future<Output = Result<T, E>> + Send,
) -> PyResult<T> {
    py.detach(|| block_on(work)).map_err(|error| failed(py, error))
}

/// The exception for what went wrong with a bundle; where another folder would help it says how that is named here.
fn failed(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let store = match error.downcast_ref() {
        Some(BundleError::Store(store)) => Some(store),
        _ => error.downcast_ref::<StoreError>(),
    };
    let Some(store) = store else { return exception(py, error, None) };
    let text = match store {
        StoreError::Full { folder, .. } => {
            format!(
                "no space is left in {}: free some there, or name another folder by {CACHE_VARIABLE}",
                folder.display()
            )
        }
        StoreError::NoLinks { folder, .. } => format!(
            "the file system of {} has no hard links, without which a result might be recorded twice; \
             name another folder by {CACHE_VARIABLE}",
            folder.display()
        ),
        _ => error::sentence(&error),
    };
    raised(py, error.exit(), text, None)
}

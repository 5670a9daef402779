//! What comes of each record of this pod, into the bundle of its job.
//!
//! Invariant: a record counts as done only when that is stored durably, and once; whatever fails here ends the pod with an error, so
//! that it is made again. What was told before is not run again. In a folder each record is stored as it ends; in ConfigMaps, where
//! that would be an object each, now and then and at the end.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use pumice_jobs::bundle::{self, Recorder, RunId, Status, random_name};
use pumice_jobs::shards::Record;
use pumice_jobs::shards::report::{NODE_VARIABLE, RESULT_BYTES_MAX, RESULT_VARIABLE, Report};
use tokio::time::Instant;

use super::signals::Ended;
use crate::commands::shard::{OpenStore, Slice, text_of};
use crate::failure::Failure;
use crate::terminal;

/// The variable with the number of this run of the pod's index.
const ATTEMPT_VARIABLE: &str = "PUMICE_ATTEMPT";
/// The variable with the folder that a record keeps over its attempts.
const CHECKPOINT_VARIABLE: &str = "PUMICE_CHECKPOINT";

/// How long what came of records may wait until it is stored, where storing it at once costs an object of the API.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The results of this pod's records.
pub struct Recording {
    store: Rc<OpenStore>,
    run: RunId,
    recorder: Recorder,
    /// When all was stored last.
    stored: Instant,
    node: String,
    scratch: Scratch,
}

impl Recording {
    /// Reads what was told of this pod's records; `None` if its job records nothing.
    pub fn open(slice: &Slice) -> Result<Option<Recording>, Failure> {
        let Some(store) = &slice.store else { return Ok(None) };
        let Some(run) = store.location.run.clone() else { return Ok(None) };
        let records = slice.records.start.into()..slice.records.end.into();
        let own = bundle::Slice { run: run.clone(), shard: slice.index, records };
        let attempt = text_of(ATTEMPT_VARIABLE).and_then(|text| text.parse().ok()).unwrap_or(1);
        let opened = Recorder::open(Arc::clone(&store.chunks), own, attempt);
        let recorder = store.runtime.block_on(opened)?.counting_on();
        let node = text_of(NODE_VARIABLE).unwrap_or_default();
        let (store, stored) = (Rc::clone(store), Instant::now());
        Ok(Some(Recording { store, run, recorder, stored, node, scratch: Scratch::make()? }))
    }

    /// The records that nobody has done yet, in order.
    pub fn left(&self) -> Vec<u32> {
        self.recorder.left().filter_map(|record| u32::try_from(record).ok()).collect()
    }

    /// Gives a command what it may leave behind: a file for its result and, beside a folder's records, a folder for its next
    /// attempt.
    pub fn begin(&self, record: &Record, command: &mut Command) -> Result<(), Failure> {
        if let Some(folder) = &self.store.folder {
            command.env(CHECKPOINT_VARIABLE, folder.make_checkpoint(&self.run, record.index.into())?);
        }
        command.env(RESULT_VARIABLE, self.scratch.path(record));
        command.env(ATTEMPT_VARIABLE, self.recorder.attempt().to_string());
        Ok(())
    }

    /// Records how a command ended, and gives the code of it that counts; `None` if it is left open.
    pub fn end(&mut self, record: &Record, ended: &Ended) -> Result<Option<u8>, Failure> {
        let result = self.scratch.take(record);
        // Asked to end, a command that fails may have nothing wrong with it, so the record is no failed one: this pod was
        // evicted, say. One that ends well may be done, or may have saved what it needs to go on; only a result tells that it
        // is done. To run one again that was done costs time; to count one that was not would lose its result for ever.
        if ended.asked_to_end.is_some() && !(ended.code == 0 && matches!(result, Ok(Some(_)))) {
            return Ok(None);
        }
        let (code, problem, result) = match result {
            Ok(result) => (ended.code, ended.problem.clone(), result),
            Err(problem) => {
                terminal::say(&format!("the result of {} can't be taken: {problem}", record.key));
                // A command that says it did well, and whose result is lost, did not.
                (ended.code.max(1), problem, None)
            }
        };
        let report = Report { code: Some(code), signal: ended.killed_by, node: self.node.clone(), problem, result };
        let value = report.to_bytes().context("cannot write a report").map_err(Failure::Machine)?;
        let status = if code == 0 { Status::Succeeded } else { Status::Failed };
        let number = u64::from(record.index);
        let store = Rc::clone(&self.store);
        store.runtime.block_on(self.recorder.record(number, &record.key, status, value))?;
        if store.folder.is_some() || self.stored.elapsed() >= WAIT_MAX {
            self.flush()?;
        }
        if let Some(folder) = store.folder.as_ref()
            && status == Status::Succeeded
        {
            // One that stays harms nobody, and the record is done.
            let _ = folder.remove_empty_checkpoint(&self.run, number);
        }
        Ok(Some(code))
    }

    /// Stores what came of all records so far.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.store.runtime.block_on(self.recorder.flush())?;
        self.stored = Instant::now();
        Ok(())
    }
}

/// A folder of this process alone, gone with it.
struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    fn make() -> Result<Scratch, Failure> {
        let folder = std::env::temp_dir().join(format!("pumice-{}", random_name()?));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display())).map_err(Failure::Machine)?;
        Ok(Scratch { folder })
    }

    /// Where a record's result may be written. Each has its own: what one leaves there, a folder say, is not in another's way.
    fn path(&self, record: &Record) -> PathBuf {
        self.folder.join(record.index.to_string())
    }

    /// What was written there, if anything was; the error is a sentence.
    fn take(&self, record: &Record) -> Result<Option<Bytes>, String> {
        let path = self.path(record);
        let read = || -> io::Result<Option<Bytes>> {
            let found = match fs::symlink_metadata(&path) {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error),
            };
            if !found.is_file() {
                return Err(io::Error::other("it is no file"));
            }
            let mut bytes = Vec::new();
            File::open(&path)?.take(RESULT_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            if bytes.len() as u64 > RESULT_BYTES_MAX {
                let most = RESULT_BYTES_MAX >> 20;
                return Err(io::Error::other(format!("it has more than {most} MiB; write it elsewhere and say where")));
            }
            Ok(Some(bytes.into()))
        };
        let result = read().map_err(|error| format!("{RESULT_VARIABLE}: {error}"));
        // One that stays goes with the folder.
        let _ = fs::remove_file(&path);
        result
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It goes with the pod in any case.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

//! The thread that writes the recording, and keeps it within its bounds.
//!
//! Invariant: what it writes is a whole history from the beginning of each World to its end or to a hole. It never stops
//! the scheduler: what can't be written is a hole, logged once.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pumice_clock as clock;
use pumice_engine::TimeMs;
use pumice_engine::plugin::Registry;
use pumice_recording::segment::{self, Header, SegmentWriter};
use pumice_recording::{Cycle, Entry};
use tokio::time::Instant;

use super::queue::{QueueReceiver, Taken};
use super::retention::Retention;
use super::sender::Batch;
use super::{RecordError, RecordOptions};
use crate::metrics::Metrics;

/// Longest time that an entry waits for its block.
const FLUSH_EVERY: Duration = Duration::from_secs(3);
/// Batches after which the loop is told that there is more room.
const TOLD_OF: usize = 256;
/// A segment is closed when it is so large,
const SEGMENT_BYTES: u64 = 64 << 20;
/// or a part of what is kept,
const SEGMENTS_MIN: u64 = 16;
/// or when it has been written for so long.
const SEGMENT_AGE: Duration = Duration::from_secs(6 * 3_600);

/// Writes batches into segments, one file after the other. Owned by the writing thread.
#[derive(Debug)]
pub(super) struct RecordWriter {
    options: RecordOptions,
    metrics: Metrics,
    /// Held as long as the folder is ours.
    _lock: File,
    /// The segment that comes next.
    number: u64,
    segment: Option<Open>,
    /// At which a segment is full.
    pub(super) segment_bytes: u64,
    /// The segment is: the loop is to have the World forget, and the next segment begins there.
    pub(super) full: Arc<AtomicBool>,
    sweep: Retention,
    /// The one that is under way.
    sweeping: Option<JoinHandle<()>>,
}

/// The segment that is written.
#[derive(Debug)]
struct Open {
    writer: SegmentWriter,
    since: Instant,
    flushed: Instant,
    /// Bytes of it that were counted.
    counted: u64,
    /// The loop was told that it is full.
    roll_requested: bool,
}

impl RecordWriter {
    /// Makes and locks the folder.
    pub(super) fn open(options: RecordOptions, registry: Registry, metrics: Metrics) -> Result<Self, RecordError> {
        let folder = || options.folder.clone();
        let io = |source| RecordError::Folder { folder: folder(), source };
        make(&options.folder).map_err(io)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(options.folder.join("lock"))
            .map_err(io)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(RecordError::Taken { folder: folder() }),
            Err(TryLockError::Error(source)) => return Err(io(source)),
        }
        let mut number = 1;
        for file in fs::read_dir(&options.folder).map_err(io)? {
            let path = file.map_err(io)?.path();
            if path.extension().is_some_and(|extension| extension == "part") {
                // Left by one that was killed.
                fs::remove_file(&path).map_err(io)?;
            }
            number = number.max(segment::number_of(&path).map_or(0, |there| there.saturating_add(1)));
        }
        let stop = Arc::default();
        let sweep = Retention { options: options.clone(), registry, metrics: metrics.clone(), stop };
        let segment_bytes = SEGMENT_BYTES.min(options.bytes_max / SEGMENTS_MIN);
        Ok(Self {
            options,
            metrics,
            _lock: lock,
            number,
            segment: None,
            segment_bytes,
            full: Arc::default(),
            sweep,
            sweeping: None,
        })
    }

    /// Writes until the record has gone.
    pub(super) fn run(mut self, from: &QueueReceiver) {
        loop {
            let batches = match from.take(FLUSH_EVERY) {
                Taken::Batches(batches) => batches,
                Taken::Nothing => {
                    self.flush();
                    continue;
                }
                Taken::Closed => break,
            };
            // Feedback of many at once: the loop counts in the same place.
            let mut batches = batches.into_iter().peekable();
            while batches.peek().is_some() {
                let mut entries = 0;
                for batch in batches.by_ref().take(TOLD_OF) {
                    entries += batch.len();
                    if let Err(error) = self.take(batch) {
                        self.fail(&error);
                    }
                }
                from.written(entries);
                self.metrics.recorded(entries as u64);
            }
            if self.segment.as_ref().is_some_and(|open| open.flushed.elapsed() >= FLUSH_EVERY) {
                self.flush();
            }
        }
        if let Some(open) = self.segment.take()
            && let Err(error) = self.close(open)
        {
            self.fail(&error);
        }
        self.sweep.stop.store(true, Ordering::Relaxed);
        if let Some(sweeping) = self.sweeping.take() {
            // One that panicked has said so.
            let _ = sweeping.join();
        }
    }

    fn take(&mut self, batch: Batch) -> io::Result<()> {
        match batch {
            Batch::Entry(entry) => {
                match *entry {
                    Entry::Begin(_) => self.roll(false)?,
                    Entry::Forget if self.segment.is_some() => self.roll(true)?,
                    _ => {}
                }
                self.line(&entry)
            }
            Batch::Resume(beginning, world) => {
                let path = segment::start_path(&self.options.folder, self.number);
                segment::write_start(&path, &self.header(true), &beginning, &world)?;
                self.roll(true)
            }
            Batch::Feedback(told) => self.line(&Entry::Feedback(told)),
            Batch::Deltas(deltas) => deltas.into_iter().try_for_each(|delta| self.line(&Entry::Delta(delta))),
            Batch::Cycle(at, plan) => {
                self.line(&Entry::Cycle(Cycle::of(at, &plan)))?;
                if let Some(open) = &mut self.segment
                    && !open.roll_requested
                    && (open.writer.bytes >= self.segment_bytes || open.since.elapsed() >= SEGMENT_AGE)
                {
                    open.roll_requested = true;
                    self.full.store(true, Ordering::Relaxed);
                }
                Ok(())
            }
        }
    }

    /// Without a segment, after a failure, entries go nowhere until a World begins.
    fn line(&mut self, entry: &Entry) -> io::Result<()> {
        self.segment.as_mut().map_or(Ok(()), |open| open.writer.line(entry))
    }

    /// Closes the segment and begins the next.
    fn roll(&mut self, continues: bool) -> io::Result<()> {
        if let Some(open) = self.segment.take() {
            self.close(open)?;
        }
        let (number, now) = (self.number, Instant::now());
        let path = segment::path(&self.options.folder, number);
        let writer = SegmentWriter::create(&path, &self.header(continues), self.segment_bytes)?;
        self.number += 1;
        self.segment = Some(Open { writer, since: now, flushed: now, counted: 0, roll_requested: false });
        self.sweep(number);
        Ok(())
    }

    /// Of the segment that comes next.
    fn header(&self, continues: bool) -> Header {
        Header {
            number: self.number,
            continues,
            created: TimeMs(clock::now().as_millisecond()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            case: None,
        }
    }

    /// Drops what is old, unless that is under way: then the next segment has it done.
    fn sweep(&mut self, current: u64) {
        if self.sweeping.as_ref().is_some_and(|sweeping| !sweeping.is_finished()) {
            return;
        }
        let sweep = self.sweep.clone();
        let started = std::thread::Builder::new().name("recorder-sweep".to_owned()).spawn(move || sweep.run(current));
        self.sweeping = started.inspect_err(|error| tracing::warn!(%error, "old recordings can't be dropped")).ok();
    }

    fn flush(&mut self) {
        let Some(open) = &mut self.segment else { return };
        open.flushed = Instant::now();
        let flushed = open.writer.flush();
        self.metrics.record_bytes(open.writer.bytes - open.counted);
        open.counted = open.writer.bytes;
        if let Err(error) = flushed {
            self.fail(&error);
        }
    }

    fn close(&self, mut open: Open) -> io::Result<()> {
        open.writer.flush()?;
        self.metrics.record_bytes(open.writer.bytes - open.counted);
        open.writer.close()
    }

    /// The recording has a hole from here to the next World.
    fn fail(&mut self, error: &io::Error) {
        let folder = self.options.folder.display();
        tracing::warn!(%folder, %error, "nothing is recorded until the scheduler is started again");
        self.metrics.record_hole();
        self.segment = None;
    }
}

/// Makes the folder, readable by its owner only.
fn make(folder: &PathBuf) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(folder)
}

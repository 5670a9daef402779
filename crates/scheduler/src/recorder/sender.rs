//! What the loop holds of the recorder: it hands entries over and never waits.
//!
//! Invariant: an entry that does not fit in the queue is dropped and counted, and so is all that follows it, until a World
//! begins anew: half of a history decides otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_engine::plugin::Registry;
use pumice_engine::{Delta, Plan, TimeMs};
use pumice_recording::{Beginning, Entry, Feedback};
use tokio::sync::oneshot;

use super::queue::{QueueSender, queue};
use super::writer::RecordWriter;
use super::{RecordError, RecordOptions};
use crate::metrics::Metrics;

/// Changes and answers that may wait: some 300 MB where they are large. A list of all pods comes at once.
const QUEUED_MAX: usize = 1 << 18;

/// What is handed over.
#[derive(Debug)]
pub(super) enum Batch {
    Entry(Box<Entry>),
    Feedback(Feedback),
    /// Changes, in order.
    Deltas(Vec<Delta>),
    /// A cycle and its plan.
    Cycle(TimeMs, Box<Plan>),
    /// Behind a hole: what the World began with, and how it is now.
    Resume(Box<Beginning>, Vec<u8>),
}

/// A recorder that does not run yet: its folder is there, and locked.
#[derive(Debug)]
pub struct Recorder(RecordWriter);

impl Recorder {
    /// Opens the folder. `plugins` are those of the Worlds that are recorded.
    ///
    /// # Errors
    /// When it can't be written, or another process records there.
    pub(crate) fn open(options: RecordOptions, plugins: Registry, metrics: Metrics) -> Result<Self, RecordError> {
        Ok(Self(RecordWriter::open(options, plugins, metrics)?))
    }

    /// Opens the folder and starts the thread for a World that no scheduler owns. The receiver is told when all is
    /// written after the record has gone.
    ///
    /// # Errors
    /// As `open` and `start`.
    pub fn of_world(
        options: RecordOptions,
        plugins: Registry,
    ) -> Result<(RecordSender, oneshot::Receiver<()>), RecordError> {
        let metrics = Metrics::default();
        Self::open(options, plugins, metrics.clone())?.start(metrics)
    }

    /// Segments of about so many bytes.
    #[cfg(test)]
    pub(super) fn small_segments(&mut self, bytes: u64) {
        self.0.segment_bytes = bytes;
    }

    /// Starts the thread. The receiver is told when all is written after the record has gone.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(self, metrics: Metrics) -> Result<(RecordSender, oneshot::Receiver<()>), RecordError> {
        let (to, from) = queue();
        let (done, written) = oneshot::channel();
        let full = Arc::clone(&self.0.full);
        std::thread::Builder::new()
            .name("recorder".to_owned())
            .spawn(move || {
                self.0.run(&from);
                // Whoever asked may be gone.
                let _ = done.send(());
            })
            .map_err(RecordError::Thread)?;
        Ok((RecordSender(Some(Line { to, missed: 0, full, noted: false, metrics })), written))
    }
}

/// The loop's end of the recorder; does nothing where nothing is recorded.
#[derive(Debug, Default)]
pub struct RecordSender(Option<Line>);

#[derive(Debug)]
struct Line {
    to: QueueSender,
    /// Entries dropped since the last that was handed over.
    missed: u64,
    full: Arc<AtomicBool>,
    /// The recording says that something is missing.
    noted: bool,
    metrics: Metrics,
}

impl RecordSender {
    /// Records that a new World begins: a replay starts anew from here.
    pub fn begin(&mut self, beginning: Beginning) {
        let Some(line) = &mut self.0 else { return };
        line.mend();
        line.send(Batch::Entry(Box::new(Entry::Begin(Box::new(beginning)))));
    }

    /// A segment is full: the World is to forget what it keeps to be quick, and to say so by `forgot`.
    pub fn is_full(&self) -> bool {
        self.0.as_ref().is_some_and(|line| line.missed == 0 && line.full.swap(false, Ordering::Relaxed))
    }

    /// The World forgot: the next segment begins.
    pub fn forgot(&mut self) {
        self.entry(|| Entry::Forget);
    }

    /// Changes and answers that wait to be written. One whose history is not made by the clock waits for them.
    pub fn behind(&self) -> usize {
        self.0.as_ref().map_or(0, |line| line.to.entries())
    }

    /// There is a hole, and what was before it is written: a World as it is now would go on from here.
    pub fn wants_world(&self) -> bool {
        self.0.as_ref().is_some_and(|line| line.missed > 0 && line.to.entries() == 0)
    }

    /// The World as it is now, behind a hole.
    pub fn resume(&mut self, beginning: Beginning, world: Vec<u8>) {
        let Some(line) = &mut self.0 else { return };
        line.mend();
        line.send(Batch::Resume(Box::new(beginning), world));
    }

    /// The World took these in.
    pub fn deltas(&mut self, deltas: Vec<Delta>) {
        if let Some(line) = &mut self.0
            && !deltas.is_empty()
        {
            line.send(Batch::Deltas(deltas));
        }
    }

    /// The World took this in.
    pub fn feedback(&mut self, feedback: Feedback) {
        if let Some(line) = &mut self.0 {
            line.send(Batch::Feedback(feedback));
        }
    }

    /// The World got another configuration.
    pub fn config(&mut self, text: &str) {
        self.entry(|| Entry::Config(text.to_owned()));
    }

    /// The World decided this. O(the plan), which is copied.
    pub fn cycle(&mut self, at: TimeMs, plan: &Plan) {
        if let Some(line) = &mut self.0 {
            line.send(Batch::Cycle(at, Box::new(plan.clone())));
        }
    }

    /// The engine panicked, over a change or in a cycle.
    pub fn panicked(&mut self, delta: Option<&Delta>) {
        self.entry(|| Entry::Panic { delta: delta.cloned().map(Box::new) });
    }

    /// As if so many entries had not fitted in the queue.
    #[cfg(test)]
    pub(super) fn lose(&mut self, entries: u64) {
        self.0.as_mut().unwrap().missed += entries;
    }

    fn entry(&mut self, entry: impl FnOnce() -> Entry) {
        if let Some(line) = &mut self.0 {
            line.send(Batch::Entry(Box::new(entry())));
        }
    }
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Deltas(deltas) => deltas.len(),
            Self::Entry(_) | Self::Feedback(_) | Self::Cycle(..) | Self::Resume(..) => 1,
        }
    }
}

impl Line {
    fn send(&mut self, batch: Batch) {
        let entries = batch.len();
        if self.missed == 0 && self.to.entries() < QUEUED_MAX && self.to.give(batch) {
            return;
        }
        if self.missed == 0 {
            self.metrics.record_hole();
            tracing::warn!("the recording has a hole: changes come faster than they can be written");
        }
        self.missed += entries as u64;
        self.note();
    }

    /// Says in the recording that something is missing, once there is room to say so.
    fn note(&mut self) {
        let hole = || Batch::Entry(Box::new(Entry::Hole { entries: self.missed }));
        if self.missed > 0 && !self.noted && self.to.entries() < QUEUED_MAX {
            self.noted = self.to.give(hole());
        }
    }

    /// What was dropped is noted; from here on entries count again.
    fn mend(&mut self) {
        self.note();
        if self.noted {
            (self.missed, self.noted) = (0, false);
        }
    }
}

impl Drop for Line {
    /// A recording that ends in a hole is to say so: there is always room for that.
    fn drop(&mut self) {
        if self.missed > 0 && !self.noted {
            self.to.give(Batch::Entry(Box::new(Entry::Hole { entries: self.missed })));
        }
    }
}

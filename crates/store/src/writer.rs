//! The one writer: a thread that drains the queue, checks, commits the group, then publishes.
//!
//! Invariant: readers see a durable change only after its commit, while checks inside a group see
//! the changes before them. A failed commit leaves memory as it was; the keys it may have touched
//! on disk are written again with the next one. Started by [`crate::Store`].

mod group;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::ApplyError;
use crate::key::Key;
use crate::lock::DirectoryLock;
use crate::log::{Append, Log, LogError};
use crate::object::{Change, Object};
use crate::options::Options;
use crate::shared::Shared;
use crate::writer::group::Group;

/// Revisions set aside on disk at a time for changes that are shown before they are written. A disk that takes no more writes
/// ends what needs them when they are used up, and each write that fails uses some: at ten a second, half lasts for an hour.
const REVISIONS_RESERVED: u64 = 1 << 16;
/// Longest wait between attempts to write what a failed commit left behind.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(10);

pub(crate) type ApplyAnswer = oneshot::Sender<Result<Vec<Arc<Object>>, ApplyError>>;
pub(crate) type DoneAnswer = oneshot::Sender<Result<(), ApplyError>>;

/// What callers ask of the writer.
#[derive(Debug)]
pub(crate) enum Request {
    Apply { changes: Vec<Change>, answer: ApplyAnswer },
    Flush { answer: DoneAnswer },
    Close { answer: DoneAnswer },
}

/// What the writer starts with.
pub(crate) struct Start {
    pub shared: Arc<Shared>,
    pub log: Box<dyn Log>,
    pub lock: Option<DirectoryLock>,
    pub queue: mpsc::Receiver<Request>,
    pub options: Arc<Options>,
    pub revision: u64,
}

struct Writer {
    shared: Arc<Shared>,
    log: Box<dyn Log>,
    queue: mpsc::Receiver<Request>,
    options: Arc<Options>,
    runtime: Runtime,
    /// The last revision given out; a failed commit uses revisions up.
    allocated: u64,
    /// The revision on disk: none above it may be shown, and no change that may be lost at it.
    reserved: u64,
    /// Whether changes are shown before they are written, so that revisions are set aside for them.
    has_volatile: bool,
    /// Keys whose state in memory may differ from the one on disk.
    unsaved: BTreeSet<Key>,
    /// Whether changes answered as failed may be on disk. A higher revision that is shown before they are taken back would let a
    /// watch go on from there after a restart, past changes that it was never sent.
    has_doubtful: bool,
    flush_at: Option<Instant>,
    flush_delay: Duration,
}

/// Marks the store closed however the thread ends, so that watches do not wait for ever.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts the writer's thread; answers once it runs.
pub(crate) fn spawn(start: Start) -> io::Result<()> {
    let (report, started) = std::sync::mpsc::sync_channel(1);
    std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
        let closing = CloseOnDrop(start.shared.clone());
        // Made here: the caller may be in another runtime, where this one could not be dropped.
        let runtime = Builder::new_current_thread().enable_time().build();
        let (lock, writer) = match runtime {
            Ok(runtime) => Writer::new(start, runtime),
            Err(error) => return drop(report.send(Err(error))),
        };
        drop(report.send(Ok(())));
        let (answers, result) = writer.run();
        drop(closing);
        drop(lock);
        for answer in answers {
            // A caller that no longer listens is no failure.
            let _ = answer.send(result.clone());
        }
    })?;
    started.recv().unwrap_or_else(|_| Err(io::Error::other("the writer ended at once")))
}

/// What was taken out of the queue at once.
#[derive(Default)]
struct Round {
    applies: Vec<(Vec<Change>, ApplyAnswer)>,
    flushes: Vec<DoneAnswer>,
    closes: Vec<DoneAnswer>,
}

enum Wake {
    Request(Request),
    FlushDue,
    Abandoned,
}

impl Writer {
    fn new(start: Start, runtime: Runtime) -> (Option<DirectoryLock>, Self) {
        let flush_delay = start.options.volatile_delay;
        let writer = Self {
            shared: start.shared,
            log: start.log,
            queue: start.queue,
            options: start.options,
            runtime,
            allocated: start.revision,
            reserved: start.revision,
            has_volatile: false,
            unsaved: BTreeSet::new(),
            has_doubtful: false,
            flush_at: None,
            flush_delay,
        };
        (start.lock, writer)
    }

    /// Runs until closed or abandoned; returns who waits for the end, and how it went. The log is
    /// closed by then.
    fn run(mut self) -> (Vec<DoneAnswer>, Result<(), ApplyError>) {
        let mut closing = Vec::new();
        while closing.is_empty() {
            match self.wait() {
                Wake::Abandoned => break,
                Wake::FlushDue => {
                    if let Err(error) = self.flush() {
                        tracing::warn!(error = %error, "volatile objects not written, trying again");
                    }
                }
                Wake::Request(first) => {
                    let round = self.drain(first);
                    self.commit(round.applies, round.flushes);
                    closing = round.closes;
                }
            }
        }
        self.queue.close();
        let result = self.finish();
        (closing, result)
    }

    fn wait(&mut self) -> Wake {
        let (queue, flush_at) = (&mut self.queue, self.flush_at);
        let received = self.runtime.block_on(async {
            match flush_at {
                Some(at) => timeout_at(at, queue.recv()).await,
                None => Ok(queue.recv().await),
            }
        });
        match received {
            Ok(Some(request)) => Wake::Request(request),
            Ok(None) => Wake::Abandoned,
            Err(_) => Wake::FlushDue,
        }
    }

    /// Takes what waits, up to the group's limit or a request to close.
    fn drain(&mut self, first: Request) -> Round {
        let mut round = Round::default();
        let mut changes_queued = 0;
        let mut next = Some(first);
        while let Some(request) = next {
            match request {
                Request::Apply { changes, answer } => {
                    changes_queued += changes.len();
                    round.applies.push((changes, answer));
                }
                Request::Flush { answer } => round.flushes.push(answer),
                Request::Close { answer } => {
                    round.closes.push(answer);
                    break;
                }
            }
            if changes_queued >= self.options.group_changes_max {
                break;
            }
            next = self.queue.try_recv().ok();
        }
        round
    }

    fn commit(&mut self, applies: Vec<(Vec<Change>, ApplyAnswer)>, flushes: Vec<DoneAnswer>) {
        let mut group = Group::new(self.allocated);
        {
            let state = self.shared.read();
            for (changes, answer) in applies {
                group.stage(&state.index, &self.options, changes, answer);
            }
        }
        self.allocated = group.revision();
        self.has_volatile |= group.has_volatile();
        let must_write = !flushes.is_empty()
            || group.is_durable()
            || least_reserved(&group) > self.reserved
            || self.has_doubtful && !group.is_empty();
        let written = if must_write {
            self.write(&group).map_err(answer_of)
        } else {
            self.defer(&group);
            Ok(())
        };
        if written.is_ok() && !group.is_empty() {
            let events = group.take_events();
            self.shared.write().index.publish(events);
        }
        group.answer(&written);
        for answer in flushes {
            // A caller that no longer listens is no failure.
            let _ = answer.send(written.clone());
        }
    }

    /// Leaves the group, which has volatile changes only, for the next commit.
    fn defer(&mut self, group: &Group) {
        if group.is_empty() {
            return;
        }
        self.unsaved.extend(group.keys().cloned());
        let delay = self.flush_delay;
        self.flush_at.get_or_insert_with(|| Instant::now() + delay);
    }

    /// Makes the group, and whatever the disk has not got yet, durable.
    fn write(&mut self, group: &Group) -> Result<(), LogError> {
        let reserve = if self.has_volatile { REVISIONS_RESERVED } else { 0 };
        // In a commit that is made in any case, and long before the last is used: that commit may be one that the disk refuses.
        let is_short = least_reserved(group) + reserve / 2 > self.reserved;
        let revision = if is_short { group.revision() + reserve } else { self.reserved };
        let batch = self.batch(group, revision);
        if batch.writes.is_empty() && revision == self.reserved {
            return Ok(());
        }
        let begun = Instant::now();
        match self.log.append(&batch) {
            Ok(()) => {
                self.shared.commits.made(batch.writes.len(), begun.elapsed());
                self.reserved = revision;
                self.unsaved.clear();
                self.has_doubtful = false;
                self.flush_at = None;
                self.flush_delay = self.options.volatile_delay;
                Ok(())
            }
            Err(error) => {
                tracing::warn!(error = %error, writes = batch.writes.len(), "commit failed");
                self.shared.commits.failed();
                self.unsaved.extend(batch.writes.into_keys());
                // What found no room was not begun: the page that makes a commit valid is written last.
                self.has_doubtful |= !error.is_full();
                self.flush_delay = (self.flush_delay * 2).min(RETRY_DELAY_MAX);
                self.flush_at = Some(Instant::now() + self.flush_delay);
                Err(error)
            }
        }
    }

    fn batch(&self, group: &Group, revision: u64) -> Append {
        let mut batch = Append { writes: group.writes().clone(), revision };
        if self.unsaved.is_empty() {
            return batch;
        }
        let state = self.shared.read();
        for key in &self.unsaved {
            if !batch.writes.contains_key(key) {
                batch.writes.insert(key.clone(), state.index.get(key).cloned());
            }
        }
        batch
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.write(&Group::new(self.allocated))
    }

    /// Writes what is left, and the exact revision, so that watches can go on after a restart.
    fn finish(&mut self) -> Result<(), ApplyError> {
        let shown = self.shared.read().index.revision();
        if self.unsaved.is_empty() && self.reserved == shown {
            return Ok(());
        }
        let batch = self.batch(&Group::new(shown), shown);
        self.log.append(&batch).map_err(|error| {
            tracing::error!(error = %error, "last commit failed");
            answer_of(error)
        })
    }
}

/// The lowest revision that must be on disk before the group is shown. A start goes on from there, and so do watches that
/// have come that far: volatile changes, which may be lost, stay below it.
fn least_reserved(group: &Group) -> u64 {
    group.revision() + u64::from(group.has_volatile())
}

fn answer_of(error: LogError) -> ApplyError {
    let full = error.is_full();
    let error = Arc::new(error);
    if full { ApplyError::Full(error) } else { ApplyError::Write(error) }
}

//! What the store's handles, its watches and its writer share: the index behind a lock.
//!
//! Invariant: the lock is held for memory work only, never across I/O or an await, and only the
//! writer takes it for change.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use crate::index::Index;

#[derive(Debug)]
pub(crate) struct Shared {
    index: RwLock<State>,
    pub commits: Commits,
}

/// What the writer has done so far. Counted by it alone.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    made: AtomicU64,
    failed: AtomicU64,
    objects: AtomicU64,
    micros: AtomicU64,
    failing: AtomicBool,
}

/// How a store's writer does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that were made.
    pub commits: u64,
    pub commits_failed: u64,
    /// Objects written or removed by those that were made.
    pub objects_written: u64,
    /// Time that those took together.
    pub commit_time: Duration,
    /// Whether the last one failed: nothing is written now.
    pub failing: bool,
    /// Whether the store has closed.
    pub closed: bool,
}

impl Commits {
    pub(crate) fn made(&self, objects: usize, took: Duration) {
        self.made.fetch_add(1, Relaxed);
        self.objects.fetch_add(objects as u64, Relaxed);
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Relaxed);
        self.failing.store(false, Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
        self.failing.store(true, Relaxed);
    }
}

/// The index and whether a writer still feeds it.
#[derive(Debug)]
pub(crate) struct State {
    pub index: Index,
    pub closed: bool,
}

impl Shared {
    pub(crate) fn new(index: Index) -> Self {
        Self { index: RwLock::new(State { index, closed: false }), commits: Commits::default() }
    }

    pub(crate) fn stats(&self) -> Stats {
        let commits = &self.commits;
        Stats {
            commits: commits.made.load(Relaxed),
            commits_failed: commits.failed.load(Relaxed),
            objects_written: commits.objects.load(Relaxed),
            commit_time: Duration::from_micros(commits.micros.load(Relaxed)),
            failing: commits.failing.load(Relaxed),
            closed: self.read().closed,
        }
    }

    // A panic under the lock can only be a failed assert before a change: the state stays sound.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells watches that no more events will come.
    pub(crate) fn close(&self) {
        let mut state = self.write();
        state.closed = true;
        state.index.wake_all();
    }
}

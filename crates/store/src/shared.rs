//! What the store's handles, its watches and its writer share: the index behind a lock.
//!
//! Invariant: the lock is held for memory work only, never across I/O or an await, and only the
//! writer takes it for change.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::index::Index;

#[derive(Debug)]
pub(crate) struct Shared {
    index: RwLock<State>,
}

/// The index and whether a writer still feeds it.
#[derive(Debug)]
pub(crate) struct State {
    pub index: Index,
    pub closed: bool,
}

impl Shared {
    pub(crate) fn new(index: Index) -> Self {
        Self { index: RwLock::new(State { index, closed: false }) }
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

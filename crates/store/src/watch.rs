//! A watch: a cursor over the window of one resource.
//!
//! Invariant: events come in the order of their revisions, none missing and none twice; a watch
//! that falls behind the window ends with [`WatchError::Expired`]. It holds at most
//! [`BUFFER_EVENTS_MAX`] events and never holds up the writer. Used by the API server.

use std::collections::VecDeque;
use std::sync::Arc;

use thiserror::Error;
use tokio::sync::watch;

use crate::index::WatchEvent;
use crate::shared::Shared;

/// Events taken out of the window at a time.
const BUFFER_EVENTS_MAX: usize = 128;

/// A stream of the changes of one resource. See [`crate::Store::watch`].
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
    resource: Arc<str>,
    namespace: Option<Arc<str>>,
    /// Everything up to here is delivered or in `buffer`.
    cursor: u64,
    /// Everything up to here is delivered.
    delivered: u64,
    buffer: VecDeque<WatchEvent>,
    wake: watch::Receiver<u64>,
}

/// Why a watch cannot start or go on.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WatchError {
    /// Events after the wanted revision have left the window: list again.
    #[error("revision {requested} has left the watch window, which starts at {oldest}; list again")]
    Expired {
        /// The revision asked for, or reached.
        requested: u64,
        /// The oldest revision from which a watch can start.
        oldest: u64,
    },
    /// The wanted revision has not been reached.
    #[error("revision {requested} is ahead of the store, which is at {current}")]
    Ahead {
        /// The revision asked for.
        requested: u64,
        current: u64,
    },
    /// The store has closed.
    #[error("the store is closed")]
    Closed,
}

impl Watch {
    pub(crate) fn start(
        shared: Arc<Shared>,
        resource: &str,
        namespace: Option<&str>,
        from: Option<u64>,
    ) -> Result<Self, WatchError> {
        let resource: Arc<str> = resource.into();
        let (cursor, wake) = {
            let mut state = shared.write();
            if state.closed {
                return Err(WatchError::Closed);
            }
            let current = state.index.revision();
            let requested = from.unwrap_or(current);
            if requested > current {
                return Err(WatchError::Ahead { requested, current });
            }
            let index = state.index.resource_mut(&resource);
            if requested < index.floor() {
                return Err(WatchError::Expired { requested, oldest: index.floor() });
            }
            (requested, index.subscribe())
        };
        Ok(Self {
            shared,
            resource,
            namespace: namespace.map(Arc::from),
            cursor,
            delivered: cursor,
            buffer: VecDeque::new(),
            wake,
        })
    }

    /// The next event; waits for one. Cancel safe: a dropped call loses no event.
    pub async fn next(&mut self) -> Result<WatchEvent, WatchError> {
        loop {
            // Marked before the look, so that a change right after it wakes the wait below.
            self.wake.borrow_and_update();
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            if self.wake.changed().await.is_err() {
                return Err(WatchError::Closed);
            }
        }
    }

    /// The next event if there is one already; `None` when the watch is up to date.
    pub fn try_next(&mut self) -> Result<Option<WatchEvent>, WatchError> {
        if self.buffer.is_empty() {
            self.fill()?;
        }
        let event = self.buffer.pop_front();
        self.delivered = match (&event, self.buffer.is_empty()) {
            (Some(event), false) => event.object.revision,
            (_, true) => self.cursor,
            (None, false) => self.delivered,
        };
        Ok(event)
    }

    /// The revision up to which every event has been handed out: what a bookmark may say.
    /// Moves on with the whole store, also when this resource is idle.
    pub fn progress(&mut self) -> Result<u64, WatchError> {
        if self.buffer.is_empty() {
            self.fill()?;
            if self.buffer.is_empty() {
                self.delivered = self.cursor;
            }
        }
        Ok(self.delivered)
    }

    fn fill(&mut self) -> Result<(), WatchError> {
        let state = self.shared.read();
        let reached = state.index.revision();
        if let Some(index) = state.index.resource(&self.resource) {
            if self.cursor < index.floor() {
                return Err(WatchError::Expired { requested: self.cursor, oldest: index.floor() });
            }
            for event in index.events_after(self.cursor) {
                if self.buffer.len() == BUFFER_EVENTS_MAX {
                    return Ok(());
                }
                self.cursor = event.object.revision;
                let wanted = self.namespace.as_ref();
                if wanted.is_none_or(|namespace| *namespace == event.object.key.namespace) {
                    self.buffer.push_back(event.clone());
                }
            }
        }
        if self.buffer.is_empty() && state.closed {
            return Err(WatchError::Closed);
        }
        self.cursor = reached;
        Ok(())
    }
}

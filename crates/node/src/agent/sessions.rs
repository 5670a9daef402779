//! Streams that go on after their request was answered.
//!
//! Invariant: at most [`SESSIONS_MAX`] at a time, and all of them end with the agent.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Streams of all clients together at most.
pub(crate) const SESSIONS_MAX: usize = 256;

/// All streams of a node; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    room: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Room for one stream.
#[derive(Debug)]
pub(crate) struct Place {
    permit: OwnedSemaphorePermit,
    sessions: Sessions,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Sessions {
            room: Arc::new(Semaphore::new(SESSIONS_MAX)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Room for one more, if there is.
    pub(crate) fn place(&self) -> Option<Place> {
        let permit = Arc::clone(&self.room).try_acquire_owned().ok()?;
        Some(Place { permit, sessions: self.clone() })
    }

    /// Ends all of them, and waits until they have.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Place {
    /// Runs a stream to its end or to the agent's. Needs a runtime.
    pub(crate) fn run(self, stream: impl Future<Output = ()> + Send + 'static) {
        let Place { permit, sessions } = self;
        let stop = sessions.stop;
        sessions.tasks.spawn(async move {
            let _permit = permit;
            let _ = stop.run_until_cancelled_owned(stream).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_room_for_so_many_and_all_end() {
        let sessions = Sessions::new();
        let places: Vec<Place> = std::iter::from_fn(|| sessions.place()).take(SESSIONS_MAX + 1).collect();
        assert_eq!(places.len(), SESSIONS_MAX);
        for place in places {
            place.run(std::future::pending());
        }
        assert!(sessions.place().is_none());
        sessions.end().await;
        assert!(sessions.place().is_some(), "an end makes room");
    }
}

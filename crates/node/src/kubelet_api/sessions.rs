//! Streams that go on after their request was answered.
//!
//! Invariant: at most [`SESSIONS_MAX`] at a time and [`POD_SESSIONS_MAX`] of one pod, and all of them end with the agent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Streams of all clients together at most.
pub(crate) const SESSIONS_MAX: usize = 256;
/// Streams of one pod at most: each may be a process in it, and nobody takes the room of all others.
pub(crate) const POD_SESSIONS_MAX: usize = 32;

/// A pod by namespace and name.
type PodName = (String, String);

/// All streams of a node; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sessions {
    room: Arc<Semaphore>,
    by_pod: Arc<Mutex<HashMap<PodName, usize>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Room for one stream.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    permit: OwnedSemaphorePermit,
    of_pod: PodRoom,
    sessions: Sessions,
}

/// What a pod's stream takes of the pod's room until it is dropped.
#[derive(Debug)]
struct PodRoom {
    pod: PodName,
    by_pod: Arc<Mutex<HashMap<PodName, usize>>>,
}

impl Drop for PodRoom {
    fn drop(&mut self) {
        let mut by_pod = self.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_pod.get_mut(&self.pod) {
            *count -= 1;
            if *count == 0 {
                by_pod.remove(&self.pod);
            }
        }
    }
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRoom {
    #[error("this node serves {SESSIONS_MAX} streams at most; end one, or try again later")]
    OfNode,
    #[error("this node serves {POD_SESSIONS_MAX} streams of one pod at most; end one, or try again later")]
    OfPod,
}

impl Sessions {
    pub(crate) fn new() -> Self {
        Sessions {
            room: Arc::new(Semaphore::new(SESSIONS_MAX)),
            by_pod: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Room for one more of a pod, if there is.
    pub(crate) fn reserve(&self, namespace: &str, pod: &str) -> Result<SessionSlot, NoRoom> {
        let of_pod = self.pod_room((namespace.to_owned(), pod.to_owned()))?;
        let permit = Arc::clone(&self.room).try_acquire_owned().map_err(|_| NoRoom::OfNode)?;
        Ok(SessionSlot { permit, of_pod, sessions: self.clone() })
    }

    fn pod_room(&self, pod: PodName) -> Result<PodRoom, NoRoom> {
        let mut by_pod = self.by_pod.lock().unwrap_or_else(PoisonError::into_inner);
        let count = by_pod.entry(pod.clone()).or_default();
        if *count >= POD_SESSIONS_MAX {
            return Err(NoRoom::OfPod);
        }
        *count += 1;
        Ok(PodRoom { pod, by_pod: Arc::clone(&self.by_pod) })
    }

    /// Ends all of them, and waits until they have.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl SessionSlot {
    /// Runs a stream to its end or to the agent's. Needs a runtime.
    pub(crate) fn run(self, stream: impl Future<Output = ()> + Send + 'static) {
        let SessionSlot { permit, of_pod, sessions } = self;
        let stop = sessions.stop;
        sessions.tasks.spawn(async move {
            let _room = (permit, of_pod);
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
        let mut places = Vec::new();
        for pod in 0..SESSIONS_MAX / POD_SESSIONS_MAX {
            let pod = pod.to_string();
            places.extend(std::iter::from_fn(|| sessions.reserve("ns", &pod).ok()));
            assert_eq!(places.len() % POD_SESSIONS_MAX, 0, "each pod has so much");
        }
        assert_eq!(places.len(), SESSIONS_MAX);
        assert_eq!(sessions.reserve("ns", "0").unwrap_err(), NoRoom::OfPod);
        for slot in places {
            slot.run(std::future::pending());
        }
        assert_eq!(sessions.reserve("ns", "another").unwrap_err(), NoRoom::OfNode);
        sessions.end().await;
        assert!(sessions.reserve("ns", "0").is_ok(), "an end makes room");
        assert!(sessions.by_pod.lock().unwrap().is_empty(), "nothing is kept of pods without streams");
    }
}

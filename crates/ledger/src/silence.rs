//! What becomes of runs of a cluster of which nothing is heard: they may still run, or be gone with it.

use crate::queue::Queue;
use crate::retries::Retries;

/// What becomes of a run once nothing was heard of its cluster for some time, in milliseconds from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    /// Nothing, for as long as that lasts.
    Waits,
    /// Its job runs again elsewhere, though this run may still go on.
    Reruns {
        /// After so long.
        after_ms: i64,
    },
    /// It has failed, and its job with it where no retry policy tries it again.
    Fails {
        /// After so long.
        after_ms: i64,
    },
}

impl Silence {
    /// After how many milliseconds something becomes of the run; none for never.
    pub fn after_ms(self) -> Option<i64> {
        match self {
            Self::Waits => None,
            Self::Reruns { after_ms } | Self::Fails { after_ms } => Some(after_ms),
        }
    }
}

impl Retries {
    /// What becomes of runs of a queue. What the queue says goes before what is said for all.
    pub fn silence(&self, queue: Option<&Queue>) -> Silence {
        match (queue.map_or(0, |queue| queue.rerun_after_ms), self.silent_max_ms) {
            (after_ms @ 1.., _) => Silence::Reruns { after_ms },
            (_, after_ms @ 1..) => Silence::Fails { after_ms },
            _ => Silence::Waits,
        }
    }
}

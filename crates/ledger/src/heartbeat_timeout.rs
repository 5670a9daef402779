//! What becomes of runs of a cluster of which nothing is heard: they may still run, or be gone with it.

use crate::queue::Queue;
use crate::retries::Retries;

/// What becomes of a run once nothing was heard of its cluster for some time, in milliseconds from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatTimeout {
    /// Nothing, for as long as that lasts.
    Never,
    /// Its job runs again elsewhere, though this run may still go on.
    Rerun {
        /// After so long.
        after_ms: i64,
    },
    /// It has failed, and its job with it where no retry policy tries it again.
    Fail {
        /// After so long.
        after_ms: i64,
    },
}

impl HeartbeatTimeout {
    /// After how many milliseconds something becomes of the run; none for never.
    pub fn after_ms(self) -> Option<i64> {
        match self {
            Self::Never => None,
            Self::Rerun { after_ms } | Self::Fail { after_ms } => Some(after_ms),
        }
    }
}

impl Retries {
    /// What becomes of runs of a queue. What the queue says goes before what is said for all.
    pub fn heartbeat_timeout(&self, queue: Option<&Queue>) -> HeartbeatTimeout {
        match (queue.map_or(0, |queue| queue.rerun_after_ms), self.heartbeat_timeout_ms) {
            (after_ms @ 1.., _) => HeartbeatTimeout::Rerun { after_ms },
            (_, after_ms @ 1..) => HeartbeatTimeout::Fail { after_ms },
            _ => HeartbeatTimeout::Never,
        }
    }
}

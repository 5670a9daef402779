//! Where jobs and runs stand.

use serde::{Deserialize, Serialize};

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// It waits for a node.
    Queued,
    /// Its last run has to leave its node before it waits again.
    Leaving,
    /// A node is found for it.
    Leased,
    /// Its pod is made.
    Pending,
    Running,
}

impl Phase {
    /// It has a run that counts.
    pub fn has_run(self) -> bool {
        matches!(self, Phase::Leased | Phase::Pending | Phase::Running)
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RunPhase {
    /// Its cluster is to make the pod.
    Leased,
    /// The pod is made.
    Pending,
    Running,
    /// It does not count any more and has to leave its node.
    Stopping,
}

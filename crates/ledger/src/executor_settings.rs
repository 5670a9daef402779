//! What people set of executors. Of an executor itself the ledger knows the runs that it has.

use serde::{Deserialize, Serialize};

use crate::ids::TimeMs;

/// What is set of an executor, and of its cluster with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorSettings {
    /// Nothing new starts there.
    pub cordoned: bool,
    pub cordon_reason: String,
    pub set_by: String,
    pub set_at: TimeMs,
}

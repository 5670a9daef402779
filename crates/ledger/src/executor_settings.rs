//! What people set of executors. Of an executor itself the ledger knows the runs that it has.

use serde::{Deserialize, Serialize};

use crate::ids::TimeMs;

/// What is set of an executor, and of its cluster with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorSettings {
    /// Nothing new starts there.
    pub cordoned: bool,
    /// Why.
    pub cordon_reason: String,
    /// Who set it.
    pub set_by: String,
    /// When.
    pub set_at: TimeMs,
}

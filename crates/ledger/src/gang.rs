//! Gangs: members of one job set that start together or not at all.

use std::collections::BTreeSet;

use crate::ids::JobId;

/// What is known of a gang.
#[derive(Debug, Clone, Default)]
pub(crate) struct GangRow {
    pub cardinality: u32,
    pub uniformity: String,
    /// Those that have not ended.
    pub members: BTreeSet<JobId>,
}

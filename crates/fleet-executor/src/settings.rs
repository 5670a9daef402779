//! What an administrator may set of an executor, with Armada's defaults.

use pumice_fleet_model::grants::Grants;
use pumice_fleet_model::submission::Addressing;
use serde::{Deserialize, Serialize};

use pumice_api::names::DEFAULT_QUEUE;

use super::error_categories::ErrorCategories;
use super::pending_checks::PendingCheckRules;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;

/// Times and bounds of an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Pods that are being made at once.
    pub starts_max: usize,
    /// After this long a report that was not acknowledged is sent again.
    pub report_repeat_ms: i64,
    /// After this long a deletion of which nothing was seen is asked for again.
    pub delete_repeat_ms: i64,
    /// A pod that is still there this long after its grace period is deleted by force.
    pub kill_after_ms: i64,
    /// A pod that was made and is not seen for this long counts as gone, once the cluster confirms it.
    pub missing_after_ms: i64,
    /// A pod that succeeded stays this long.
    pub finished_min_ms: i64,
    /// A pod that failed stays this long.
    pub failed_min_ms: i64,
    /// Finished pods that stay at most; of those that are acknowledged, the oldest of the queue with most go first.
    pub finished_max: usize,
    /// How failures are told apart.
    pub error_categories: ErrorCategories,
    /// When a pod that does not start is given up.
    pub stuck: PendingCheckRules,
    /// The cluster's part of hosts and certificates.
    pub addressing: Addressing,
    /// The queue that Volcano Jobs have in their cluster.
    pub volcano_queue: String,
    /// Where pods of queues may be made here, and with which rights, whatever the server says.
    pub queue_access: Grants,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            starts_max: 50,
            report_repeat_ms: 10 * SECOND,
            delete_repeat_ms: 10 * SECOND,
            kill_after_ms: 30 * SECOND,
            missing_after_ms: 15 * MINUTE,
            finished_min_ms: 3 * MINUTE,
            failed_min_ms: 10 * MINUTE,
            finished_max: 1000,
            error_categories: ErrorCategories::default(),
            stuck: PendingCheckRules::default(),
            addressing: Addressing::default(),
            volcano_queue: DEFAULT_QUEUE.to_owned(),
            queue_access: Grants::default(),
        }
    }
}

//! The knobs of admission, with Volcano's defaults.

use pumice_api::names::SCHEDULER_VOLCANO;

/// What an administrator may set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Scheduler of jobs that name none.
    pub scheduler_name: String,
    /// Most queues on a path below `root`.
    pub queue_depth_max: usize,
    /// Whether the amounts of `root` are fixed.
    pub root_queue_protected: bool,
    /// Whether a queue whose pods hold resources may not be deleted.
    pub queue_with_pods_protected: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            scheduler_name: SCHEDULER_VOLCANO.to_owned(),
            queue_depth_max: 5,
            root_queue_protected: true,
            queue_with_pods_protected: false,
        }
    }
}

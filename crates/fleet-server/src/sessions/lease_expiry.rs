//! How often executors say something, and what follows where they don't: a session ends, an executor stops runs, a cluster is
//! given up.
//!
//! After how long a cluster is given up is set: by `executorTimeout` of the configuration, or by a queue's `rerunAfter`.

use pumice_ledger::HeartbeatTimeout;

/// How often an executor is to say something.
pub(super) const HEARTBEAT_MS: u64 = 5_000;
/// Executors stop a run after this part of the time after which it is started elsewhere. The rest is for its pod to end in, for
/// answers that are under way, and for clocks that differ.
const CUT_OFF_PART: u64 = 2;
/// Clusters are given up after no less: executors are to notice, and pods to end, well within it.
pub(crate) const HEARTBEAT_TIMEOUT_MIN_MS: i64 = 60_000;
/// A session ends when nothing was said in it for so long: some heartbeats.
pub(crate) const SESSION_TIMEOUT_MS: i64 = 30_000;

/// When an executor that is not answered stops a run; 0 for never.
pub fn cut_off_ms(timeout: HeartbeatTimeout) -> u64 {
    let after = |ms| u64::try_from(ms).unwrap_or(0);
    match timeout {
        HeartbeatTimeout::Never => 0,
        // Its job has failed by then, and a pod that went on would do so for nobody.
        HeartbeatTimeout::Fail { after_ms } => after(after_ms),
        HeartbeatTimeout::Rerun { after_ms } => after(after_ms) / CUT_OFF_PART,
    }
}

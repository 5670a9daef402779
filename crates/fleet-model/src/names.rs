//! Names and labels that the server, executors and clusters agree on.

use pumice_ledger::RunId;

/// The label of nodes whose cluster runs Volcano jobs: its name. The server sets it, as the executor says.
pub const CLUSTER_LABEL: &str = "pumice.sh/volcano-jobs";

/// The number of a run's pod, which is that in its name: attempts count from 1, and the pods of Armada's jobs from 0.
#[must_use]
pub fn pod_number(run: RunId) -> u32 {
    run.attempt.saturating_sub(1)
}

/// The name of a run's pod.
#[must_use]
pub fn pod_name(run: RunId) -> String {
    format!("armada-{}-{}", run.job, pod_number(run))
}

/// The name under which earlier releases made a run's pod: it is the one that the pod of the next attempt has now.
#[must_use]
pub fn former_pod_name(run: RunId) -> String {
    format!("armada-{}-{}", run.job, run.attempt)
}

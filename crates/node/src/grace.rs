//! Grace: how long a pod has to end by itself before it is killed.

use k8s_openapi::api::core::v1::Pod;

/// The grace of a pod that says none, as Kubernetes has it.
const DEFAULT_GRACE_SECONDS: u64 = 30;
/// Grace of a pod whose object is gone: it was deleted by force.
pub(crate) const FORCED_GRACE_SECONDS: u64 = 1;
/// Longest grace, in seconds: 68 years. A longer one means "as long as it takes", and its end would be no point in time.
pub(crate) const GRACE_SECONDS_MAX: u64 = 2_147_483_647;

/// A grace in seconds. One that is below zero, which the API server once stored, is none.
pub(crate) fn grace(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or(0).min(GRACE_SECONDS_MAX)
}

/// The grace that a pod's own spec gives it, in seconds.
pub(crate) fn grace_seconds(pod: &Pod) -> u64 {
    let given = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    given.map_or(DEFAULT_GRACE_SECONDS, grace)
}

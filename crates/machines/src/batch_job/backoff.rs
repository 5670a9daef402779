//! How long a Job waits before it makes pods again after failures.

use jiff::{SignedDuration, Timestamp};

use super::StepContext;
use crate::workload::{OwnedPod, PodPhase};

const FIRST_SECONDS: i64 = 10;
const LONGEST_SECONDS: i64 = 600;

/// The wait after so many failures.
fn wait(failures: usize) -> SignedDuration {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    SignedDuration::from_secs((FIRST_SECONDS << doublings).min(LONGEST_SECONDS))
}

/// Until when no pod is made: by the failures since the last success.
pub(super) fn until(context: &StepContext<'_>) -> Option<Timestamp> {
    let ends = |phase: PodPhase| {
        context.own.iter().filter(move |pod| pod.phase == phase).filter_map(|pod: &&OwnedPod| pod.finished)
    };
    let success = ends(PodPhase::Succeeded).max();
    let since = || ends(PodPhase::Failed).filter(|at| success.is_none_or(|success| *at > success));
    after(since().max()?, since().count())
}

/// Until when no pod is made after the last of so many failures.
pub(super) fn after(last: Timestamp, failures: usize) -> Option<Timestamp> {
    last.checked_add(wait(failures)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        assert_eq!([1, 2, 3, 7, 8, usize::MAX].map(|failures| wait(failures).as_secs()), [10, 20, 40, 600, 600, 600]);
    }
}

//! The table of phases and actions.
//!
//! Invariant: a finished job never leaves its phase. Read by the machine at each step, and by tests row by row.

use pumice_api::batch::JobPhase;
use pumice_api::bus::Action;

/// What an action means in a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Make what exists agree with the spec, then look at the rules of the phase.
    Sync,
    /// Kill every pod and start again.
    RestartJob,
    /// Kill the pods that the action is about and make them again.
    RestartTarget,
    /// Kill what is unfinished, on the way to this phase.
    Kill(JobPhase),
    /// Start again what was suspended; pods that ended are kept.
    Resume,
    /// Wait until the old pods have let go, then go back to Pending or to Failed.
    Release,
    /// Kill what is unfinished, and end in the phase that belongs to it.
    Settle,
}

/// Looks up a row of the table.
///
/// Unlike Volcano, a job that is Restarting obeys AbortJob, TerminateJob and CompleteJob, and one that is suspended obeys
/// TerminateJob: it ends without having started again.
pub fn transition(phase: &JobPhase, action: &Action) -> Transition {
    use JobPhase as P;
    match (phase, action) {
        (P::Pending | P::Running, Action::RestartJob) => Transition::RestartJob,
        (P::Pending | P::Running, Action::RestartTask | Action::RestartPod | Action::RestartPartition) => {
            Transition::RestartTarget
        }
        (P::Pending | P::Running | P::Restarting, Action::AbortJob) => Transition::Kill(P::Aborting),
        (P::Pending | P::Running | P::Restarting | P::Aborting | P::Aborted, Action::TerminateJob) => {
            Transition::Kill(P::Terminating)
        }
        (P::Pending | P::Running | P::Restarting, Action::CompleteJob) => Transition::Kill(P::Completing),
        (P::Pending | P::Running, _) => Transition::Sync,
        (P::Restarting, _) => Transition::Release,
        (P::Aborting | P::Aborted, Action::ResumeJob) => Transition::Resume,
        _ => Transition::Settle,
    }
}

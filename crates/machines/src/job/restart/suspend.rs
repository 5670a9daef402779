//! `suspend`: the job has no pods until that is taken back, as in batch/v1.
//!
//! Invariant: what the spec says is looked at in each step, so that it holds whoever was away meanwhile. The job goes the way
//! of an AbortJob, and its group with it; only a job that was suspended like this is resumed when it is taken back.

use pumice_api::batch::{Job, JobPhase};
use pumice_api::names;

use crate::job::StepContext;
use crate::job::plan::{Effect, Plan};
use crate::job_object;

/// `status.state.reason` of a job that is suspended.
const SUSPENDED: &str = "Suspended";

/// Whether the job is to have no pods. The field counts before the annotation.
fn is_asked(job: &Job) -> bool {
    job.spec.suspend.unwrap_or_else(|| job_object::annotation(job, names::SUSPEND) == Some("true"))
}

impl StepContext<'_> {
    /// Ends what runs of a job that is to be suspended, or starts one again that is no more.
    pub(in crate::job) fn suspend_or_resume(&self) -> Option<Plan> {
        let was_suspended = self.view.job.status.state.reason == SUSPENDED;
        match (&self.phase, is_asked(self.view.job)) {
            (JobPhase::Pending | JobPhase::Running | JobPhase::Restarting, true) => {
                let record =
                    Effect::normal(SUSPENDED, "the job is suspended: it has no pods until suspend is false".into());
                Some(self.kill(JobPhase::Aborting, SUSPENDED, "suspend is true", Some(record)))
            }
            (JobPhase::Aborting | JobPhase::Aborted, false) if was_suspended => Some(self.resume()),
            _ => None,
        }
    }
}

//! Phases in which a job has nothing to start: it is being ended, or has ended.
//!
//! Invariant: nothing here leads out of a finished phase. Unfinished pods go first, then the objects of the plugins, which
//! pods that still stop may need.

use pumice_api::batch::JobPhase;

use crate::job::plan::{Effect, Plan};
use crate::job::restart::is_unfinished;
use crate::job::restart::ttl;
use crate::job::{StepContext, plugin_objects};

impl StepContext<'_> {
    /// Deletes what is unfinished, then moves to the phase that this one leads to.
    pub(in crate::job) fn settle(&self) -> Plan {
        let mut kills = self.deletions(is_unfinished);
        let mut draft = if kills.is_empty() { self.draft() } else { self.draft_releasing(is_unfinished) };
        let stopped = kills.is_empty() && self.pod_counts.counts.unfinished() == 0;
        kills.extend(self.delete_group());
        let quiet = stopped && kills.is_empty();
        let next = match self.phase {
            JobPhase::Aborting => Some(JobPhase::Aborted),
            JobPhase::Terminating => Some(JobPhase::Terminated),
            JobPhase::Completing => Some(JobPhase::Completed),
            _ => None,
        };
        match next {
            Some(next) if quiet => {
                let state = &self.view.job.status.state;
                draft.enter(next, &state.reason, &state.message, self.now);
            }
            None if stopped => {
                let recorded = |key: &String| key.starts_with(plugin_objects::PREFIX);
                if draft.next.controlled_resources.keys().any(recorded) {
                    kills.extend(plugin_objects::all(self.view.job).into_iter().map(Effect::DeleteObject));
                    draft.next.controlled_resources.retain(|key, _| !recorded(key));
                }
            }
            _ => {}
        }
        let mut stages = vec![kills];
        stages.push(draft.write(self.now).into_iter().collect());
        let mut plan = Plan::stages(stages);
        if quiet && self.phase.is_finished() {
            match ttl::due(self.view.job, self.now) {
                ttl::Due::Never => {}
                ttl::Due::At(at) => plan.wake_at = Some(at),
                ttl::Due::Now => plan.stages.push(vec![Effect::DeleteJob]),
            }
        }
        plan
    }
}

//! Evictions that a policy will act on, but not yet.
//!
//! Invariant: from when an eviction is noticed until the policy acts or its cause is gone, something says so that survives
//! the controller: the counts in the status that miss the pod, an annotation of the job, or one of the pod that takes its
//! place. Called by `sync` and `restart`.

use jiff::Timestamp;
use pumice_api::batch::Job;
use pumice_api::bus::Event;
use pumice_api::names;

use crate::job::plan::{Effect, Plan};
use crate::job::remembered::Remembered;
use crate::job::restart::Targets;
use crate::job::{StepContext, policy};

/// Evictions that the job remembers: task, index, and the second in which each was noticed.
pub(in crate::job) fn remembered(job: &Job) -> Remembered {
    Remembered::read(job, names::EVICTED, Some(job.status.version))
}

impl StepContext<'_> {
    /// Evictions of pods without a successor that the restart of these targets does not answer.
    pub(in crate::job) fn pending_events(&self, targets: &Targets) -> Remembered {
        let mut pending_events = Remembered::default();
        for signal in self.signals.iter().filter(|signal| signal.event == Event::PodEvicted) {
            let Some((name, index)) = signal.task.as_deref().zip(signal.index) else { continue };
            let Some(task) = self.pod_counts.task(name).filter(|task| task.is_free(index)) else { continue };
            let met = targets.has(task.spec, index);
            if !met && policy::answer(&self.view.job.spec, signal).is_some() {
                pending_events.set(name, index, signal.at.unwrap_or(self.changed_at).as_second());
            }
        }
        pending_events
    }

    /// Lets the job remember what is pending_events before it does anything else.
    pub(in crate::job) fn with_pending_events(&self, targets: &Targets, plan: Plan) -> Plan {
        self.remember(&self.pending_events(targets), plan)
    }

    pub(in crate::job) fn remember(&self, pending_events: &Remembered, mut plan: Plan) -> Plan {
        let annotate = self.remembering(pending_events);
        if !annotate.is_empty() {
            plan.stages.insert(0, annotate);
        }
        plan
    }

    /// The change of the annotation. Should there be no room, the actions fall away, which is told.
    pub(in crate::job) fn remembering(&self, pending_events: &Remembered) -> Vec<Effect> {
        let job = self.view.job;
        let change = pending_events.change(job, names::EVICTED, Some(job.status.version)).unwrap_or_else(|_| {
            let message = "too many pods were evicted at once for a delayed policy to wait for each of them".to_owned();
            Some(Effect::warning("EvictionsForgotten", message))
        });
        change.into_iter().collect()
    }

    /// When the predecessor of a pod that is made now was evicted, if a policy waits for the pod to run.
    pub(in crate::job) fn evicted_at(pending_events: &Remembered, task: &str, index: i32) -> Option<Timestamp> {
        Timestamp::from_second(pending_events.get(task, index)?).ok()
    }
}

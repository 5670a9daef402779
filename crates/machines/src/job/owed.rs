//! Evictions that a policy will act on, but not yet.
//!
//! Invariant: from when an eviction is noticed until the policy acts or its cause is gone, something says so that survives
//! the controller: the counts in the status that miss the pod, an annotation of the job, or one of the pod that takes its
//! place. Called by `sync` and `kill`.

use jiff::Timestamp;
use pumice_api::batch::Job;
use pumice_api::bus::Event;
use pumice_api::names;

use super::kill::Targets;
use super::memory::Memory;
use super::plan::{Effect, Plan};
use super::{Scene, policy};

/// Evictions that the job remembers: task, index, and the second in which each was noticed.
pub(super) fn remembered(job: &Job) -> Memory {
    Memory::read(job, names::EVICTED, Some(job.status.version))
}

impl Scene<'_> {
    /// Evictions of pods without a successor that the restart of these targets does not answer.
    pub(super) fn owed(&self, targets: &Targets) -> Memory {
        let mut owed = Memory::default();
        for signal in self.signals.iter().filter(|signal| signal.event == Event::PodEvicted) {
            let Some((name, index)) = signal.task.as_deref().zip(signal.index) else { continue };
            let Some(task) = self.census.task(name).filter(|task| task.is_free(index)) else { continue };
            let met = targets.has(task.spec, index);
            if !met && policy::answer(&self.view.job.spec, signal).is_some() {
                owed.set(name, index, signal.at.unwrap_or(self.changed_at).as_second());
            }
        }
        owed
    }

    /// Lets the job remember what is owed before it does anything else.
    pub(super) fn with_owed(&self, targets: &Targets, plan: Plan) -> Plan {
        self.remember(&self.owed(targets), plan)
    }

    pub(super) fn remember(&self, owed: &Memory, mut plan: Plan) -> Plan {
        let annotate = self.remembering(owed);
        if !annotate.is_empty() {
            plan.stages.insert(0, annotate);
        }
        plan
    }

    /// The change of the annotation. Should there be no room, the actions fall away, which is told.
    pub(super) fn remembering(&self, owed: &Memory) -> Vec<Effect> {
        let job = self.view.job;
        let change = owed.change(job, names::EVICTED, Some(job.status.version)).unwrap_or_else(|_| {
            let message = "too many pods were evicted at once for a delayed policy to wait for each of them".to_owned();
            Some(Effect::warning("EvictionsForgotten", message))
        });
        change.into_iter().collect()
    }

    /// When the predecessor of a pod that is made now was evicted, if a policy waits for the pod to run.
    pub(super) fn evicted_at(owed: &Memory, task: &str, index: i32) -> Option<Timestamp> {
        Timestamp::from_second(owed.get(task, index)?).ok()
    }
}

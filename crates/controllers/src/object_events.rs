//! Telling of one object by events.

use k8s_openapi::api::core::v1::ObjectReference;
use pumice_cluster::EventRecorder;
use pumice_cluster::events::{Occurrence, Severity};
use pumice_machines::workload::WorkEvent;

use pumice_clock as clock;

/// Tells of objects of one kind and name.
#[derive(Clone)]
pub(crate) struct ObjectEvents {
    recorder: EventRecorder,
    about: ObjectReference,
}

impl ObjectEvents {
    pub fn new(recorder: &EventRecorder, about: ObjectReference) -> Self {
        Self { recorder: recorder.clone(), about }
    }

    pub fn tell(&self, told: WorkEvent) {
        let severity = if told.is_warning { Severity::Warning } else { Severity::Normal };
        let about = self.about.clone();
        let reason = told.reason.to_owned();
        self.recorder.record(Occurrence { about, severity, reason, message: told.message, at: clock::now() });
    }

    pub fn warn(&self, reason: &'static str, message: String) {
        self.tell(WorkEvent { is_warning: true, reason, message });
    }

    /// Something that happens to each pod: left out while many events wait.
    pub fn note(&self, reason: &'static str, message: String) {
        if self.recorder.has_room() {
            self.tell(WorkEvent { is_warning: false, reason, message });
        }
    }
}

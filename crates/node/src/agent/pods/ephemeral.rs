//! Containers are added to pods that run.
//!
//! Invariant: nothing of the pod waits for them. A container that the pod's shim knows is the shim's; until then this says why it waits.

use std::time::Instant;

use pumice_clock as clock;
use tokio::task::JoinError;

use crate::agent::ephemeral::{self, AddError, AddOrder};
use crate::agent::pods::entry::{Entry, Stage};
use crate::agent::pods::failures::Trouble;
use crate::agent::pods::{Pods, START_AGAIN};
use crate::pod_spec;
use crate::pod_status::AddedFacts;
use pumice_shim::status::ShimPhase;

/// Why a pod gets no more containers whose shim an earlier release has started.
const EARLIER: &str = "the pod was started by an earlier release, whose shim adds no containers; make the pod again";

/// How far a container is that is to be added, or was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Added {
    /// What it needs is being got.
    UnderWay,
    /// The shim was asked for it.
    Requested { image_id: String },
    /// It could not be had.
    Failed {
        reason: &'static str,
        message: String,
        /// None where another attempt would be no better.
        retry_at: Option<Instant>,
        failures: u32,
    },
}

/// The end of an attempt to add a container.
pub(super) struct AddDone {
    uid: String,
    name: String,
    index: usize,
    outcome: Result<String, AddError>,
}

impl Pods {
    /// Begins to add what a pod that runs is to have besides.
    pub(super) fn add_containers(&mut self, uid: &str) {
        let now = clock::monotonic();
        let Some(entry) = self.pods.get_mut(uid).filter(|entry| entry.stage == Stage::Running) else { return };
        let (Some(pod), Some(shim), Some(address)) = (entry.pod().cloned(), entry.shim.as_ref(), entry.address) else {
            return;
        };
        let ends = entry.is_leaving() || !self.drains.is_empty() || shim.phase == ShimPhase::Stopping;
        for (index, container) in pod_spec::ephemeral::of(&pod).iter().enumerate() {
            let name = &container.name;
            let before = entry.ephemeral.get(name);
            if shim.container(name).is_some() {
                if before.is_none() {
                    // An earlier agent has added it.
                    let image_id = pumice_shim::ephemeral::read(&entry.dir, name).unwrap_or_default().image_id;
                    entry.ephemeral.insert(name.clone(), Added::Requested { image_id });
                }
                continue;
            }
            let is_due = match before {
                None => true,
                Some(Added::Failed { retry_at, .. }) => retry_at.is_some_and(|at| at <= now),
                Some(Added::UnderWay | Added::Requested { .. }) => false,
            };
            if !is_due || ends {
                continue;
            }
            if shim.ephemeral_containers.is_none() {
                let (reason, message) = ("CreateContainerError", EARLIER.to_owned());
                let failed = Added::Failed { reason, message, retry_at: None, failures: 1 };
                entry.ephemeral.insert(name.clone(), failed);
                continue;
            }
            if !matches!(before, Some(Added::Failed { .. })) {
                entry.ephemeral.insert(name.clone(), Added::UnderWay);
            } else if let Some(Added::Failed { retry_at, .. }) = entry.ephemeral.get_mut(name) {
                // It says why it waits until it is known that it does no more.
                *retry_at = None;
            }
            let order = AddOrder { pod: pod.clone(), uid: uid.to_owned(), address, index };
            let (context, uid, name) = (self.context.clone(), uid.to_owned(), name.clone());
            self.additions.spawn(async move {
                let outcome = ephemeral::add(context, order).await;
                AddDone { uid, name, index, outcome }
            });
        }
    }

    pub(super) fn on_added(&mut self, done: Result<AddDone, JoinError>) {
        let AddDone { uid, name, index, outcome } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "a container could not be added to a pod");
                return;
            }
        };
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        let has_event = outcome.as_ref().err().is_some_and(AddError::has_event);
        let added = match outcome {
            Ok(image_id) => Added::Requested { image_id },
            Err(error) => {
                let failures = match entry.ephemeral.get(&name) {
                    Some(Added::Failed { failures, .. }) => *failures,
                    _ => 0,
                };
                let retry_at = Some(clock::monotonic() + START_AGAIN.pause(failures));
                let (reason, message) = (error.reason(), error.message(index));
                tracing::debug!(uid, container = name, error = message, "a container was not added");
                Added::Failed { reason, message, retry_at, failures: failures.saturating_add(1) }
            }
        };
        let trouble = match &added {
            Added::Failed { message, .. } if !has_event => {
                Some(Trouble::of_container(&name, "Failed", format!("Error: {message}")))
            }
            _ => None,
        };
        entry.ephemeral.insert(name, added);
        if let (Some(trouble), Some(pod)) = (trouble, self.pods.get(&uid).and_then(Entry::pod)) {
            self.record(pod, trouble);
        }
        self.marked.insert(uid);
    }
}

impl Added {
    /// When it is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        match self {
            Added::Failed { retry_at, .. } => *retry_at,
            _ => None,
        }
    }
}

impl<'a> From<&'a Added> for AddedFacts<'a> {
    fn from(added: &'a Added) -> AddedFacts<'a> {
        match added {
            Added::UnderWay => AddedFacts::default(),
            Added::Requested { image_id } => AddedFacts { image_id, waits: None },
            Added::Failed { reason, message, .. } => AddedFacts { image_id: "", waits: Some((reason, message)) },
        }
    }
}

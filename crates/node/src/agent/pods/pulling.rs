//! Pods wait for their images before it is their turn to start: a pull takes minutes, and others start meanwhile.

use std::sync::Arc;
use std::time::Duration;

use pumice_clock as clock;
use pumice_units::with_causes;
use tokio::task::JoinError;

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{Entry, Stage};
use crate::agent::pods::failures::Trouble;
use crate::pod_images::{self, ImagesError, PodImages, Provider, Pulling};

/// How often it is told how far a pull is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// The end of a pull.
pub(super) struct Pulled {
    uid: String,
    outcome: Result<PodImages, ImagesError>,
}

impl Pods {
    /// Begins to get the images of a pod that names some and has none yet; says whether the pod waits for them.
    pub(super) fn waits_for_images(&mut self, uid: &str) -> bool {
        let Some(images) = self.context.images.clone() else { return false };
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        if entry.pulling.is_some() {
            return true;
        }
        let Some(pod) = entry.pod().cloned() else { return false };
        if entry.respawn || entry.images.is_some() || !pod_images::names_images(&pod) {
            return false;
        }
        let pulling = Arc::new(Pulling::default());
        entry.pulling = Some(Arc::clone(&pulling));
        let told_at = clock::monotonic() + TOLD_EVERY;
        entry.told_pull_at = Some(told_at);
        // Nothing else wakes the agent for this pod before it has been silent for long.
        self.timers.at(&uid.to_owned(), told_at.into());
        let (context, uid) = (Arc::clone(&self.context), uid.to_owned());
        self.pulls.spawn(async move {
            let provider = Provider {
                client: &context.client,
                images: &images,
                map: context.image_map.as_deref(),
                events: &context.events,
                about: &pod,
            };
            let outcome = provider.provide(&pod, &pulling).await;
            Pulled { uid, outcome }
        });
        true
    }

    pub(super) fn on_pulled(&mut self, done: Result<Pulled, JoinError>) {
        let Pulled { uid, outcome } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "the pull of a pod's images failed");
                return;
            }
        };
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        entry.pulling = None;
        entry.told_pull_at = None;
        match outcome {
            Ok(images) => {
                entry.images = Some(Arc::new(images));
                if matches!(entry.stage, Stage::Waiting { .. }) && !entry.queued {
                    entry.queued = true;
                    // It has had its turn.
                    self.queue.push_front(uid.clone());
                }
            }
            Err(error) => {
                let message = with_causes(&error);
                tracing::debug!(uid, error = message, "no images for a pod");
                if !error.has_event()
                    && let Some(pod) = self.pods.get(&uid).and_then(Entry::pod)
                {
                    self.record(pod, Trouble::of_pod("Failed", format!("Error: {message}")));
                }
                self.not_started(&uid, error.reason(), message);
            }
        }
        self.marked.insert(uid);
    }

    /// Says in the pod's status how far the pull of its images is.
    pub(super) fn tell_of_pull(&mut self, uid: &str) {
        let now = clock::monotonic();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let Some(pulling) = entry.pulling.as_ref().filter(|_| entry.told_pull_at.is_some_and(|at| at <= now)) else {
            return;
        };
        if let Some(message) = pulling.message()
            && matches!(entry.stage, Stage::Waiting { .. })
        {
            entry.stage = Stage::waiting("ContainerCreating", Some(message));
        }
        entry.told_pull_at = Some(now + TOLD_EVERY);
    }
}

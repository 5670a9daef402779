//! Pods that keep more on disk than they may are ended.
//!
//! Invariant: a pod that is about to end anyway ends as it would have; whoever is evicted says so by its status, also where this
//! agent dies before it can.

use std::time::Duration;

use pumice_clock as clock;

use crate::agent::pods::Pods;
use crate::agent::pods::entry::Stage;
use crate::agent::teardown::KILL_WITHIN;
use crate::shim::control::{self, Stop, Termination};
use crate::shim::status::EVICTED;
use crate::usage::disk::{self, Measured};

/// Seconds that an evicted pod has, as a kubelet gives it.
const GRACE_SECONDS: u64 = 1;

impl Pods {
    /// Judges what a pod keeps on disk.
    pub(super) fn on_measured(&mut self, Measured { uid, used, .. }: Measured) {
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        if entry.stage != Stage::Running || entry.is_leaving() || entry.kill_at.is_some() {
            return;
        }
        let Some(message) = entry.pod().and_then(|pod| disk::excess(pod, &used)) else { return };
        tracing::info!(uid, namespace = entry.namespace, pod = entry.name, message, "pod is evicted");
        let why = Termination { reason: EVICTED.to_owned(), message };
        match control::request_termination(&entry.dir, &why, Stop { grace_seconds: GRACE_SECONDS }) {
            Ok(()) => {
                let kill_at = clock::monotonic() + Duration::from_secs(GRACE_SECONDS);
                entry.kill_at = Some(kill_at);
                entry.expect_gone_by(kill_at + KILL_WITHIN);
                self.marked.insert(uid);
            }
            // It is measured again, and asked again.
            Err(error) => tracing::error!(uid, error = %error, "can't tell a shim that its pod is evicted"),
        }
    }
}

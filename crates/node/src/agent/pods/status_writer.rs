//! Pods are stopped, their status told, their object and directory removed.
//!
//! Invariant: one call about a pod at a time, so that an older status never overwrites a newer one.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pumice_clock as clock;
use pumice_cluster::Failure;
use tokio::task::JoinError;

use crate::agent::pods::entry::{End, Entry, Stage};
use crate::agent::pods::{CALL_AGAIN, Pods, seconds};
use crate::agent::teardown::KILL_WITHIN;
use crate::grace;
use crate::pod_calls::{Call, CallDone, Subject};
use crate::pod_status::{self, Facts, View};
use pumice_shim::control::{self, Stop, Termination};
use pumice_shim::status::{SHUTDOWN_MESSAGE, TERMINATED};

impl Pods {
    pub(super) fn stop_if_leaving(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        if entry.stage != Stage::Running {
            return;
        }
        let now = clock::monotonic();
        let drain = self.drains.iter().map(|drain| seconds(drain.ends_at.saturating_duration_since(now))).min();
        // No longer than a pod has by itself.
        let own = entry.pod().map_or(u64::MAX, |pod| grace::grace_seconds(pod));
        let drain = drain.map(|left| left.min(own));
        let leave = if entry.is_leaving() { Some(leave_within(entry)) } else { None };
        let Some(grace_seconds) = [drain, leave].into_iter().flatten().min() else { return };
        if self.pre_stop(uid, grace_seconds) {
            return;
        }
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let grace_seconds = Self::after_pre_stop(entry, grace_seconds);
        let kill_at = clock::monotonic() + Duration::from_secs(grace_seconds);
        let sooner = entry.kill_at.is_none_or(|before| kill_at + Duration::from_secs(1) <= before);
        if sooner {
            let stop = Stop { grace_seconds };
            let asked = if leave.is_some() {
                control::request_stop(&entry.dir, stop)
            } else {
                let why = Termination { reason: TERMINATED.to_owned(), message: SHUTDOWN_MESSAGE.to_owned() };
                control::request_termination(&entry.dir, &why, stop)
            };
            match asked {
                Ok(()) => {
                    entry.kill_at = Some(kill_at);
                    entry.expect_gone_by(kill_at + KILL_WITHIN);
                }
                Err(error) => tracing::error!(uid, error = %error, "can't tell a shim to stop"),
            }
        }
    }

    /// Tells the API server what it does not know yet, or removes what nobody asks for any more.
    pub(super) fn tell(&mut self, uid: &str, now: Instant) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.is_gone() {
            if entry.has_ended() && !entry.removing && !entry.calling {
                entry.removing = true;
                let dir = entry.dir.clone();
                self.remove(Some(uid.to_owned()), dir, uid);
            }
            return;
        }
        let Some(pod) = entry.pod().cloned() else { return };
        entry.call_again_at = entry.call_again_at.filter(|at| *at > now);
        if entry.calling || entry.call_again_at.is_some() || entry.quiet_until(now).is_some() {
            return;
        }
        if !self.synced_exits.may_tell(entry) {
            return;
        }
        let subject = Subject {
            client: self.context.client.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: uid.to_owned(),
        };
        let status = status_of(entry, &pod, self.context.host_ip);
        match status.filter(|status| entry.written.as_ref() != Some(status)) {
            Some(status) => {
                entry.calling = true;
                let accelerators = self.accelerators.of(uid).and_then(|devices| devices.new_annotation(&pod));
                self.calls.spawn(subject.write_status(Box::new(status), accelerators));
            }
            None if entry.has_ended() && entry.is_leaving() && !entry.finalized => {
                entry.calling = true;
                self.calls.spawn(subject.finalize());
            }
            None => {}
        }
    }

    pub(super) fn on_call(&mut self, done: Result<CallDone, JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "a call about a pod failed");
                return;
            }
        };
        let Some(entry) = self.pods.get_mut(&done.uid) else { return };
        entry.calling = false;
        match done.result {
            // Not found: it was deleted, and the watch will say so.
            Ok(()) | Err(Failure::NotFound) => {
                entry.call_failures = 0;
                match done.call {
                    Call::Status(status) => entry.written = Some(*status),
                    Call::Finalize => entry.finalized = true,
                }
            }
            Err(_) => {
                let wait = CALL_AGAIN.pause(entry.call_failures);
                entry.call_failures += 1;
                entry.call_again_at = Some(clock::monotonic() + wait);
            }
        }
        self.marked.insert(done.uid);
    }
}

/// Seconds that a pod still has which is being stopped, by whomever.
pub(super) fn left_to_stop(entry: &Entry) -> u64 {
    match entry.pod() {
        Some(pod) if !entry.is_leaving() => grace::grace_seconds(pod),
        _ => leave_within(entry),
    }
}

/// Seconds that a leaving pod still has.
fn leave_within(entry: &Entry) -> u64 {
    let Some(pod) = entry.pod() else { return grace::FORCED_GRACE_SECONDS };
    let granted = pod.metadata.deletion_grace_period_seconds.map(grace::grace);
    let granted = granted.unwrap_or_else(|| grace::grace_seconds(pod));
    // The time of deletion is when it must be over; after a pause of ours that may be soon.
    let left = pod.metadata.deletion_timestamp.as_ref().map(|at| at.0.duration_since(clock::now()).as_secs() + 1);
    left.map_or(granted, |left| u64::try_from(left).unwrap_or(0).min(granted))
}

/// The status to show; none for a pod whose end the API server knows.
fn status_of(entry: &Entry, pod: &Pod, host_ip: Ipv4Addr) -> Option<PodStatus> {
    let nothing = PodStatus::default();
    let gates = entry.probed.iter().map(|(name, probed)| (name.as_str(), probed.gate)).collect();
    let ephemeral = entry.ephemeral.iter().map(|(name, added)| (name.as_str(), added.into())).collect();
    let facts = Facts {
        pod,
        ephemeral,
        images: entry.images.as_deref(),
        gates,
        before: entry.written.as_ref().unwrap_or(&nothing),
        host_ip,
        pod_ip: entry.address,
        started_at: entry.started_at,
        now: clock::now(),
    };
    let shim = entry.shim.as_ref();
    let view = match (&entry.stage, shim) {
        (Stage::Ended(End::Reported | End::NeverStarted), _) => return None,
        (Stage::Ended(End::Lost), shim) => View::Lost(shim),
        (Stage::Ended(End::Rejected { reason, message }), _) => View::Rejected(reason, message),
        (_, Some(shim)) => View::Shim(shim),
        (Stage::Waiting { reason, message, .. }, None) => View::Waiting(reason, message.as_deref()),
        (_, None) => View::Waiting("ContainerCreating", None),
    };
    Some(pod_status::render(&facts, &view))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    #[test]
    fn what_comes_back_from_the_api_server_is_nothing_new() {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let mut pod: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        let taken_on = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let mut entry = Entry::new("u", &Arc::new(pod.clone()), PathBuf::new(), taken_on);
        entry.address = Some(Ipv4Addr::new(10, 64, 0, 2));
        let written = status_of(&entry, &pod, Ipv4Addr::LOCALHOST).unwrap();
        let stored = serde_json::to_value(&written).unwrap();
        pod.status = Some(serde_json::from_value(stored).unwrap());
        entry.written = Some(written.clone());
        entry.set_pod(&Arc::new(pod.clone()));
        assert_eq!(status_of(&entry, &pod, Ipv4Addr::LOCALHOST), Some(written));
    }
}

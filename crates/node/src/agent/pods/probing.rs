//! Containers that run are attended to, where they ask for it, and what is found about them is acted upon.
//!
//! Invariant: there is one prober for a run of a container; what a former run's prober says is not heard.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus as WireStatus, Pod};
use pumice_clock as clock;
use tokio_util::task::AbortOnDropHandle;

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{Entry, PreStop, Stage};
use crate::agent::pods::failures::Trouble;
use crate::agent::start::NodeContext;
use crate::grace;
use crate::layout;
use crate::pod_spec::resolve::is_sidecar;
use crate::pod_spec::tokens;
use crate::pod_status;
use crate::probes::{self, Finding, ProbesAndHooks, Run, Word};
use pumice_shim::control::{self, Restart};
use pumice_shim::status::{ContainerState, ContainerStatus, ShimPhase};

/// Seconds that containers have after their last hooks at least, as a kubelet gives them.
const AFTER_HOOKS_SECONDS: u64 = 2;

/// The last hooks of a pod are over.
pub(super) struct PreStopDone {
    uid: String,
    pod: Arc<Pod>,
    /// What went wrong, a sentence for each hook that failed.
    wrong: Vec<String>,
}

/// A run that is attended to.
pub(super) struct Probed {
    number: u32,
    pub gate: pod_status::Gate,
    /// Ends with this; none for a pod that goes.
    prober: Option<AbortOnDropHandle<()>>,
}

impl Pods {
    /// Sends an prober to each run that has none and wants one.
    pub(super) fn start_probers(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let (Some(pod), Some(address)) = (entry.pod().cloned(), entry.address) else { return };
        if entry.stage != Stage::Running || entry.is_leaving() {
            return;
        }
        for container in probes::containers(&pod).filter(|container| ProbesAndHooks::is_asked(container)) {
            let status = entry.shim.as_ref().and_then(|shim| shim.container(&container.name));
            let Some(&ContainerStatus {
                state: ContainerState::Running { started_at, .. }, restart_count: number, ..
            }) = status
            else {
                entry.probed.remove(&container.name);
                continue;
            };
            if entry.probed.get(&container.name).is_some_and(|probed| probed.number == number) {
                continue;
            }
            let Some(care) = ProbesAndHooks::of(container).ok().filter(ProbesAndHooks::needs_prober) else { continue };
            let gate = gate_of_before(&pod, &container.name, number);
            let run = run_of(&self.context, entry, address, &container.name, number);
            let since = Duration::try_from(clock::now().duration_since(started_at)).unwrap_or_default();
            let task = probes::run_prober(run, care, since, gate.started, self.findings.0.clone());
            let prober = AbortOnDropHandle::new(self.probers.spawn(task));
            entry.probed.insert(container.name.clone(), Probed { number, gate, prober: Some(prober) });
        }
    }

    /// Keeps the tokens of a pod that runs fresh.
    pub(super) fn keep_tokens(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.stage != Stage::Running || entry.token_keeper.is_some() {
            return;
        }
        let Some(pod) = entry.pod() else { return };
        if !tokens::files(pod).is_empty() {
            let (client, authorities) = (self.context.client.clone(), self.context.authorities.subscribe());
            let keeping = tokens::keep(client, Arc::clone(pod), layout::volumes_dir(&entry.dir), authorities);
            entry.token_keeper = Some(AbortOnDropHandle::new(self.probers.spawn(keeping)));
        }
    }

    /// Acts upon what an prober says.
    pub(super) fn on_finding(&mut self, finding: Finding) {
        let Finding { uid, container, number, word } = finding;
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        let Some(pod) = entry.pod().cloned() else { return };
        let Some(probed) = entry.probed.get_mut(&container).filter(|probed| probed.number == number) else {
            return;
        };
        match word {
            Word::Started => {
                let found = probes::containers(&pod).find(|found| found.name == container);
                // Before the status: what waits for a sidecar must not wait for an agent that has died in between.
                if found.is_some_and(is_sidecar)
                    && let Err(error) = control::tell_started(&entry.dir, &container, number)
                {
                    tracing::error!(uid, container, error = %error, "can't tell a shim that a container is up");
                }
                probed.gate.started = true;
                probed.gate.ready = matches!(found.map(ProbesAndHooks::of), Some(Ok(care)) if care.is_ready_at_once());
            }
            Word::Ready(ready) => probed.gate.ready = ready,
            Word::Unwell { reason, message } => {
                return self.record(&pod, Trouble::of_container(&container, reason, message));
            }
            Word::End { message, grace_seconds } => {
                let restart = Restart { run: number, grace_seconds };
                if let Err(error) = control::request_restart(&entry.dir, &container, restart) {
                    tracing::error!(uid, container, error = %error, "can't tell a shim to end a container");
                }
                self.record(&pod, Trouble::of_container(&container, "Killing", message).normal());
            }
        }
        self.marked.insert(uid);
    }

    /// Calls the last hooks of a pod that is to end within so many seconds. Whether the end has to wait for them.
    pub(super) fn pre_stop(&mut self, uid: &str, grace_seconds: u64) -> bool {
        let Some(entry) = self.pods.get_mut(uid) else { return false };
        // Nobody asks any more how those are who are about to go.
        entry.probed.values_mut().for_each(|probed| probed.prober = None);
        let Some(pod) = entry.pod().cloned() else { return false };
        // What has been asked to end has had its last hooks, also where the agent that called them is gone.
        if entry.shim.as_ref().is_some_and(|shim| shim.phase == ShimPhase::Stopping) {
            return false;
        }
        match entry.pre_stop {
            PreStop::NotRun if grace_seconds > 0 && probes::has_pre_stop(&pod) => {}
            PreStop::NotRun | PreStop::Done => return false,
            PreStop::Running => return grace_seconds > 0,
        }
        let Some(address) = entry.address else { return false };
        let running = entry.shim.iter().flat_map(|shim| shim.init_containers.iter().chain(&shim.containers));
        let runs: Vec<Run> = running
            .filter(|container| container.is_running())
            .map(|container| run_of(&self.context, entry, address, &container.name, container.restart_count))
            .collect();
        entry.pre_stop = PreStop::Running;
        let uid = uid.to_owned();
        self.pre_stops.spawn(async move {
            let wrong = probes::pre_stop(&pod, runs, Duration::from_secs(grace_seconds)).await;
            PreStopDone { uid, pod, wrong }
        });
        true
    }

    /// The last hooks of a pod are done.
    pub(super) fn on_pre_stop(&mut self, done: Result<PreStopDone, tokio::task::JoinError>) {
        let PreStopDone { uid, pod, wrong } = match done {
            Ok(done) => done,
            Err(error) => return tracing::error!(error = %error, "the last hooks of a pod failed"),
        };
        for message in wrong {
            self.record(&pod, Trouble::of_pod("FailedPreStopHook", message));
        }
        if let Some(entry) = self.pods.get_mut(&uid) {
            entry.pre_stop = PreStop::Done;
        }
        self.marked.insert(uid);
    }

    /// How long containers have from now on, where `left` seconds of a grace are left.
    pub(super) fn after_pre_stop(entry: &Entry, left: u64) -> u64 {
        if entry.pre_stop == PreStop::Done { left.max(AFTER_HOOKS_SECONDS) } else { left }
    }
}

/// A run of a container of `entry`.
fn run_of(context: &NodeContext, entry: &Entry, address: Ipv4Addr, container: &str, number: u32) -> Run {
    Run {
        shim: context.shim.clone(),
        dir: entry.dir.clone(),
        address,
        uid: entry.uid.clone(),
        container: container.to_owned(),
        number,
        grace_seconds: entry.pod().map_or(0, |pod| grace::grace_seconds(pod)),
    }
}

/// What was known of this run before the agent began: its hook is not called twice, and who was ready is so until it isn't.
fn gate_of_before(pod: &Pod, container: &str, number: u32) -> pod_status::Gate {
    let id = pod_status::container_id(pod, container, number);
    let lists = pod.status.iter().flat_map(|status| [&status.init_container_statuses, &status.container_statuses]);
    let mut statuses = lists.into_iter().flatten().flatten();
    let known = statuses.find(|status: &&WireStatus| status.container_id.as_ref() == Some(&id));
    pod_status::Gate {
        started: known.is_some_and(|status| status.started == Some(true)),
        ready: known.is_some_and(|status| status.ready),
    }
}

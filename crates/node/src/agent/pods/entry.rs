//! One pod as the agent keeps it.
//!
//! Invariant: a stage never goes back from `Ended`; what a pod has used is given back when it ends.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pumice_clock as clock;

use tokio_util::task::AbortOnDropHandle;

use crate::agent::pods::ephemeral::Added;
use crate::agent::pods::probing::Probed;
use crate::agent::pods::{RUN_TOLD_AFTER, START_AGAIN, TURN_TOLD_AFTER};
use crate::pod_images::{PodImages, Pulling};
use crate::pod_spec::names::hostname;
use crate::pod_spec::resolve::{Requests, requests};
use crate::usage::disk::DiskUse;
use pumice_shim::status::{ContainerState, ContainerStatus, ShimPhase, ShimStatus};

/// Whether the API server has the pod.
#[derive(Debug, Clone)]
pub(super) enum Presence {
    /// Found on disk; the API server has not been asked yet.
    Unknown,
    /// This is its latest state.
    Present(Arc<Pod>),
    Gone,
}

/// How far a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not started: its turn has not come, or something is missing.
    Waiting {
        reason: String,
        message: Option<String>,
        /// When it is tried again; none when it is in the queue.
        retry_at: Option<Instant>,
    },
    /// Its directory is made and its shim started.
    Starting,
    /// A shim has it.
    Running,
    Ended(End),
}

/// How a pod came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Its shim wrote it down.
    ShimReported,
    /// Its shim died without a word.
    Lost,
    /// The node does not run it.
    Rejected { reason: String, message: String },
    /// It was deleted before it started.
    NeverStarted,
    /// It ended long ago and the API server knows.
    Reported,
}

/// Whether the last hooks of a pod that goes have been called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreStop {
    NotRun,
    Running,
    Done,
}

/// What the loop knows of one pod.
pub(super) struct Entry {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub dir: PathBuf,
    pub presence: Presence,
    pub stage: Stage,
    /// The shim's latest word.
    pub shim: Option<ShimStatus>,
    pub address: Option<Ipv4Addr>,
    pub requests: Requests,
    /// Its host name and subdomain: how peers call it.
    pub hostname: String,
    pub subdomain: Option<String>,
    /// Version of its peers' names that its hosts file shows.
    pub names_version: u64,
    /// When the agent took it on.
    pub started_at: Timestamp,
    /// Whether it waits for its turn to start.
    pub queued: bool,
    /// What its containers run, once it is there.
    pub images: Option<Arc<PodImages>>,
    /// How far its images are, while they are pulled.
    pub pulling: Option<Arc<Pulling>>,
    /// When it is next told how far they are.
    pub told_pull_at: Option<Instant>,
    /// Containers that are added to it while it runs, by their names.
    pub ephemeral: BTreeMap<String, Added>,
    /// How often it could not be started.
    pub start_failures: u32,
    /// Whether its directory holds a spec whose shim was never started.
    pub respawn: bool,
    /// Until then it is not told that it is about to start.
    pub quiet_until: Instant,
    /// When it was first seen to run.
    pub runs_since: Option<Instant>,
    /// The status that the API server has.
    pub written: Option<PodStatus>,
    /// Whether its end is on the disk: until then nobody is told.
    pub exit_synced: bool,
    /// Whether a call about it is under way.
    pub calling: bool,
    pub call_failures: u32,
    pub call_again_at: Option<Instant>,
    /// Whether the API server was told that all is over.
    pub finalized: bool,
    /// Whether its shim's process has ended. Its lock may be held a little longer, by containers that
    /// the kernel is about to kill.
    pub shim_ended: bool,
    /// Its containers that are attended to.
    pub probed: BTreeMap<String, Probed>,
    pub token_keeper: Option<AbortOnDropHandle<()>>,
    /// What it uses of the disk, by the latest count, while it runs.
    pub disk: DiskUse,
    /// Whether its last hooks have been called.
    pub pre_stop: PreStop,
    /// When its processes will be killed.
    pub kill_at: Option<Instant>,
    /// When nothing of it should be left, or when it is told again that something is.
    pub gone_by: Option<Instant>,
    /// Whether its directory is being removed.
    pub removing: bool,
}

impl Entry {
    /// A pod that was not there before.
    pub(super) fn new(uid: &str, pod: &Arc<Pod>, dir: PathBuf, now: Timestamp) -> Entry {
        let mut entry = Entry {
            uid: uid.to_owned(),
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            dir,
            presence: Presence::Unknown,
            stage: Stage::waiting("ContainerCreating", None),
            shim: None,
            address: None,
            requests: Requests::default(),
            hostname: String::new(),
            subdomain: None,
            names_version: 0,
            // As it comes back from the API server: otherwise that would be something new to tell.
            started_at: Timestamp::from_second(now.as_second()).unwrap_or(now),
            queued: false,
            images: None,
            pulling: None,
            told_pull_at: None,
            ephemeral: BTreeMap::new(),
            start_failures: 0,
            respawn: false,
            quiet_until: clock::monotonic() + TURN_TOLD_AFTER,
            runs_since: None,
            written: None,
            exit_synced: false,
            calling: false,
            call_failures: 0,
            call_again_at: None,
            finalized: false,
            shim_ended: false,
            probed: BTreeMap::new(),
            token_keeper: None,
            disk: DiskUse::default(),
            pre_stop: PreStop::NotRun,
            kill_at: None,
            gone_by: None,
            removing: false,
        };
        entry.set_pod(pod);
        entry
    }

    /// Takes the pod's latest state.
    pub(super) fn set_pod(&mut self, pod: &Arc<Pod>) {
        let spec = pod.spec.as_ref();
        self.requests = requests(pod);
        self.hostname = hostname(pod);
        self.subdomain = spec.and_then(|spec| spec.subdomain.clone()).filter(|name| !name.is_empty());
        if let Some(started_at) = pod.status.as_ref().and_then(|status| status.start_time.as_ref()) {
            self.started_at = started_at.0;
        }
        self.presence = Presence::Present(pod.clone());
    }

    /// Waits for another attempt to start, longer each time.
    pub(super) fn retry_later(&mut self, reason: &str, message: String, now: Instant) {
        let retry_at = Some(now + START_AGAIN.pause(self.start_failures));
        self.start_failures = self.start_failures.saturating_add(1);
        self.stage = Stage::Waiting { reason: reason.to_owned(), message: Some(message), retry_at };
    }

    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        match &self.presence {
            Presence::Present(pod) => Some(pod),
            _ => None,
        }
    }

    /// Whether it is to be stopped.
    pub(super) fn is_leaving(&self) -> bool {
        match &self.presence {
            Presence::Unknown => false,
            Presence::Present(pod) => pod.metadata.deletion_timestamp.is_some(),
            Presence::Gone => true,
        }
    }

    /// Until when nothing is told of it: all there is to tell is that it is about to start, or that it runs.
    pub(super) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        let until = if self.is_about_to_start() { Some(self.quiet_until) } else { self.run_told_at() };
        until.filter(|until| now < *until)
    }

    /// When it is told that it runs; none where there is more to tell, or something was told before.
    fn run_told_at(&self) -> Option<Instant> {
        let is_in_order = |container: &ContainerStatus| match &container.state {
            ContainerState::Waiting { message, .. } => message.is_none() && container.last.is_none(),
            ContainerState::Running { .. } => container.last.is_none(),
            ContainerState::Terminated(exit) => exit.code == 0,
        };
        let shim = self.shim.as_ref().filter(|_| self.stage == Stage::Running && self.written.is_none())?;
        let begins = matches!(shim.phase, ShimPhase::Initializing | ShimPhase::Running);
        if begins && shim.all().all(is_in_order) { Some(self.runs_since? + RUN_TOLD_AFTER) } else { None }
    }

    fn is_about_to_start(&self) -> bool {
        match &self.stage {
            Stage::Waiting { message, .. } => message.is_none(),
            Stage::Starting => true,
            Stage::Running => self.shim.as_ref().is_none_or(ShimStatus::is_fresh),
            Stage::Ended(_) => false,
        }
    }

    /// When there is something to do about it although nothing happens, after a turn at `now`: what was due then and could not
    /// be done waits for what happens.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let of_stage = match self.stage {
            Stage::Waiting { retry_at, .. } => retry_at,
            Stage::Running => self.gone_by,
            _ => None,
        };
        let times = [self.call_again_at, of_stage, self.quiet_until(now), self.told_pull_at];
        let additions = self.ephemeral.values().filter_map(Added::retry_at);
        times.into_iter().flatten().chain(additions).filter(|at| *at > now).min()
    }

    /// Expects that nothing of it is left at a time, or before if that was said already.
    pub(super) fn expect_gone_by(&mut self, at: Instant) {
        self.gone_by = Some(self.gone_by.map_or(at, |before| before.min(at)));
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.presence, Presence::Gone)
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended(_))
    }

    /// Whether the pod uses the host's network.
    pub(super) fn on_host_network(&self) -> bool {
        let spec = self.pod().and_then(|pod| pod.spec.as_ref());
        spec.and_then(|spec| spec.host_network) == Some(true)
    }

    /// The subdomain whose members name each other.
    pub(super) fn group(&self) -> Option<(String, String)> {
        self.subdomain.as_ref().map(|subdomain| (self.namespace.clone(), subdomain.clone()))
    }
}

impl Stage {
    pub(super) fn waiting(reason: &str, message: Option<String>) -> Stage {
        Stage::Waiting { reason: reason.to_owned(), message, retry_at: None }
    }
}

/// Whether a container of `pod` has run on this node before, by the API server's word.
pub(super) fn has_run(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return false };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    lists.into_iter().flatten().flatten().any(|container| container.container_id.is_some())
}

/// Whether the API server says that `pod` is over.
pub(super) fn is_terminal(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use pumice_shim::status::Exit;

    #[test]
    fn a_pod_that_is_about_to_start_is_no_news_for_a_while() {
        let fresh = || ShimStatus::new([].into_iter(), ["c"].into_iter(), Timestamp::UNIX_EPOCH);
        let with = |change: fn(&mut ShimStatus)| {
            let mut status = fresh();
            change(&mut status);
            Some(status)
        };
        let waits = |message: Option<&str>| Stage::waiting("ContainerCreating", message.map(str::to_owned));
        let no_room = |status: &mut ShimStatus| {
            let message = Some("no room".to_owned());
            status.containers[0].state = ContainerState::Waiting { reason: "CreateContainerError".into(), message };
        };
        let cases = [
            (waits(None), None, true),
            (waits(Some("every address of this node is taken")), None, false),
            (Stage::Starting, None, true),
            (Stage::Running, None, true),
            (Stage::Running, Some(fresh()), true),
            (Stage::Running, with(|status| status.phase = ShimPhase::Running), false),
            (Stage::Running, with(no_room), false),
            (Stage::Ended(End::Lost), Some(fresh()), false),
        ];
        for (stage, shim, expected) in cases {
            let mut entry = Entry::new("u", &Arc::new(Pod::default()), PathBuf::new(), Timestamp::UNIX_EPOCH);
            (entry.stage, entry.shim) = (stage, shim);
            let before = entry.quiet_until - Duration::from_millis(1);
            assert_eq!(entry.quiet_until(before).is_some(), expected, "{:?} {:?}", entry.stage, entry.shim);
            assert_eq!(entry.quiet_until(entry.quiet_until), None, "{:?}", entry.stage);
        }
    }

    #[test]
    fn a_run_is_told_of_after_a_while_and_trouble_at_once() {
        let at = Timestamp::UNIX_EPOCH;
        let exit = |code| Exit {
            code,
            signal: None,
            reason: "Completed".into(),
            message: None,
            started_at: at,
            finished_at: at,
            discarded: None,
        };
        let runs = || ContainerState::Running { started_at: at, pid: None };
        let backs_off = ContainerState::Waiting { reason: "CrashLoopBackOff".into(), message: Some("again".into()) };
        let cases = [
            (ShimPhase::Running, ContainerState::Terminated(exit(0)), runs(), None, true),
            (ShimPhase::Running, ContainerState::Terminated(exit(0)), runs(), Some(exit(0)), false),
            (ShimPhase::Running, ContainerState::Terminated(exit(0)), ContainerState::Terminated(exit(1)), None, false),
            (ShimPhase::Running, ContainerState::Terminated(exit(0)), backs_off, None, false),
            (ShimPhase::Stopping, ContainerState::Terminated(exit(0)), runs(), None, false),
            (ShimPhase::Done, ContainerState::Terminated(exit(0)), ContainerState::Terminated(exit(0)), None, false),
        ];
        for (phase, init, main, last, quiet) in cases {
            let mut entry = Entry::new("u", &Arc::new(Pod::default()), PathBuf::new(), at);
            let mut shim = ShimStatus::new(["i"].into_iter(), ["c"].into_iter(), at);
            (shim.phase, shim.init_containers[0].state, shim.containers[0].state) = (phase, init, main);
            shim.containers[0].last = last;
            let now = clock::monotonic();
            (entry.stage, entry.shim, entry.runs_since) = (Stage::Running, Some(shim), Some(now));
            let told_at = now + RUN_TOLD_AFTER;
            assert_eq!(entry.quiet_until(now), quiet.then_some(told_at), "{:?}", entry.shim);
            assert_eq!((entry.due(now), entry.quiet_until(told_at)), (quiet.then_some(told_at), None));
            entry.written = Some(PodStatus::default());
            assert_eq!(entry.quiet_until(now), None, "what was told before is told on at once");
        }
    }

    #[test]
    fn what_could_not_be_done_in_a_turn_brings_no_other_one() {
        let mut entry = Entry::new("u", &Arc::new(Pod::default()), PathBuf::new(), Timestamp::UNIX_EPOCH);
        let now = entry.quiet_until;
        let after = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(entry.due(now), None);
        entry.retry_later("Failed", String::new(), now);
        assert_eq!(entry.due(now), Some(now + START_AGAIN.first));
        assert_eq!(entry.due(after(1)), None);
        entry.call_again_at = Some(after(3));
        assert_eq!((entry.due(after(1)), entry.due(after(3))), (Some(after(3)), None));
    }

    #[test]
    fn a_pod_that_can_not_start_is_tried_ever_more_rarely() {
        let mut entry = Entry::new("u", &Arc::new(Pod::default()), PathBuf::new(), Timestamp::UNIX_EPOCH);
        let now = clock::monotonic();
        let mut waits = Vec::new();
        for _ in 0..8 {
            // What an attempt does to the stage.
            entry.stage = Stage::Starting;
            entry.retry_later("Failed", String::new(), now);
            let Stage::Waiting { retry_at: Some(at), .. } = entry.stage else { panic!("{:?}", entry.stage) };
            waits.push(at - now);
        }
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].map(Duration::from_millis));
    }
}

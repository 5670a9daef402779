//! Pods are started, a few at a time, and know their peers' names.

use std::time::Duration;

use pumice_clock as clock;
use tokio::task::JoinError;

use crate::agent::pods::entry::{Entry, Stage};
use crate::agent::pods::eviction::NEARLY_FULL;
use crate::agent::pods::failures::Trouble;
use crate::agent::pods::{Pods, START_TOLD_AFTER, Started};
use crate::agent::start::{self, StartOrder};
use crate::networks::ahead::NamespacesAhead;
use crate::networks::hosts_file::Peer;
use crate::networks::names::{self, HostsFile};
use crate::shim_watch::ProcessHandle;
use pumice_shim::control::ShimProcess;

/// Wait before hosts files that could not be written are written again.
const NAMES_AGAIN: Duration = Duration::from_secs(1);

impl Pods {
    pub(super) fn start_queued(&mut self) {
        while self.starts.len() < self.starts_max {
            let Some(uid) = self.queue.pop_front() else { return };
            self.give_address(&uid);
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.queued = false;
            }
            let may_start = |entry: &Entry| matches!(entry.stage, Stage::Waiting { .. }) && !entry.is_leaving();
            if !self.pods.get(&uid).is_some_and(may_start) {
                continue;
            }
            if self.waits_for_images(&uid) {
                continue;
            }
            if !self.give_accelerators(&uid) {
                self.tell_of_end(&uid);
                continue;
            }
            let Some(entry) = self.pods.get(&uid) else { continue };
            let images = entry.images.clone();
            if self.disk.is_short() {
                self.not_started(&uid, "ContainerCreating", NEARLY_FULL.to_owned());
                continue;
            }
            let (Some(pod), Some(address)) = (entry.pod().cloned(), entry.address) else {
                let full = "every address of this node is taken";
                if let Some(pod) = self.pods.get(&uid).and_then(Entry::pod) {
                    self.record(pod, Trouble::of_pod("FailedCreatePodSandBox", full));
                }
                self.not_started(&uid, "ContainerCreating", full.to_owned());
                continue;
            };
            let (members, version) = self.members(entry);
            let own_network = !entry.on_host_network() && !entry.respawn;
            let namespace = self.namespaces.as_mut().filter(|_| own_network).and_then(NamespacesAhead::take);
            let devices = self.accelerators.of(&uid).cloned().unwrap_or_default();
            let order = StartOrder { pod, uid: uid.clone(), address, members, namespace, images, devices };
            let (context, dir, respawn) = (self.context.clone(), entry.dir.clone(), entry.respawn);
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.stage = Stage::Starting;
                entry.quiet_until = clock::monotonic() + START_TOLD_AFTER;
                self.timers.at(&uid, entry.quiet_until.into());
            }
            self.starts.spawn(async move {
                let outcome = match respawn {
                    false => start::start(context, order).await,
                    true => start::start_again(context, uid.clone(), dir).await,
                };
                Started { uid, names_version: version, outcome }
            });
        }
    }

    pub(super) fn members(&self, entry: &Entry) -> (Vec<Peer>, u64) {
        let Some(group) = entry.group().and_then(|key| self.names.group(&key)) else { return (Vec::new(), 0) };
        let members = group.members.iter().filter_map(|uid| self.pods.get(uid));
        let peers =
            members.filter_map(|entry| Some(Peer { hostname: entry.hostname.clone(), address: entry.address? }));
        (peers.collect(), group.version)
    }

    pub(super) fn not_started(&mut self, uid: &str, reason: &str, message: String) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.retry_later(reason, message, clock::monotonic());
        self.marked.insert(uid.to_owned());
    }

    pub(super) fn on_start(&mut self, done: Result<Started, JoinError>) {
        let Started { uid, names_version, outcome } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "the start of a pod failed");
                return;
            }
        };
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        match outcome {
            Ok(()) => {
                entry.stage = Stage::Running;
                entry.respawn = false;
                entry.names_version = names_version;
                if let Some(key) = entry.group()
                    && self.names.group(&key).is_some_and(|group| group.version != names_version)
                {
                    self.names.touch(key);
                    self.names_soon();
                }
                self.follow_shim(&uid);
            }
            Err(error) => {
                tracing::debug!(uid, error = error.message(), "pod not started");
                self.tell_of_start(&uid, &error);
                self.not_started(&uid, error.reason(), error.message());
            }
        }
        self.marked.insert(uid);
    }

    /// Watches a shim's word and its life; looks at once, for what happened before.
    pub(super) fn follow_shim(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        match self.watch.add(&entry.dir) {
            Ok(descriptor) => drop(self.watched.insert(descriptor, uid.to_owned())),
            Err(error) => {
                tracing::error!(uid, error = %error, "can't watch a pod's status; it is read when its shim ends")
            }
        }
        match ShimProcess::read(&entry.dir).and_then(ProcessHandle::open) {
            Ok(Some(handle)) => {
                let uid = uid.to_owned();
                self.exits.spawn(async move {
                    if let Err(error) = handle.ended().await {
                        tracing::error!(uid, error = %error, "can't wait for a shim");
                    }
                    uid
                });
            }
            Ok(None) => self.shim_ended(uid),
            Err(error) => {
                tracing::error!(uid, error = %error, "can't watch a shim; its lock alone says whether it lives")
            }
        }
        self.marked.insert(uid.to_owned());
    }

    /// The process is over, whatever its lock says.
    pub(super) fn shim_ended(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.shim_ended = true;
        }
    }

    /// Rewrites the hosts files that are behind.
    pub(super) fn write_names(&mut self) {
        let mut files = Vec::new();
        for key in self.names.take_changed() {
            let Some(group) = self.names.group(&key) else { continue };
            let version = group.version;
            let members: Vec<String> = group.members.iter().cloned().collect();
            let Some(peers) = members.first().and_then(|uid| self.pods.get(uid)).map(|entry| self.members(entry).0)
            else {
                continue;
            };
            for uid in members {
                let Some(entry) = self.pods.get_mut(&uid) else { continue };
                if entry.stage != Stage::Running || entry.names_version == version {
                    continue;
                }
                let (Some(pod), Some(address)) = (entry.pod(), entry.address) else { continue };
                let (path, text) = (entry.dir.join("hosts"), start::hosts_text(pod, address, &peers));
                files.push(HostsFile { uid, path, text });
                entry.names_version = version;
            }
        }
        if !files.is_empty() {
            self.name_writes.spawn_blocking(move || names::write_all(files));
        }
    }

    /// Has the files written again that could not be.
    pub(super) fn on_names_written(&mut self, done: Result<Vec<String>, JoinError>) {
        for uid in done.unwrap_or_default() {
            let Some(entry) = self.pods.get_mut(&uid) else { continue };
            entry.names_version = 0;
            if let Some(key) = entry.group() {
                self.names.touch(key);
                self.names_at.get_or_insert(clock::monotonic() + NAMES_AGAIN);
            }
        }
    }
}

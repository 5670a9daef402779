//! The loop that brings this node's pods to where the API server wants them.
//!
//! Invariant: one task owns all state; everything slow is a task of its own whose end comes back as
//! an event. Each event marks pods, and a marked pod's next step follows from its entry alone, so
//! that lost or repeated events do no harm.

mod accelerators;
mod entry;
mod ephemeral;
pub(crate) mod eviction;
mod failures;
mod firewalled;
mod probing;
mod pulling;
mod starting;
mod status_writer;
mod synced;
mod watched_pods;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use nix::sys::inotify::WatchDescriptor;
use pumice_cluster::{Timers, WatchScope, until, watch};
use pumice_units::Backoff;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::agent::leftovers::{self, Leftover, Owner};
use crate::agent::start::{NodeContext, StartError};
use crate::agent::teardown::KILL_WITHIN;
use crate::confinement::allotment::Allotments;
use crate::networks::addresses::{AddressPool, Subnet};
use crate::networks::ahead::NamespacesAhead;
use crate::networks::bridge::NodeNetwork;
use crate::networks::names::Names;
use crate::pod_calls::CallDone;
use crate::pod_index::PodIndex;
use crate::probes::Finding;
use crate::shim_watch::StatusWatch;
use crate::usage::disk::DiskUse;
use entry::{End, Entry, Presence, Stage};
use ephemeral::AddDone;
use eviction::SharedDisk;
use probing::PreStopDone;
use pulling::Pulled;
use pumice_clock as clock;
use pumice_linux::cgroup::CgroupSpec;
use pumice_shim::control;
use pumice_shim::status::{ShimPhase, ShimStatus};
use synced::SyncedExits;

/// Names of peers are gathered this long before files are rewritten.
const NAMES_AFTER: Duration = Duration::from_millis(10);
/// Waits between attempts to start a pod that lacks something.
const START_AGAIN: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
/// A start is told of once it has taken this long: most pods run by then, and a write for each would say nothing.
const START_TOLD_AFTER: Duration = Duration::from_secs(1);
/// A run is told of once it has taken this long: of one that ends sooner its end says all.
const RUN_TOLD_AFTER: Duration = Duration::from_millis(50);
/// As [`START_TOLD_AFTER`] for a pod whose turn to start has not come.
const TURN_TOLD_AFTER: Duration = Duration::from_secs(10);
/// Waits between attempts to call the API server.
const CALL_AGAIN: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(5) };
/// Findings about containers that wait to be heard.
const FINDINGS_MAX: usize = 256;
/// How long starts and calls under way are waited for at the end.
const FINISH_WITHIN: Duration = Duration::from_secs(5);
/// The loop-back addresses of pods that share the host's network.
const LOOPBACK: Subnet = Subnet { base: Ipv4Addr::new(127, 64, 0, 0), prefix: 16 };

/// The end of a start.
struct Started {
    uid: String,
    /// Version of the peers' names that it used.
    names_version: u64,
    outcome: Result<(), StartError>,
}

/// The end of a removal.
struct Removed {
    /// The pod, if all of it was to go and not only its layers.
    uid: Option<String>,
    leftover: Leftover,
}

/// The wish to end all pods of this node.
pub(crate) struct Drain {
    /// When it must be over.
    pub ends_at: Instant,
    pub done: oneshot::Sender<()>,
}

/// All pods of this node, and what the loop over them waits for.
pub(crate) struct Pods {
    context: Arc<NodeContext>,
    pods_max: u32,
    starts_max: usize,
    index: PodIndex,
    watch: StatusWatch,
    addresses: AddressPool,
    accelerators: Allotments,
    /// Resources whose devices this machine had when the agent started. Others that somebody wrote into the Node are only counted.
    allotted: BTreeSet<String>,
    /// None where pods have no networks of their own.
    namespaces: Option<NamespacesAhead>,
    pods: HashMap<String, Entry>,
    watched: HashMap<WatchDescriptor, String>,
    names: Names,
    names_at: Option<Instant>,
    marked: BTreeSet<String>,
    /// Pods to look at though nothing happens to them.
    timers: Timers<String>,
    queue: VecDeque<String>,
    pulls: JoinSet<Pulled>,
    starts: JoinSet<Started>,
    additions: JoinSet<AddDone>,
    calls: JoinSet<CallDone>,
    exits: JoinSet<String>,
    removals: JoinSet<Removed>,
    synced_exits: SyncedExits,
    name_writes: JoinSet<Vec<String>>,
    pre_stops: JoinSet<PreStopDone>,
    probers: TaskTracker,
    findings: (mpsc::Sender<Finding>, mpsc::Receiver<Finding>),
    disk: SharedDisk,
    drains: Vec<Drain>,
    leftovers: Vec<String>,
}

impl Pods {
    /// The state after a look at the disk.
    pub(crate) fn open(
        context: Arc<NodeContext>,
        pods_max: u32,
        starts_max: usize,
        index: PodIndex,
        disk: SharedDisk,
    ) -> std::io::Result<Pods> {
        let network = context.network.as_ref();
        let subnet = network.map_or(LOOPBACK, NodeNetwork::subnet);
        let mut pods = Pods {
            pods_max,
            starts_max: starts_max.max(1),
            index,
            watch: StatusWatch::new()?,
            addresses: AddressPool::new(subnet),
            accelerators: Allotments::default(),
            allotted: context.devices.allottable().into_keys().collect(),
            namespaces: network.map(|network| NamespacesAhead::new(network.links(), context.node_hash)),
            pods: HashMap::new(),
            watched: HashMap::new(),
            names: Names::default(),
            names_at: None,
            marked: BTreeSet::new(),
            timers: Timers::default(),
            queue: VecDeque::new(),
            pulls: JoinSet::new(),
            starts: JoinSet::new(),
            additions: JoinSet::new(),
            calls: JoinSet::new(),
            exits: JoinSet::new(),
            removals: JoinSet::new(),
            synced_exits: SyncedExits::new(context.journal.clone()),
            name_writes: JoinSet::new(),
            pre_stops: JoinSet::new(),
            probers: TaskTracker::new(),
            findings: mpsc::channel(FINDINGS_MAX),
            disk,
            drains: Vec::new(),
            leftovers: Vec::new(),
            context,
        };
        pods.adopt();
        Ok(pods)
    }

    /// Runs until `shutdown`; pods that run then go on without us.
    pub(crate) async fn run(
        mut self,
        mut drains: mpsc::Receiver<Drain>,
        shutdown: CancellationToken,
    ) -> std::io::Result<()> {
        let scope = WatchScope::fields(format!("spec.nodeName={}", self.context.node_name));
        let mut changes = std::pin::pin!(watch(Api::<Pod>::all(self.context.client.clone()), scope));
        loop {
            self.settle();
            let sleep = until(self.next_wake());
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(change) = changes.next() => self.on_change(change),
                news = self.watch.changed() => self.on_news(news?),
                Some(done) = self.pulls.join_next() => self.on_pulled(done),
                Some(done) = self.starts.join_next() => self.on_start(done),
                Some(done) = self.additions.join_next() => self.on_added(done),
                Some(done) = self.calls.join_next() => self.on_call(done),
                Some(done) = self.exits.join_next() => self.on_shim_end(done),
                Some(done) = self.removals.join_next() => self.on_removed(done),
                Some(done) = self.synced_exits.next() => self.on_exits_synced(done),
                Some(done) = self.name_writes.join_next() => self.on_names_written(done),
                Some(finding) = self.findings.1.recv() => self.on_finding(finding),
                Some(finding) = self.disk.findings.recv() => self.on_disk_finding(finding),
                Some(done) = self.pre_stops.join_next() => self.on_pre_stop(done),
                Some(drain) = drains.recv() => self.on_drain(drain),
                () = sleep => self.on_wake(),
            }
        }
        self.finish().await;
        Ok(())
    }

    /// Lets what is under way come to its end, and takes the bridge away when nobody is on it.
    async fn finish(&mut self) {
        // Before the bridge goes: they are on it.
        self.namespaces = None;
        let under_way = async {
            while let Some(done) = self.starts.join_next().await {
                self.on_start(done);
            }
            while self.calls.join_next().await.is_some() {}
            while self.removals.join_next().await.is_some() {}
        };
        if tokio::time::timeout(FINISH_WITHIN, under_way).await.is_err() {
            tracing::warn!("some starts or calls did not end in time; the next start goes on with them");
        }
        self.context.starter.end();
        let running =
            self.pods.values().filter(|entry| matches!(entry.stage, Stage::Running | Stage::Starting)).count();
        if running > 0 {
            tracing::info!(running, "pods go on without the platform");
            return;
        }
        self.context.firewall.end();
        let node_dir = self.context.data_dir.join("node");
        let (hash, cgroup, node) =
            (self.context.node_hash, self.context.capabilities.cgroup.clone(), self.context.cgroup_node.clone());
        let removed = tokio::task::spawn_blocking(move || {
            crate::agent::teardown::remove_shared(&node_dir, hash, cgroup.as_ref(), &node)
        });
        if let Err(error) = removed.await {
            tracing::warn!(error = %error, "the node's bridge and control group were not removed");
        }
    }

    fn names_soon(&mut self) {
        self.names_at.get_or_insert(clock::monotonic() + NAMES_AFTER);
    }

    fn on_news(&mut self, news: Vec<Option<WatchDescriptor>>) {
        for descriptor in news {
            match descriptor {
                Some(descriptor) => self.marked.extend(self.watched.get(&descriptor).cloned()),
                None => self.marked.extend(self.pods.keys().cloned()),
            }
        }
    }

    fn on_shim_end(&mut self, done: Result<String, tokio::task::JoinError>) {
        match done {
            Ok(uid) => {
                self.shim_ended(&uid);
                self.marked.insert(uid);
            }
            Err(error) => tracing::error!(error = %error, "a watch of a shim failed"),
        }
    }

    fn on_wake(&mut self) {
        let now = clock::monotonic().into();
        while let Some(uid) = self.timers.pop(now) {
            self.marked.insert(uid);
        }
    }

    fn next_wake(&self) -> Option<tokio::time::Instant> {
        // A batch of names under way comes first; its end wakes the loop.
        let names_at = if self.name_writes.is_empty() { self.names_at } else { None };
        self.timers.next().into_iter().chain(names_at.map(Into::into)).min()
    }

    /// Does everything that can be done now.
    fn settle(&mut self) {
        while let Some(uid) = self.marked.pop_first() {
            self.turn(&uid);
        }
        self.start_queued();
        self.sync_exits();
        if self.names_at.is_some_and(|at| at <= clock::monotonic()) && self.name_writes.is_empty() {
            self.names_at = None;
            self.write_names();
        }
        let busy = |entry: &Entry| matches!(entry.stage, Stage::Running | Stage::Starting) || entry.calling;
        if !self.drains.is_empty() && !self.pods.values().any(busy) && self.removals.is_empty() {
            for drain in self.drains.drain(..) {
                let _ = drain.done.send(());
            }
        }
    }

    /// One pod's next step.
    fn turn(&mut self, uid: &str) {
        let (now, draining) = (clock::monotonic(), !self.drains.is_empty());
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let (leaving, present) = (entry.is_leaving(), entry.pod().is_some());
        match &mut entry.stage {
            Stage::Waiting { .. } if leaving => entry.stage = Stage::Ended(End::NeverStarted),
            Stage::Waiting { retry_at, .. } if !draining && present => {
                let due = retry_at.is_none_or(|at| at <= clock::monotonic());
                if due && !entry.queued && entry.pulling.is_none() {
                    *retry_at = None;
                    entry.queued = true;
                    self.queue.push_back(uid.to_owned());
                }
            }
            Stage::Running => {
                self.look_at_shim(uid);
                self.add_containers(uid);
                self.start_probers(uid);
                self.keep_tokens(uid);
            }
            _ => {}
        }
        self.stop_if_leaving(uid);
        self.tell_of_pull(uid);
        self.tell_of_survivors(uid);
        self.tell(uid, now);
        if let Some(at) = self.pods.get(uid).and_then(|entry| entry.due(now)) {
            self.timers.at(&uid.to_owned(), at.into());
        }
    }

    /// Reads what the shim says, and notices its death.
    fn look_at_shim(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        // Before the status: a shim that ends in between has written it first.
        let alive = !entry.shim_ended && control::is_alive(&entry.dir);
        let mut troubles = Vec::new();
        if let Ok(status) = ShimStatus::read(&entry.dir) {
            if let Presence::Present(pod) = &entry.presence {
                troubles = failures::of_runs(pod, entry.shim.as_ref(), &status);
            }
            let known = !matches!(entry.presence, Presence::Unknown);
            if known && status.phase == ShimPhase::Stopping && entry.gone_by.is_none() {
                // By its shim's own decision, or by what an earlier agent said.
                let grace = Duration::from_secs(status_writer::left_to_stop(entry));
                entry.expect_gone_by(clock::monotonic() + grace + KILL_WITHIN);
            }
            if !status.is_fresh() {
                entry.runs_since.get_or_insert_with(clock::monotonic);
            }
            entry.shim = Some(status);
        }
        let done = entry.shim.as_ref().is_some_and(|status| status.phase == ShimPhase::Done);
        if done || !alive {
            entry.stage = Stage::Ended(if done { End::ShimReported } else { End::Lost });
            self.tell_of_end(uid);
            self.on_end(uid);
        }
        if let Some(pod) = self.pods.get(uid).and_then(Entry::pod) {
            troubles.into_iter().for_each(|trouble| self.record(pod, trouble));
        }
    }

    /// Gives back what a pod used; its logs stay until it is deleted.
    fn on_end(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.probed.clear();
        entry.disk = DiskUse::default();
        entry.token_keeper = None;
        if let Some(key) = entry.group() {
            self.names.leave(&key, uid);
        }
        if let Some(address) = entry.address {
            self.context.firewall.tell_of_end(uid);
            self.addresses.release(uid, address);
        }
        self.index.end(&entry.namespace, &entry.name, &entry.dir);
        let dir = entry.dir.clone();
        self.removals.spawn_blocking(move || Removed { uid: None, leftover: leftovers::trim_pod(&dir) });
    }

    fn remove(&mut self, reply: Option<String>, dir: PathBuf, uid: &str) {
        let hierarchy = self.context.capabilities.cgroup.clone();
        let group = hierarchy.map(|hierarchy| CgroupSpec::of(hierarchy, self.context.cgroup_node.join(uid)));
        let owner = match self.pods.get(uid) {
            Some(entry) => Owner::pod(&entry.namespace, &entry.name, uid),
            None => Owner::of_pod_dir(&dir),
        };
        let logs = Arc::clone(&self.context.retained_logs);
        self.removals.spawn_blocking(move || {
            let leftover = leftovers::remove_pod(&dir, owner, group.as_ref(), &logs);
            Removed { uid: reply, leftover }
        });
    }

    fn on_removed(&mut self, done: Result<Removed, tokio::task::JoinError>) {
        let Removed { uid, leftover } = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "the removal of a pod failed");
                return;
            }
        };
        self.context.on_leftover(&leftover);
        let Some(uid) = uid else { return };
        self.watched.retain(|_, watched| *watched != uid);
        let Some(entry) = self.pods.remove(&uid) else { return };
        if let Some(address) = entry.address {
            self.context.firewall.tell_of_end(&uid);
            self.addresses.release(&uid, address);
        }
        if let Some(key) = entry.group() {
            self.names.leave(&key, &uid);
        }
        self.index.remove(&entry.namespace, &entry.name, &entry.dir);
    }

    fn on_drain(&mut self, drain: Drain) {
        self.drains.push(drain);
        self.marked.extend(self.pods.keys().cloned());
    }
}

/// Whole seconds; begun ones count.
pub(super) fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

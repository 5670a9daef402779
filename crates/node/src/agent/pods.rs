//! The loop that brings this node's pods to where the API server wants them.
//!
//! Invariant: one task owns all state; everything slow is a task of its own whose end comes back as
//! an event. Each event marks pods, and a marked pod's next step follows from its entry alone, so
//! that lost or repeated events do no harm.

mod adopt;
mod calls;
mod entry;
mod names;
pub(crate) mod removal;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use nix::sys::inotify::WatchDescriptor;
use pumice_cluster::{Change, Failure, WatchScope, watch};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::addresses::{AddressPool, Subnet};
use super::hosts::Peer;
use super::log_service::PodIndex;
use super::pod_status::{self, Facts, View};
use super::shim_watch::{ProcessHandle, StatusWatch};
use super::start::{self, NodeContext, StartError, StartOrder};
use crate::cgroup::CgroupSpec;
use crate::clock;
use crate::shim::control::{self, ShimProcess, Stop};
use crate::shim::status::{ShimPhase, ShimStatus};
use adopt::FoundState;
use calls::{Call, CallDone, Subject};
use entry::{End, Entry, Presence, Stage, has_run, is_terminal};
use names::Names;

/// Names of peers are gathered this long before files are rewritten.
const NAMES_AFTER: Duration = Duration::from_millis(10);
/// Waits between attempts to start a pod that lacks something.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LONGEST: Duration = Duration::from_secs(30);
/// Waits between attempts to call the API server.
const CALL_AGAIN_FIRST: Duration = Duration::from_millis(100);
const CALL_AGAIN_LONGEST: Duration = Duration::from_secs(5);
/// Grace of a pod whose object is gone: it was deleted by force.
const FORCED_GRACE_SECONDS: u64 = 1;
/// How long starts and calls under way are waited for at the end.
const FINISH_WITHIN: Duration = Duration::from_secs(5);
/// The loop-back addresses of pods that share the host's network.
const LOOPBACK: Subnet = Subnet { base: Ipv4Addr::new(127, 64, 0, 0), prefix: 16 };

/// The wish to end all pods of this node.
pub(crate) struct Drain {
    pub grace: Duration,
    pub done: oneshot::Sender<()>,
}

/// The loop's state.
pub(crate) struct Pods {
    context: Arc<NodeContext>,
    pods_max: u32,
    starts_max: usize,
    index: PodIndex,
    watch: StatusWatch,
    addresses: AddressPool,
    pods: HashMap<String, Entry>,
    watched: HashMap<WatchDescriptor, String>,
    names: Names,
    names_at: Option<Instant>,
    marked: BTreeSet<String>,
    queue: VecDeque<String>,
    starts: JoinSet<(String, u64, Result<(), StartError>)>,
    calls: JoinSet<CallDone>,
    exits: JoinSet<String>,
    removals: JoinSet<Option<String>>,
    name_writes: JoinSet<()>,
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
    ) -> std::io::Result<Pods> {
        let subnet = context.network.as_ref().map_or(LOOPBACK, super::bridge::NodeNetwork::subnet);
        let mut pods = Pods {
            pods_max,
            starts_max: starts_max.max(1),
            index,
            watch: StatusWatch::new()?,
            addresses: AddressPool::new(subnet),
            pods: HashMap::new(),
            watched: HashMap::new(),
            names: Names::default(),
            names_at: None,
            marked: BTreeSet::new(),
            queue: VecDeque::new(),
            starts: JoinSet::new(),
            calls: JoinSet::new(),
            exits: JoinSet::new(),
            removals: JoinSet::new(),
            name_writes: JoinSet::new(),
            drains: Vec::new(),
            leftovers: Vec::new(),
            context,
        };
        pods.adopt();
        Ok(pods)
    }

    fn adopt(&mut self) {
        let (found, empty) = adopt::scan(&self.context.pods_dir, &self.context.boot_id);
        self.leftovers = empty;
        for found in found {
            let mut pod = Pod::default();
            pod.metadata.name = Some(found.spec.name.clone());
            pod.metadata.namespace = Some(found.spec.namespace.clone());
            let dir = self.context.pods_dir.join(&found.uid);
            let mut entry = Entry::new(&found.uid, &Arc::new(pod), dir, clock::now());
            entry.presence = Presence::Unknown;
            entry.address = found.spec.address;
            entry.shim = found.status;
            entry.stage = match found.state {
                FoundState::Running => Stage::Running,
                FoundState::Ended => Stage::Ended(End::Told),
                FoundState::Lost => Stage::Ended(End::Lost),
                FoundState::Unstarted => Stage::waiting("ContainerCreating", None),
            };
            entry.respawn = found.state == FoundState::Unstarted;
            if let Some(address) = entry.address.filter(|address| *address != self.context.host_ip) {
                self.addresses.restore(&found.uid, address);
            }
            self.index.insert(&entry.namespace, &entry.name, entry.dir.clone());
            let running = entry.stage == Stage::Running;
            self.pods.insert(found.uid.clone(), entry);
            if running {
                self.follow_shim(&found.uid);
            }
        }
        if !self.pods.is_empty() {
            let running = self.pods.values().filter(|entry| entry.stage == Stage::Running).count();
            tracing::info!(pods = self.pods.len(), running, "pods adopted");
        }
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
            let wake = self.next_wake();
            let sleep = async {
                match wake {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(change) = changes.next() => self.on_change(change),
                news = self.watch.changed() => self.on_news(news?),
                Some(done) = self.starts.join_next() => self.on_start(done),
                Some(done) = self.calls.join_next() => self.on_call(done),
                Some(done) = self.exits.join_next() => self.mark_joined(done),
                Some(done) = self.removals.join_next() => self.on_removed(done),
                Some(_) = self.name_writes.join_next() => {}
                Some(drain) = drains.recv() => self.on_drain(drain),
                () = sleep => self.on_wake(),
            }
        }
        self.finish().await;
        Ok(())
    }

    /// Lets what is under way come to its end, and takes the bridge away when nobody is on it.
    async fn finish(&mut self) {
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
        let running =
            self.pods.values().filter(|entry| matches!(entry.stage, Stage::Running | Stage::Starting)).count();
        if running > 0 {
            tracing::info!(running, "pods go on without the platform");
            return;
        }
        let (hash, cgroup, node) =
            (self.context.node_hash, self.context.capabilities.cgroup.clone(), self.context.cgroup_node.clone());
        let removed = tokio::task::spawn_blocking(move || super::teardown::remove_shared(hash, cgroup.as_ref(), &node));
        if let Err(error) = removed.await {
            tracing::warn!(error = %error, "the node's bridge and control group were not removed");
        }
    }

    fn on_change(&mut self, change: Change<Pod>) {
        match change {
            Change::Replace(all) => {
                let present: BTreeSet<String> = all.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
                for entry in self.pods.values_mut().filter(|entry| !present.contains(&entry.uid)) {
                    entry.presence = Presence::Gone;
                    self.marked.insert(entry.uid.clone());
                }
                for uid in std::mem::take(&mut self.leftovers) {
                    if !present.contains(&uid) {
                        self.remove(None, self.context.pods_dir.join(&uid), &uid);
                    }
                }
                all.into_iter().for_each(|pod| self.on_pod(pod));
            }
            Change::Applied(pod) => self.on_pod(pod),
            Change::Deleted(pod) => {
                let entry = pod.metadata.uid.as_ref().and_then(|uid| self.pods.get_mut(uid));
                if let Some(entry) = entry {
                    entry.presence = Presence::Gone;
                    self.marked.insert(entry.uid.clone());
                }
            }
        }
    }

    fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        // It becomes the name of a directory and of a control group.
        if !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') || uid.is_empty() {
            tracing::warn!(uid, "pod with an impossible uid ignored");
            return;
        }
        let pod = Arc::new(pod);
        self.marked.insert(uid.clone());
        if let Some(entry) = self.pods.get_mut(&uid) {
            let adopted = matches!(entry.presence, Presence::Unknown);
            entry.set_pod(&pod);
            if adopted {
                if entry.has_ended() && is_terminal(&pod) {
                    entry.stage = Stage::Ended(End::Reported);
                }
                self.join_names(&uid);
            }
            return;
        }
        let mut entry = Entry::new(&uid, &pod, self.context.pods_dir.join(&uid), clock::now());
        entry.stage = self.first_stage(&entry, &pod);
        self.index.insert(&entry.namespace, &entry.name, entry.dir.clone());
        self.pods.insert(uid.clone(), entry);
        self.give_address(&uid);
        self.join_names(&uid);
    }

    /// What to do with a pod that is not on disk.
    fn first_stage(&self, entry: &Entry, pod: &Pod) -> Stage {
        if is_terminal(pod) {
            return Stage::Ended(End::Reported);
        }
        if has_run(pod) {
            return Stage::Ended(End::Lost);
        }
        if entry.is_leaving() {
            return Stage::Ended(End::NeverStarted);
        }
        let active = self.pods.values().filter(|other| !other.has_ended());
        let (mut count, mut cpu_milli, mut memory_bytes) = (0_u32, 0_i64, 0_i64);
        for other in active {
            count += 1;
            cpu_milli = cpu_milli.saturating_add(other.requests.cpu_milli);
            memory_bytes = memory_bytes.saturating_add(other.requests.memory_bytes);
        }
        let asks = [
            ("cpu", entry.requests.cpu_milli, cpu_milli, self.context.cpu_milli),
            ("memory", entry.requests.memory_bytes, memory_bytes, self.context.memory_bytes),
            ("pods", 1, i64::from(count), i64::from(self.pods_max)),
        ];
        for (resource, requested, used, capacity) in asks {
            if requested > 0 && used.saturating_add(requested) > capacity {
                return Stage::Ended(End::Rejected {
                    reason: format!("OutOf{resource}"),
                    message: format!(
                        "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
                         capacity: {capacity}"
                    ),
                });
            }
        }
        Stage::waiting("ContainerCreating", None)
    }

    fn give_address(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.address.is_none() && !entry.has_ended() {
            entry.address = if entry.on_host_network() { Some(self.context.host_ip) } else { self.addresses.take(uid) };
        }
    }

    fn join_names(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid).filter(|entry| !entry.has_ended()) else { return };
        if let Some(key) = entry.group() {
            self.names.join(key, uid);
            self.names_soon();
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

    fn mark_joined(&mut self, done: Result<String, tokio::task::JoinError>) {
        match done {
            Ok(uid) => drop(self.marked.insert(uid)),
            Err(error) => tracing::error!(error = %error, "a watch of a shim failed"),
        }
    }

    fn on_wake(&mut self) {
        let now = clock::monotonic();
        for entry in self.pods.values_mut() {
            if entry.call_again_at.is_some_and(|at| at <= now) {
                entry.call_again_at = None;
                self.marked.insert(entry.uid.clone());
            }
            if matches!(entry.stage, Stage::Waiting { retry_at: Some(at), .. } if at <= now) {
                self.marked.insert(entry.uid.clone());
            }
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let pods = self.pods.values().flat_map(|entry| {
            let retry = match entry.stage {
                Stage::Waiting { retry_at, .. } => retry_at,
                _ => None,
            };
            [entry.call_again_at, retry]
        });
        // A batch of names under way comes first; its end wakes the loop.
        let names = self.names_at.filter(|_| self.name_writes.is_empty());
        pods.chain([names]).flatten().min()
    }

    /// Does everything that can be done now.
    fn settle(&mut self) {
        while let Some(uid) = self.marked.pop_first() {
            self.turn(&uid);
        }
        self.start_queued();
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
        let draining = !self.drains.is_empty();
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let (leaving, present) = (entry.is_leaving(), entry.pod().is_some());
        match &mut entry.stage {
            Stage::Waiting { .. } if leaving => entry.stage = Stage::Ended(End::NeverStarted),
            Stage::Waiting { retry_at, .. } if !draining && present => {
                let due = retry_at.is_none_or(|at| at <= clock::monotonic());
                if due && !self.queue.contains(&entry.uid) {
                    *retry_at = None;
                    self.queue.push_back(uid.to_owned());
                }
            }
            Stage::Running => self.look_at_shim(uid),
            _ => {}
        }
        self.stop_if_leaving(uid);
        self.tell(uid);
    }

    /// Reads what the shim says, and notices its death.
    fn look_at_shim(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        // Before the status: a shim that ends in between has written it first.
        let alive = control::is_alive(&entry.dir);
        if let Ok(status) = ShimStatus::read(&entry.dir) {
            entry.shim = Some(status);
        }
        let done = entry.shim.as_ref().is_some_and(|status| status.phase == ShimPhase::Done);
        if done || !alive {
            entry.stage = Stage::Ended(if done { End::Told } else { End::Lost });
            self.on_end(uid);
        }
    }

    /// Gives back what a pod used; its logs stay until it is deleted.
    fn on_end(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        if let Some(key) = entry.group() {
            self.names.leave(&key, uid);
        }
        if let Some(address) = entry.address {
            self.addresses.release(uid, address);
        }
        let dir = entry.dir.clone();
        self.removals.spawn_blocking(move || {
            removal::trim_pod(&dir);
            None
        });
    }

    fn stop_if_leaving(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.stage != Stage::Running {
            return;
        }
        let drain = self.drains.iter().map(|drain| drain.grace.as_secs()).min();
        let leave = entry.is_leaving().then(|| leave_within(entry));
        let Some(grace_seconds) = [drain, leave].into_iter().flatten().min() else { return };
        let kill_at = clock::monotonic() + Duration::from_secs(grace_seconds);
        let sooner = entry.kill_at.is_none_or(|before| kill_at + Duration::from_secs(1) <= before);
        if sooner {
            match control::request_stop(&entry.dir, Stop { grace_seconds }) {
                Ok(()) => entry.kill_at = Some(kill_at),
                Err(error) => tracing::error!(uid, error = %error, "can't tell a shim to stop"),
            }
        }
    }

    /// Tells the API server what it does not know yet, or removes what nobody asks for any more.
    fn tell(&mut self, uid: &str) {
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
        if entry.calling || entry.call_again_at.is_some() {
            return;
        }
        let subject = Subject {
            client: self.context.client.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: uid.to_owned(),
        };
        let status = shown(entry, &pod, self.context.host_ip);
        match status.filter(|status| entry.written.as_ref() != Some(status)) {
            Some(status) => {
                entry.calling = true;
                self.calls.spawn(subject.write_status(Box::new(status)));
            }
            None if entry.has_ended() && entry.is_leaving() && !entry.finalized => {
                entry.calling = true;
                self.calls.spawn(subject.finalize());
            }
            None => {}
        }
    }

    fn on_call(&mut self, done: Result<CallDone, tokio::task::JoinError>) {
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
                let wait = backoff(CALL_AGAIN_FIRST, CALL_AGAIN_LONGEST, entry.call_failures);
                entry.call_failures += 1;
                entry.call_again_at = Some(clock::monotonic() + wait);
            }
        }
        self.marked.insert(done.uid);
    }

    fn start_queued(&mut self) {
        while self.starts.len() < self.starts_max {
            let Some(uid) = self.queue.pop_front() else { return };
            self.give_address(&uid);
            let Some(entry) = self.pods.get(&uid) else { continue };
            if !matches!(entry.stage, Stage::Waiting { .. }) || entry.is_leaving() {
                continue;
            }
            let (Some(pod), Some(address)) = (entry.pod().cloned(), entry.address) else {
                self.not_started(&uid, "ContainerCreating", "every address of this node is taken".into());
                continue;
            };
            let (members, version) = self.members(entry);
            let order = StartOrder { pod, uid: uid.clone(), address, members };
            let (context, dir, respawn) = (self.context.clone(), entry.dir.clone(), entry.respawn);
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.stage = Stage::Starting;
            }
            self.starts.spawn(async move {
                let result = match respawn {
                    false => start::start(context, order).await,
                    true => tokio::task::spawn_blocking(move || start::spawn_shim(&context.shim, &dir))
                        .await
                        .unwrap_or_else(|error| Err(StartError::Shim(error.to_string()))),
                };
                (uid, version, result)
            });
        }
    }

    fn members(&self, entry: &Entry) -> (Vec<Peer>, u64) {
        let Some(group) = entry.group().and_then(|key| self.names.group(&key)) else { return (Vec::new(), 0) };
        let members = group.members.iter().filter_map(|uid| self.pods.get(uid));
        let peers =
            members.filter_map(|entry| Some(Peer { hostname: entry.hostname.clone(), address: entry.address? }));
        (peers.collect(), group.version)
    }

    fn not_started(&mut self, uid: &str, reason: &str, message: String) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let failures = match entry.stage {
            Stage::Waiting { failures, .. } => failures,
            _ => 0,
        };
        let retry_at = Some(clock::monotonic() + backoff(RETRY_FIRST, RETRY_LONGEST, failures));
        entry.stage =
            Stage::Waiting { reason: reason.to_owned(), message: Some(message), retry_at, failures: failures + 1 };
        self.marked.insert(uid.to_owned());
    }

    fn on_start(&mut self, done: Result<(String, u64, Result<(), StartError>), tokio::task::JoinError>) {
        let (uid, version, result) = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(error = %error, "the start of a pod failed");
                return;
            }
        };
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        match result {
            Ok(()) => {
                entry.stage = Stage::Running;
                entry.respawn = false;
                entry.names_version = version;
                let group = entry.group();
                if let Some(key) =
                    group.filter(|key| self.names.group(key).is_some_and(|group| group.version != version))
                {
                    self.names.touch(key);
                    self.names_soon();
                }
                self.follow_shim(&uid);
            }
            Err(error) => {
                tracing::debug!(uid, error = error.message(), "pod not started");
                self.not_started(&uid, error.reason(), error.message());
            }
        }
        self.marked.insert(uid);
    }

    /// Watches a shim's word and its life; looks at once, for what happened before.
    fn follow_shim(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        match self.watch.add(&entry.dir) {
            Ok(descriptor) => drop(self.watched.insert(descriptor, uid.to_owned())),
            Err(error) => {
                tracing::error!(uid, error = %error, "can't watch a pod's status; it is read when its shim ends")
            }
        }
        let handle = ShimProcess::read(&entry.dir).and_then(ProcessHandle::open);
        if let Ok(Some(handle)) = handle {
            let uid = uid.to_owned();
            self.exits.spawn(async move {
                if let Err(error) = handle.ended().await {
                    tracing::error!(uid, error = %error, "can't wait for a shim");
                }
                uid
            });
        }
        self.marked.insert(uid.to_owned());
    }

    /// Rewrites the hosts files that are behind.
    fn write_names(&mut self) {
        let mut files: Vec<(PathBuf, String)> = Vec::new();
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
                files.push((entry.dir.join("hosts"), start::hosts_text(pod, address, &peers)));
                entry.names_version = version;
            }
        }
        if !files.is_empty() {
            self.name_writes.spawn_blocking(move || names::write_all(files));
        }
    }

    fn remove(&mut self, reply: Option<String>, dir: PathBuf, uid: &str) {
        let hierarchy = self.context.capabilities.cgroup.clone();
        let group = hierarchy.map(|hierarchy| CgroupSpec { hierarchy, path: self.context.cgroup_node.join(uid) });
        self.removals.spawn_blocking(move || {
            removal::remove_pod(&dir, group.as_ref());
            reply
        });
    }

    fn on_removed(&mut self, done: Result<Option<String>, tokio::task::JoinError>) {
        match done {
            Ok(Some(uid)) => {
                self.watched.retain(|_, watched| *watched != uid);
                let Some(entry) = self.pods.remove(&uid) else { return };
                if let Some(address) = entry.address {
                    self.addresses.release(&uid, address);
                }
                if let Some(key) = entry.group() {
                    self.names.leave(&key, &uid);
                }
                self.index.remove(&entry.namespace, &entry.name, &entry.dir);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(error = %error, "the removal of a pod failed"),
        }
    }

    fn on_drain(&mut self, drain: Drain) {
        self.drains.push(drain);
        self.marked.extend(self.pods.keys().cloned());
    }
}

/// Seconds that a leaving pod still has.
fn leave_within(entry: &Entry) -> u64 {
    let Some(pod) = entry.pod() else { return FORCED_GRACE_SECONDS };
    let granted = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let granted = granted.unwrap_or_else(|| start::grace_seconds(pod));
    // The time of deletion is when it must be over; after a pause of ours that may be soon.
    let left = pod.metadata.deletion_timestamp.as_ref().map(|at| at.0.duration_since(clock::now()).as_secs() + 1);
    left.map_or(granted, |left| u64::try_from(left).unwrap_or(0).min(granted))
}

/// The status to show; none for a pod whose end the API server knows.
fn shown(entry: &Entry, pod: &Pod, host_ip: Ipv4Addr) -> Option<PodStatus> {
    let nothing = PodStatus::default();
    let facts = Facts {
        pod,
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

fn backoff(first: Duration, longest: Duration, failures: u32) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(longest)
}

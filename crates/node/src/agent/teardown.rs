//! Taking a node off this host: every pod's processes, the bridge, the control groups, the folders.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pumice_clock as clock;
use pumice_units::stable_hash;

use crate::agent::leftovers;
use crate::agent::pods::seconds;
use crate::layout::{node_dir, pods_dir};
use crate::networks::bridge::NodeNetwork;
use crate::shim_watch::ProcessHandle;
use crate::survivors;
use pumice_linux::cgroup::{self, CgroupSpec, Hierarchy, PUMICE};
use pumice_shim::control::{self, ShimProcess, Stop, Termination};
use pumice_shim::spec::ShimSpec;
use pumice_shim::status::{SHUTDOWN_MESSAGE, TERMINATED};

/// What names a node on this host: follows from where its data directory is.
pub(crate) struct NodePaths {
    /// The data directory, without links.
    pub data_dir: PathBuf,
    /// This agent's own folder.
    pub node_dir: PathBuf,
    pub pods_dir: PathBuf,
    /// Tells nodes of one host apart.
    pub hash: u64,
    /// The node's control group below each mount.
    pub cgroup: PathBuf,
}

impl NodePaths {
    /// The paths of an existing data directory.
    pub(crate) fn of(data_dir: &Path) -> std::io::Result<NodePaths> {
        let data_dir = fs::canonicalize(data_dir)?;
        let hash = stable_hash(data_dir.to_string_lossy().bytes());
        let node_dir = node_dir(&data_dir);
        Ok(NodePaths {
            pods_dir: pods_dir(&node_dir),
            node_dir,
            hash,
            cgroup: Path::new(PUMICE).join(format!("{hash:016x}")),
            data_dir,
        })
    }
}

/// What became of a node's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TornDown {
    /// How many that ran have ended.
    pub ended: usize,
    /// Those that go on although they were killed.
    pub unended: Vec<Unended>,
}

/// A pod that could not be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unended {
    /// `namespace/name`.
    pub pod: String,
    /// Which of its processes are left, by pid, why, and what helps.
    pub left: String,
}

/// Ends every pod of a data directory, all at once, and removes what its node left on this host; blocks. A pod has its own grace,
/// at most `grace_max`. While there is something to wait for, `on_wait` is called with how many pods are left and for how long
/// at most, some fifty times a second.
///
/// For a platform that does not run: what became of the pods, and their logs, stay in their folders,
/// and the next platform tells its API server. Folders of claims stay too, and what a pod that could not be ended still uses.
pub fn tear_down(
    data_dir: &Path,
    grace_max: Option<Duration>,
    mut on_wait: impl FnMut(usize, Duration),
) -> std::io::Result<TornDown> {
    let paths = NodePaths::of(data_dir)?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let folders: Vec<PathBuf> =
        fs::read_dir(&paths.pods_dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    // A user's groups are where systemd has handed some over, which pods know.
    let of_pod = folders.iter().find_map(|dir| ShimSpec::read(dir).ok()?.cgroup);
    let hierarchy = of_pod.map(|group| group.hierarchy).or_else(|| Hierarchy::find(&mounts));
    let mut left: Vec<Ending> = folders.iter().filter_map(|dir| Ending::begin(dir, grace_max)).collect();
    let mut torn_down = TornDown::default();
    while !left.is_empty() {
        let now = clock::monotonic();
        let mut next = Vec::with_capacity(left.len());
        for pod in left {
            match pod.look(now) {
                Progress::Ends(pod) => next.push(pod),
                Progress::Ended => torn_down.ended += 1,
                Progress::Survives(unended) => torn_down.unended.push(unended),
            }
        }
        left = next;
        if let Some(longest) = left.iter().map(|pod| pod.kill_at.saturating_duration_since(now)).max() {
            on_wait(left.len(), longest);
            thread::sleep(LOOK_EVERY);
        }
    }
    for dir in folders.iter().filter(|dir| !control::is_alive(dir)) {
        let name = dir.file_name().unwrap_or_default();
        if let Some(hierarchy) = hierarchy.clone() {
            CgroupSpec::of(hierarchy, paths.cgroup.join(name)).remove();
        }
        leftovers::trim_pod(dir);
    }
    if torn_down.unended.is_empty() {
        remove_shared(&paths.node_dir, paths.hash, hierarchy.as_ref(), &paths.cgroup);
    }
    Ok(torn_down)
}

/// How often the pods that are about to end are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long processes may take to go after they were killed.
pub(crate) const KILL_WITHIN: Duration = Duration::from_secs(5);

/// A pod that was told to end.
struct Ending {
    dir: PathBuf,
    /// When its processes are killed.
    kill_at: Instant,
    /// Whether its shim was killed, since it did not kill.
    shim_killed: bool,
}

enum Progress {
    Ends(Ending),
    Ended,
    Survives(Unended),
}

impl Ending {
    /// Tells the shim of `dir`, if one lives, to end its pod.
    fn begin(dir: &Path, grace_max: Option<Duration>) -> Option<Ending> {
        if !control::is_alive(dir) {
            return None;
        }
        // Who has no spec has no grace of its own.
        let own = ShimSpec::read(dir).map_or(0, |spec| spec.grace_seconds);
        let grace_seconds = grace_max.map_or(own, |max| own.min(seconds(max)));
        let why = Termination { reason: TERMINATED.to_owned(), message: SHUTDOWN_MESSAGE.to_owned() };
        if let Err(error) = control::request_termination(dir, &why, Stop { grace_seconds }) {
            tracing::warn!(dir = %dir.display(), error = %error, "can't ask a shim to stop");
        }
        let kill_at = clock::after(clock::monotonic(), grace_seconds);
        Some(Ending { dir: dir.to_owned(), kill_at, shim_killed: false })
    }

    fn look(mut self, now: Instant) -> Progress {
        if !control::is_alive(&self.dir) {
            return Progress::Ended;
        }
        if now < self.kill_at + KILL_WITHIN {
            return Progress::Ends(self);
        }
        let left = survivors::of_pod(&self.dir);
        let process = ShimProcess::read(&self.dir).ok();
        if let (true, false, Some(process)) = (left.is_empty(), self.shim_killed, process) {
            // It does not answer. The kernel kills its containers with it.
            let _ = ProcessHandle::kill(process);
            (self.shim_killed, self.kill_at) = (true, now);
            return Progress::Ends(self);
        }
        let pod = ShimSpec::read(&self.dir).map(|spec| format!("{}/{}", spec.namespace, spec.name));
        let pod = pod.unwrap_or_else(|_| self.dir.display().to_string());
        let left = if left.is_empty() {
            process.map_or_else(
                || "its shim does not end".to_owned(),
                |shim| format!("its shim, process {}, does not end", shim.pid),
            )
        } else {
            survivors::sentence(&left)
        };
        Progress::Survives(Unended { pod, left })
    }
}

/// Removes what a node's pods share, when none is left; blocks.
pub(crate) fn remove_shared(node_dir: &Path, hash: u64, hierarchy: Option<&Hierarchy>, cgroup: &Path) {
    if nix::unistd::Uid::effective().is_root()
        && let Err(error) = NodeNetwork::remove(node_dir, hash)
    {
        tracing::warn!(error = %error, "the node's bridge was not removed");
    }
    if let Some(hierarchy) = hierarchy {
        cgroup::remove_node(hierarchy, cgroup);
    }
}

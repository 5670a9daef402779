//! Taking a node off this host: every pod's processes, the bridge, the control groups, the folders.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_units::stable_hash;

use super::bridge::NodeNetwork;
use super::pods::removal;
use crate::cgroup::{self, CgroupSpec, Hierarchy, PUMICE};
use crate::shim::control;

/// What names a node on this host: follows from where its data directory is.
pub(crate) struct NodePaths {
    /// The data directory, without links.
    pub data_dir: PathBuf,
    /// This agent's own folder.
    pub node_dir: PathBuf,
    /// Folders of pods.
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
        let node_dir = data_dir.join("node");
        Ok(NodePaths {
            pods_dir: node_dir.join("pods"),
            node_dir,
            hash,
            cgroup: Path::new(PUMICE).join(format!("{hash:016x}")),
            data_dir,
        })
    }
}

/// Kills every pod of a data directory and removes all that its node left on this host; blocks.
/// Returns how many pods still ran.
///
/// For a platform that does not run: what became of the pods, and their logs, stay in their folders,
/// and the next platform tells its API server. Folders of claims stay too.
pub fn tear_down(data_dir: &Path) -> std::io::Result<usize> {
    let paths = NodePaths::of(data_dir)?;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let hierarchy = Hierarchy::find(&mounts);
    let mut ended = 0;
    for entry in fs::read_dir(&paths.pods_dir).into_iter().flatten().flatten() {
        let group = hierarchy.clone().map(|hierarchy| CgroupSpec::of(hierarchy, paths.cgroup.join(entry.file_name())));
        ended += usize::from(control::is_alive(&entry.path()));
        removal::end_shim(&entry.path(), group.as_ref());
        removal::trim_pod(&entry.path());
    }
    remove_shared(&paths.node_dir, paths.hash, hierarchy.as_ref(), &paths.cgroup);
    Ok(ended)
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

//! The groups of a pod.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::directory::{make_dir, processes, remove_tree};
use super::{ContainerCgroup, DiskLimits, Hierarchy};

/// Where the groups of one pod are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    pub hierarchy: Hierarchy,
    /// The pod's group below them: `pumice/<node>/<pod uid>`.
    pub path: PathBuf,
    /// Processes and threads of the pod at most.
    #[serde(default)]
    pub pids_max: Option<u32>,
    /// What it reads and writes of the disk with the pods' files.
    #[serde(default)]
    pub disk: Option<DiskLimits>,
}

impl CgroupSpec {
    /// The groups of a pod that were made before, or never.
    pub fn of(hierarchy: Hierarchy, path: PathBuf) -> Self {
        CgroupSpec { hierarchy, path, pids_max: None, disk: None }
    }

    /// Makes the pod's own group with the sum of its containers' shares, and its limits of processes and of the
    /// disk.
    pub fn create(&self, cpu_request_milli: i64) -> io::Result<()> {
        for root in self.hierarchy.pod_roots() {
            make_dir(&root.join(&self.path))?;
        }
        self.hierarchy.weigh(&self.path, cpu_request_milli)?;
        if let (Some(root), Some(most)) = (self.hierarchy.pids_root(), self.pids_max) {
            fs::write(root.join(&self.path).join("pids.max"), most.to_string())?;
        }
        self.hierarchy.limit_disk(&self.path, cpu_request_milli, self.disk.as_ref())?;
        match &self.hierarchy {
            Hierarchy::V1 { .. } => Ok(()),
            Hierarchy::V2 { root, .. } => {
                fs::write(root.join(&self.path).join("cgroup.subtree_control"), self.hierarchy.controllers())
            }
        }
    }

    /// Moves this process into the group of the node's shims.
    pub fn join_shims(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |node| self.hierarchy.join_shims(node))
    }

    /// Files that move the writer into the pod's group of those that start programs beside the containers' own, for which
    /// no container's limit holds; it is made when missing, unless the pod has ended.
    pub fn exec_processes_files(&self) -> io::Result<Vec<File>> {
        ContainerCgroup::for_exec(self)?.processes_files()
    }

    /// Whether a process of the pod's containers is left.
    pub fn has_processes(&self) -> bool {
        let groups = self.hierarchy.container_roots();
        groups.first().is_some_and(|root| !processes(&root.join(&self.path)).is_empty())
    }

    /// Kills everything in the pod's groups and removes them, as far as they can be.
    pub fn remove(&self) {
        for root in self.hierarchy.roots() {
            remove_tree(&root.join(&self.path));
        }
    }
}

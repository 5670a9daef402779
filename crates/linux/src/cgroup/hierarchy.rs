//! Where control groups are, which controllers there are, and the group of a node.
//!
//! Invariant: what a node prepares was tried, so that pods' groups can be made there as it says.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};

use super::directory::make_dir;
use super::limits::{shares, weight};
use super::{CgroupSpec, ContainerCgroup, DiskControl, Limits};

/// Where the kernel's control groups are mounted and may be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hierarchy {
    /// Version 1: a mount for each controller.
    V1 {
        /// The memory controller; without it there is no use in the rest.
        memory: PathBuf,
        cpu: Option<PathBuf>,
        /// The controller that counts processes.
        #[serde(default)]
        pids: Option<PathBuf>,
        /// The controller of devices.
        #[serde(default)]
        devices: Option<PathBuf>,
        #[serde(default)]
        disk: Option<DiskControl>,
    },
    /// Version 2: one mount.
    V2 {
        /// Where it is mounted.
        root: PathBuf,
        /// Whether processes are counted.
        #[serde(default)]
        pids: bool,
        /// Whether the kernel can be given programs that it asks about devices.
        #[serde(default)]
        devices: bool,
        #[serde(default)]
        disk: Option<DiskControl>,
    },
}

impl Hierarchy {
    /// Finds the hierarchy in the text of `/proc/self/mounts`: version 1 with a memory controller
    /// where there is one, else version 2.
    pub fn find(mounts: &str) -> Option<Hierarchy> {
        let fields = mounts.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let (mut memory, mut cpu, mut pids, mut devices, mut v2) = (None, None, None, None, None);
        for field in fields {
            let [_, at, kind, options, ..] = field[..] else { continue };
            match kind {
                "cgroup" if options.split(',').any(|option| option == "memory") => memory = Some(PathBuf::from(at)),
                "cgroup" if options.split(',').any(|option| option == "cpu") => cpu = Some(PathBuf::from(at)),
                "cgroup" if options.split(',').any(|option| option == "pids") => pids = Some(PathBuf::from(at)),
                "cgroup" if options.split(',').any(|option| option == "devices") => devices = Some(PathBuf::from(at)),
                "cgroup2" => v2 = v2.or(Some(PathBuf::from(at))),
                _ => {}
            }
        }
        match memory {
            Some(memory) => Some(Hierarchy::V1 { memory, cpu, pids, devices, disk: None }),
            None => v2.map(|root| Hierarchy::V2 { root, pids: true, devices: true, disk: None }),
        }
    }

    /// Whether processes are counted.
    pub fn counts_processes(&self) -> bool {
        match self {
            Hierarchy::V1 { pids, .. } => pids.is_some(),
            Hierarchy::V2 { pids, .. } => *pids,
        }
    }

    /// The same where processes can't be counted.
    pub fn without_pids(self) -> Hierarchy {
        match self {
            Hierarchy::V1 { memory, cpu, devices, disk, .. } => {
                Hierarchy::V1 { memory, cpu, pids: None, devices, disk }
            }
            Hierarchy::V2 { root, devices, disk, .. } => Hierarchy::V2 { root, pids: false, devices, disk },
        }
    }

    /// What version 2 has for the groups below one.
    pub(super) fn controllers(&self) -> &'static str {
        if self.counts_processes() { "+memory +cpu +pids" } else { "+memory +cpu" }
    }

    /// Prepares the group of a node and proves that groups can be made and limited there. All its pods together weigh as
    /// much as the machine has CPUs: a group is one party among the machine's processes, however many pods it holds.
    pub fn prepare(&self, node: &Path) -> io::Result<()> {
        if let Hierarchy::V2 { root, .. } = self {
            let mut dir = root.clone();
            for part in Path::new("").join(node).components() {
                fs::write(dir.join("cgroup.subtree_control"), self.controllers())?;
                dir.push(part);
                make_dir(&dir)?;
            }
            fs::write(dir.join("cgroup.subtree_control"), self.controllers())?;
        }
        for root in self.roots() {
            make_dir(&root.join(node))?;
        }
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let milli = i64::try_from(cpus).unwrap_or(i64::MAX).saturating_mul(1000);
        for group in node.ancestors().filter(|group| !group.as_os_str().is_empty()) {
            self.weigh(group, milli)?;
        }
        self.prepare_own(node, milli)?;
        let probe = CgroupSpec { pids_max: Some(100), ..CgroupSpec::of(self.clone(), node.join("probe")) };
        let limits = Limits { memory_bytes: Some(64 << 20), ..Limits::default() };
        let made = probe.create(100).and_then(|()| ContainerCgroup::create(&probe, "probe", &limits, Some(&[])));
        let opened = made.and_then(|group| group.processes_files().map(drop));
        probe.remove();
        opened
    }

    /// Gives a group its weight among its siblings: that of so many thousandths of a CPU.
    pub(super) fn weigh(&self, group: &Path, milli: i64) -> io::Result<()> {
        match self {
            Hierarchy::V1 { cpu: Some(cpu), .. } => {
                fs::write(cpu.join(group).join("cpu.shares"), shares(milli).to_string())
            }
            Hierarchy::V1 { cpu: None, .. } => Ok(()),
            Hierarchy::V2 { root, .. } => fs::write(root.join(group).join("cpu.weight"), weight(milli).to_string()),
        }
    }

    /// Where pods may have groups.
    pub(super) fn roots(&self) -> Vec<&Path> {
        let mut roots = self.pod_roots();
        if self.is_v1() {
            roots.extend(self.disk().map(DiskControl::root));
        }
        roots
    }

    /// Where each pod has a group.
    pub(super) fn pod_roots(&self) -> Vec<&Path> {
        let mut roots = self.container_roots();
        if self.is_v1() {
            roots.extend(self.pids_root());
        }
        roots.extend(self.devices_root());
        roots
    }

    /// Where each container has a group of its own: memory first.
    pub(super) fn container_roots(&self) -> Vec<&Path> {
        match self {
            Hierarchy::V1 { memory, cpu, .. } => std::iter::once(memory.as_path()).chain(cpu.as_deref()).collect(),
            Hierarchy::V2 { root, .. } => vec![root],
        }
    }

    /// Where processes are counted, for a pod as a whole.
    pub(super) fn pids_root(&self) -> Option<&Path> {
        match self {
            Hierarchy::V1 { pids, .. } => pids.as_deref(),
            Hierarchy::V2 { root, pids, .. } => pids.then_some(root),
        }
    }

    pub(super) fn is_v1(&self) -> bool {
        matches!(self, Hierarchy::V1 { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_among_the_mounts() {
        let v1 = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                  cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                  cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                  cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
                  cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n\
                  cgroup /sys/fs/cgroup/devices cgroup rw,devices 0 0\n\
                  cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let v2 = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
        let joined = "cgroup /c/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /c/memory cgroup rw,memory 0 0\n";
        let cases = [
            (
                v1,
                Some(Hierarchy::V1 {
                    memory: "/sys/fs/cgroup/memory".into(),
                    cpu: Some("/sys/fs/cgroup/cpu".into()),
                    pids: Some("/sys/fs/cgroup/pids".into()),
                    devices: Some("/sys/fs/cgroup/devices".into()),
                    disk: None,
                }),
            ),
            (v2, Some(Hierarchy::V2 { root: "/sys/fs/cgroup".into(), pids: true, devices: true, disk: None })),
            (
                joined,
                Some(Hierarchy::V1 {
                    memory: "/c/memory".into(),
                    cpu: Some("/c/cpu,cpuacct".into()),
                    pids: None,
                    devices: None,
                    disk: None,
                }),
            ),
            ("proc /proc proc rw 0 0\nnonsense\n", None),
        ];
        for (mounts, expected) in cases {
            assert_eq!(Hierarchy::find(mounts), expected);
        }
    }

    #[test]
    fn all_pods_of_a_node_weigh_as_much_as_the_machine_has_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let (memory, cpu) = (dir.path().join("memory"), dir.path().join("cpu"));
        let hierarchy = Hierarchy::V1 { memory, cpu: Some(cpu.clone()), pids: None, devices: None, disk: None };
        // What the kernel makes by itself in a group is missing here, and so the last step fails.
        let error = hierarchy.prepare(Path::new("pumice/node")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let expected = (thread::available_parallelism().unwrap().get() * 1024).to_string();
        for group in ["pumice", "pumice/node"] {
            assert_eq!(fs::read_to_string(cpu.join(group).join("cpu.shares")).unwrap_or_default(), expected, "{group}");
        }
    }
}

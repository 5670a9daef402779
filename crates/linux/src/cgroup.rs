//! Control groups, version 1 and 2: limits, the kernel's count of OOM kills, killing, removal.
//!
//! Invariant: a group made here is below `pumice/<node>`, a pod's below its uid there, so that everything of a node can be found
//! and removed without any record. Called by the shim, by the agent and by its clean-up.

use std::fs;
use std::path::{Path, PathBuf};

mod container;
mod delegated;
mod device_program;
mod devices;
mod directory;
mod disk;
mod hierarchy;
mod limits;
mod own;
mod pod;

pub use container::{ContainerCgroup, join};
pub use devices::OWN as OWN_DEVICES;
pub use devices::{Device, DeviceKind};
use directory::{children, remove_tree};
pub use disk::{DiskControl, DiskLimits};
pub use hierarchy::Hierarchy;
pub use limits::Limits;
pub use pod::CgroupSpec;

/// Root of all groups of this product.
pub const PUMICE: &str = "pumice";
/// The pod's group of the processes that start others in its containers; no container can be called so.
const EXEC_GROUP: &str = "exec.processes";

/// Removes the group of a node and every pod's below it.
pub fn remove_node(hierarchy: &Hierarchy, node: &Path) {
    // Where it can't leave, the group stays, and what is around it.
    let _ = hierarchy.leave_agent(node);
    remove_groups(hierarchy, node, &fs::read_to_string("/proc/self/mounts").unwrap_or_default());
}

fn remove_groups(hierarchy: &Hierarchy, node: &Path, mounts: &str) {
    let mut roots: Vec<PathBuf> = hierarchy.roots().into_iter().map(Path::to_owned).collect();
    // Whoever comes to clean up may know nothing of the disk.
    if let (true, Some(root)) = (hierarchy.is_v1(), disk::mount_of_version_1(mounts)) {
        roots.push(root);
    }
    for root in roots {
        remove_tree(&root.join(node));
        // The product's own root goes when this was the last node; it stays when there are others.
        let _ = fs::remove_dir(root.join(PUMICE));
    }
}

/// Pods' uids that have a group on this node.
pub fn pods(hierarchy: &Hierarchy, node: &Path) -> Vec<String> {
    let groups = hierarchy.roots().into_iter().flat_map(|root| children(&root.join(node)));
    let mut found: Vec<String> = groups.filter(|name| !own::is_own(name)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The group of a process, by the text of its `/proc/PID/cgroup`: that of a controller of version 1, or that of version 2.
pub fn group_of<'t>(groups: &'t str, controller: Option<&str>) -> Option<&'t str> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_it =
            controller.map_or(controllers.is_empty(), |wanted| controllers.split(',').any(|name| name == wanted));
        is_it.then_some(path)
    })
}

/// The number behind a name, of a file with one of both on each line.
fn field(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(found, _)| *found == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: groups of disks stayed where a platform was taken down that did not run.
    #[test]
    fn the_groups_of_a_node_go_whether_its_disk_is_known_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let mounts = format!(
            "cgroup {0}/memory cgroup rw,memory 0 0\ncgroup {0}/blkio cgroup rw,blkio 0 0\n",
            dir.path().display()
        );
        let hierarchy = Hierarchy::find(&mounts).unwrap();
        for root in ["memory", "blkio"] {
            fs::create_dir_all(dir.path().join(root).join("pumice/node/uid")).unwrap();
        }
        remove_groups(&hierarchy, Path::new("pumice/node"), &mounts);
        for root in ["memory", "blkio"] {
            assert!(!dir.path().join(root).join("pumice").exists(), "{root}");
        }
    }

    #[test]
    fn the_group_of_a_process_is_found_in_both_versions() {
        let cases = [
            ("4:memory:/a\n2:cpu:/\n0::/b\n", Some("/"), Some("/b")),
            ("4:memory:/\n2:cpu,cpuacct:/system.slice/p.service\n", Some("/system.slice/p.service"), None),
            ("0::/system.slice/with:colon\n", None, Some("/system.slice/with:colon")),
            ("3:cpuset:/\nnonsense\n", None, None),
        ];
        for (text, first, second) in cases {
            assert_eq!((group_of(text, Some("cpu")), group_of(text, None)), (first, second), "{text}");
        }
    }
}

//! Groups of CPU time for this product's own processes on a node: one for the process of its agent, which on one machine is the
//! whole platform, and one for the shims of all its pods.
//!
//! Where the kernel gives each session a group (autogroups), each shim would else weigh as much as the whole platform, and
//! pods that are busy would have it wait for half a second at a time. Invariant: nobody kills what is in the agent's group, and
//! a process that somebody has put into a group of CPU time stays there.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use super::{Hierarchy, join, make_dir, processes, processes_file};

/// Of the process that runs the node's agent. No pod's uid and no container is called so.
pub(super) const AGENT: &str = "agent.process";
/// Of the shims of all pods. Neither is called so.
pub(super) const SHIMS: &str = "shims.processes";
/// What all shims together weigh among the node's pods, in thousandths of a CPU.
const SHIMS_MILLI: i64 = 1000;
/// What the agent weighs for each CPU that pods have, in thousandths: it computes little, and others wait for it.
const AGENT_MILLI_PER_CPU: i64 = 8000;

/// Whether a group of a node is one of these, and no pod's.
pub(super) fn is_own(name: &str) -> bool {
    name == AGENT || name == SHIMS
}

impl Hierarchy {
    /// What shares out CPU time; nothing may.
    fn cpu_root(&self) -> Option<&Path> {
        match self {
            Hierarchy::V1 { cpu, .. } => cpu.as_deref(),
            Hierarchy::V2 { root, .. } => Some(root),
        }
    }

    /// Makes both groups.
    pub(super) fn prepare_own(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        let cpus = thread::available_parallelism().map_or(1, NonZero::get);
        let agent = AGENT_MILLI_PER_CPU.saturating_mul(i64::try_from(cpus).unwrap_or(i64::MAX));
        for (name, milli) in [(AGENT, agent), (SHIMS, SHIMS_MILLI)] {
            let group = node.join(name);
            make_dir(&root.join(&group))?;
            self.weigh(&group, milli)?;
        }
        Ok(())
    }

    /// Moves this thread, the only one of its process, into the group of shims.
    pub(super) fn join_shims(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        join(&processes_file(&root.join(node).join(SHIMS), !self.is_v1())?)
    }

    /// Moves this process with all its threads into the group of the node's agent, unless it has a group by somebody's choice,
    /// such as a service's.
    pub(crate) fn join_agent(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        if self.cpu_group(&fs::read_to_string("/proc/self/cgroup")?) != Some("/") {
            return Ok(());
        }
        move_process(&root.join(node).join(AGENT))
    }

    /// Moves this process out of the agent's group, if it is there, so that the group can be removed.
    pub(super) fn leave_agent(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        if processes(&root.join(node).join(AGENT)).contains(&std::process::id().cast_signed()) {
            move_process(root)?;
        }
        Ok(())
    }

    /// The group of a process by which it gets CPU time, by the text of its `/proc/PID/cgroup`.
    fn cpu_group<'t>(&self, groups: &'t str) -> Option<&'t str> {
        groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_it =
                if self.is_v1() { controllers.split(',').any(|name| name == "cpu") } else { controllers.is_empty() };
            is_it.then_some(path)
        })
    }
}

fn move_process(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn v1(root: &Path) -> Hierarchy {
        Hierarchy::V1 { memory: root.join("memory"), cpu: Some(root.join("cpu")), pids: None }
    }

    #[test]
    fn the_agent_weighs_more_than_pods_and_shims_as_much_as_one_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let (hierarchy, node) = (v1(dir.path()), Path::new("pumice/node"));
        hierarchy.prepare_own(node).unwrap();
        let cpus = thread::available_parallelism().unwrap().get();
        for (group, shares) in [(AGENT, (cpus * 8192).to_string()), (SHIMS, "1024".to_owned())] {
            let file = dir.path().join("cpu/pumice/node").join(group).join("cpu.shares");
            assert_eq!(fs::read_to_string(file).unwrap(), shares, "{group}");
        }
        fs::create_dir(dir.path().join("cpu/pumice/node/a-uid")).unwrap();
        assert_eq!(super::super::pods(&hierarchy, node), ["a-uid"]);
        let none = Hierarchy::V1 { memory: dir.path().into(), cpu: None, pids: None };
        assert!(none.prepare_own(node).is_ok() && none.join_shims(node).is_ok() && none.join_agent(node).is_ok());
    }

    #[test]
    fn the_group_of_cpu_time_is_found_in_both_versions() {
        let root = PathBuf::from("/sys/fs/cgroup");
        let two = Hierarchy::V2 { root: root.clone(), pids: true };
        let cases = [
            ("4:memory:/a\n2:cpu:/\n0::/b\n", Some("/"), Some("/b")),
            ("4:memory:/\n2:cpu,cpuacct:/system.slice/p.service\n", Some("/system.slice/p.service"), None),
            ("0::/system.slice/with:colon\n", None, Some("/system.slice/with:colon")),
            ("3:cpuset:/\nnonsense\n", None, None),
        ];
        for (text, first, second) in cases {
            assert_eq!((v1(&root).cpu_group(text), two.cpu_group(text)), (first, second), "{text}");
        }
    }
}

//! Groups of CPU time for this product's own processes on a node: one for the process of its agent, which on one machine is the
//! whole platform, and one for the shims of all its pods, and for what removes what pods left.
//!
//! Where the kernel gives each session a group (autogroups), each shim would else weigh as much as the whole platform, and
//! pods that are busy would have it wait for half a second at a time. Invariant: nobody kills what is in the agent's group, and
//! a process that somebody has put into a group of CPU time stays there.

use std::fs;
use std::io;
use std::path::Path;

use crate::cpu_turns;

use super::container::processes_file;
use super::directory::{make_dir, processes};
use super::{Hierarchy, group_of, join};

/// Of the process that runs the node's agent. No pod's uid and no container is called so.
pub(super) const AGENT: &str = "agent.process";
/// Of the shims of all pods, and of what removes what pods left. Neither is called so.
pub(super) const SHIMS: &str = "shims.processes";
/// What all these together weigh among the node's pods, in thousandths of a CPU.
const SHIMS_MILLI: i64 = 1000;
/// What the agent weighs, in times of all pods: it computes little, and others wait for it. From 32 CPUs on it is less, since
/// the kernel has a largest weight.
const AGENT_TIMES: i64 = 8;

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

    /// Makes both groups on a node whose pods all weigh so many thousandths of a CPU.
    pub(super) fn prepare_own(&self, node: &Path, pods_milli: i64) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        for (name, milli) in [(AGENT, pods_milli.saturating_mul(AGENT_TIMES)), (SHIMS, SHIMS_MILLI)] {
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

    /// Moves another process of ours into the group of shims.
    pub fn add_to_shims(&self, node: &Path, pid: u32) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        move_process(&root.join(node).join(SHIMS), pid)
    }

    /// Moves this process with all its threads into the group of the node's agent, unless it has a group by somebody's choice,
    /// such as a service's. Weighing that much, it lets others end their turns.
    pub fn join_agent(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        if group_of(&groups, self.is_v1().then_some("cpu")) != Some("/") {
            return Ok(());
        }
        move_process(&root.join(node).join(AGENT), std::process::id())?;
        cpu_turns::wait_for_turns()
    }

    /// Moves this process out of the agent's group, if it is there, so that the group can be removed.
    pub(super) fn leave_agent(&self, node: &Path) -> io::Result<()> {
        let Some(root) = self.cpu_root() else { return Ok(()) };
        if processes(&root.join(node).join(AGENT)).contains(&std::process::id().cast_signed()) {
            move_process(root, std::process::id())?;
        }
        Ok(())
    }
}

pub(super) fn move_process(group: &Path, pid: u32) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_weighs_more_than_all_pods_and_shims_as_much_as_a_cpu() {
        let dir = tempfile::tempdir().unwrap();
        let (memory, cpu) = (dir.path().join("memory"), dir.path().join("cpu"));
        let (hierarchy, node) =
            (Hierarchy::V1 { memory, cpu: Some(cpu), pids: None, devices: None, disk: None }, Path::new("pumice/node"));
        hierarchy.prepare_own(node, 4000).unwrap();
        for (group, shares) in [(AGENT, "32768"), (SHIMS, "1024")] {
            let file = dir.path().join("cpu/pumice/node").join(group).join("cpu.shares");
            assert_eq!(fs::read_to_string(file).unwrap(), shares, "{group}");
        }
        fs::create_dir(dir.path().join("cpu/pumice/node/a-uid")).unwrap();
        assert_eq!(super::super::pods(&hierarchy, node), ["a-uid"]);
        let none = Hierarchy::V1 { memory: dir.path().into(), cpu: None, pids: None, devices: None, disk: None };
        assert!(none.prepare_own(node, 4000).is_ok() && none.join_shims(node).is_ok() && none.join_agent(node).is_ok());
    }
}

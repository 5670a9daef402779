//! The group of one container: its limits, what the kernel counts of it, its end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::directory::{kill_all, make_dir, processes, remove_tree};
use super::field;
use super::limits::{CPU_PERIOD_US, quota_us, shares, weight};
use super::{CgroupSpec, Device, EXEC_GROUP, Limits};

/// The group of one container.
#[derive(Debug)]
pub struct ContainerCgroup {
    /// One directory in version 2, one for each controller in version 1; memory is the first.
    dirs: Vec<PathBuf>,
    /// The pod's group that counts processes, in version 1.
    pids: Option<PathBuf>,
    /// The pod's group of disks, in version 1, if it has one.
    disk: Option<PathBuf>,
    /// The group that limits devices, in version 1.
    devices: Option<PathBuf>,
    v2: bool,
}

impl ContainerCgroup {
    /// The group `name` of a pod, whether it is there or not.
    pub fn of(pod: &CgroupSpec, name: &str) -> Self {
        let dirs = pod.hierarchy.container_roots().iter().map(|root| root.join(&pod.path).join(name)).collect();
        let v1 = pod.hierarchy.is_v1();
        let pids = if v1 { pod.hierarchy.pids_root().map(|root| root.join(&pod.path)) } else { None };
        let disk = pod.hierarchy.disk().filter(|control| v1 && control.has_group(pod.disk.as_ref()));
        let disk = disk.map(|control| control.root().join(&pod.path));
        let devices = pod.hierarchy.devices_root().map(|root| root.join(&pod.path).join(name));
        ContainerCgroup { dirs, pids, disk, devices, v2: !v1 }
    }

    /// Makes the group `name` of a pod and sets its limits. It may use these devices beside those of every container, or all.
    pub fn create(pod: &CgroupSpec, name: &str, limits: &Limits, devices: Option<&[Device]>) -> io::Result<Self> {
        let group = Self::of(pod, name);
        for dir in group.own_dirs() {
            make_dir(dir)?;
        }
        let limited = if group.v2 { group.limit_v2(limits) } else { group.limit_v1(limits) };
        let limited = limited.and_then(|()| {
            devices.map_or(Ok(()), |allowed| pod.hierarchy.limit_devices(&pod.path.join(name), allowed))
        });
        limited.inspect_err(|_| group.remove())?;
        Ok(group)
    }

    /// The group of those that start programs beside the containers' own; made when it is missing and the pod's is there.
    pub(super) fn for_exec(pod: &CgroupSpec) -> io::Result<Self> {
        let group = ContainerCgroup { devices: None, ..Self::of(pod, EXEC_GROUP) };
        for dir in &group.dirs {
            match fs::create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(group)
    }

    fn limit_v1(&self, limits: &Limits) -> io::Result<()> {
        let [memory, rest @ ..] = &self.dirs[..] else { return Ok(()) };
        if let Some(bytes) = limits.memory_bytes {
            fs::write(memory.join("memory.limit_in_bytes"), bytes.to_string())?;
            // Absent where the kernel does not count swap; then there is nothing to limit.
            let _ = fs::write(memory.join("memory.memsw.limit_in_bytes"), bytes.to_string());
        }
        let Some(cpu) = rest.first() else { return Ok(()) };
        if let Some(milli) = limits.cpu_request_milli {
            fs::write(cpu.join("cpu.shares"), shares(milli).to_string())?;
        }
        if let Some(milli) = limits.cpu_limit_milli {
            fs::write(cpu.join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
            fs::write(cpu.join("cpu.cfs_quota_us"), quota_us(milli).to_string())?;
        }
        Ok(())
    }

    fn limit_v2(&self, limits: &Limits) -> io::Result<()> {
        let [dir, ..] = &self.dirs[..] else { return Ok(()) };
        if let Some(bytes) = limits.memory_bytes {
            fs::write(dir.join("memory.max"), bytes.to_string())?;
            let _ = fs::write(dir.join("memory.swap.max"), "0");
            // As kubelets have it: a program that has lost one of its processes rarely knows how to go on.
            let _ = fs::write(dir.join("memory.oom.group"), "1");
        }
        if let Some(milli) = limits.cpu_request_milli {
            fs::write(dir.join("cpu.weight"), weight(milli).to_string())?;
        }
        if let Some(milli) = limits.cpu_limit_milli {
            fs::write(dir.join("cpu.max"), format!("{} {CPU_PERIOD_US}", quota_us(milli)))?;
        }
        Ok(())
    }

    /// Files that move the writer into the group, by [`join`].
    pub fn processes_files(&self) -> io::Result<Vec<File>> {
        self.own_dirs().chain(&self.pids).chain(&self.disk).map(|dir| processes_file(dir, self.v2)).collect()
    }

    /// How many processes of the group the kernel has killed for memory.
    pub fn oom_kills(&self) -> u64 {
        let name = if self.v2 { "memory.events" } else { "memory.oom_control" };
        let text = self.dirs.first().and_then(|dir| fs::read_to_string(dir.join(name)).ok()).unwrap_or_default();
        field(&text, "oom_kill").unwrap_or(0)
    }

    /// Whether the pod was refused a process for its limit.
    pub fn was_refused_processes(&self) -> bool {
        // Kernels of version 2 count it in the group with the limit, or in that of the process.
        let pods = self.pids.as_deref().or_else(|| self.dirs.first().and_then(|dir| dir.parent()));
        let counted = pods.into_iter().chain(self.dirs.first().map(PathBuf::as_path));
        let mut texts = counted.filter_map(|dir| fs::read_to_string(dir.join("pids.events")).ok());
        texts.any(|text| field(&text, "max").is_some_and(|count| count > 0))
    }

    /// Time that the group's processes have computed, in nanoseconds; `None` where the kernel does not count it for groups.
    pub fn cpu_ns(&self) -> Option<u64> {
        if self.v2 {
            let text = fs::read_to_string(self.dirs.first()?.join("cpu.stat")).ok()?;
            return Some(field(&text, "usage_usec")?.saturating_mul(1000));
        }
        // There where both controllers have one mount, as most systems have it.
        fs::read_to_string(self.dirs.get(1)?.join("cpuacct.usage")).ok()?.trim().parse().ok()
    }

    /// Bytes that can't be taken back from the group at once: what it holds without the files it has not used lately, which is
    /// what Kubernetes calls its working set.
    pub fn working_set_bytes(&self) -> Option<u64> {
        let dir = self.dirs.first()?;
        let (held, idle) = if self.v2 {
            ("memory.current", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file")
        };
        let held: u64 = fs::read_to_string(dir.join(held)).ok()?.trim().parse().ok()?;
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        Some(held.saturating_sub(field(&stat, idle).unwrap_or(0)))
    }

    /// Kills what is in the group. What is made meanwhile is killed when the group is removed.
    pub fn kill(&self) {
        let Some(dir) = self.dirs.first() else { return };
        // Version 2 kills all at once, also those that are being made.
        if self.v2 && fs::write(dir.join("cgroup.kill"), "1").is_ok() {
            return;
        }
        for _ in 0..KILL_ROUNDS {
            let left = processes(dir);
            if left.is_empty() {
                return;
            }
            kill_all(left);
        }
    }

    /// The directories that are this container's alone.
    fn own_dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.dirs.iter().chain(&self.devices)
    }

    /// Kills what is left in the group and removes it, as far as it can be.
    pub fn remove(&self) {
        for dir in self.own_dirs() {
            remove_tree(dir);
        }
    }
}

/// How often what is in a group is looked for and killed, one look right after the other.
const KILL_ROUNDS: u32 = 5;

/// The file to write `0` to, which moves the writer into the group. In version 1 it is the one for threads: a thread that
/// moves itself waits for nobody, a process waits for a grace period.
pub(super) fn processes_file(group: &Path, v2: bool) -> io::Result<File> {
    OpenOptions::new().write(true).open(group.join(if v2 { "cgroup.procs" } else { "tasks" }))
}

/// Moves this process into a group through such a file.
pub fn join(mut processes_file: &File) -> io::Result<()> {
    processes_file.write_all(b"0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Hierarchy;

    #[test]
    fn limits_are_written_as_the_kernel_wants_them() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits { memory_bytes: Some(1 << 20), cpu_request_milli: Some(500), cpu_limit_milli: Some(1500) };
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap_or_default();

        let below = |name: &str| root.path().join(name);
        let pod = |hierarchy| CgroupSpec { pids_max: Some(77), ..CgroupSpec::of(hierarchy, "p/u".into()) };
        let v1 = pod(Hierarchy::V1 {
            memory: below("memory"),
            cpu: Some(below("cpu")),
            pids: Some(below("pids")),
            devices: Some(below("devices")),
            disk: None,
        });
        v1.create(500).unwrap();
        assert_eq!(read("pids/p/u/pids.max"), "77");
        let group = ContainerCgroup::create(&v1, "c", &limits, Some(&[])).unwrap();
        for name in ["memory/p/u/c", "cpu/p/u/c", "pids/p/u", "devices/p/u/c"] {
            fs::write(below(name).join("tasks"), "").unwrap();
        }
        group.processes_files().unwrap().iter().for_each(|file| join(file).unwrap());
        assert_eq!(read("pids/p/u/tasks"), "0", "a container's processes count in the pod's group");
        assert_eq!(read("devices/p/u/c/tasks"), "0");
        assert_eq!(read("devices/p/u/c/devices.deny"), "a");
        assert_eq!(read("memory/p/u/c/memory.limit_in_bytes"), "1048576");
        assert_eq!(read("cpu/p/u/c/cpu.shares"), "512");
        assert_eq!(read("cpu/p/u/c/cpu.cfs_quota_us"), "150000");

        let v2 = pod(Hierarchy::V2 { root: below("unified"), pids: true, devices: false, disk: None });
        v2.create(500).unwrap();
        assert_eq!(read("unified/p/u/pids.max"), "77");
        assert_eq!(read("unified/p/u/cgroup.subtree_control"), "+memory +cpu +pids");
        ContainerCgroup::create(&v2, "c", &limits, Some(&[])).unwrap();
        assert_eq!(read("unified/p/u/c/memory.max"), "1048576");
        assert_eq!(read("unified/p/u/c/cpu.max"), "150000 100000");
        assert_eq!(read("unified/p/u/c/cpu.weight"), "20");
    }

    #[test]
    fn oom_kills_are_counted_in_both_versions() {
        let cases = [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
            ("low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 7\n", 1),
            ("oom_kill_disable 0\nunder_oom 0\n", 0),
            ("oom_kill x", 0),
        ];
        for (text, expected) in cases {
            assert_eq!(field(text, "oom_kill").unwrap_or(0), expected, "{text}");
        }
    }

    #[test]
    fn use_is_read_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let files = [
            ("one/memory.usage_in_bytes", "5000\n"),
            ("one/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n"),
            ("cpu/cpuacct.usage", "123456789\n"),
            ("two/memory.current", "5000\n"),
            ("two/memory.stat", "anon 1\ninactive_file 6000\n"),
            ("two/cpu.stat", "usage_usec 1234\nuser_usec 1000\n"),
        ];
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let group = |dirs: &[&str], v2| ContainerCgroup {
            dirs: dirs.iter().map(|name| dir.path().join(name)).collect(),
            pids: None,
            disk: None,
            devices: None,
            v2,
        };
        let used = |group: ContainerCgroup| (group.cpu_ns(), group.working_set_bytes());
        assert_eq!(used(group(&["one", "cpu"], false)), (Some(123_456_789), Some(3000)));
        assert_eq!(used(group(&["one"], false)), (None, Some(3000)));
        assert_eq!(used(group(&["two"], true)), (Some(1_234_000), Some(0)));
        assert_eq!(used(group(&["none", "none"], false)), (None, None));
        assert_eq!(used(group(&[], true)), (None, None));
    }
}

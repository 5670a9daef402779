//! Control groups, version 1 and 2: limits, the kernel's count of OOM kills, killing, removal.
//!
//! Invariant: a group made here is below `pumice/<node>`, a pod's below its uid there, so that everything of a node can be found
//! and removed without any record. Called by the shim, by the agent and by its clean-up.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};

mod delegated;
mod device_program;
mod devices;
mod own;

pub use devices::OWN as OWN_DEVICES;
pub use devices::{Device, DeviceKind};

/// Root of all groups of this product.
pub const PUMICE: &str = "pumice";
/// The pod's group of the processes that start others in its containers; no container can be called so.
const EXEC_GROUP: &str = "exec.processes";
const CPU_PERIOD_US: i64 = 100_000;

/// What a container may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// Memory limit in bytes.
    pub memory_bytes: Option<i64>,
    /// CPU request in thousandths of a core: its share when cores are scarce.
    pub cpu_request_milli: Option<i64>,
    /// CPU limit in thousandths of a core.
    pub cpu_limit_milli: Option<i64>,
}

impl Limits {
    /// No container has more memory than its node has for pods, whether it has a limit or not.
    pub fn bound_memory(&mut self, node_bytes: i64) {
        self.memory_bytes = Some(self.memory_bytes.map_or(node_bytes, |bytes| bytes.min(node_bytes)));
    }
}

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
    },
}

/// Where the groups of one pod are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupSpec {
    pub hierarchy: Hierarchy,
    /// The pod's group below them: `pumice/<node>/<pod uid>`.
    pub path: PathBuf,
    /// Processes and threads of the pod at most.
    #[serde(default)]
    pub pids_max: Option<u32>,
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
            Some(memory) => Some(Hierarchy::V1 { memory, cpu, pids, devices }),
            None => v2.map(|root| Hierarchy::V2 { root, pids: true, devices: true }),
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
            Hierarchy::V1 { memory, cpu, devices, .. } => Hierarchy::V1 { memory, cpu, pids: None, devices },
            Hierarchy::V2 { root, devices, .. } => Hierarchy::V2 { root, pids: false, devices },
        }
    }

    /// What version 2 has for the groups below one.
    fn controllers(&self) -> &'static str {
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
        let probe = CgroupSpec { hierarchy: self.clone(), path: node.join("probe"), pids_max: Some(100) };
        let limits = Limits { memory_bytes: Some(64 << 20), ..Limits::default() };
        let made = probe.create(100).and_then(|()| ContainerCgroup::create(&probe, "probe", &limits, Some(&[])));
        let opened = made.and_then(|group| group.processes_files().map(drop));
        probe.remove();
        opened
    }

    /// Gives a group its weight among its siblings: that of so many thousandths of a CPU.
    fn weigh(&self, group: &Path, milli: i64) -> io::Result<()> {
        match self {
            Hierarchy::V1 { cpu: Some(cpu), .. } => {
                fs::write(cpu.join(group).join("cpu.shares"), shares(milli).to_string())
            }
            Hierarchy::V1 { cpu: None, .. } => Ok(()),
            Hierarchy::V2 { root, .. } => fs::write(root.join(group).join("cpu.weight"), weight(milli).to_string()),
        }
    }

    /// Where pods have groups.
    fn roots(&self) -> Vec<&Path> {
        let mut roots = self.container_roots();
        if self.is_v1() {
            roots.extend(self.pids_root());
        }
        roots.extend(self.devices_root());
        roots
    }

    /// Where each container has a group of its own: memory first.
    fn container_roots(&self) -> Vec<&Path> {
        match self {
            Hierarchy::V1 { memory, cpu, .. } => std::iter::once(memory.as_path()).chain(cpu.as_deref()).collect(),
            Hierarchy::V2 { root, .. } => vec![root],
        }
    }

    /// Where processes are counted, for a pod as a whole.
    fn pids_root(&self) -> Option<&Path> {
        match self {
            Hierarchy::V1 { pids, .. } => pids.as_deref(),
            Hierarchy::V2 { root, pids, .. } => pids.then_some(root),
        }
    }

    fn is_v1(&self) -> bool {
        matches!(self, Hierarchy::V1 { .. })
    }
}

impl CgroupSpec {
    /// The groups of a pod that were made before, or never.
    pub fn of(hierarchy: Hierarchy, path: PathBuf) -> Self {
        CgroupSpec { hierarchy, path, pids_max: None }
    }

    /// Makes the pod's own group with the sum of its containers' shares, and its limit of processes.
    pub fn create(&self, cpu_request_milli: i64) -> io::Result<()> {
        for root in self.hierarchy.roots() {
            make_dir(&root.join(&self.path))?;
        }
        self.hierarchy.weigh(&self.path, cpu_request_milli)?;
        if let (Some(root), Some(most)) = (self.hierarchy.pids_root(), self.pids_max) {
            fs::write(root.join(&self.path).join("pids.max"), most.to_string())?;
        }
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
        let group = ContainerCgroup { devices: None, ..ContainerCgroup::of(self, EXEC_GROUP) };
        for dir in &group.dirs {
            match fs::create_dir(dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        group.processes_files()
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

/// The group of one container.
#[derive(Debug)]
pub struct ContainerCgroup {
    /// One directory in version 2, one for each controller in version 1; memory is the first.
    dirs: Vec<PathBuf>,
    /// The pod's group that counts processes, in version 1.
    pids: Option<PathBuf>,
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
        let devices = pod.hierarchy.devices_root().map(|root| root.join(&pod.path).join(name));
        ContainerCgroup { dirs, pids, devices, v2: !v1 }
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
        self.own_dirs().chain(&self.pids).map(|dir| processes_file(dir, self.v2)).collect()
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

/// The file to write `0` to, which moves the writer into the group. In version 1 it is the one for threads: a thread that
/// moves itself waits for nobody, a process waits for a grace period.
fn processes_file(group: &Path, v2: bool) -> io::Result<File> {
    OpenOptions::new().write(true).open(group.join(if v2 { "cgroup.procs" } else { "tasks" }))
}

/// Moves this process into a group through such a file.
pub fn join(mut processes_file: &File) -> io::Result<()> {
    processes_file.write_all(b"0")
}

/// Removes the group of a node and every pod's below it.
pub fn remove_node(hierarchy: &Hierarchy, node: &Path) {
    // Where it can't leave, the group stays, and what is around it.
    let _ = hierarchy.leave_agent(node);
    for root in hierarchy.roots() {
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

fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1024) / 1000).clamp(2, 262_144)
}

fn weight(milli: i64) -> i64 {
    1 + (shares(milli) - 2) * 9999 / 262_142
}

/// The kernel refuses a quota under 1 ms.
fn quota_us(milli: i64) -> i64 {
    milli.saturating_mul(CPU_PERIOD_US / 1000).max(1000)
}

/// How often a group is made anew that others remove meanwhile. On a busy machine a hundred were once too few.
const MAKE_ATTEMPTS: u32 = 1000;

/// Makes a group and those above it. Another node that ends removes groups that are empty, which those above are until the
/// one below is made.
fn make_dir(dir: &Path) -> io::Result<()> {
    for _ in 0..MAKE_ATTEMPTS {
        match fs::create_dir_all(dir) {
            // The second is one that was found, and gone when it was looked at.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {}
            made => return made,
        }
    }
    fs::create_dir_all(dir)
}

fn children(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn processes(dir: &Path) -> Vec<i32> {
    let own = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<i32> = own.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let children = children(dir).into_iter().filter(|name| name != own::AGENT);
    pids.extend(children.flat_map(|name| processes(&dir.join(name))));
    pids
}

/// How often what is in a group is looked for and killed, one look right after the other.
const KILL_ROUNDS: u32 = 5;

fn kill_all(pids: Vec<i32>) {
    for pid in pids {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}

/// How often a group that is still busy is tried again, 5 ms apart.
const REMOVE_ATTEMPTS: u32 = 40;
/// Attempts before the processes of [`EXEC_GROUP`] and shims are killed too: they see by themselves that the container has
/// ended, and tell how its program did.
const OWN_ATTEMPTS: u32 = 20;

fn remove_tree(dir: &Path) {
    match fs::remove_dir(dir) {
        // Something is in it, or below it.
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => return,
    }
    for child in children(dir) {
        remove_tree(&dir.join(child));
    }
    let spared = match dir.file_name().and_then(OsStr::to_str) {
        Some(EXEC_GROUP | own::SHIMS) => OWN_ATTEMPTS,
        Some(own::AGENT) => REMOVE_ATTEMPTS,
        _ => 0,
    };
    for attempt in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir(dir) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if attempt >= spared {
                    kill_all(processes(dir));
                }
                if attempt > 0 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_container_has_more_memory_than_the_node() {
        for (limit, expected) in [(None, 10), (Some(3), 3), (Some(11), 10)] {
            let mut limits = Limits { memory_bytes: limit, ..Limits::default() };
            limits.bound_memory(10);
            assert_eq!(limits.memory_bytes, Some(expected), "{limit:?}");
        }
    }

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
                }),
            ),
            (v2, Some(Hierarchy::V2 { root: "/sys/fs/cgroup".into(), pids: true, devices: true })),
            (
                joined,
                Some(Hierarchy::V1 {
                    memory: "/c/memory".into(),
                    cpu: Some("/c/cpu,cpuacct".into()),
                    pids: None,
                    devices: None,
                }),
            ),
            ("proc /proc proc rw 0 0\nnonsense\n", None),
        ];
        for (mounts, expected) in cases {
            assert_eq!(Hierarchy::find(mounts), expected);
        }
    }

    #[test]
    fn limits_are_written_as_the_kernel_wants_them() {
        let root = tempfile::tempdir().unwrap();
        let limits = Limits { memory_bytes: Some(1 << 20), cpu_request_milli: Some(500), cpu_limit_milli: Some(1500) };
        let read = |path: &str| fs::read_to_string(root.path().join(path)).unwrap_or_default();

        let below = |name: &str| root.path().join(name);
        let pod = |hierarchy| CgroupSpec { hierarchy, path: "p/u".into(), pids_max: Some(77) };
        let v1 = pod(Hierarchy::V1 {
            memory: below("memory"),
            cpu: Some(below("cpu")),
            pids: Some(below("pids")),
            devices: Some(below("devices")),
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

        let v2 = pod(Hierarchy::V2 { root: below("unified"), pids: true, devices: false });
        v2.create(500).unwrap();
        assert_eq!(read("unified/p/u/pids.max"), "77");
        assert_eq!(read("unified/p/u/cgroup.subtree_control"), "+memory +cpu +pids");
        ContainerCgroup::create(&v2, "c", &limits, Some(&[])).unwrap();
        assert_eq!(read("unified/p/u/c/memory.max"), "1048576");
        assert_eq!(read("unified/p/u/c/cpu.max"), "150000 100000");
        assert_eq!(read("unified/p/u/c/cpu.weight"), "20");
    }

    #[test]
    fn all_pods_of_a_node_weigh_as_much_as_the_machine_has_cpus() {
        let dir = tempfile::tempdir().unwrap();
        let (memory, cpu) = (dir.path().join("memory"), dir.path().join("cpu"));
        let hierarchy = Hierarchy::V1 { memory, cpu: Some(cpu.clone()), pids: None, devices: None };
        // What the kernel makes by itself in a group is missing here, and so the last step fails.
        let error = hierarchy.prepare(Path::new("pumice/node")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let expected = (thread::available_parallelism().unwrap().get() * 1024).to_string();
        for group in ["pumice", "pumice/node"] {
            assert_eq!(fs::read_to_string(cpu.join(group).join("cpu.shares")).unwrap_or_default(), expected, "{group}");
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a pause of one that gets in the way, not a wait")]
    fn a_group_is_made_while_others_remove_what_is_above_it() {
        let dir = tempfile::tempdir().unwrap();
        let (above, group) = (dir.path().join("pumice"), dir.path().join("pumice/node/uid"));
        let over = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::remove_dir(above.join("node")).and_then(|()| fs::remove_dir(&above));
                    thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            let made: io::Result<Vec<()>> =
                (0..4_000).map(|_| make_dir(&group).and_then(|()| fs::remove_dir(&group))).collect();
            over.store(true, std::sync::atomic::Ordering::Relaxed);
            made.unwrap();
        });
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

    #[test]
    fn extreme_requests_stay_within_the_kernels_bounds() {
        assert_eq!((shares(0), shares(i64::MAX)), (2, 262_144));
        assert_eq!((weight(0), weight(i64::MAX)), (1, 10_000));
        assert_eq!((quota_us(1), quota_us(2000)), (1000, 200_000));
    }
}

//! `spec.json`: everything a shim needs to run one pod, resolved by the agent.
//!
//! Invariant: a shim never talks to an API server; what is not in this file does not happen. The
//! file may hold secrets (environment), so it is 0600 in a 0700 directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::format::Format;
use pumice_linux::cgroup::{CgroupSpec, Device, Limits};
use pumice_linux::files::read_bounded;

/// Name of the file within the pod's directory.
pub const SPEC_FILE: &str = "spec.json";
/// Folder within the pod's directory where its shared memory is mounted.
pub const SHARED_MEMORY: &str = "shm";
/// Largest spec a shim reads, in bytes.
pub const SPEC_BYTES_MAX: u64 = 16 << 20;

/// Why a pod's directory has no spec to go by.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file can't be read.
    #[error("can't read {SPEC_FILE}")]
    Read(#[source] io::Error),
    /// The file is not a spec.
    #[error("{SPEC_FILE} is not a pod's spec")]
    Parse(#[source] serde_json::Error),
}

/// One pod, ready to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShimSpec {
    #[serde(default)]
    pub format: Format,
    /// The pod's uid, which also names its directory and cgroup.
    pub uid: String,
    /// The boot for which it was written; under another one the pod is over.
    pub boot_id: String,
    pub namespace: String,
    pub name: String,
    /// The uid of the object that owns the pod, if one does.
    #[serde(default)]
    pub owner: Option<String>,
    /// Host name seen within the pod.
    pub hostname: String,
    /// What to do when a container ends.
    pub restart_policy: RestartPolicy,
    /// Seconds between SIGTERM and SIGKILL when the shim decides to stop by itself.
    pub grace_seconds: u64,
    /// Seconds after its start when the pod is stopped as failed.
    pub active_deadline_seconds: Option<u64>,
    /// How its processes are separated from the host.
    pub isolation: Isolation,
    /// Users and groups of its own, none where they are the machine's. Where the platform is an ordinary user's, those that the machine
    /// gives to that user for all of its pods; none where there is that user alone.
    #[serde(default)]
    pub users: Option<Users>,
    /// Whose processes its containers see.
    #[serde(default)]
    pub processes: Processes,
    /// Whether it has the host's System V objects, message queues and shared memory.
    #[serde(default)]
    pub host_ipc: bool,
    /// Set in its own namespaces.
    #[serde(default)]
    pub sysctls: Vec<Sysctl>,
    pub network: Network,
    /// The address that the pod was given, whether its network is its own or not.
    pub address: Option<Ipv4Addr>,
    /// Where its cgroups are; none where cgroups can't be had.
    pub cgroup: Option<CgroupSpec>,
    /// Volumes in memory, mounted in the shim's own mount namespace.
    pub memory_volumes: Vec<MemoryVolume>,
    /// Volumes that are images, mounted in the shim's own mount namespace.
    #[serde(default)]
    pub image_volumes: Vec<ImageVolume>,
    /// Host directories that its containers must not see.
    pub hidden: Vec<PathBuf>,
    /// Size at which a container's log is moved aside, in bytes.
    #[serde(default = "log_bytes_max")]
    pub log_bytes_max: u64,
    /// Run one after the other, each to success.
    pub init_containers: Vec<ContainerSpec>,
    /// Run side by side.
    pub containers: Vec<ContainerSpec>,
}

fn log_bytes_max() -> u64 {
    super::logs::LOG_BYTES_MAX
}

impl ShimSpec {
    /// Reads the spec of a pod's directory.
    pub fn read(dir: &Path) -> Result<ShimSpec, SpecError> {
        let bytes = read_bounded(&dir.join(SPEC_FILE), SPEC_BYTES_MAX).map_err(SpecError::Read)?;
        serde_json::from_slice(&bytes).map_err(SpecError::Parse)
    }

    /// Whether each container has a pid namespace of its own, with whose process 1 all of it ends.
    pub fn has_own_processes(&self) -> bool {
        self.isolation.namespaces && self.processes == Processes::Container
    }

    /// Users of its own that root of the machine has made for it. Else it has those of the user that the platform is.
    pub fn users_by_root(&self) -> Option<&Users> {
        self.users.as_ref().filter(|_| !self.isolation.user)
    }

    /// Whether the source of a mount is a volume that is an image.
    pub fn is_image(&self, source: &Path) -> bool {
        self.image_volumes.iter().any(|volume| volume.path == source)
    }

    /// The container called `name`, of either list.
    pub fn container(&self, name: &str) -> Option<&ContainerSpec> {
        self.init_containers.iter().chain(&self.containers).find(|container| container.name == name)
    }
}

/// A pod's restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartPolicy {
    /// Restart whatever the exit code.
    Always,
    /// Restart after a failure.
    OnFailure,
    /// Never restart.
    Never,
}

impl RestartPolicy {
    /// Whether a container that ended with `code` is started again.
    pub fn restarts(self, code: i32) -> bool {
        match self {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => code != 0,
            RestartPolicy::Never => false,
        }
    }
}

/// How far a pod's processes are separated from the host; each step down is reported on the Node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Own pid and mount namespaces.
    pub namespaces: bool,
    /// In a user namespace of an ordinary user.
    #[serde(default)]
    pub user: bool,
    /// What the root directory is.
    pub root: RootKind,
}

/// Which users and groups of the machine those of a user namespace are. Several ranges each, so that some may be the machine's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Users {
    pub uids: Vec<IdRange>,
    pub gids: Vec<IdRange>,
}

/// Ids that follow each other, in a user namespace and on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// The first as the pod has it.
    pub inside: u32,
    /// The first as the machine has it.
    pub outside: u32,
    pub count: u32,
}

/// Whose processes the containers of a pod see, beside their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Processes {
    /// It has processes of its own, and shares them with no other.
    #[default]
    Container,
    /// Those of the pod's other containers.
    Pod,
    /// All of the host's.
    Host,
}

/// A parameter of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sysctl {
    /// With dots, such as `net.ipv4.tcp_syncookies`.
    pub name: String,
    pub value: String,
}

/// What a container's root directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootKind {
    /// A throw-away overlay whose upper layer is in the pod's directory.
    Overlay,
    /// The same with the upper layer in memory.
    OverlayInMemory,
    /// An overlay for each of the host's top folders, as an ordinary user can have it.
    OverlayByFolder,
    /// An empty folder with views of the host's programs and settings, and nothing else of the host.
    AllowList,
    /// The host's own root: writes are real.
    Host,
}

/// Which network the containers of a pod have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    Host,
    /// A network namespace on a bridge.
    Bridge {
        bridge: String,
        /// The host's end of the pair.
        veth: String,
        address: Ipv4Addr,
        /// Length of the network's prefix in bits.
        prefix: u8,
        /// The bridge's own address.
        gateway: Ipv4Addr,
    },
}

/// A volume in memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryVolume {
    /// Where it is mounted, under the pod's directory.
    pub path: PathBuf,
    /// Its limit in bytes.
    pub size_bytes: Option<u64>,
    pub group: Option<u32>,
}

/// A volume that shows what an image has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageVolume {
    /// Where it is mounted, under the pod's directory.
    pub path: PathBuf,
    /// Unpacked, the lowest first.
    pub layers: Vec<PathBuf>,
}

/// One container, ready to run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ContainerSpec {
    pub name: String,
    /// A folder that is its root instead of the host's.
    pub root: Option<PathBuf>,
    /// A folder laid over the root, below what the container writes.
    #[serde(default)]
    pub layer: Option<PathBuf>,
    /// An image's unpacked layers, the lowest first, that are its root instead of the host's.
    #[serde(default)]
    pub image_layers: Option<Vec<PathBuf>>,
    /// Folders that its image declares as volumes, those around others first: they take writes also where the root takes none.
    #[serde(default)]
    pub declared_volumes: Vec<PathBuf>,
    /// Home of its user where the image's list of users has nobody of that number: it is put on the list, and has a home.
    #[serde(default)]
    pub unlisted_home: Option<PathBuf>,
    /// The number of the signal that asks it to end; none is SIGTERM.
    #[serde(default)]
    pub stop_signal: Option<i32>,
    /// Program and arguments; never empty.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// Working directory, created when missing.
    pub cwd: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// Volumes and generated files.
    pub mounts: Vec<MountSpec>,
    /// Whether the root directory is read-only.
    pub read_only_root: bool,
    /// Whether all capabilities are kept and all devices seen.
    pub privileged: bool,
    /// Whether all of `/proc` is seen, and may be written as far as its users may.
    #[serde(default)]
    pub unmasked_proc: bool,
    /// Capabilities kept beside the usual ones, such as `NET_ADMIN`.
    pub capabilities_add: Vec<String>,
    /// Capabilities dropped, or `ALL`.
    pub capabilities_drop: Vec<String>,
    /// Whether a set-uid program may gain rights.
    pub no_new_privileges: bool,
    /// The file with the filters of its system calls; none where all are allowed.
    #[serde(default)]
    pub seccomp: Option<PathBuf>,
    /// The profile of AppArmor that confines its programs.
    #[serde(default)]
    pub app_armor: Option<String>,
    /// Limits of its cgroup.
    pub limits: Limits,
    /// Devices that it may use beside those of every container; none where it may use all of the machine's.
    #[serde(default)]
    pub devices: Option<Vec<Device>>,
    /// Accelerators that are this container's, for the agent's book-keeping; none where an agent wrote it that shared them.
    #[serde(default)]
    pub accelerators: Option<DeviceNumbers>,
    /// An init container that goes on beside the containers (`restartPolicy: Always`).
    pub sidecar: bool,
    /// Whether those that come after this sidecar wait until the agent has found it started.
    #[serde(default)]
    pub start_gate: bool,
    /// Where it may leave a last message.
    pub termination_message_path: String,
    /// Whether the last lines of its log stand in for a missing message when it fails.
    pub termination_message_from_log: bool,
    /// Whether it has an input, which clients that are attached type into.
    #[serde(default)]
    pub stdin: bool,
    /// Whether its input ends with that of the first client that types.
    #[serde(default)]
    pub stdin_once: bool,
    /// Whether its streams are a terminal.
    #[serde(default)]
    pub terminal: bool,
}

impl ContainerSpec {
    /// Whether nothing of the host's root is seen in it.
    pub fn has_own_root(&self) -> bool {
        self.root.is_some() || self.image_layers.is_some()
    }
}
/// Devices of resources such as `nvidia.com/gpu`, by the numbers in the names of their nodes.
pub type DeviceNumbers = BTreeMap<String, BTreeSet<u32>>;

/// Something mounted into a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// The host's file or directory.
    pub source: PathBuf,
    /// A path within `source`; a directory is created when missing.
    pub sub_path: Option<String>,
    /// Path within the container.
    pub target: PathBuf,
    /// Whether writes are refused.
    pub read_only: bool,
}

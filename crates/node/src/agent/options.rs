//! What a node agent is told.

use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use pumice_images::provide::Images;
use pumice_objects::pod_security::Profile;

use crate::confinement::accelerators::DeviceFolders;
use crate::launcher::ShimProgram;

/// What a node agent is told.
#[derive(Clone)]
pub struct Options {
    pub client: Client,
    /// The platform's data directory; everything of this agent is below `node/` and `volumes/` there.
    pub data_dir: PathBuf,
    /// More folders that no pod sees, such as that of the platform's socket.
    pub hidden: Vec<PathBuf>,
    pub node_name: String,
    /// How shims are started.
    pub shim: ShimProgram,
    /// Where its devices are found.
    pub devices: DeviceFolders,
    /// What images stand for; read again for each pod, so that it can be edited at any time.
    pub image_map: Option<PathBuf>,
    /// Gives containers their images. None where images that are not in the map are programs of this machine.
    pub images: Option<Arc<Images>>,
    /// Cores in thousandths, instead of the machine's.
    pub cpu_milli: Option<i64>,
    /// Memory in bytes, instead of the machine's.
    pub memory_bytes: Option<i64>,
    /// Pods at most.
    pub pods_max: u32,
    /// Processes and threads of one pod at most, where control groups count them; none where there is no limit.
    pub pod_pids_max: Option<u32>,
    /// What is enforced in namespaces whose labels don't say it, as the API server enforces it.
    pub default_profile: Profile,
    /// PATH of containers that set none.
    pub default_path: String,
    /// Pods being started at a time.
    pub starts_max: usize,
    /// The API server's port on this machine, for pods to be told of: on [`crate::agent::Handle::gateway`] for those that have a network
    /// of their own, on 127.0.0.1 for the others. None where pods are told nothing.
    pub api_port: Option<u16>,
    /// The port where the API server reaches [`crate::agent::Handle::answer`], on this machine's address; none where it is in the
    /// same process.
    pub kubelet_port: Option<u16>,
    /// Size at which a container's log is moved aside, in bytes; as much before it is kept.
    pub log_bytes_max: u64,
    /// Whether the process is there for this agent, with what it serves: then it gets CPU time of its own, so that busy pods
    /// don't have it wait.
    pub own_process: bool,
}

/// Pods at most unless said otherwise.
const PODS_MAX: u32 = 1000;
/// Processes and threads of one pod at most unless said otherwise: no program needs them all, and no pod can take those
/// that the others need.
pub const POD_PIDS_MAX: u32 = 4096;
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Options {
    /// What an agent is started with unless its caller changes fields: no image map, the machine's own CPUs and memory.
    pub fn new(client: Client, data_dir: PathBuf, node_name: String, shim: ShimProgram) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Options {
            client,
            data_dir,
            hidden: Vec::new(),
            node_name,
            shim,
            devices: DeviceFolders::default(),
            image_map: None,
            images: None,
            cpu_milli: None,
            memory_bytes: None,
            pods_max: PODS_MAX,
            pod_pids_max: Some(POD_PIDS_MAX),
            default_profile: Profile::Privileged,
            default_path: DEFAULT_PATH.to_owned(),
            starts_max: cores.saturating_mul(2).saturating_add(2),
            api_port: None,
            kubelet_port: None,
            log_bytes_max: pumice_shim::logs::LOG_BYTES_MAX,
            own_process: false,
        }
    }
}

//! What is on the machine for the attempts to reach: files, keys, sockets, shared memory, and another pod.
//!
//! Invariant: everything is called by this process's number, so that several suites run beside each other, and goes with it.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;
use nix::sys::stat::{Mode, SFlag, mknod};
use pumice_linux::cgroup::Hierarchy;
use pumice_shim::spec::{Network, SPEC_FILE, ShimSpec};
use serde_json::json;

use crate::attempts::syscall::{call, open};
use crate::attempts::{calls, devices, processes, rights};
use crate::facts::{Facts, Handle};
use crate::harness::wait_for;
use crate::node::TestNode;
use crate::probe::{NEIGHBOR, NEIGHBOR_PORT, PROBE_ARGS};

/// The user without rights.
pub const NOBODY: u32 = 65534;
/// A user of the machine that no pod of the suite has.
pub const OTHER_POD: u32 = 0x6fff_0001;

pub struct Fixture {
    pub facts: Facts,
    /// A hierarchy of control groups of the host.
    pub control_groups: PathBuf,
    folder: tempfile::TempDir,
    /// What listens, and the terminal.
    _open: (TcpListener, TcpListener, UnixListener, UnixListener, nix::pty::OpenptyResult),
}

impl Fixture {
    pub async fn make(node: &TestNode) -> Fixture {
        let name = format!("pumice-ways-out-{}", std::process::id());
        let secret = format!("secret of {name}");
        let folder = tempfile::tempdir().unwrap();
        let data_dir = node.data_dir.path().join("data");
        fs::write(data_dir.join("secret"), &secret).unwrap();
        let volume = make_volume(folder.path());
        let local = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let abstract_socket = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_socket = UnixListener::bind_addr(&abstract_socket).unwrap();
        let socket = UnixListener::bind(volume.join("socket")).unwrap();
        let terminal = nix::pty::openpty(None, None).unwrap();
        let shared_memory = Path::new("/dev/shm").join(&name);
        fs::write(&shared_memory, &secret).unwrap();
        drop(make_queue(&name));
        let pod = neighbor(node, &secret).await;
        let process = neighbor_process(&secret);
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).unwrap();
        let service_of_neighbor = format!("{address}:{NEIGHBOR_PORT}");
        wait_for("the other pod to listen", || TcpStream::connect(&service_of_neighbor).ok());
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
        let spec = fs::read(node.pod_dir(&pod).join(SPEC_FILE)).unwrap();
        let spec: ShimSpec = serde_json::from_slice(&spec).unwrap();
        let Network::Bridge { gateway, bridge, .. } = &spec.network else { panic!("pods have a network of their own") };
        let service = TcpListener::bind((*gateway, 0)).unwrap();
        let facts = Facts {
            handle: handle(&data_dir.join("secret")),
            key: make_key(&name, &secret),
            port: local.local_addr().unwrap().port(),
            socket: name.clone(),
            gateway: service.local_addr().unwrap().to_string(),
            bridge: bridge.clone(),
            segment: make_segment(&secret),
            queue: name,
            shared_memory,
            terminal: fs::read_link(format!("/proc/self/fd/{}", terminal.slave.as_raw_fd())).unwrap(),
            disk: disk(),
            neighbor: process,
            neighbor_shim: node.shim_pid(&pod),
            neighbor_address: processes::first_address(&maps).unwrap(),
            neighbor_file: spec.containers[0]
                .mounts
                .iter()
                .find(|mount| mount.target == Path::new("/volume"))
                .unwrap()
                .source
                .join("secret"),
            neighbor_service: service_of_neighbor,
            secret,
            data_dir,
            folder: volume,
            volume: PathBuf::new(),
            scratch: String::new(),
        };
        let control_groups = control_groups();
        Fixture { facts, control_groups, folder, _open: (local, service, abstract_socket, socket, terminal) }
    }

    /// What is known to a pod with a scratch folder of this name, which is made, and its volume at `volume`.
    pub fn facts_of(&self, scratch: String, volume: PathBuf) -> Facts {
        let path = self.facts.folder.join(&scratch);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o1777)).unwrap();
        Facts { scratch, volume, ..self.facts.clone() }
    }

    /// The folder that everything of it is in.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        const KEYCTL_UNLINK: u32 = 9;
        let _ = call!(SYS_keyctl, KEYCTL_UNLINK, self.facts.key, calls::USER_KEYRING);
        let _ = call!(SYS_shmctl, self.facts.segment, libc::IPC_RMID, 0);
        let queue = CString::new(self.facts.queue.as_str()).unwrap();
        let _ = call!(SYS_mq_unlink, queue.as_c_str());
        let _ = fs::remove_file(&self.facts.shared_memory);
    }
}

/// The folder that volumes are of, and beside it the one that is mounted read-only.
fn make_volume(folder: &Path) -> PathBuf {
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let make_folder = |path: &Path, bits| {
        fs::create_dir(path).unwrap();
        mode(path, bits);
    };
    let make_file = |path: &Path, bits| {
        fs::write(path, "of the host").unwrap();
        mode(path, bits);
    };
    // Ordinary users of the pods come in, but none of the machine's: a program in it makes whoever starts it root.
    chown(folder, None, Some(NOBODY)).unwrap();
    mode(folder, 0o750);
    let (volume, read_only) = (folder.join("volume"), folder.join("read-only"));
    make_folder(&volume, 0o755);
    make_folder(&read_only, 0o755);
    make_file(&read_only.join("file"), 0o644);
    make_folder(&volume.join("private folder"), 0o700);
    make_file(&volume.join("file"), 0o644);
    make_file(&volume.join("public"), 0o644);
    make_file(&volume.join("private"), 0o600);
    make_file(&volume.join("of-nobody"), 0o600);
    chown(volume.join("of-nobody"), Some(NOBODY), Some(NOBODY)).unwrap();
    let everybody = Mode::from_bits_truncate(0o666);
    mknod(&volume.join("fuse"), SFlag::S_IFCHR, everybody, devices::FUSE).unwrap();
    mknod(&volume.join("disk"), SFlag::S_IFBLK, Mode::S_IRUSR, disk()).unwrap();
    let program = std::env::current_exe().unwrap();
    let (set_id, with_right) = (volume.join("set-id"), volume.join("with-right"));
    fs::copy(&program, &set_id).unwrap();
    mode(&set_id, 0o6755);
    make_file(&volume.join("of-other-pod"), 0o600);
    chown(volume.join("of-other-pod"), Some(OTHER_POD), Some(OTHER_POD)).unwrap();
    let set_other_id = volume.join("set-id-of-other-pod");
    fs::copy(&program, &set_other_id).unwrap();
    chown(&set_other_id, Some(OTHER_POD), Some(OTHER_POD)).unwrap();
    mode(&set_other_id, 0o6755);
    fs::copy(&program, &with_right).unwrap();
    mode(&with_right, 0o755);
    rights::give_right(&c_string(&with_right)).unwrap();
    volume
}

/// A block device that this process may open; a machine may keep its own disk even from root.
fn disk() -> u64 {
    let entries = fs::read_dir("/dev").unwrap().flatten();
    let disks = entries.filter(|entry| entry.metadata().is_ok_and(|found| found.file_type().is_block_device()));
    let mut opened = disks.filter_map(|entry| File::open(entry.path()).ok()?.metadata().ok());
    opened.next().map_or(0, |found| found.rdev())
}

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn handle(path: &Path) -> Handle {
    const BYTES_MAX: u32 = 128;
    let path = c_string(path);
    let mut found = [0; 8 + BYTES_MAX as usize];
    found[..4].copy_from_slice(&BYTES_MAX.to_ne_bytes());
    let mut mount = [0; 4];
    let (found_at, mount_at) = (found.as_mut_slice(), mount.as_mut_slice());
    call!(SYS_name_to_handle_at, libc::AT_FDCWD, path.as_c_str(), found_at, mount_at, 0).unwrap();
    let number = |at: usize| i32::from_ne_bytes(found[at..at + 4].try_into().unwrap());
    Handle { kind: number(4), bytes: found[8..8 + usize::try_from(number(0)).unwrap()].to_vec() }
}

/// A key that every process of root's finds in the user keyring.
fn make_key(name: &str, secret: &str) -> i32 {
    let (name, mut payload) = (CString::new(name).unwrap(), secret.as_bytes().to_vec());
    let length = payload.len();
    call!(SYS_add_key, c"user", name.as_c_str(), payload.as_mut_slice(), length, calls::USER_KEYRING).unwrap() as i32
}

#[allow(unsafe_code)]
fn make_segment(secret: &str) -> i32 {
    let segment = call!(SYS_shmget, libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600).unwrap();
    let at = call!(SYS_shmat, segment, 0, 0).unwrap();
    // SAFETY: the kernel has just mapped 4096 bytes there, which nobody else writes, and a secret is shorter.
    unsafe { std::ptr::copy_nonoverlapping(secret.as_ptr(), at as *mut u8, secret.len()) };
    call!(SYS_shmdt, at).unwrap();
    segment as i32
}

fn make_queue(name: &str) -> OwnedFd {
    let name = CString::new(name).unwrap();
    open!(SYS_mq_open, name.as_c_str(), libc::O_CREAT | libc::O_RDWR, 0o600, 0).unwrap()
}

/// Another pod with the secret in its environment, its volume and its shared memory.
async fn neighbor(node: &TestNode, secret: &str) -> Pod {
    let program = "/ways-out";
    let command: Vec<&str> = [program].into_iter().chain(PROBE_ARGS).collect();
    let mounts = json!([{"name": "volume", "mountPath": "/volume"},
        {"name": "program", "mountPath": program, "readOnly": true}]);
    let container = json!({"name": "main", "image": "none", "command": command,
        "env": [{"name": NEIGHBOR, "value": secret}], "volumeMounts": mounts});
    let volumes = json!([{"name": "volume", "emptyDir": {}},
        {"name": "program", "hostPath": {"path": std::env::current_exe().unwrap()}}]);
    node.create("neighbor", json!({"containers": [container], "volumes": volumes})).await;
    node.phase("neighbor", "Running").await
}

/// The process of that pod's program, by the host's numbers.
fn neighbor_process(secret: &str) -> i32 {
    let environment = format!("{NEIGHBOR}={secret}");
    let is_it = |pid: &i32| {
        let found = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&found).contains(&environment)
    };
    wait_for("the other pod's program", || {
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
    })
}

fn control_groups() -> PathBuf {
    match Hierarchy::find(&fs::read_to_string("/proc/self/mounts").unwrap()) {
        Some(Hierarchy::V1 { memory, .. }) => memory,
        Some(Hierarchy::V2 { root, .. }) => root,
        None => panic!("this machine has no control groups"),
    }
}

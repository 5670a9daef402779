//! The other side: a container of `runc`, configured as containerd 2 configures one for a kubelet.
//!
//! Invariant: nothing here is read from the platform. Its root is an overlay over the host's, since a pod's is; all mounts for it
//! are made in a namespace of a thread, and are gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use syscalls::Sysno;

use crate::masked::MASKED;
use crate::{CPU_LIMIT_MILLI, CPU_REQUEST_MILLI, GROUPS, HOSTNAME, MEMORY_BYTES, PROCESSES_MAX, PROGRAM};

/// Docker's rights without `NET_RAW` and `MKNOD`, as a cluster has them that is set up with care.
const RIGHTS: [&str; 12] = [
    "CAP_AUDIT_WRITE",
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// What Docker's profile refuses to programs with these rights, on this processor.
/// <https://docs.docker.com/engine/security/seccomp/>
const REFUSED: &str = "
    _sysctl acct add_key afs_syscall bpf clock_settime create_module delete_module fanotify_init file_getattr file_setattr
    finit_module fsconfig fsmount fsopen fspick get_kernel_syms get_mempolicy getpmsg init_module io_uring_enter
    io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie lsm_get_self_attr
    lsm_list_modules lsm_set_self_attr mbind migrate_pages mount mount_setattr move_mount move_pages nfsservctl
    open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_madvise putpmsg query_module
    quotactl quotactl_fd reboot request_key security set_mempolicy set_mempolicy_home_node setdomainname sethostname setns
    settimeofday swapoff swapon sysfs syslog tuxcall umount2 unshare uprobe uselib userfaultfd ustat vhangup vserver
";

/// Where Debian's package has it is on the path.
pub struct Runc {
    folder: tempfile::TempDir,
    program: PathBuf,
    runs: AtomicU32,
}

impl Runc {
    /// `None` where the machine has none.
    pub fn find(program: &Path) -> Option<Runc> {
        let found = Command::new("runc").arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success()).then(|| Runc {
            folder: tempfile::tempdir().unwrap(),
            program: program.to_owned(),
            runs: AtomicU32::new(0),
        })
    }

    /// What the program prints, started as containerd does it: with the streams that it is to have.
    pub fn probe(&self, user: u32) -> String {
        let output = self.run(user, &[PROGRAM], &["--detach"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// How a container of this program ends.
    pub fn end(&self, command: &[&str]) -> String {
        let output = self.run(0, command, &[]);
        if String::from_utf8_lossy(&output.stderr).contains("runc run failed") {
            return "never starts".to_owned();
        }
        format!("code {}", output.status.code().unwrap())
    }

    /// A container that is not detached removes itself.
    fn run(&self, user: u32, command: &[&str], options: &[&str]) -> Output {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let id = format!("pumice-like-runc-{}-{number}", std::process::id());
        let bundle = self.folder.path().join(&id);
        let layers = ["root", "upper", "work", "memory"].map(|name| bundle.join(name));
        layers.iter().for_each(|layer| fs::create_dir_all(layer).unwrap());
        for name in ["hosts", "hostname", "resolv.conf", "termination-log"] {
            fs::write(bundle.join(name), "").unwrap();
        }
        fs::set_permissions(bundle.join("termination-log"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .unwrap();
        fs::write(bundle.join("config.json"), self.config(&id, &bundle, user, command).to_string()).unwrap();
        // Mounts are this thread's own, and gone with it.
        let running = || {
            mount_layers(&layers);
            let runc = || {
                let mut runc = Command::new("runc");
                runc.arg("--root").arg(self.folder.path().join("state")).stdin(Stdio::null());
                runc
            };
            let output = runc().arg("run").args(options).arg("--bundle").arg(&bundle).arg(&id).output().unwrap();
            if !options.is_empty() {
                runc().args(["delete", "--force", &id]).output().unwrap();
            }
            output
        };
        std::thread::scope(|scope| scope.spawn(running).join().unwrap())
    }

    fn config(&self, id: &str, bundle: &Path, user: u32, command: &[&str]) -> Value {
        let namespaces = ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
        json!({
            "ociVersion": "1.0.2",
            "hostname": HOSTNAME,
            "root": {"path": bundle.join("root")},
            "process": {
                "args": command,
                "cwd": "/",
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", format!("HOSTNAME={HOSTNAME}")],
                "user": {"uid": user, "gid": user, "additionalGids": [user]},
                "capabilities": {"bounding": RIGHTS, "effective": RIGHTS, "permitted": RIGHTS},
                // What a kubelet gives to a pod that may use more than it requests.
                "oomScoreAdj": oom_score(),
            },
            "mounts": self.mounts(bundle),
            "linux": {
                "cgroupsPath": format!("/{id}"),
                "namespaces": namespaces,
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
                "sysctl": {"net.ipv4.ping_group_range": "0 2147483647"},
                "resources": {
                    "devices": [{"allow": false, "access": "rwm"}],
                    "memory": {"limit": MEMORY_BYTES, "swap": MEMORY_BYTES},
                    "cpu": {"shares": CPU_REQUEST_MILLI * 1024 / 1000, "period": 100_000, "quota": CPU_LIMIT_MILLI * 100},
                    "pids": {"limit": PROCESSES_MAX},
                },
                "seccomp": seccomp(),
            },
        })
    }

    fn mounts(&self, bundle: &Path) -> Value {
        let kernels = |kind: &str, target: &str, options: &str| json!({"type": kind, "source": kind, "destination": target, "options": options.split(',').collect::<Vec<_>>()});
        let bound = |source: &Path, target: &str, access: &str| json!({"type": "bind", "source": source, "destination": target, "options": ["rbind", "rprivate", access]});
        json!([
            kernels("proc", "/proc", "nosuid,noexec,nodev"),
            kernels("tmpfs", "/dev", "nosuid,strictatime,mode=755,size=65536k"),
            kernels("devpts", "/dev/pts", "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
            kernels("mqueue", "/dev/mqueue", "nosuid,noexec,nodev"),
            kernels("sysfs", "/sys", "nosuid,noexec,nodev,ro"),
            kernels("cgroup", "/sys/fs/cgroup", "nosuid,noexec,nodev,relatime,ro"),
            bound(&bundle.join("memory"), "/dev/shm", "rw"),
            bound(&bundle.join("hosts"), "/etc/hosts", "rw"),
            bound(&bundle.join("hostname"), "/etc/hostname", "rw"),
            bound(&bundle.join("resolv.conf"), "/etc/resolv.conf", "rw"),
            bound(&bundle.join("termination-log"), "/dev/termination-log", "rw"),
            bound(&self.program, PROGRAM, "ro"),
            bound(Path::new("/sys/fs/cgroup"), GROUPS, "ro"),
        ])
    }
}

fn oom_score() -> i64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let total: i64 = text.lines().next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap();
    1000 - 1000 * MEMORY_BYTES / (total << 10)
}

/// The root, and the shared memory that containerd has the containers of a pod share.
fn mount_layers([root, upper, work, memory]: &[PathBuf; 4]) {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS).unwrap();
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
    let options = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
    mount(Some("overlay"), root, Some("overlay"), MsFlags::empty(), Some(options.as_str())).unwrap();
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("shm"), memory, Some("tmpfs"), flags, Some("mode=1777,size=65536k")).unwrap();
}

/// Docker's profile. A runc whose library does not know a name passes it over.
fn seccomp() -> Value {
    const NEW_NAMESPACES: u64 = 0x7e02_0000;
    let by_condition = ["clone", "clone3", "personality", "socket"];
    let is_refused = |name: &str| REFUSED.split_whitespace().chain(by_condition).any(|refused| refused == name);
    let allowed: Vec<_> = Sysno::iter().map(|call| call.name()).filter(|name| !is_refused(name)).collect();
    let when = |name: &str, op: &str, value: u64, other: u64| {
        let condition = json!({"index": 0, "op": op, "value": value, "valueTwo": other});
        json!({"names": [name], "action": "SCMP_ACT_ALLOW", "args": [condition]})
    };
    let mut calls = vec![
        json!({"names": allowed, "action": "SCMP_ACT_ALLOW"}),
        json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS}),
        when("clone", "SCMP_CMP_MASKED_EQ", NEW_NAMESPACES, 0),
        when("socket", "SCMP_CMP_LT", 38, 0),
        when("socket", "SCMP_CMP_EQ", 39, 0),
        when("socket", "SCMP_CMP_GT", 40, 0),
    ];
    calls.extend([0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff].map(|value| when("personality", "SCMP_CMP_EQ", value, 0)));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::EPERM,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": calls,
    })
}

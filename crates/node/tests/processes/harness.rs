//! What the tests with real processes share: a pod directory, the shim (this test binary again), waits.

use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pumice_linux::cgroup::{CgroupSpec, Hierarchy, Limits};
use pumice_shim::control::{self, Stop};
use pumice_shim::format::Format;
use pumice_shim::spec::{ContainerSpec, Isolation, Network, Processes, RestartPolicy, RootKind, SPEC_FILE, ShimSpec};
use pumice_shim::status::{Exit, ShimPhase, ShimStatus};

/// Longest wait for anything; a test that needs it fails.
const DEADLINE: Duration = Duration::from_secs(30);

/// Turns this test binary into a shim when it was started as one: by `shim_entry POD_DIR`.
pub fn shim_entry() {
    let args: Vec<_> = std::env::args_os().collect();
    if args.iter().any(|arg| arg == "--nocapture") && args.last().is_some_and(|last| Path::new(last).is_absolute()) {
        let code = pumice_shim::shim_main(args);
        std::process::exit(if code == std::process::ExitCode::SUCCESS { 0 } else { 1 });
    }
}

/// Arguments that start this test binary as a shim; the pod directory follows.
pub const SHIM_ARGS: [&str; 3] = ["--exact", "shim_entry", "--nocapture"];

/// Says what is missing when the test does not run as root; where CI runs it, that is a failure.
pub fn is_root() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        eprintln!("not run: needs root for namespaces, overlays and control groups");
        assert!(std::env::var_os("CI").is_none(), "run the tests as root");
    }
    root
}

pub const NOBODY: u32 = 65534;

/// Waits until `check` gives something.
#[allow(clippy::disallowed_methods)]
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A pod directory with its shim; stops and removes everything when dropped.
pub struct TestPod {
    pub dir: tempfile::TempDir,
    pub spec: ShimSpec,
}

impl TestPod {
    /// A pod of one container that runs `script`, isolated as far as root allows.
    pub fn sh(script: &str) -> TestPod {
        let dir = tempfile::tempdir().unwrap();
        let uid = dir.path().file_name().unwrap().to_string_lossy().trim_start_matches('.').to_owned();
        let spec = ShimSpec {
            uid: uid.clone(),
            format: Format,
            boot_id: String::new(),
            namespace: "default".into(),
            name: "pod".into(),
            owner: None,
            hostname: "pod-host".into(),
            restart_policy: RestartPolicy::Never,
            grace_seconds: 5,
            active_deadline_seconds: None,
            users: None,
            isolation: Isolation { namespaces: true, user: false, root: RootKind::Overlay },
            processes: Processes::default(),
            host_ipc: false,
            sysctls: vec![],
            network: Network::Host,
            address: None,
            cgroup: cgroup(&uid),
            memory_volumes: vec![],
            image_volumes: vec![],
            hidden: vec![],
            log_bytes_max: 256 << 20,
            init_containers: vec![],
            containers: vec![container("main", script)],
        };
        TestPod { dir, spec }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the shim and waits until it is detached.
    pub fn start(&self) -> &Self {
        self.start_by(Command::new(std::env::current_exe().unwrap()))
    }

    /// The same with a namespace for the shim.
    pub fn start_with(&self, namespace: OwnedFd) -> &Self {
        self.start_on(Command::new(std::env::current_exe().unwrap()), namespace.into())
    }

    /// The same by a command to which the shim's arguments are added.
    pub fn start_by(&self, command: Command) -> &Self {
        self.start_on(command, Stdio::null())
    }

    fn start_on(&self, mut command: Command, stdin: Stdio) -> &Self {
        std::fs::write(self.path().join(SPEC_FILE), serde_json::to_vec(&self.spec).unwrap()).unwrap();
        let log = self.path().join("shim.log");
        if self.spec.isolation.user {
            chown(self.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(SHIM_ARGS).arg(self.path()).stdin(stdin).stdout(Stdio::null());
        let status = command.stderr(std::fs::File::create(&log).unwrap()).status().unwrap();
        assert!(status.success(), "{}", std::fs::read_to_string(log).unwrap());
        self
    }

    pub fn status(&self) -> Option<ShimStatus> {
        ShimStatus::read(self.path()).ok()
    }

    /// Waits until the pod is done and its shim gone.
    pub fn done(&self) -> ShimStatus {
        let done = || self.status().filter(|status| status.phase == ShimPhase::Done && !control::is_alive(self.path()));
        wait_for("the end of the pod", done)
    }

    /// Waits for the end of the first container.
    pub fn exit(&self) -> Exit {
        self.done().containers[0].exit().cloned().expect("the container has ended")
    }

    /// The text of the first container's log, without times.
    pub fn log(&self) -> String {
        self.log_of("main")
    }

    pub fn log_of(&self, container: &str) -> String {
        let path = self.path().join("logs").join(container).join("0.log");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).map(|line| format!("{line}\n")).collect()
    }

    pub fn log_contains(&self, text: &str) {
        wait_for(&format!("{text:?} in the log"), || self.log().contains(text).then_some(()));
    }

    /// Directories of control groups of this pod.
    pub fn groups(&self) -> Vec<PathBuf> {
        let Some(CgroupSpec { hierarchy: Hierarchy::V1 { memory, cpu, pids, devices, .. }, path, .. }) =
            &self.spec.cgroup
        else {
            return vec![];
        };
        [Some(memory), cpu.as_ref(), pids.as_ref(), devices.as_ref()]
            .into_iter()
            .flatten()
            .map(|root| root.join(path))
            .filter(|dir| dir.exists())
            .collect()
    }
}

impl Drop for TestPod {
    fn drop(&mut self) {
        let _ = control::request_stop(self.path(), Stop { grace_seconds: 0 });
        wait_for("the shim to go", || (!control::is_alive(self.path())).then_some(()));
        if let Some(CgroupSpec { hierarchy: Hierarchy::V1 { memory, cpu, pids, devices, .. }, path, .. }) =
            cgroup("any")
        {
            for root in [memory].into_iter().chain(cpu).chain(pids).chain(devices) {
                // They stay while other tests have pods below them.
                for dir in path.ancestors().skip(1).take(2) {
                    let _ = std::fs::remove_dir(root.join(dir));
                }
            }
        }
    }
}

pub fn cgroup(uid: &str) -> Option<CgroupSpec> {
    let hierarchy = Hierarchy::find(&std::fs::read_to_string("/proc/self/mounts").unwrap())?;
    if !matches!(hierarchy, Hierarchy::V1 { .. }) {
        return None;
    }
    Some(CgroupSpec::of(hierarchy, Path::new("pumice").join("test").join(uid)))
}

pub fn container(name: &str, script: &str) -> ContainerSpec {
    ContainerSpec {
        name: name.into(),
        argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: "/".into(),
        limits: Limits::default(),
        termination_message_path: "/dev/termination-log".into(),
        ..ContainerSpec::default()
    }
}

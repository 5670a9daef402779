//! One more program in a container that runs: what `exec` asks for.
//!
//! Started by the agent as `shim exec POD_DIR` with a socket as standard input. Over it comes one [`Request`] as a
//! line of JSON; back go the agent's ends of the program's streams, then [`Report`]s. Invariant: the program has the
//! rights, limits and surroundings of its container, and its session does not outlive the socket's other end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, pipe2};
use pumice_clock as clock;
use pumice_units::with_causes;
use seccompiler::BpfProgram;
use serde::{Deserialize, Serialize};

use super::control::ShimProcess;
use super::ephemeral;
use super::fork;
use super::own_users::become_root;
use super::program::{Handles, become_program, close_on_exec_all, give_away, hide_process, leave_streams, null};
use super::report::Report;
use super::spec::{ContainerSpec, Network, Processes, ShimSpec};
use super::status::{ContainerState, ShimStatus};
use super::syscall_filter;
use super::terminal::{Terminal, open_terminal};
use pumice_linux::cgroup::ContainerCgroup;
use pumice_linux::{oom, pidfd, procfs};

/// Word that asks for another program in a container; the pod's directory follows.
pub const EXEC: &str = "exec";
/// Longest request in bytes.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// How long a program whose client is gone may take to end before it is killed.
const HANG_UP_GRACE: Duration = Duration::from_secs(2);
/// How often it is looked whether a container that is being started has its files.
const START_LOOK: Duration = Duration::from_millis(2);
/// How long a container may take until it has its files, for a program to be run beside it.
const START_MAX: Duration = Duration::from_secs(60);
/// What a terminal is taken for unless the container says otherwise.
const TERMINAL_KIND: (&str, &str) = ("TERM", "xterm");

/// What to run, and which of its streams the agent wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub container: String,
    pub argv: Vec<String>,
    /// Whether something will be typed.
    pub stdin: bool,
    /// Whether its output is read.
    pub stdout: bool,
    /// Whether its errors are read; with a terminal they are part of the output.
    pub stderr: bool,
    /// Whether its streams are a terminal. The agent then gets one end for all of them.
    pub terminal: bool,
}

/// Runs what the socket asks for in the pod of `dir`, and tells the socket how it ended.
pub fn serve(dir: &Path, socket: OwnedFd) {
    let socket = File::from(socket);
    let report = read_request(&socket)
        .map_err(|error| format!("can't read what is to be run: {error}"))
        .and_then(|request| run(dir, request, &socket));
    report.unwrap_or_else(Report::Failed).send(&socket);
}

fn read_request(socket: &File) -> io::Result<Request> {
    let mut line = String::new();
    BufReader::new(socket.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::other)
}

fn run(dir: &Path, request: Request, socket: &File) -> Result<Report, String> {
    let spec = ShimSpec::read(dir).map_err(|error| with_causes(&error))?;
    let added = ephemeral::read(dir, &request.container).ok().map(|added| added.container);
    let container = spec.container(&request.container).or(added.as_ref());
    let container = changed(container.ok_or_else(|| "there is no such container".to_owned())?, &request);
    let process = Process1::of(dir, &request.container)?;
    let cgroup = match &spec.cgroup {
        Some(pod) => ContainerCgroup::of(pod, &container.name).processes_files(),
        None => Ok(Vec::new()),
    };
    let cgroup = cgroup.map_err(|error| format!("can't open the container's control group: {error}"))?;
    let filters = syscall_filter::of(&container)
        .map_err(|error| format!("can't read the container's filter of system calls: {error}"))?;
    // Where the container's users are its own, nobody may write that in it.
    let _ = oom::expose_this_process();
    process.enter(&spec).map_err(|errno| format!("can't enter the container: {errno}"))?;
    // From here on programs of the container may see what we fork, and look into it.
    hide_process(spec.isolation.user).map_err(|errno| format!("can't hide this process: {errno}"))?;
    leave_streams().map_err(|error| format!("can't open the container's null device: {error}"))?;
    let (ends, handles) = streams(&request, &container, cgroup, filters)
        .map_err(|error| format!("can't make the program's streams: {error}"))?;
    let program = match fork::fork().map_err(|errno| format!("can't make a process: {errno}"))? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            close_on_exec_all();
            let error = become_program(&container, &handles, spec.isolation.namespaces);
            Report::Failed(with_causes(&error)).send(socket);
            fork::exit(127)
        }
    };
    drop(handles);
    // Whoever does not hear this has gone; the loop below sees it.
    let _ = send_started(socket, &ends);
    drop(ends);
    attend(program, &process.handle, socket).map_err(|error| format!("can't wait for the program: {error}"))
}

/// The container with another program in it.
fn changed(container: &ContainerSpec, request: &Request) -> ContainerSpec {
    let mut container = ContainerSpec { argv: request.argv.clone(), ..container.clone() };
    let (name, kind) = TERMINAL_KIND;
    if request.terminal && !container.env.iter().any(|(known, _)| known == name) {
        container.env.push((name.to_owned(), kind.to_owned()));
    }
    container
}

/// Process 1 of a container that runs.
struct Process1 {
    handle: OwnedFd,
}

impl Process1 {
    fn of(dir: &Path, container: &str) -> Result<Self, String> {
        let unknown = |error: io::Error| format!("can't tell whether the container runs: {error}");
        let status = ShimStatus::read(dir).map_err(unknown)?;
        let shim = ShimProcess::read(dir).map_err(unknown)?;
        let pid = match status.container(container).map(|found| &found.state) {
            Some(ContainerState::Running { pid: Some(pid), .. }) => *pid,
            Some(ContainerState::Running { pid: None, .. }) => {
                return Err("the pod was started by an earlier release, which did not note what exec needs".into());
            }
            _ => return Err("the container is not running".into()),
        };
        let handle = pidfd::open(pid).map_err(|error| format!("the container's process can't be reached: {error}"))?;
        // Asked with the process held: a pid that was given away since then belongs to another parent.
        if !shim.is_current() || procfs::parent(pid) != Some(shim.pid) {
            return Err("the container has just ended".into());
        }
        let process = Self { handle };
        process.wait_for_files(pid)?;
        Ok(process)
    }

    /// Waits until process 1 has left the host's files for the container's: it starts the program thereafter, so a child
    /// tells. Its namespaces are there before, and show all of the host.
    fn wait_for_files(&self, pid: i32) -> Result<(), String> {
        let give_up_at = clock::monotonic() + START_MAX;
        while procfs::children(pid).is_empty() {
            if clock::monotonic() >= give_up_at {
                return Err("the container is still being started".into());
            }
            let mut ended = [PollFd::new(self.handle.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(START_LOOK).unwrap_or(PollTimeout::ZERO);
            match poll(&mut ended, timeout) {
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Err("the container has just ended".into()),
                Err(errno) => return Err(format!("can't tell whether the container runs: {errno}")),
            }
        }
        Ok(())
    }

    /// Moves this process, and its children, to where the container's are.
    fn enter(&self, spec: &ShimSpec) -> nix::Result<()> {
        if !spec.isolation.namespaces {
            return Ok(());
        }
        let mut namespaces = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWUTS;
        // An ordinary user may not even enter those of the host that it is in.
        namespaces.set(CloneFlags::CLONE_NEWPID, spec.processes != Processes::Host);
        namespaces.set(CloneFlags::CLONE_NEWIPC, !spec.host_ipc);
        namespaces.set(CloneFlags::CLONE_NEWUSER, spec.isolation.user || spec.users.is_some());
        namespaces.set(CloneFlags::CLONE_NEWNET, matches!(spec.network, Network::Bridge { .. }));
        setns(&self.handle, namespaces)?;
        if spec.users_by_root().is_some() { become_root() } else { Ok(()) }
    }
}

/// The agent's ends of the streams that it wants, in the order of their numbers, and the program's.
fn streams(
    request: &Request,
    container: &ContainerSpec,
    cgroup: Vec<File>,
    filters: Vec<BpfProgram>,
) -> io::Result<(Vec<File>, Handles)> {
    let ours = |file: File| {
        give_away(&file, container.uid, container.gid);
        file
    };
    if request.terminal {
        let Terminal { keyboard, screen } = open_terminal()?;
        let terminal = ours(screen);
        let (stdin, stdout) = (terminal.try_clone()?, terminal.try_clone()?);
        let handles = Handles {
            stdin: Some(stdin),
            stdout,
            stderr: terminal,
            terminal: true,
            cgroup,
            filters,
            becomes_root: false,
        };
        return Ok((vec![keyboard], handles));
    }
    let mut ends = Vec::new();
    let mut stream = |wanted: bool, typed: bool| -> io::Result<File> {
        if !wanted {
            return null();
        }
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        let (agent, program) = if typed { (write, read) } else { (read, write) };
        ends.push(File::from(agent));
        Ok(ours(File::from(program)))
    };
    let (stdin, stdout, stderr) =
        (stream(request.stdin, true)?, stream(request.stdout, false)?, stream(request.stderr, false)?);
    Ok((ends, Handles { stdin: Some(stdin), stdout, stderr, terminal: false, cgroup, filters, becomes_root: false }))
}

fn send_started(socket: &File, ends: &[File]) -> nix::Result<()> {
    let descriptors: Vec<RawFd> = ends.iter().map(AsRawFd::as_raw_fd).collect();
    let line = Report::Started.line();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if descriptors.is_empty() { &[] } else { &rights[..] };
    sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(line.as_bytes())], rights, MsgFlags::empty(), None).map(drop)
}

/// Waits for the program's end, and sees to it when its client or its container is gone.
fn attend(program: Pid, container: &OwnedFd, socket: &File) -> io::Result<Report> {
    let handle = pidfd::open(program.as_raw())?;
    let (mut container_ended, mut kill_at, mut killed) = (false, None::<Instant>, false);
    loop {
        let timeout = match kill_at {
            Some(at) if !killed => {
                let wait = at.saturating_duration_since(clock::monotonic());
                PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX)
            }
            _ => PollTimeout::NONE,
        };
        let watched = |fd, wanted: bool| PollFd::new(fd, if wanted { PollFlags::POLLIN } else { PollFlags::empty() });
        // What was seen once is not asked for again: it would wake us for ever.
        let mut all = vec![watched(handle.as_fd(), true)];
        let (mut container_at, mut socket_at) = (None, None);
        if !container_ended {
            container_at = Some(all.len());
            all.push(watched(container.as_fd(), true));
        }
        if kill_at.is_none() {
            socket_at = Some(all.len());
            all.push(watched(socket.as_fd(), true));
        }
        match poll(&mut all, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let happened = |index: usize| all[index].any().unwrap_or(false);
        if happened(0) {
            return Report::of(waitpid(program, None)?).ok_or_else(|| Errno::ECHILD.into());
        }
        if container_at.is_some_and(happened) {
            container_ended = true;
            signal(program, Signal::SIGKILL);
        }
        if socket_at.is_some_and(happened) {
            // Nothing more is ever said to us: this is the end of the other side.
            kill_at = Some(clock::monotonic() + HANG_UP_GRACE);
            signal(program, Signal::SIGHUP);
        }
        if !killed && kill_at.is_some_and(|at| clock::monotonic() >= at) {
            killed = true;
            signal(program, Signal::SIGKILL);
        }
    }
}

/// To the program's whole group, or to it alone before it has one.
fn signal(program: Pid, signal: Signal) {
    if killpg(program, signal).is_err() {
        let _ = kill(program, signal);
    }
}

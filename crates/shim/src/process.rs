//! One run of a container, seen from its shim: started, watched, stopped, ended.
//!
//! Invariant: an end is derived from what process 1 reported or, if that was killed, from how it
//! died; there is always one. Owned by the shim's loop.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

use jiff::Timestamp;
use nix::fcntl::OFlag;
use nix::poll::PollFlags;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, pipe2};
use pumice_clock as clock;

use super::attached::{Attached, Client};
use super::fork::{self, clone_self};
use super::init::{self, Birth};
use super::journal::journal;
use super::logs::{LogFile, log_path, tail};
use super::namespaces::shared_memory;
use super::output::Output;
use super::own_users::UserNamespace;
use super::program::{Handles, close_in_copy, hide_process, null};
use super::remove;
use super::report::Report;
use super::rootfs::Layers;
use super::spec::{ContainerSpec, ShimSpec};
use super::status::{Exit, START_ERROR};
use super::syscall_filter;
use super::terminal::{HandOver, hand_over_sockets, take_over};
use pumice_linux::cgroup::ContainerCgroup;
use pumice_linux::files;
use pumice_linux::{pidfd, procfs};

/// Longest last message of a container, in bytes, as in Kubernetes.
const MESSAGE_BYTES_MAX: u64 = 4096;
/// Last lines and bytes of a log that stand in for a message.
const FALLBACK_LINES: usize = 80;
const FALLBACK_BYTES: usize = 2048;
/// Longest report of process 1, in bytes.
const REPORT_BYTES_MAX: usize = 64 << 10;

/// A container that runs.
pub(crate) struct Process {
    pid: Pid,
    report: File,
    reported: Vec<u8>,
    output: Output,
    /// Where its terminal comes from, until it has.
    terminal_from: Option<File>,
    attached: Attached,
    log: LogFile,
    log_file: PathBuf,
    layers: Layers,
    group: Option<ContainerCgroup>,
    has_own_processes: bool,
    shares_processes: bool,
    memory_limit: Option<u64>,
    over_memory: bool,
    stop_signal: Signal,
    /// When it was started.
    pub started_at: Timestamp,
}

/// A run that is over.
pub(crate) struct Ended {
    pub exit: Exit,
    /// Its group, to be removed when the exit is written down.
    pub group: Option<ContainerCgroup>,
    /// Its log, if it doesn't tell yet of lines that were lost.
    pub log: Option<LogFile>,
    /// Whether the program was never started, since the disk has no room for what it needs.
    pub no_room: bool,
    /// Clients that have not taken all that it wrote.
    pub leaving: Vec<Client>,
}

/// The group and everything else that a run needs on the host.
pub(crate) struct Ground<'a> {
    pub dir: &'a Path,
    pub spec: &'a ShimSpec,
    /// The pod's user namespace.
    pub users: Option<&'a UserNamespace>,
    pub container: &'a ContainerSpec,
    /// The process of another container among whose processes it begins; none where it has those that any container has.
    pub target: Option<Pid>,
    /// 0 for the first run.
    pub attempt: u32,
    /// Descriptors of this process that the container gets no copy of.
    pub private: Vec<RawFd>,
}

impl Process {
    /// Starts a run of a container, in fresh layers and a control group of its own; after an error no program has begun.
    pub(crate) fn start(ground: &Ground<'_>, now: Timestamp) -> io::Result<Process> {
        let &Ground { dir, spec, users, container, target, attempt, .. } = ground;
        let has_own_processes = spec.has_own_processes() && target.is_none();
        let layers = make_layers(dir, spec, container, attempt)?;
        let group = match &spec.cgroup {
            Some(pod) => {
                let devices = container.devices.as_deref();
                Some(ContainerCgroup::create(pod, &container.name, &container.limits, devices)?)
            }
            None => None,
        };
        let log_file = log_path(dir, &container.name, attempt);
        let log = LogFile::open(log_file.clone(), spec.log_bytes_max)?;
        let (report, report_end) = pipe()?;
        let (streams, ends) = streams(container)?;
        let cgroup = group.as_ref().map(ContainerCgroup::processes_files).transpose()?.unwrap_or_default();
        let filters = syscall_filter::of(container)?;
        let handles = Handles {
            stdin: ends.stdin,
            stdout: ends.stdout,
            stderr: ends.stderr,
            terminal: false,
            cgroup,
            filters,
            becomes_root: users.is_some(),
        };
        let mut namespaces = CloneFlags::empty();
        namespaces.set(CloneFlags::CLONE_NEWNS, spec.isolation.namespaces);
        namespaces.set(CloneFlags::CLONE_NEWPID, has_own_processes);
        let birth = Birth {
            spec,
            users,
            container,
            has_own_processes,
            layers: layers.clone(),
            handles,
            report: report_end,
            terminal: ends.terminal,
        };
        // Programs that are there before it may not look into it until it has left the host's files.
        let is_visible = spec.isolation.namespaces && !has_own_processes;
        if is_visible {
            hide_process(spec.isolation.user)?;
        }
        let copy = match target {
            Some(target) => clone_beside(target, namespaces),
            None => clone_self(namespaces).map_err(io::Error::from),
        };
        if is_visible && !matches!(copy, Ok(ForkResult::Child)) {
            let _ = prctl::set_dumpable(true);
        }
        let pid = match copy? {
            ForkResult::Child => {
                // An input ends, and so does a client's connection, when nobody has it open any more.
                drop(streams);
                close_in_copy(&ground.private);
                init::run(birth)
            }
            ForkResult::Parent { child } => child,
        };
        Ok(Process {
            pid,
            report,
            reported: Vec::new(),
            output: streams.output,
            terminal_from: streams.terminal_from,
            attached: streams.attached,
            log,
            log_file,
            layers,
            memory_limit: watched_limit(group.is_some(), container),
            group,
            has_own_processes,
            shares_processes: spec.isolation.namespaces && !has_own_processes,
            over_memory: false,
            stop_signal: container.stop_signal.and_then(|number| number.try_into().ok()).unwrap_or(Signal::SIGTERM),
            started_at: now,
        })
    }

    /// The pid of the process that is 1 within the container.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// What has to be ready for there to be something to do, and for what.
    pub(crate) fn pollable(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let is_read = !self.attached.holds_up();
        let output = self.output.pollable().filter(move |_| is_read).chain(&self.terminal_from);
        output.map(|file| (file.as_fd(), PollFlags::POLLIN)).chain(self.attached.pollable())
    }

    /// When there is something to do for its streams although nothing happened.
    pub(crate) fn next_turn(&self) -> Option<Instant> {
        self.output.next_turn().into_iter().chain(self.attached.next_turn()).min()
    }

    /// Moves output into the log and to clients, and what these type to the program.
    pub(crate) fn pump(&mut self, now: Timestamp, at: Instant) {
        self.look_for_terminal();
        self.attached.turn(at);
        self.output.pump(&mut self.log, &mut self.attached, now, at);
    }

    pub(crate) fn attach(&mut self, client: OwnedFd, at: Instant) {
        self.attached.add(client, at);
    }

    /// Descriptors that no other container gets a copy of.
    pub(crate) fn private(&self) -> impl Iterator<Item = RawFd> {
        self.attached.descriptors()
    }

    fn look_for_terminal(&mut self) {
        let Some(socket) = &self.terminal_from else { return };
        let keyboard = match take_over(socket) {
            HandOver::Awaited => return,
            HandOver::Done(keyboard) => Some(keyboard),
            // Its process 1 has ended, and says why.
            HandOver::Failed => None,
        };
        self.terminal_from = None;
        if let Err(error) = self.attached.set_terminal(keyboard.as_ref()) {
            journal(&format!("nobody can type on the terminal of {}: {error}", self.log_file.display()));
        }
        keyboard.into_iter().for_each(|keyboard| self.output.set_terminal(keyboard));
    }

    /// Asks the program to end.
    pub(crate) fn terminate(&self) {
        let _ = kill(self.pid, self.stop_signal);
    }

    /// Ends everything in the container.
    pub(crate) fn kill(&self) {
        if self.has_own_processes {
            let _ = kill(self.pid, Signal::SIGKILL);
            return;
        }
        let left = procfs::descendants(self.pid.as_raw());
        if let (true, Some(group)) = (self.shares_processes, &self.group) {
            // First who could start another program. What it leaves is in the group, and others' to reap.
            let _ = kill(self.pid, Signal::SIGKILL);
            group.kill();
        }
        // Without namespaces its process 1 must live to report; it ends the rest when the program is dead.
        for pid in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Whether its memory has to be watched because no control group does.
    pub(crate) fn is_watched(&self) -> bool {
        self.memory_limit.is_some()
    }

    /// Kills it if its resident set is over its limit.
    pub(crate) fn watch_memory(&mut self) {
        let Some(limit) = self.memory_limit else { return };
        let resident: u64 = procfs::descendants(self.pid.as_raw()).into_iter().map(procfs::resident_bytes).sum();
        if resident > limit {
            self.over_memory = true;
            self.kill();
        }
    }

    /// Takes the end of process 1 and makes the container's of it.
    pub(crate) fn finish(mut self, container: &ContainerSpec, end: WaitStatus, now: Timestamp) -> Ended {
        let at = clock::monotonic();
        self.look_for_terminal();
        self.output.finish(&mut self.log, &mut self.attached, now, at);
        let _ = (&self.report).take(REPORT_BYTES_MAX as u64).read_to_end(&mut self.reported);
        let oom_killed = self.over_memory || self.group.as_ref().is_some_and(|group| group.oom_kills() > 0);
        let reports: Vec<_> = String::from_utf8_lossy(&self.reported).lines().filter_map(Report::parse).collect();
        let mut exit = exit(&reports, end, oom_killed, self.started_at, now);
        exit.discarded = reports.iter().find_map(|report| match report {
            Report::Discarded(found) => Some(found.clone()),
            _ => None,
        });
        if exit.message.is_none() {
            exit.message = self.message(container, exit.code);
        }
        if exit.code != 0 && self.group.as_ref().is_some_and(ContainerCgroup::was_refused_processes) {
            exit.message.get_or_insert_with(|| "the pod has as many processes as it may have".to_owned());
        }
        let no_room = reports.iter().any(|report| matches!(report, Report::NoRoom(_)));
        let log = (!self.log.catch_up(now)).then_some(self.log);
        Ended { exit, group: self.group, log, no_room, leaving: self.attached.end(at) }
    }

    fn message(&self, container: &ContainerSpec, code: i32) -> Option<String> {
        let mut bytes = Vec::new();
        let read =
            File::open(&self.layers.termination).and_then(|file| file.take(MESSAGE_BYTES_MAX).read_to_end(&mut bytes));
        if read.is_ok() && !bytes.is_empty() {
            return Some(String::from_utf8_lossy(&bytes).into_owned());
        }
        if !container.termination_message_from_log || code == 0 {
            return None;
        }
        Some(tail(&self.log_file, FALLBACK_LINES, FALLBACK_BYTES)).filter(|text| !text.is_empty())
    }
}

/// `fork` into new namespaces, and among the processes of another container. By a process in between, which makes a child of ours: who
/// is not root of the machine could not have its later children begin among the machine's processes again.
fn clone_beside(target: Pid, namespaces: CloneFlags) -> io::Result<ForkResult> {
    let (answer, mut answers) = std::io::pipe()?;
    let between = match clone_self(CloneFlags::empty())? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let entered = pidfd::open(target.as_raw()).and_then(|target| Ok(setns(&target, CloneFlags::CLONE_NEWPID)?));
            let number = match entered.and_then(|()| Ok(clone_self(namespaces | CloneFlags::CLONE_PARENT)?)) {
                Ok(ForkResult::Child) => return Ok(ForkResult::Child),
                Ok(ForkResult::Parent { child }) => child.as_raw(),
                Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
            };
            let written = answers.write_all(&number.to_ne_bytes());
            fork::exit(i32::from(written.is_err()))
        }
    };
    drop(answers);
    let mut number = [0; size_of::<i32>()];
    let heard = (&answer).read_exact(&mut number);
    let _ = waitpid(between, None);
    heard?;
    match i32::from_ne_bytes(number) {
        pid if pid > 0 => Ok(ForkResult::Parent { child: Pid::from_raw(pid) }),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}

fn watched_limit(grouped: bool, container: &ContainerSpec) -> Option<u64> {
    if grouped {
        return None;
    }
    container.limits.memory_bytes.and_then(|bytes| u64::try_from(bytes).ok())
}

/// A fresh directory for this run; the layers of the run before are removed.
fn make_layers(dir: &Path, spec: &ShimSpec, container: &ContainerSpec, attempt: u32) -> io::Result<Layers> {
    let own = dir.join("c").join(&container.name);
    remove::remove_runs_before(&own, attempt);
    let layers = own.join(attempt.to_string());
    // What an attempt has left that lacked room.
    files::remove(&layers)?;
    files::private_dir(&layers)?;
    let termination = layers.join("termination");
    fs::write(&termination, "")?;
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&termination, everybody)?;
    Ok(Layers { dir: layers, shared_memory: shared_memory(spec, dir), termination })
}

/// This side of a container's streams.
struct Streams {
    output: Output,
    attached: Attached,
    terminal_from: Option<File>,
}

/// The container's side of them.
struct Ends {
    stdin: Option<File>,
    stdout: File,
    stderr: File,
    /// By which it hands over the terminal that it makes of its own.
    terminal: Option<File>,
}

fn streams(container: &ContainerSpec) -> io::Result<(Streams, Ends)> {
    if container.terminal {
        let (ours, theirs) = hand_over_sockets()?;
        let streams = Streams {
            output: Output::of_terminal(),
            attached: Attached::of_terminal(container.stdin),
            terminal_from: Some(ours),
        };
        return Ok((streams, Ends { stdin: None, stdout: null()?, stderr: null()?, terminal: Some(theirs) }));
    }
    let (stdout, stdout_end) = pipe()?;
    let (stderr, stderr_end) = pipe()?;
    let (input, stdin) = match container.stdin {
        true => {
            let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
            set_non_blocking(&write)?;
            (Some(File::from(write)), Some(File::from(read)))
        }
        false => (None, None),
    };
    let streams = Streams {
        output: Output::new(stdout, stderr),
        attached: Attached::new(input, container.stdin_once),
        terminal_from: None,
    };
    Ok((streams, Ends { stdin, stdout: stdout_end, stderr: stderr_end, terminal: None }))
}

/// A pipe whose reading end does not block.
fn pipe() -> io::Result<(File, File)> {
    let (read, write): (OwnedFd, OwnedFd) = pipe2(OFlag::O_CLOEXEC)?;
    set_non_blocking(&read)?;
    Ok((File::from(read), File::from(write)))
}

fn set_non_blocking(end: &OwnedFd) -> nix::Result<()> {
    nix::fcntl::fcntl(end, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

/// How a run ended: what process 1 reported, else how it died itself.
fn exit(reports: &[Report], end: WaitStatus, oom_killed: bool, started_at: Timestamp, finished_at: Timestamp) -> Exit {
    let died = match end {
        WaitStatus::Signaled(_, signal, _) => Report::Killed(signal as i32),
        WaitStatus::Exited(_, code) => Report::Exited(code),
        _ => Report::Exited(255),
    };
    let failed = reports.iter().find(|report| matches!(report, Report::Failed(_) | Report::NoRoom(_)));
    let ended = reports.iter().find(|report| matches!(report, Report::Exited(_) | Report::Killed(_)));
    let exit = |code, signal, reason: &str, message| Exit {
        code,
        signal,
        reason: reason.to_owned(),
        message,
        started_at,
        finished_at,
        discarded: None,
    };
    match failed.or(ended).unwrap_or(&died) {
        Report::Failed(text) | Report::NoRoom(text) => exit(128, None, START_ERROR, Some(text.clone())),
        Report::Killed(libc::SIGKILL) if oom_killed => exit(137, Some(libc::SIGKILL), "OOMKilled", None),
        Report::Killed(signal) => exit(128 + signal, Some(*signal), "Error", child_note(oom_killed)),
        Report::Exited(0) | Report::Started | Report::Discarded(_) => {
            exit(0, None, "Completed", child_note(oom_killed))
        }
        // A shell passes on how its child was killed.
        Report::Exited(137) if oom_killed => exit(137, None, "OOMKilled", None),
        Report::Exited(code) => exit(*code, None, "Error", child_note(oom_killed)),
    }
}

fn child_note(oom_killed: bool) -> Option<String> {
    oom_killed.then(|| "a process of the container was killed for memory".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_code_and_a_reason() {
        let pid = Pid::from_raw(1);
        let clean = WaitStatus::Exited(pid, 0);
        let killed = WaitStatus::Signaled(pid, Signal::SIGKILL, false);
        let failed = Report::Failed("no such program".into());
        let cases = vec![
            (vec![Report::Started, Report::Exited(0)], clean, false, (0, None, "Completed")),
            (vec![Report::Started, Report::Exited(3)], clean, false, (3, None, "Error")),
            (vec![Report::Started, Report::Killed(15)], clean, false, (143, Some(15), "Error")),
            (vec![Report::Started, Report::Killed(9)], clean, false, (137, Some(9), "Error")),
            (vec![Report::Started, Report::Killed(9)], clean, true, (137, Some(9), "OOMKilled")),
            (vec![Report::Started, Report::Exited(137)], clean, true, (137, None, "OOMKilled")),
            (vec![Report::Started, Report::Exited(1)], clean, true, (1, None, "Error")),
            (vec![Report::Started], killed, false, (137, Some(9), "Error")),
            (Vec::new(), killed, false, (137, Some(9), "Error")),
            (vec![Report::Started, failed, Report::Exited(127)], clean, false, (128, None, "StartError")),
        ];
        for (reports, end, oom, expected) in cases {
            let found = exit(&reports, end, oom, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
            assert_eq!((found.code, found.signal, found.reason.as_str()), expected, "{reports:?}");
        }
    }
}

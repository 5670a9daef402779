//! The shim's loop: init containers one by one, then the containers, until all is over.
//!
//! Invariant: `status.json` says what is true now, and an exit is on disk before anything follows
//! from it. Time comes in through `pumice_clock` at the top of each turn only.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use pumice_clock as clock;
use pumice_units::with_causes;

use super::backoff::Backoff;
use super::control::{self, Stop, Termination};
use super::journal;
use super::logs::LogFile;
use super::namespaces;
use super::network::{self, PodNetworkError};
use super::process::{Ended, Ground, Process};
use super::spec::{ContainerSpec, ShimSpec, SpecError};
use super::status::{
    ContainerState, ContainerStatus, DEADLINE_EXCEEDED, Exit, START_ERROR, STATUS_FILE, ShimPhase, ShimStatus,
};
use crate::cgroup::ContainerCgroup;
use crate::files::{Durability, is_for_want_of_room};
use crate::{freezer, oom};

/// How often resident sets are looked at where no control group limits memory.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// The time that a sidecar has to end although its pod's is over.
const SIDECAR_GRACE_MIN: Duration = Duration::from_secs(2);
/// How long a full disk is waited for before the next attempt to write an exit.
const WRITE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Why a shim gave up.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// There is no spec to go by.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A pod runs once: its restarts are its shim's business, and this one has come to an end.
    #[error("this pod has run already; its {STATUS_FILE} says how it ended")]
    RanAlready,
    /// The shim could not become what it must be.
    #[error("can't {step}")]
    Prepare {
        step: &'static str,
        #[source]
        source: io::Error,
    },
    /// Waiting for events failed.
    #[error("can't wait for events")]
    Poll(#[source] Errno),
}

/// A container between and during its runs.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    backoff: Backoff,
    start_at: Option<Instant>,
    attempts: u32,
    /// When the run of now is killed, if it was told to end.
    kill_at: Option<Instant>,
    /// Of an init container: it no longer holds up those that come after it.
    passed: bool,
    /// Whether the run of now was asked to end.
    stop_requested: bool,
}

/// Which list a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Init,
    Main,
}

/// Everything one shim knows.
pub(crate) struct Supervisor {
    dir: PathBuf,
    spec: ShimSpec,
    status: ShimStatus,
    init: Vec<Slot>,
    main: Vec<Slot>,
    signals: SignalFd,
    pipe: File,
    stopping: Option<Instant>,
    /// Whether those that are left are asked to end before they are killed.
    asks: bool,
    killed: bool,
    deadline: Option<Instant>,
    unwritten: bool,
    /// Logs of runs that have ended while lines were lost that they don't tell of yet.
    behind: Vec<LogFile>,
    /// Groups of runs that have ended, removed when that is written down.
    spent: Vec<ContainerCgroup>,
}

impl Supervisor {
    /// Reads the spec and takes this process out of the way of its pod.
    pub(crate) fn open(dir: PathBuf) -> Result<Self, ShimError> {
        let step = |step| move |source: io::Error| ShimError::Prepare { step, source };
        let spec = ShimSpec::read(&dir)?;
        if let Some(group) = &spec.cgroup
            && let Err(error) = group.join_shims()
        {
            journal::write(&format!("this shim's CPU time is not counted with other shims': {error}"));
        }
        if dir.join(STATUS_FILE).exists() {
            return Err(ShimError::RanAlready);
        }
        let mut watched = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            watched.add(signal);
        }
        watched.thread_block().map_err(|errno| step("block signals")(errno.into()))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&watched, flags).map_err(|errno| step("watch signals")(errno.into()))?;
        prctl::set_child_subreaper(true).map_err(|errno| step("adopt orphans")(errno.into()))?;
        // Whoever must die for memory, let it not be the one who writes down the exit.
        let _ = oom::spare_this_process();
        let pipe = control::open_pipe(&dir).map_err(step("open the control pipe"))?;
        let names = |list: &[ContainerSpec]| list.iter().map(|c| c.name.clone()).collect::<Vec<_>>();
        let (init, main) = (names(&spec.init_containers), names(&spec.containers));
        let status = ShimStatus::new(init.iter().map(String::as_str), main.iter().map(String::as_str), clock::now());
        let slots = |count: usize| (0..count).map(|_| Slot::default()).collect::<Vec<_>>();
        let deadline = spec.active_deadline_seconds.map(|seconds| clock::after(clock::monotonic(), seconds));
        Ok(Supervisor {
            init: slots(init.len()),
            main: slots(main.len()),
            dir,
            spec,
            status,
            signals,
            pipe,
            stopping: None,
            asks: false,
            killed: false,
            deadline,
            unwritten: false,
            behind: Vec::new(),
            spent: Vec::new(),
        })
    }

    /// Makes what the pod's containers share, or has the pod failed.
    pub(crate) fn prepare(&mut self) {
        // Before anything runs: this file is what keeps a second shim from running the pod again.
        self.save(Durability::Process);
        if let Err(text) = self.prepare_pod() {
            self.fail_start(&text);
        }
    }

    /// Runs the pod that is prepared to its end.
    pub(crate) fn run(mut self) -> Result<(), ShimError> {
        // Looks before it waits: who asked for its end before there was a pipe has left the request, and woken nobody.
        while self.goes_on() {
            self.look();
            if self.goes_on() {
                self.wait()?;
            }
        }
        if let Some(group) = &self.spec.cgroup {
            group.remove();
        }
        Ok(())
    }

    fn goes_on(&self) -> bool {
        self.status.phase != ShimPhase::Done || self.unwritten
    }

    /// Namespaces, volumes and groups that all containers of the pod share.
    fn prepare_pod(&mut self) -> Result<(), String> {
        let spec = &self.spec;
        if spec.isolation.namespaces {
            namespaces::share(spec, &self.dir).map_err(|error| format!("can't prepare the pod: {error}"))?;
        }
        network::enter(&spec.network).map_err(|error: PodNetworkError| with_causes(&error))?;
        if let Some(group) = &spec.cgroup {
            let sidecars = spec.init_containers.iter().filter(|container| container.sidecar);
            let requests =
                spec.containers.iter().chain(sidecars).filter_map(|container| container.limits.cpu_request_milli);
            group.create(requests.sum()).map_err(|error| format!("can't make the pod's control group: {error}"))?;
        }
        Ok(())
    }

    fn fail_start(&mut self, text: &str) {
        let now = clock::now();
        for container in self.status.init_containers.iter_mut().chain(&mut self.status.containers) {
            container.state = ContainerState::Terminated(start_error(text, now));
        }
        self.done();
    }

    fn wait(&mut self) -> Result<(), ShimError> {
        let timeout = match self.next_turn().map(|at| at.saturating_duration_since(clock::monotonic())) {
            // Rounded up, so that it is time when we wake.
            Some(wait) => PollTimeout::try_from(wait.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX),
            None => PollTimeout::NONE,
        };
        let slots = self.init.iter().chain(&self.main);
        let logs = slots.filter_map(|slot| slot.process.as_ref()).flat_map(Process::pollable).map(AsFd::as_fd);
        let all: Vec<BorrowedFd<'_>> = [self.signals.as_fd(), self.pipe.as_fd()].into_iter().chain(logs).collect();
        let mut polled: Vec<PollFd<'_>> = all.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(ShimError::Poll(errno)),
        }
    }

    /// When there is something to do although nothing happened.
    fn next_turn(&self) -> Option<Instant> {
        let now = clock::monotonic();
        let slots = || self.init.iter().chain(&self.main);
        let watch =
            slots().any(|slot| slot.process.as_ref().is_some_and(Process::is_watched)).then(|| now + WATCH_EVERY);
        let kill = self.stopping.filter(|_| !self.killed);
        let write = self.unwritten.then(|| now + WRITE_AGAIN_AFTER);
        let starts = slots().filter_map(|slot| slot.start_at).chain(slots().filter_map(|slot| slot.kill_at));
        let outputs = self.running().filter_map(Process::next_turn);
        starts.chain(outputs).chain([watch, kill, self.deadline, write].into_iter().flatten()).min()
    }

    /// One turn of the loop: everything that may have happened.
    fn look(&mut self) {
        let (now, at) = (clock::now(), clock::monotonic());
        let mut asked = false;
        while let Ok(Some(info)) = self.signals.read_signal() {
            // SIGHUP opens the platform's logs anew; a shim that gets it, too, has none to open.
            asked |= ![Signal::SIGCHLD, Signal::SIGHUP].iter().any(|known| info.ssi_signo == *known as u32);
        }
        if asked {
            self.stop(Stop { grace_seconds: self.spec.grace_seconds }, at);
        }
        if control::was_woken(&mut self.pipe) {
            self.end_runs(at);
        }
        if let Some(stop) = control::requested_stop(&self.dir) {
            if self.stopping.is_none()
                && let Some(Termination { reason, message }) = control::requested_termination(&self.dir)
            {
                self.status.reason = Some(reason);
                self.status.message = Some(message);
            }
            self.stop(stop, at);
        }
        if self.deadline.is_some_and(|deadline| at >= deadline) {
            self.deadline = None;
            self.status.reason = Some(DEADLINE_EXCEEDED.into());
            self.status.message = Some("Pod was active on the node longer than the specified deadline".into());
            self.stop(Stop { grace_seconds: self.spec.grace_seconds }, at);
        }
        for process in self.init.iter_mut().chain(&mut self.main).filter_map(|slot| slot.process.as_mut()) {
            process.pump(now, at);
            process.watch_memory();
        }
        self.reap(now, at);
        if self.stopping.is_some_and(|kill_at| at >= kill_at) && !self.killed {
            self.killed = true;
            self.end_of_grace(at);
        }
        for slot in
            self.init.iter_mut().chain(&mut self.main).filter(|slot| slot.kill_at.is_some_and(|kill_at| at >= kill_at))
        {
            slot.kill_at = None;
            slot.process.iter().for_each(Process::kill);
        }
        self.advance();
    }

    /// Kills those that were asked to end. Sidecars whose turn never came have not been: they have a little time, as a kubelet
    /// gives it.
    fn end_of_grace(&mut self, at: Instant) {
        self.thaw();
        let asks = self.asks;
        for slot in self.init.iter_mut().chain(&mut self.main) {
            let Some(process) = &slot.process else { continue };
            if slot.stop_requested || !asks {
                process.kill();
            } else {
                process.terminate();
                slot.stop_requested = true;
                slot.kill_at = Some(at + SIDECAR_GRACE_MIN);
            }
        }
    }

    /// Whoever froze the pod's own groups can't keep it from ending.
    fn thaw(&self) {
        if let Some(group) = &self.spec.cgroup {
            freezer::thaw(group);
        }
    }

    /// Tells runs to end that somebody wants to end; whether there is another one is the restart policy's.
    fn end_runs(&mut self, at: Instant) {
        let specs = self.spec.init_containers.iter().chain(&self.spec.containers);
        for (slot, spec) in self.init.iter_mut().chain(&mut self.main).zip(specs) {
            let Some(process) = slot.process.as_ref().filter(|_| slot.kill_at.is_none()) else { continue };
            let Some(restart) = control::requested_restart(&self.dir, &spec.name) else { continue };
            // Attempts count this run too.
            if restart.run + 1 == slot.attempts {
                slot.kill_at = Some(clock::after(at, restart.grace_seconds));
                if restart.grace_seconds > 0 && !slot.stop_requested {
                    process.terminate();
                    slot.stop_requested = true;
                }
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        self.init.iter().chain(&self.main).filter_map(|slot| slot.process.as_ref())
    }

    /// Starts or shortens the end of the pod.
    fn stop(&mut self, stop: Stop, at: Instant) {
        let kill_at = clock::after(at, stop.grace_seconds);
        match self.stopping {
            Some(before) if before <= kill_at => return,
            Some(_) => {
                self.stopping = Some(kill_at);
                self.asks &= stop.grace_seconds > 0;
            }
            None => {
                self.stopping = Some(kill_at);
                self.status.phase = ShimPhase::Stopping;
                self.asks = stop.grace_seconds > 0;
                self.thaw();
                self.save(Durability::Process);
            }
        }
        for slot in self.init.iter_mut().chain(&mut self.main) {
            slot.start_at = None;
        }
    }

    /// Asks those whose turn it is to end: the containers at once, then the sidecars, the last of them first.
    fn ask_to_end(&mut self) {
        let ask = |slot: &mut Slot| {
            if let Some(process) = slot.process.as_ref().filter(|_| !slot.stop_requested) {
                process.terminate();
                slot.stop_requested = true;
            }
            slot.process.is_some()
        };
        let ordinary = self.init.iter_mut().zip(&self.spec.init_containers).filter(|(_, spec)| !spec.sidecar);
        let wait = ordinary.map(|(slot, _)| slot).chain(&mut self.main).map(ask).fold(false, |any, runs| any | runs);
        if !wait {
            let sidecars = self.init.iter_mut().zip(&self.spec.init_containers).filter(|(_, spec)| spec.sidecar);
            // Each may need those that were started before it.
            let _ = sidecars.rev().map(|(slot, _)| slot).any(ask);
        }
    }

    /// Takes the ends of all processes that have ended.
    fn reap(&mut self, now: Timestamp, at: Instant) {
        let mut ended = false;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let pid = match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => pid,
                _ => continue,
            };
            for role in [Role::Init, Role::Main] {
                let found =
                    self.slots(role).iter().position(|slot| slot.process.as_ref().is_some_and(|p| p.pid() == pid));
                if let Some(index) = found {
                    self.end(role, index, status, now, at);
                    ended = true;
                }
            }
        }
        if ended {
            // A pod's last end is written as one with its being over.
            if self.is_done() {
                self.done();
            } else {
                self.save(Durability::Power);
            }
            self.spent.drain(..).for_each(|group| group.remove());
        }
    }

    /// Writes down the end of a run and decides whether there is another.
    fn end(&mut self, role: Role, index: usize, status: WaitStatus, now: Timestamp, at: Instant) {
        let Some(process) = self.slots(role)[index].process.take() else { return };
        let ran = now.duration_since(process.started_at).try_into().unwrap_or(Duration::ZERO);
        let Ended { exit, group, log, no_room } = process.finish(self.container(role, index), status, now);
        self.spent.extend(group);
        self.behind.extend(log);
        match (no_room, exit.message) {
            (true, Some(message)) => self.wait_for_room(role, index, message, at),
            (_, message) => self.conclude(role, index, Exit { message, ..exit }, ran, at),
        }
    }

    /// A run that lacked room on the disk to begin is tried again: it is none of the program's faults.
    fn wait_for_room(&mut self, role: Role, index: usize, message: String, at: Instant) {
        let slot = &mut self.slots(role)[index];
        slot.attempts -= 1;
        slot.start_at = Some(at + WRITE_AGAIN_AFTER);
        slot.kill_at = None;
        self.statuses(role)[index].state =
            ContainerState::Waiting { reason: "CreateContainerError".into(), message: Some(message) };
    }

    /// What follows from the end of a run that lasted `ran`.
    fn conclude(&mut self, role: Role, index: usize, exit: Exit, ran: Duration, at: Instant) {
        let again = self.stopping.is_none() && self.restarts(role, index, exit.code);
        let slot = &mut self.slots(role)[index];
        let wait = again.then(|| slot.backoff.after_run(ran));
        slot.start_at = wait.map(|wait| at + wait);
        slot.kill_at = None;
        slot.stop_requested = false;
        let container = &mut self.statuses(role)[index];
        container.state = match wait {
            Some(wait) => {
                container.last = Some(exit);
                ContainerState::Waiting {
                    reason: "CrashLoopBackOff".into(),
                    message: Some(format!("back-off {}s restarting failed container", wait.as_secs())),
                }
            }
            None => ContainerState::Terminated(exit),
        };
    }

    fn restarts(&self, role: Role, index: usize, code: i32) -> bool {
        let sidecar = role == Role::Init && self.spec.init_containers[index].sidecar;
        match role {
            _ if sidecar => self.status.phase != ShimPhase::Stopping && !self.mains_over(),
            // An init container's success is final, whatever the policy.
            Role::Init => code != 0 && self.spec.restart_policy.restarts(code),
            Role::Main => self.spec.restart_policy.restarts(code),
        }
    }

    fn mains_over(&self) -> bool {
        self.status.containers.iter().all(|container| container.exit().is_some())
    }

    /// Starts what is due and notices when all is over.
    fn advance(&mut self) {
        // First of all: what waits for it to be written is due in this very turn, and nothing may happen to bring another one.
        if self.unwritten {
            self.save(Durability::Power);
        }
        if self.status.phase == ShimPhase::Done {
            return;
        }
        if self.stopping.is_none() && !self.unwritten {
            self.start_due();
        }
        if self.is_done() {
            self.done();
        } else if self.stopping.is_none() && self.is_over() {
            // Only sidecars are left.
            self.stop(Stop { grace_seconds: self.spec.grace_seconds }, clock::monotonic());
        }
        if self.stopping.is_some() && self.asks {
            self.ask_to_end();
        }
    }

    /// Whether nothing of the pod runs or will.
    fn is_done(&self) -> bool {
        self.running().next().is_none() && (self.stopping.is_some() || self.is_over())
    }

    /// Whether the pod has come to its end: all containers ended, or an init container for good.
    fn is_over(&self) -> bool {
        let failed = self.status.init_containers.iter().zip(&self.spec.init_containers);
        let mut failed = failed.filter(|(_, spec)| !spec.sidecar);
        self.mains_over() || failed.any(|(container, _)| container.exit().is_some_and(|exit| exit.code != 0))
    }

    fn start_due(&mut self) {
        let at = clock::monotonic();
        let mut started = false;
        for index in 0..self.init.len() {
            started |= self.start_if_due(Role::Init, index, at);
            // For good: a sidecar that is started again holds up nobody.
            self.init[index].passed |= self.passes(index);
            if !self.init[index].passed {
                if started {
                    self.save(Durability::Process);
                }
                return;
            }
        }
        for index in 0..self.main.len() {
            started |= self.start_if_due(Role::Main, index, at);
        }
        if started {
            self.status.phase = ShimPhase::Running;
            self.save(Durability::Process);
        }
    }

    /// Whether an init container has done what those after it wait for.
    fn passes(&self, index: usize) -> bool {
        let (spec, status) = (&self.spec.init_containers[index], &self.status.init_containers[index]);
        if !spec.sidecar {
            return status.exit().is_some_and(|exit| exit.code == 0);
        }
        let run = status.restart_count;
        status.is_running() && (!spec.start_gate || control::has_started(&self.dir, &spec.name, run))
    }

    fn start_if_due(&mut self, role: Role, index: usize, at: Instant) -> bool {
        let slot = &self.slots(role)[index];
        let fresh = slot.attempts == 0;
        let due = slot.process.is_none() && (fresh || slot.start_at.is_some_and(|start_at| at >= start_at));
        if !due {
            return false;
        }
        let (attempt, now) = (slot.attempts, clock::now());
        let ground = Ground { dir: &self.dir, spec: &self.spec, container: self.container(role, index), attempt };
        let started = Process::start(&ground, now);
        let slot = &mut self.slots(role)[index];
        slot.attempts += 1;
        slot.start_at = None;
        match started {
            Ok(process) => {
                let pid = Some(process.pid().as_raw());
                slot.process = Some(process);
                let container = &mut self.statuses(role)[index];
                container.restart_count = attempt;
                container.state = ContainerState::Running { started_at: now, pid };
            }
            Err(error) => {
                self.statuses(role)[index].restart_count = attempt;
                let text = format!("can't start the container: {error}");
                if is_for_want_of_room(&error) {
                    self.wait_for_room(role, index, text, at);
                } else {
                    self.conclude(role, index, start_error(&text, now), Duration::ZERO, at);
                }
            }
        }
        true
    }

    fn done(&mut self) {
        self.status.phase = ShimPhase::Done;
        for container in self.status.init_containers.iter_mut().chain(&mut self.status.containers) {
            // It waited for another run that will not come: its last one was the end.
            if let (ContainerState::Waiting { .. }, Some(exit)) = (&container.state, &container.last) {
                container.state = ContainerState::Terminated(exit.clone());
            }
        }
        self.save(Durability::Power);
    }

    /// A full disk is waited for; until then the exit lives in this process only.
    fn save(&mut self, durability: Durability) {
        let durability = if self.unwritten { Durability::Power } else { durability };
        let written = self.status.write(&self.dir, durability);
        if let (Err(error), false) = (&written, self.unwritten) {
            journal::write(&format!("can't write the status, will try again: {error}"));
        }
        self.unwritten = written.is_err();
        if !self.unwritten {
            self.behind.retain_mut(|log| !log.catch_up(clock::now()));
        }
    }

    fn slots(&mut self, role: Role) -> &mut Vec<Slot> {
        match role {
            Role::Init => &mut self.init,
            Role::Main => &mut self.main,
        }
    }

    fn statuses(&mut self, role: Role) -> &mut Vec<ContainerStatus> {
        match role {
            Role::Init => &mut self.status.init_containers,
            Role::Main => &mut self.status.containers,
        }
    }

    fn container(&self, role: Role, index: usize) -> &ContainerSpec {
        match role {
            Role::Init => &self.spec.init_containers[index],
            Role::Main => &self.spec.containers[index],
        }
    }
}

fn start_error(text: &str, now: Timestamp) -> Exit {
    Exit {
        code: 128,
        signal: None,
        reason: START_ERROR.into(),
        message: Some(text.to_owned()),
        started_at: now,
        finished_at: now,
        discarded: None,
    }
}

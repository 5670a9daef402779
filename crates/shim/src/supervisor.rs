//! The shim's loop: init containers one by one, then the containers, until all is over.
//!
//! What starts and ends runs is in `supervisor/runs.rs`, what ends the pod in `supervisor/stopping.rs`, what is added to it in
//! `supervisor/added.rs`, who is attached in `supervisor/attaching.rs`.
//! Invariant: `status.json` says what is true now, and an exit is on disk before anything follows
//! from it. Time comes in through `pumice_clock` at the top of each turn only.

mod added;
mod attaching;
mod runs;
mod stopping;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pumice_clock as clock;
use pumice_units::with_causes;

use super::attached::Client;
use super::backoff::Backoff;
use super::control::{self, Stop, Termination};
use super::ephemeral::EphemeralContainer;
use super::journal::journal;
use super::logs::LogFile;
use super::namespaces;
use super::network::{self, PodNetworkError};
use super::own_users::UserNamespace;
use super::pod_init;
use super::process::Process;
use super::spec::{ContainerSpec, Processes, ShimSpec, SpecError};
use super::status::{
    ContainerState, ContainerStatus, DEADLINE_EXCEEDED, Exit, START_ERROR, STATUS_FILE, ShimPhase, ShimStatus,
};
use pumice_linux::cgroup::ContainerCgroup;
use pumice_linux::files::Durability;
use pumice_linux::oom;

/// How often resident sets are looked at where no control group limits memory.
const WATCH_EVERY: Duration = Duration::from_millis(100);
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
    /// Added while the pod runs, which does not depend on it.
    Ephemeral,
}

/// Everything one shim knows.
pub(crate) struct Supervisor {
    dir: PathBuf,
    spec: ShimSpec,
    status: ShimStatus,
    /// Of the pod's own, where it has users for itself.
    users: Option<UserNamespace>,
    init: Vec<Slot>,
    main: Vec<Slot>,
    ephemeral: Vec<Slot>,
    /// What the last of these lists runs.
    added: Vec<EphemeralContainer>,
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
    /// Clients of runs that have ended, which have not taken all of their output.
    leaving: Vec<Client>,
}

impl Supervisor {
    /// Reads the spec and takes this process out of the way of its pod.
    pub(crate) fn open(dir: PathBuf) -> Result<Self, ShimError> {
        let step = |step| move |source: io::Error| ShimError::Prepare { step, source };
        let spec = ShimSpec::read(&dir)?;
        if let Some(group) = &spec.cgroup
            && let Err(error) = group.join_shims()
        {
            journal(&format!("this shim's CPU time is not counted with other shims': {error}"));
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
            ephemeral: Vec::new(),
            added: Vec::new(),
            dir,
            spec,
            status,
            users: None,
            signals,
            pipe,
            stopping: None,
            asks: false,
            killed: false,
            deadline,
            unwritten: false,
            behind: Vec::new(),
            spent: Vec::new(),
            leaving: Vec::new(),
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
        self.take_added();
        // Looks before it waits: who asked for its end before there was a pipe has left the request, and woken nobody.
        while self.goes_on() {
            self.look();
            if self.goes_on() {
                self.wait()?;
            }
        }
        self.see_off();
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
        let mut network = None;
        if spec.isolation.namespaces {
            let shared =
                namespaces::share(spec, &self.dir).map_err(|error| format!("can't prepare the pod: {error}"))?;
            if let Some(belongings) = shared {
                (self.users, network) = (Some(belongings.users), belongings.network);
            }
        }
        network::enter(&spec.network, network.as_ref()).map_err(|error: PodNetworkError| with_causes(&error))?;
        namespaces::set_sysctls(&spec.sysctls, self.users.as_ref())?;
        if spec.isolation.namespaces && spec.processes == Processes::Pod {
            let failed = |error| format!("can't let the pod's containers see each other's processes: {error}");
            pod_init::share_processes(&self.dir).map_err(failed)?;
        }
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
        let own = [self.signals.as_fd(), self.pipe.as_fd()].map(|fd| (fd, PollFlags::POLLIN));
        let leaving = self.leaving.iter().map(|client| (client.socket(), PollFlags::POLLOUT));
        let all = own.into_iter().chain(self.running().flat_map(Process::pollable)).chain(leaving);
        let mut polled: Vec<PollFd<'_>> = all.map(|(fd, flags)| PollFd::new(fd, flags)).collect();
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(ShimError::Poll(errno)),
        }
    }

    /// When there is something to do although nothing happened.
    fn next_turn(&self) -> Option<Instant> {
        let now = clock::monotonic();
        let is_watched = self.running().any(Process::is_watched);
        let watch = if is_watched { Some(now + WATCH_EVERY) } else { None };
        let kill = if self.killed { None } else { self.stopping };
        let write = if self.unwritten { Some(now + WRITE_AGAIN_AFTER) } else { None };
        let starts = self.slots_of_all().flat_map(|slot| [slot.start_at, slot.kill_at]).flatten();
        let outputs =
            self.running().filter_map(Process::next_turn).chain(self.leaving.iter().filter_map(Client::patience_ends));
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
            self.take_added();
            self.attach_clients(at);
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
        for process in self.slots_of_all_mut().filter_map(|slot| slot.process.as_mut()) {
            process.pump(now, at);
            process.watch_memory();
        }
        self.leaving.retain_mut(|client| client.flush(at) && client.is_behind());
        self.reap(now, at);
        if self.stopping.is_some_and(|kill_at| at >= kill_at) && !self.killed {
            self.killed = true;
            self.end_of_grace(at);
        }
        for slot in self.slots_of_all_mut().filter(|slot| slot.kill_at.is_some_and(|kill_at| at >= kill_at)) {
            slot.kill_at = None;
            slot.process.iter().for_each(Process::kill);
        }
        self.advance();
    }

    fn running(&self) -> impl Iterator<Item = &Process> {
        self.slots_of_all().filter_map(|slot| slot.process.as_ref())
    }

    fn slots_of_all(&self) -> impl Iterator<Item = &Slot> {
        self.init.iter().chain(&self.main).chain(&self.ephemeral)
    }

    fn slots_of_all_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.init.iter_mut().chain(&mut self.main).chain(&mut self.ephemeral)
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
            // Only sidecars are left, and what was added.
            self.stop(Stop { grace_seconds: self.spec.grace_seconds }, clock::monotonic());
        }
        if self.stopping.is_some() && self.asks {
            self.ask_to_end();
        }
    }

    fn done(&mut self) {
        self.status.phase = ShimPhase::Done;
        for container in self.status.init_containers.iter_mut().chain(&mut self.status.containers) {
            // It waited for another run that will not come: its last one was the end.
            if let (ContainerState::Waiting { .. }, Some(exit)) = (&container.state, &container.last) {
                container.state = ContainerState::Terminated(exit.clone());
            }
        }
        // Who can be told of it asks an agent, and that one syncs it with the ends of other pods before.
        self.save(if control::agent_syncs(&self.dir) { Durability::Process } else { Durability::Power });
    }

    /// A full disk is waited for; until then the exit lives in this process only.
    fn save(&mut self, durability: Durability) {
        let durability = if self.unwritten { Durability::Power } else { durability };
        let written = self.status.write(&self.dir, durability);
        if let (Err(error), false) = (&written, self.unwritten) {
            journal(&format!("can't write the status, will try again: {error}"));
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
            Role::Ephemeral => &mut self.ephemeral,
        }
    }

    fn statuses(&mut self, role: Role) -> &mut Vec<ContainerStatus> {
        match role {
            Role::Init => &mut self.status.init_containers,
            Role::Main => &mut self.status.containers,
            Role::Ephemeral => self.status.ephemeral_containers.get_or_insert_default(),
        }
    }

    fn container(&self, role: Role, index: usize) -> &ContainerSpec {
        match role {
            Role::Init => &self.spec.init_containers[index],
            Role::Main => &self.spec.containers[index],
            Role::Ephemeral => &self.added[index].container,
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

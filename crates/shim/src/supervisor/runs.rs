//! Runs of containers: which is due, and what follows from its end.
//!
//! Invariant: init containers run one by one, and containers begin when all of those have passed. Whether a run is followed by
//! another one is the restart policy's; a run that lacked room on the disk to begin doesn't count.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use pumice_clock as clock;

use super::{Role, Supervisor, WRITE_AGAIN_AFTER, start_error};
use crate::control;
use crate::process::{Ended, Ground, Process};
use crate::status::{ContainerState, Exit, ShimPhase};
use pumice_linux::files::{Durability, is_for_want_of_room};

impl Supervisor {
    /// Takes the ends of all processes that have ended.
    pub(super) fn reap(&mut self, now: Timestamp, at: Instant) {
        let mut ended = false;
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let pid = match status {
                WaitStatus::StillAlive => break,
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) => pid,
                _ => continue,
            };
            for role in [Role::Init, Role::Main, Role::Ephemeral] {
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
        let Ended { exit, group, log, no_room, leaving } = process.finish(self.container(role, index), status, now);
        self.spent.extend(group);
        self.behind.extend(log);
        self.leaving.extend(leaving);
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
    pub(super) fn conclude(&mut self, role: Role, index: usize, exit: Exit, ran: Duration, at: Instant) {
        let again = self.stopping.is_none() && self.restarts(role, index, exit.code);
        let slot = &mut self.slots(role)[index];
        let wait = if again { Some(slot.backoff.after_run(ran)) } else { None };
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
            Role::Ephemeral => false,
        }
    }

    fn mains_over(&self) -> bool {
        self.status.containers.iter().all(|container| container.exit().is_some())
    }

    pub(super) fn start_due(&mut self) {
        let at = clock::monotonic();
        let mut started = self.start_in_order(at);
        // After those that they may look at.
        started |= self.start_added(at);
        if started {
            self.save(Durability::Process);
        }
    }

    /// Starts what is due of the containers that the pod was made with.
    fn start_in_order(&mut self, at: Instant) -> bool {
        let mut started = false;
        for index in 0..self.init.len() {
            started |= self.start_if_due(Role::Init, index, None, at);
            // For good: a sidecar that is started again holds up nobody.
            self.init[index].passed |= self.passes(index);
            if !self.init[index].passed {
                return started;
            }
        }
        for index in 0..self.main.len() {
            started |= self.start_if_due(Role::Main, index, None, at);
        }
        if started {
            self.status.phase = ShimPhase::Running;
        }
        started
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

    pub(super) fn is_due(&mut self, role: Role, index: usize, at: Instant) -> bool {
        let slot = &self.slots(role)[index];
        let fresh = slot.attempts == 0;
        slot.process.is_none() && slot.start_at.map_or(fresh, |start_at| at >= start_at)
    }

    /// Starts a run of a container that is due, maybe among the processes of another one.
    pub(super) fn start_if_due(&mut self, role: Role, index: usize, target: Option<Pid>, at: Instant) -> bool {
        if !self.is_due(role, index, at) {
            return false;
        }
        let slot = &self.slots(role)[index];
        let (attempt, now) = (slot.attempts, clock::now());
        let ground = Ground {
            dir: &self.dir,
            spec: &self.spec,
            users: self.users.as_ref(),
            container: self.container(role, index),
            target,
            attempt,
            private: self.private(),
        };
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

    /// Whether nothing of the pod runs or will.
    pub(super) fn is_done(&self) -> bool {
        self.running().next().is_none() && (self.stopping.is_some() || self.is_over())
    }

    /// Whether the pod has come to its end: all containers ended, or an init container for good.
    pub(super) fn is_over(&self) -> bool {
        let failed = self.status.init_containers.iter().zip(&self.spec.init_containers);
        let mut failed = failed.filter(|(_, spec)| !spec.sidecar);
        self.mains_over() || failed.any(|(container, _)| container.exit().is_some_and(|exit| exit.code != 0))
    }
}

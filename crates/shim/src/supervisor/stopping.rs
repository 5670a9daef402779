//! The end of a pod, and of single runs: who is asked to end and when, and who is killed.
//!
//! Invariant: an end that was begun can only come nearer, and no program outlives its grace but a sidecar whose turn never came.

use std::time::{Duration, Instant};

use pumice_clock as clock;

use super::{Slot, Supervisor};
use crate::control::{self, Stop};
use crate::status::ShimPhase;
use pumice_linux::files::Durability;
use pumice_linux::freezer;

/// The time that a sidecar has to end although its pod's is over.
const SIDECAR_GRACE_MIN: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Kills those that were asked to end. Sidecars whose turn never came have not been: they have a little time, as a kubelet
    /// gives it.
    pub(super) fn end_of_grace(&mut self, at: Instant) {
        self.thaw();
        let asks = self.asks;
        for slot in self.slots_of_all_mut() {
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
    pub(super) fn end_runs(&mut self, at: Instant) {
        let specs = self.spec.init_containers.iter().chain(&self.spec.containers);
        for (slot, spec) in self.init.iter_mut().chain(&mut self.main).zip(specs) {
            let Some(process) = &slot.process else { continue };
            if slot.kill_at.is_some() {
                continue;
            }
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

    /// Starts or shortens the end of the pod.
    pub(super) fn stop(&mut self, stop: Stop, at: Instant) {
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
        for slot in self.slots_of_all_mut() {
            slot.start_at = None;
        }
    }

    /// Asks those whose turn it is to end: the containers at once, then the sidecars, the last of them first. No sidecar waits for what
    /// was added to the pod.
    pub(super) fn ask_to_end(&mut self) {
        let ask = |slot: &mut Slot| {
            if let Some(process) = &slot.process
                && !slot.stop_requested
            {
                process.terminate();
                slot.stop_requested = true;
            }
            slot.process.is_some()
        };
        for slot in &mut self.ephemeral {
            ask(slot);
        }
        let ordinary = self.init.iter_mut().zip(&self.spec.init_containers).filter(|(_, spec)| !spec.sidecar);
        let wait = ordinary.map(|(slot, _)| slot).chain(&mut self.main).map(ask).fold(false, |any, runs| any | runs);
        if !wait {
            let sidecars = self.init.iter_mut().zip(&self.spec.init_containers).filter(|(_, spec)| spec.sidecar);
            // Each may need those that were started before it.
            let _ = sidecars.rev().map(|(slot, _)| slot).any(ask);
        }
    }
}

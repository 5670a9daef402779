//! Containers that are added to a pod that runs, which the field `ephemeralContainers` lists.
//!
//! Invariant: one is started once and never again, and only while the pod has not begun to end; nothing of the pod depends on it.

use std::time::{Duration, Instant};

use nix::unistd::Pid;
use pumice_clock as clock;

use super::{Role, Slot, Supervisor, start_error};
use crate::ephemeral::{self, EPHEMERAL_MAX, EphemeralContainer};
use crate::spec::ContainerSpec;
use crate::status::{ContainerState, ContainerStatus};
use pumice_linux::files::Durability;

impl Supervisor {
    /// Takes what was added since the last look.
    pub(super) fn take_added(&mut self) {
        if self.stopping.is_some() {
            return;
        }
        let mut names = ephemeral::names(&self.dir);
        names.retain(|name| self.status.container(name).is_none());
        let room = EPHEMERAL_MAX.saturating_sub(self.ephemeral.len());
        for name in names.iter().take(room) {
            let index = self.ephemeral.len();
            self.ephemeral.push(Slot::default());
            self.statuses(Role::Ephemeral).push(ContainerStatus::waiting(name, "ContainerCreating"));
            let (added, failure) = match ephemeral::read(&self.dir, name) {
                Ok(added) => (added, None),
                Err(error) => {
                    let container = ContainerSpec { name: name.clone(), ..ContainerSpec::default() };
                    (EphemeralContainer { container, ..EphemeralContainer::default() }, Some(error))
                }
            };
            self.added.push(added);
            if let Some(error) = failure {
                self.ephemeral[index].attempts = 1;
                let text = format!("can't read what the container is to be: {error}");
                let exit = start_error(&text, clock::now());
                self.conclude(Role::Ephemeral, index, exit, Duration::ZERO, clock::monotonic());
            }
        }
        if !names.is_empty() {
            self.save(Durability::Process);
        }
    }

    /// Starts what was added and is due; whether there is something new to write down.
    pub(super) fn start_added(&mut self, at: Instant) -> bool {
        let mut changed = false;
        for index in 0..self.ephemeral.len() {
            if !self.is_due(Role::Ephemeral, index, at) {
                continue;
            }
            match self.target(index) {
                Ok(target) => changed |= self.start_if_due(Role::Ephemeral, index, target, at),
                Err(text) => {
                    let waits = ContainerState::Waiting { reason: "CreateContainerError".into(), message: Some(text) };
                    let state = &mut self.statuses(Role::Ephemeral)[index].state;
                    changed |= *state != waits;
                    *state = waits;
                }
            }
        }
        changed
    }

    /// The process of the container whose processes the one at `index` is to see. One that does not run may do so later.
    fn target(&self, index: usize) -> Result<Option<Pid>, String> {
        let Some(name) = &self.added[index].target else { return Ok(None) };
        if !self.spec.has_own_processes() {
            // It sees them anyway.
            return Ok(None);
        }
        let specs = self.spec.init_containers.iter().chain(&self.spec.containers);
        let mut found = specs.zip(self.init.iter().chain(&self.main)).filter(|(spec, _)| spec.name == *name);
        let process = found.next().and_then(|(_, slot)| slot.process.as_ref());
        let not_running = || format!("the target container {name:?} is not running");
        process.map(|process| Some(process.pid())).ok_or_else(not_running)
    }
}

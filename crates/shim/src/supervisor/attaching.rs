//! Clients that come to be attached, and those of runs that have ended.
//!
//! Invariant: nobody waits for a client but as [`crate::attached`] says; once the pod is over it is given the rest for [`BEHIND_MAX`].

use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pumice_clock as clock;

use super::Supervisor;
use crate::attach;
use crate::attached::{BEHIND_MAX, refuse};
use crate::process::Process;

impl Supervisor {
    /// Attaches all who wait.
    pub(super) fn attach_clients(&mut self, at: Instant) {
        for (container, client) in attach::take_requests(&self.dir) {
            match self.process(&container) {
                Some(process) => process.attach(client, at),
                None => refuse(&client, "the container is not running"),
            }
        }
    }

    /// The run of now of a container.
    fn process(&mut self, container: &str) -> Option<&mut Process> {
        let added = self.added.iter().map(|added| &added.container);
        let specs = self.spec.init_containers.iter().chain(&self.spec.containers).chain(added);
        let mut slots = self.init.iter_mut().chain(&mut self.main).chain(&mut self.ephemeral).zip(specs);
        slots.find(|(_, spec)| spec.name == container).and_then(|(slot, _)| slot.process.as_mut())
    }

    /// Descriptors that no container gets a copy of.
    pub(super) fn private(&self) -> Vec<RawFd> {
        let leaving = self.leaving.iter().map(|client| client.socket().as_raw_fd());
        self.running().flat_map(Process::private).chain(leaving).collect()
    }

    /// Gives clients the rest of the output when nothing else is left to do.
    pub(super) fn see_off(&mut self) {
        let give_up_at = clock::monotonic() + BEHIND_MAX;
        loop {
            let at = clock::monotonic();
            self.leaving.retain_mut(|client| client.flush(at) && client.is_behind());
            if self.leaving.is_empty() || at >= give_up_at {
                return;
            }
            let mut polled: Vec<PollFd<'_>> =
                self.leaving.iter().map(|client| PollFd::new(client.socket(), PollFlags::POLLOUT)).collect();
            let wait = give_up_at.saturating_duration_since(at).as_millis().saturating_add(1);
            // Whatever it is that wakes us, the loop looks.
            let _ = poll(&mut polled, PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO));
        }
    }
}

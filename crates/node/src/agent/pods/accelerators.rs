//! Pods get their accelerators when they come in, and have them until nothing of them runs.
//!
//! Invariant: a pod that starts has what it asks for, and no other pod that runs has a device of it. What a pod has stands in its
//! spec on the disk, from which the next agent takes it.

use std::collections::BTreeSet;

use pumice_linux::cgroup::CgroupSpec;
use pumice_shim::spec::ShimSpec;

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{End, Entry, Stage};
use crate::confinement::accelerators;
use crate::confinement::allotment::{PodDevices, Shortage};
use crate::confinement::container_devices::devices_of;

/// The reason of a pod that a kubelet takes on and can't give what it asks for.
const UNEXPECTED: &str = "UnexpectedAdmissionError";

impl Pods {
    /// Gives a pod its accelerators, unless it has them or asks for none. Returns whether it may start. If not, it waits for the
    /// processes of a pod that has ended, or is refused.
    pub(super) fn give_accelerators(&mut self, uid: &str) -> bool {
        let Some(pod) = self.pods.get(uid).and_then(Entry::pod) else { return true };
        let there = self.context.devices.allottable();
        let mut requests = accelerators::requests(pod);
        for request in &mut requests {
            request.amounts.retain(|name, _| self.allotted.contains(name) || there.contains_key(name));
        }
        requests.retain(|request| !request.amounts.is_empty());
        if requests.is_empty() || self.accelerators.of(uid).is_some() {
            return true;
        }
        let known = self.pods.values().filter(|entry| self.accelerators.of(&entry.uid).is_some());
        let holders: BTreeSet<String> =
            known.filter(|entry| self.holds_devices(entry)).map(|entry| entry.uid.clone()).collect();
        self.accelerators.retain(|uid| holders.contains(uid));
        let Err(shortage) = self.accelerators.allot(uid, &there, &requests) else { return true };
        let ending = self.pods.values().find(|entry| entry.has_ended() && self.accelerators.of(&entry.uid).is_some());
        if let Some(ending) = ending {
            let Shortage { resource, .. } = &shortage;
            let message = format!("processes of the pod {}/{} still use {resource}", ending.namespace, ending.name);
            self.not_started(uid, "ContainerCreating", message);
        } else if let Some(entry) = self.pods.get_mut(uid) {
            entry.stage = Stage::Ended(End::Rejected { reason: UNEXPECTED.to_owned(), message: shortage.to_string() });
            self.marked.insert(uid.to_owned());
        }
        false
    }

    /// Whether a program of a pod may use its devices.
    fn holds_devices(&self, entry: &Entry) -> bool {
        // A shim that was killed says nothing of its programs, which the kernel kills a little later.
        !entry.has_ended() || self.group_of(&entry.uid).is_some_and(|group| group.has_processes())
    }

    fn group_of(&self, uid: &str) -> Option<CgroupSpec> {
        let hierarchy = self.context.capabilities.cgroup.clone()?;
        Some(CgroupSpec::of(hierarchy, self.context.cgroup_node.join(uid)))
    }

    /// Notes what a pod of an earlier agent has.
    pub(super) fn restore_accelerators(&mut self, uid: &str, spec: &ShimSpec) {
        self.accelerators.restore(uid, devices_of(spec, &self.context.devices));
    }

    /// Notes what a pod has that an agent started which allotted nothing, and whose spec does not say it, since it is privileged:
    /// all of what it names, because it may use any of it.
    pub(super) fn restore_shared_accelerators(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid).filter(|entry| !entry.has_ended() && !entry.respawn) else { return };
        let Some(pod) = entry.pod() else { return };
        if self.accelerators.of(uid).is_some() {
            return;
        }
        let requests = accelerators::requests(pod);
        if !requests.is_empty() {
            let all = PodDevices::all_of(&self.context.devices.allottable(), &requests);
            self.accelerators.restore(uid, all);
        }
    }
}

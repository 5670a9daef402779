//! Pods come in: from the disk at the start, from the API server ever after.
//!
//! Invariant: a pod's first stage follows from its object, the disk and the room on the node; a pod
//! that has run is never started again.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use pumice_clock as clock;
use pumice_cluster::Change;

use crate::agent::pods::Pods;
use crate::agent::pods::entry::{End, Entry, Presence, Stage, has_run, is_terminal};
use crate::found_pods::{self, FoundState};
use crate::pod_index::DiskRules;
use crate::usage::disk;
use pumice_linux::cgroup;

impl Pods {
    pub(super) fn adopt(&mut self) {
        let (found, empty) = found_pods::scan(&self.context.pods_dir, &self.context.boot_id);
        self.leftovers = empty;
        if let Some(hierarchy) = &self.context.capabilities.cgroup {
            let groups = cgroup::pods(hierarchy, &self.context.cgroup_node).into_iter();
            self.leftovers.extend(groups.filter(|uid| !found.iter().any(|pod| pod.uid == *uid)));
        }
        for found in found {
            let mut pod = Pod::default();
            pod.metadata.name = Some(found.spec.name.clone());
            pod.metadata.namespace = Some(found.spec.namespace.clone());
            let dir = self.context.pods_dir.join(&found.uid);
            let mut entry = Entry::new(&found.uid, &Arc::new(pod), dir, clock::now());
            entry.presence = Presence::Unknown;
            entry.address = found.spec.address;
            entry.shim = found.status;
            entry.stage = match found.state {
                FoundState::Running => Stage::Running,
                FoundState::Ended => Stage::Ended(End::ShimReported),
                FoundState::Lost => Stage::Ended(End::Lost),
                FoundState::Unstarted => Stage::waiting("ContainerCreating", None),
            };
            entry.respawn = found.state == FoundState::Unstarted;
            if let Some(address) = entry.address.filter(|address| *address != self.context.host_ip) {
                self.addresses.restore(&found.uid, address);
            }
            // Its limits are known when the API server is heard.
            self.index.insert(&entry.namespace, &entry.name, entry.dir.clone(), DiskRules::default());
            self.restore_accelerators(&found.uid, &found.spec);
            if entry.has_ended() {
                self.index.end(&entry.namespace, &entry.name, &entry.dir);
            }
            let running = entry.stage == Stage::Running;
            self.pods.insert(found.uid.clone(), entry);
            self.tell_firewall(&found.uid);
            if running {
                self.follow_shim(&found.uid);
            }
        }
        if !self.pods.is_empty() {
            let running = self.pods.values().filter(|entry| entry.stage == Stage::Running).count();
            tracing::info!(pods = self.pods.len(), running, "pods adopted");
        }
    }

    pub(super) fn on_change(&mut self, change: Change<Pod>) {
        match change {
            Change::Replace(all) => {
                let present: BTreeSet<String> = all.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
                for entry in self.pods.values_mut().filter(|entry| !present.contains(&entry.uid)) {
                    entry.presence = Presence::Gone;
                    self.marked.insert(entry.uid.clone());
                }
                for uid in std::mem::take(&mut self.leftovers) {
                    if !present.contains(&uid) {
                        self.remove(None, self.context.pods_dir.join(&uid), &uid);
                    }
                }
                // Those we have first: what they use is not free for new ones.
                let known = |pod: &Pod| pod.metadata.uid.as_ref().is_some_and(|uid| self.pods.contains_key(uid));
                let (known, new): (Vec<Pod>, Vec<Pod>) = all.into_iter().partition(known);
                known.into_iter().chain(new).for_each(|pod| self.on_pod(pod));
                self.context.firewall.tell_of_all_pods();
            }
            Change::Applied(pod) => self.on_pod(pod),
            Change::Deleted(pod) => {
                let entry = pod.metadata.uid.as_ref().and_then(|uid| self.pods.get_mut(uid));
                if let Some(entry) = entry {
                    entry.presence = Presence::Gone;
                    self.marked.insert(entry.uid.clone());
                }
            }
        }
    }

    pub(super) fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        // It becomes the name of a directory and of a control group.
        if !uid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') || uid.is_empty() {
            tracing::warn!(uid, "pod with an impossible uid ignored");
            return;
        }
        let pod = Arc::new(pod);
        self.marked.insert(uid.clone());
        if let Some(entry) = self.pods.get_mut(&uid) {
            let adopted = matches!(entry.presence, Presence::Unknown);
            entry.set_pod(&pod);
            if adopted {
                self.index.insert(&entry.namespace, &entry.name, entry.dir.clone(), disk::rules_of(&pod));
                if entry.has_ended() && is_terminal(&pod) {
                    entry.stage = Stage::Ended(End::Reported);
                }
                self.restore_shared_accelerators(&uid);
                self.tell_of_end(&uid);
                self.join_names(&uid);
            }
            self.tell_firewall(&uid);
            return;
        }
        let mut entry = Entry::new(&uid, &pod, self.context.pods_dir.join(&uid), clock::now());
        entry.stage = self.first_stage(&entry, &pod);
        self.index.insert(&entry.namespace, &entry.name, entry.dir.clone(), disk::rules_of(&pod));
        let waits = matches!(entry.stage, Stage::Waiting { .. });
        if entry.has_ended() {
            self.index.end(&entry.namespace, &entry.name, &entry.dir);
        }
        self.pods.insert(uid.clone(), entry);
        if waits {
            self.give_accelerators(&uid);
        }
        self.tell_of_end(&uid);
        self.give_address(&uid);
        self.join_names(&uid);
    }

    /// What to do with a pod that is not on disk.
    pub(super) fn first_stage(&self, entry: &Entry, pod: &Pod) -> Stage {
        if is_terminal(pod) {
            return Stage::Ended(End::Reported);
        }
        if has_run(pod) {
            return Stage::Ended(End::Lost);
        }
        if entry.is_leaving() {
            return Stage::Ended(End::NeverStarted);
        }
        let active = self.pods.values().filter(|other| !other.has_ended());
        let (mut count, mut cpu_milli, mut memory_bytes) = (0_u32, 0_i64, 0_i64);
        for other in active {
            count += 1;
            cpu_milli = cpu_milli.saturating_add(other.requests.cpu_milli);
            memory_bytes = memory_bytes.saturating_add(other.requests.memory_bytes);
        }
        let asks = [
            ("cpu", entry.requests.cpu_milli, cpu_milli, self.context.cpu_milli),
            ("memory", entry.requests.memory_bytes, memory_bytes, self.context.memory_bytes),
            ("pods", 1, i64::from(count), i64::from(self.pods_max)),
        ];
        for (resource, requested, used, capacity) in asks {
            if requested > 0 && used.saturating_add(requested) > capacity {
                return Stage::Ended(End::Rejected {
                    reason: format!("OutOf{resource}"),
                    message: format!(
                        "Pod was rejected: Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, \
                         capacity: {capacity}"
                    ),
                });
            }
        }
        Stage::waiting("ContainerCreating", None)
    }

    pub(super) fn give_address(&mut self, uid: &str) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        if entry.address.is_none() && !entry.has_ended() {
            entry.address = if entry.on_host_network() { Some(self.context.host_ip) } else { self.addresses.take(uid) };
            self.tell_firewall(uid);
        }
    }

    pub(super) fn join_names(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid).filter(|entry| !entry.has_ended()) else { return };
        if let Some(key) = entry.group() {
            self.names.join(key, uid);
            self.names_soon();
        }
    }
}

//! Pods of a small cluster, for the tests of machines: an API server and a node that do what they are told.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{OwnedPod, PodEffect, TRACKING};

pub(crate) struct World {
    pub now: Timestamp,
    pub pods: BTreeMap<String, Pod>,
    pub made: usize,
}

impl World {
    pub fn new() -> Self {
        Self { now: "2026-01-01T00:00:00Z".parse().unwrap(), pods: BTreeMap::new(), made: 0 }
    }

    pub fn pass(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    pub fn seen(&self) -> Vec<OwnedPod> {
        self.pods.values().map(OwnedPod::observe).collect()
    }

    pub fn active(&self) -> Vec<String> {
        self.seen().into_iter().filter(OwnedPod::is_active).map(|pod| pod.name).collect()
    }

    /// Does what the API server does.
    pub fn apply(&mut self, effect: PodEffect) {
        match effect {
            PodEffect::Create(pod) => self.create(*pod),
            PodEffect::Delete(pod) => self.delete(&pod.name),
            PodEffect::Withdraw(pod) => {
                self.untrack(&pod.name);
                self.delete(&pod.name);
            }
            PodEffect::Untrack(pod) => self.untrack(&pod.name),
            PodEffect::Adopt(pod, owner, tracked) => {
                if let Some(pod) = self.pods.get_mut(&pod.name) {
                    pod.metadata.owner_references.get_or_insert_default().push(*owner);
                    if tracked {
                        pod.metadata.finalizers = Some(vec![TRACKING.to_owned()]);
                    }
                }
            }
            PodEffect::Release(pod, uid) => {
                if let Some(owners) =
                    self.pods.get_mut(&pod.name).and_then(|pod| pod.metadata.owner_references.as_mut())
                {
                    owners.retain(|owner| owner.uid != uid);
                }
            }
        }
    }

    fn create(&mut self, mut pod: Pod) {
        self.made += 1;
        let name = pod.metadata.name.take();
        let name = name.unwrap_or_else(|| format!("{}{}", pod.metadata.generate_name.clone().unwrap(), self.made));
        assert!(!self.pods.contains_key(&name), "{name} is there already");
        pod.metadata.name = Some(name.clone());
        pod.metadata.uid = Some(format!("uid-{}", self.made));
        pod.metadata.creation_timestamp = Some(Time(self.now));
        self.pods.insert(name, pod);
    }

    fn delete(&mut self, name: &str) {
        let Some(pod) = self.pods.get_mut(name) else { return };
        let ended =
            matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"));
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        pod.metadata.deletion_timestamp.get_or_insert(Time(self.now));
        if ended || !bound {
            pod.metadata.deletion_grace_period_seconds = Some(0);
        }
        self.sweep(name);
    }

    fn untrack(&mut self, name: &str) {
        if let Some(finalizers) = self.pods.get_mut(name).and_then(|pod| pod.metadata.finalizers.as_mut()) {
            finalizers.retain(|one| one != TRACKING);
        }
        self.sweep(name);
    }

    /// Removes a pod that nothing holds any more.
    fn sweep(&mut self, name: &str) {
        let gone = self.pods.get(name).is_some_and(|pod| {
            let held = pod.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
            pod.metadata.deletion_grace_period_seconds == Some(0) && !held
        });
        if gone {
            self.pods.remove(name);
        }
    }

    /// A node takes the pod and runs it.
    pub fn run(&mut self, name: &str) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(name) else { return };
        pod.spec.get_or_insert_default().node_name = Some("n".to_owned());
        let status = pod.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        status.conditions = Some(vec![PodCondition {
            type_: "Ready".to_owned(),
            status: "True".to_owned(),
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        }]);
    }

    pub fn run_all(&mut self) {
        for name in self.active() {
            self.run(&name);
        }
    }

    /// Its container ends with this code.
    pub fn end(&mut self, name: &str, code: i32) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(name) else { return };
        let status = pod.status.get_or_insert_default();
        status.phase = Some(if code == 0 { "Succeeded" } else { "Failed" }.to_owned());
        status.conditions = None;
        let terminated = ContainerStateTerminated {
            exit_code: code,
            finished_at: Some(Time(now)),
            ..ContainerStateTerminated::default()
        };
        status.container_statuses = Some(vec![ContainerStatus {
            name: "c".to_owned(),
            state: Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() }),
            ..ContainerStatus::default()
        }]);
        if pod.metadata.deletion_timestamp.is_some() {
            pod.metadata.deletion_grace_period_seconds = Some(0);
        }
        self.sweep(name);
    }

    /// Nodes end what is being deleted.
    pub fn end_leaving(&mut self) {
        let leaving = |pod: &&Pod| pod.metadata.deletion_timestamp.is_some();
        let names: Vec<String> =
            self.pods.values().filter(leaving).filter_map(|pod| pod.metadata.name.clone()).collect();
        for name in names {
            if let Some(pod) = self.pods.get_mut(&name) {
                pod.metadata.deletion_grace_period_seconds = Some(0);
            }
            self.sweep(&name);
        }
    }
}

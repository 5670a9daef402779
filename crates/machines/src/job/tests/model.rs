//! A cluster of one job: effects are applied to it, and tests play scheduler and node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::bus::Action;
use pumice_api::profile::ResourceProfile;
use pumice_api::scheduling::{PodGroup, PodGroupPhase};
use serde_json::{Value, json};

use crate::job::{Effect, Evicted, JobPod, JobView, ObjectId, Plan, PodFacts as JobPodFacts, StatusChange, step};

pub(super) const STEPS_MAX: usize = 60;

#[derive(Clone)]
pub(super) struct Model {
    pub job: Job,
    pub pods: BTreeMap<String, Pod>,
    pub group: Option<PodGroup>,
    pub claims: BTreeSet<String>,
    pub applied: BTreeMap<ObjectId, i64>,
    pub evicted: Vec<Evicted>,
    pub queue_exists: bool,
    /// Phases of other jobs.
    pub awaited: BTreeMap<String, JobPhase>,
    /// What earlier runs taught, and this one.
    pub profiles: BTreeMap<String, ResourceProfile>,
    pub largest_node: Option<i64>,
    pub now: Timestamp,
    /// Deleted pods stay until [`Model::reap`].
    pub linger: bool,
    /// Counts alone are not written, as if the shell held them back.
    pub hold_counts: bool,
    /// Time goes on only by [`Model::sleep`]; otherwise retries, of pods too, and pods that were refused come to their time by
    /// themselves.
    pub watches_time: bool,
    /// The definitions are Volcano's: what they don't know of a status is dropped.
    pub prunes: bool,
    /// Phases the job was written in, in order.
    pub phases: Vec<JobPhase>,
    pub records: Vec<(&'static str, String)>,
    uids: u32,
}

/// A job of these tasks, as admission leaves it.
pub(super) fn job(spec: Value) -> Job {
    let mut job: Job = serde_json::from_value(json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "u1", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": spec,
    }))
    .unwrap();
    for task in &mut job.spec.tasks {
        task.min_available.get_or_insert(task.replicas);
    }
    if job.spec.min_available == 0 {
        job.spec.min_available = job.spec.tasks.iter().filter_map(|task| task.min_available).sum();
    }
    if job.spec.max_retry == 0 {
        job.spec.max_retry = 3;
    }
    job
}

/// One task `w` of `replicas` pods, with extra fields of the spec.
pub(super) fn simple(replicas: i32, extra: Value) -> Job {
    let mut spec =
        json!({"tasks": [{"name": "w", "replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}}]});
    spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    job(spec)
}

impl Model {
    pub fn new(job: Job) -> Self {
        Self {
            job,
            pods: BTreeMap::new(),
            group: None,
            claims: BTreeSet::new(),
            applied: BTreeMap::new(),
            evicted: Vec::new(),
            queue_exists: true,
            awaited: BTreeMap::new(),
            profiles: BTreeMap::new(),
            largest_node: None,
            now: "2026-01-01T00:01:00Z".parse().unwrap(),
            linger: false,
            hold_counts: false,
            watches_time: false,
            prunes: false,
            phases: Vec::new(),
            records: Vec::new(),
            uids: 100,
        }
    }

    /// A job with all its pods running.
    pub fn running(job: Job) -> Self {
        let mut model = Self::new(job);
        model.settle();
        model.start();
        model
    }

    /// Its group is admitted, its pods are made and run.
    pub fn start(&mut self) {
        self.admit();
        self.settle();
        self.all_pods("Running");
        self.settle();
        assert_eq!(self.phase(), JobPhase::Running);
    }

    pub fn phase(&self) -> JobPhase {
        self.job.status.state.phase.clone().unwrap_or(JobPhase::Pending)
    }

    pub fn plan(&self, command: Option<&Action>) -> Plan {
        let pods = self.pods.values().map(|pod| JobPod::observe(pod).unwrap().facts);
        let pods = pods.map(|facts| (facts.name.clone(), facts)).collect();
        let view = JobView {
            job: &self.job,
            pods: &pods,
            evicted: &self.evicted,
            group: self.group.as_ref(),
            queue_exists: self.queue_exists,
            claims: &self.claims,
            applied: &self.applied,
            priorities: &BTreeMap::new(),
            awaited: &self.awaited,
            network_policies: false,
            profiles: &self.profiles,
            largest_node: self.largest_node,
            command,
        };
        step(&view, self.now)
    }

    /// Applies the first `stages` of a plan.
    pub fn apply(&mut self, plan: Plan, stages: usize) {
        for effect in plan.stages.into_iter().take(stages).flatten() {
            self.carry_out(effect);
        }
    }

    /// Applies the first `count` effects of a plan, as if the controller had died then.
    pub fn apply_effects(&mut self, plan: Plan, count: usize) {
        plan.stages.into_iter().flatten().take(count).for_each(|effect| self.carry_out(effect));
    }

    pub fn command(&mut self, action: Action) {
        for _ in 0..STEPS_MAX {
            let plan = self.plan(Some(&action));
            let waits = plan.command_waits;
            let empty = plan.is_settled();
            self.apply(plan, usize::MAX);
            if !empty || waits {
                self.evicted.clear();
            }
            if !waits {
                return self.settle();
            }
        }
    }

    /// Steps until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            let plan = self.plan(None);
            let held = |effect: &Effect| {
                self.hold_counts && matches!(effect, Effect::WriteStatus { change: StatusChange::Counts, .. })
            };
            let settled = plan.stages.iter().flatten().all(|effect| effect.is_record() || held(effect));
            // They are told once.
            self.evicted.clear();
            let rests = |pod: &Pod| {
                let facts = JobPod::observe(pod).unwrap().facts;
                facts.refused.is_some() || (facts.phase.is_finished() && facts.mark.is_some())
            };
            let waits = match self.phase() {
                JobPhase::Restarting => true,
                JobPhase::Pending | JobPhase::Running => self.pods.values().any(rests),
                _ => false,
            };
            let wake_at = if settled && waits && !self.watches_time { plan.wake_at } else { None };
            self.apply(plan, usize::MAX);
            match wake_at {
                // A retry waits for its time, and so does the successor of a refused pod.
                Some(at) => self.now = at,
                None if settled => return,
                None => {}
            }
        }
        panic!("not settled: {:?} {:?}", self.job.status, self.plan(None));
    }

    fn carry_out(&mut self, effect: Effect) {
        self.uids += 1;
        let uid = format!("u{}", self.uids);
        match effect {
            Effect::MarkPod { pod, mark } => {
                if let Some(found) = self.pods.get_mut(&pod.name) {
                    let annotations = found.metadata.annotations.get_or_insert_default();
                    annotations.insert(pumice_api::names::CONTROLLER_OUT_OF_SYNC.into(), "true".into());
                    annotations.insert(pumice_api::names::RESTART.into(), mark.write());
                }
            }
            Effect::DeletePod(pod) => {
                if self.pods.get(&pod.name).and_then(|found| found.metadata.uid.as_ref()) == Some(&pod.uid) {
                    self.delete(&pod.name);
                }
            }
            Effect::CreatePod(pod) => {
                let allowed = self.group.as_ref().and_then(|group| group.status.phase.clone());
                assert!(allowed.is_some_and(|phase| phase != PodGroupPhase::Pending), "pod before admission");
                let name = pod.metadata.name.clone().unwrap();
                assert!(!self.pods.contains_key(&name), "{name} is taken");
                let mut pod = *pod;
                pod.metadata.uid = Some(uid);
                pod.metadata.creation_timestamp = Some(Time(self.now));
                let task = JobPod::observe(&pod).unwrap().facts.task;
                self.pods.insert(name, pod);
                let most = self.job.spec.tasks.iter().find(|one| one.name == task).and_then(|one| one.max_parallel);
                assert!(most.is_none_or(|most| self.unfinished(&task) <= most as usize), "too many at once");
            }
            Effect::CreateGroup(group) => {
                assert_eq!(self.group, None);
                let mut group = *group;
                group.metadata.uid = Some(uid);
                self.group = Some(group);
            }
            Effect::UpdateGroup { patch, .. } => {
                let mut value = serde_json::to_value(self.group.take().unwrap()).unwrap();
                merge(&mut value, &patch);
                self.group = Some(serde_json::from_value(value).unwrap());
            }
            Effect::DeleteGroup(_) => self.group = None,
            Effect::CreateClaim(claim) => {
                self.claims.insert(claim.metadata.name.unwrap());
            }
            Effect::Ensure { id, generation, .. } => {
                self.applied.insert(id, generation);
            }
            Effect::DeleteObject(id) => {
                self.applied.remove(&id);
            }
            Effect::Annotate { key, value } => {
                let annotations = self.job.metadata.annotations.get_or_insert_default();
                match value {
                    Some(value) => drop(annotations.insert(key.to_owned(), value)),
                    None => drop(annotations.remove(key)),
                }
            }
            Effect::WriteStatus { change: StatusChange::Counts, .. } if self.hold_counts => {}
            Effect::WriteStatus { status, .. } => {
                let wire = serde_json::to_string(&status).unwrap();
                let mut status: pumice_api::batch::JobStatus = serde_json::from_str(&wire).unwrap();
                if self.prunes {
                    status.memory_raises.clear();
                    status.pod_retries.clear();
                }
                let phase = status.state.phase.clone().unwrap();
                let ends_all = match phase {
                    JobPhase::Aborting | JobPhase::Terminating | JobPhase::Completing => true,
                    JobPhase::Restarting => status.state.reason == "RestartJob",
                    _ => false,
                };
                if ends_all && phase != self.phase() && status.retry_count < self.job.spec.max_retry {
                    let counts = (status.pending, status.running);
                    assert_eq!(counts, (0, 0), "whoever reads of {phase} reads of its pods as terminating");
                }
                if self.phases.last() != Some(&phase) {
                    self.phases.push(phase);
                }
                self.job.status = status;
            }
            Effect::Record { reason, message, .. } => {
                if !self.records.iter().any(|seen| seen.0 == reason && seen.1 == message) {
                    self.records.push((reason, message));
                }
            }
            Effect::Learn(lesson) => {
                let profile = self.profiles.entry(lesson.name.clone()).or_default();
                profile.status = lesson.written(Some(&profile.status), 1, self.now);
                profile.spec = lesson.runs;
            }
            Effect::DeleteJob => self.job.metadata.deletion_timestamp = Some(Time(self.now)),
        }
    }

    /// Deletes a pod as the API server does.
    pub fn delete(&mut self, name: &str) {
        let finished = matches!(self.pod_phase(name), Some("Succeeded" | "Failed"));
        if self.linger && !finished {
            let now = self.now;
            if let Some(pod) = self.pods.get_mut(name) {
                pod.metadata.deletion_timestamp.get_or_insert(Time(now));
            }
        } else {
            self.pods.remove(name);
        }
    }

    /// Somebody else deletes a pod; the shell sees it go.
    pub fn evict(&mut self, name: &str) {
        if let Some(pod) = self.pods.get(name) {
            let facts = JobPod::observe(pod).unwrap().facts;
            let JobPodFacts { task, index, version, phase, .. } = facts.clone();
            self.delete(name);
            if !self.pods.contains_key(name) && facts.mark.is_none() && facts.refused.is_none() {
                self.evicted.push(Evicted { task, index, version, phase, at: self.now });
            }
        }
    }

    /// Pods being deleted go; the shell tells of those it did not ask for.
    pub fn reap(&mut self) {
        let going: Vec<String> = self
            .pods
            .values()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some())
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        for name in going {
            let linger = std::mem::replace(&mut self.linger, false);
            self.evict(&name);
            self.linger = linger;
        }
    }

    pub fn admit(&mut self) {
        if let Some(group) = &mut self.group {
            group.status.phase = Some(PodGroupPhase::Inqueue);
        }
    }

    pub fn has_ended(&self, name: &str) -> bool {
        matches!(self.pod_phase(name), Some("Succeeded" | "Failed"))
    }

    fn pod_phase(&self, name: &str) -> Option<&str> {
        self.pods.get(name)?.status.as_ref()?.phase.as_deref()
    }

    pub fn pod(&mut self, name: &str, phase: &str) {
        let code = i32::from(phase == "Failed");
        self.pod_exits(name, phase, code);
    }

    pub fn pod_exits(&mut self, name: &str, phase: &str, code: i32) {
        let ended = matches!(phase, "Succeeded" | "Failed");
        let terminated = ContainerStateTerminated {
            exit_code: code,
            finished_at: Some(Time(self.now)),
            ..ContainerStateTerminated::default()
        };
        let status = ContainerStatus {
            ready: phase == "Running",
            state: Some(ContainerState { terminated: ended.then_some(terminated), ..ContainerState::default() }),
            ..ContainerStatus::default()
        };
        let pod = self.pods.get_mut(name).unwrap_or_else(|| panic!("no pod {name}"));
        pod.status = Some(PodStatus {
            phase: Some(phase.into()),
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        });
    }

    /// Container `c` is killed for want of memory, and its pod fails.
    pub fn out_of_memory(&mut self, name: &str) {
        self.pod_exits(name, "Failed", 137);
        let state = self.container(name).state.as_mut().unwrap();
        state.terminated.as_mut().unwrap().reason = Some("OOMKilled".into());
    }

    /// The status of container `c` of a pod.
    pub fn container(&mut self, name: &str) -> &mut ContainerStatus {
        let status = self.pods.get_mut(name).unwrap().status.as_mut().unwrap();
        let container = &mut status.container_statuses.as_mut().unwrap()[0];
        "c".clone_into(&mut container.name);
        container
    }

    /// Limit of memory of container `c` of a pod.
    pub fn limit(&self, name: &str) -> &str {
        let resources = self.pods[name].spec.as_ref().unwrap().containers[0].resources.as_ref().unwrap();
        &resources.limits.as_ref().unwrap()["memory"].0
    }

    /// A kubelet refuses a pod.
    pub fn refuse(&mut self, name: &str, reason: &str) {
        self.pod(name, "Failed");
        let status = self.pods.get_mut(name).unwrap().status.as_mut().unwrap();
        status.reason = Some(reason.into());
        status.container_statuses = None;
    }

    pub fn restarted(&mut self, name: &str, count: i32) {
        let pod = self.pods.get_mut(name).unwrap();
        let statuses = pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap();
        statuses[0].restart_count = count;
    }

    pub fn all_pods(&mut self, phase: &str) {
        let names: Vec<String> = self.pods.keys().cloned().collect();
        names.iter().for_each(|name| self.pod(name, phase));
    }

    pub fn names(&self) -> Vec<&str> {
        self.pods.keys().map(String::as_str).collect()
    }

    pub fn uid(&self, name: &str) -> String {
        self.pods[name].metadata.uid.clone().unwrap()
    }

    pub fn sleep(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// How many pods of a task have not ended.
    pub fn unfinished(&self, task: &str) -> usize {
        let all = self.pods.values().map(|pod| JobPod::observe(pod).unwrap().facts);
        all.filter(|pod| pod.task == task && !pod.has_ended()).count()
    }

    /// `pending running succeeded failed terminating`.
    pub fn counts(&self) -> [i32; 5] {
        let status = &self.job.status;
        [status.pending, status.running, status.succeeded, status.failed, status.terminating]
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

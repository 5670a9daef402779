//! Pending and Running: make what exists agree with the spec.
//!
//! Invariant: no pod is made before the job's claims and plugin objects are there and its group has been admitted, and none
//! under a name that is still taken. Called by the machine when no policy or command asks for more.

pub(super) mod depends_on;
pub(super) mod pod_group;
pub(super) mod start_after;

use std::collections::BTreeSet;

use pumice_api::batch::JobPhase;
use pumice_api::names;
use pumice_api::scheduling::{PodGroupConditionType, PodGroupPhase};

use crate::job::memory::sizes::Sizes;
use crate::job::plan::{Effect, Plan};
use crate::job::pods::volumes::{self, Claims};
use crate::job::policy::job_updated;
use crate::job::remembered::Remembered;
use crate::job::restart::Targets;
use crate::job::retries::PodRetries;
use crate::job::status::phase_rules::Verdict;
use crate::job::status::{active_deadline, phase_rules};
use crate::job::{StepContext, plugin_objects, pods};
use crate::job_object;
use crate::plugins::{self, Plugin};

/// Most pods made by one plan; the next step makes the rest.
const CREATE_MAX: usize = 5_000;
/// Most pods of a job.
const REPLICAS_MAX: i64 = 100_000;

impl StepContext<'_> {
    pub(super) fn sync(&self) -> Plan {
        self.wait_for_jobs().unwrap_or_else(|| self.with_refusals(self.agree()))
    }

    fn agree(&self) -> Plan {
        if let Some(plan) = self.start_as_learned() {
            return plan;
        }
        let mut records = Vec::new();
        let mut draft = self.draft();
        let pending_events = self.pending_events(&Targets::default());
        let mut covered = Remembered::default();
        let preparations = self.prepare(&mut records);
        draft.begin(self.now);
        draft.say(start_after::WAITS, None);
        let too_large = self.too_large();
        draft.say(names::MEMORY_EXCEEDS_NODES, too_large.first());
        let mut first = Vec::new();
        let mut second = self.deletions(|pod| pod.mark.is_some() && !self.pauses(pod));
        let deletes = !second.is_empty();
        first.extend(self.own_marks());
        if let Some(ready) = preparations {
            draft.next.controlled_resources = ready.resources;
            job_updated::waits(self.view.job, &mut draft.next, self.now);
            active_deadline::keep(self.view.job, &mut draft.next, self.now);
            first.extend(ready.effects);
            if self.group_is_admitted() {
                second.extend(self.creations(&ready.plugins, &pending_events, &mut covered));
            }
        }
        for verdict in self.verdicts() {
            self.conclude(&mut draft, &verdict);
            if verdict.phase.is_finished() {
                let write = draft.write(self.now).into_iter().collect();
                return self.with_ended(&Targets::default(), self.remember(&pending_events, Plan::only(write)));
            }
        }
        records.extend(self.group_pending());
        records.extend(self.refusals());
        records.extend(too_large.into_iter().map(|message| Effect::warning(names::MEMORY_EXCEEDS_NODES, message)));
        let write = if deletes { draft.write_now(self.now) } else { draft.write(self.now) };
        first.extend(records);
        if !pending_events.is_empty() && pending_events == covered && !deletes {
            // Each successor says it. Until all are there, the counts must go on missing what they replace.
            return self
                .with_ended(&Targets::default(), Plan::stages(vec![first, second, write.into_iter().collect()]));
        }
        first.extend(write);
        self.with_ended(&Targets::default(), self.remember(&pending_events, Plan::stages(vec![first, second])))
    }

    /// The phases to go through now. A job whose pods ended before they were seen to run passes Running on its way out.
    pub(super) fn verdicts(&self) -> Vec<Verdict> {
        let spec = &self.view.job.spec;
        let started = match &self.phase {
            JobPhase::Running => None,
            _ => match phase_rules::pending(spec, &self.pod_counts) {
                Some(verdict) => Some(verdict),
                None => return Vec::new(),
            },
        };
        started.into_iter().chain(phase_rules::running(spec, &self.pod_counts)).collect()
    }

    /// What must be there before pods; `None` when something is missing that we can't make.
    fn prepare(&self, records: &mut Vec<Effect>) -> Option<Preparations> {
        let view = self.view;
        let job = view.job;
        if self.pod_counts.replicas > REPLICAS_MAX {
            let message =
                format!("{} pods are more than the {REPLICAS_MAX} that a job may have", self.pod_counts.replicas);
            records.push(Effect::warning("JobStatusError", message));
            return None;
        }
        let plugins = match plugins::of_job(job) {
            Ok(parsed) => parsed,
            Err(error) => {
                records.push(Effect::warning("PluginError", error.to_string()));
                return None;
            }
        };
        let limits = plugins.iter().filter_map(|plugin| Some((plugin, hosts_max(plugin)?)));
        if let Some((plugin, most)) =
            limits.min_by_key(|(_, most)| *most).filter(|(_, most)| self.pod_counts.replicas > *most)
        {
            let (name, pods) = (plugin.name(), self.pod_counts.replicas);
            let message = format!(
                "plugin {name} lists the hosts of all pods, of which there may be {most} and are {pods}; leave it out, or make several jobs"
            );
            records.push(Effect::warning("PluginError", message));
            return None;
        }
        if !view.queue_exists {
            let message = format!("queue {} does not exist; create it and the job goes on", queue_name(job));
            records.push(Effect::warning("PodGroupError", message));
            return None;
        }
        let mut effects = match volumes::claims(job, view.claims) {
            Claims::Ready(create) => create,
            Claims::Missing(claim) => {
                let message = format!("claim {claim} does not exist; create it and the job goes on");
                records.push(Effect::warning("PVCError", message));
                return None;
            }
        };
        let generation = job.metadata.generation.unwrap_or(0);
        for plugin in &plugins {
            for (id, ensured) in plugin_objects::wanted(plugin, job, view.network_policies) {
                if view.applied.get(&id) != Some(&generation) {
                    effects.push(Effect::Ensure { id, generation, object: ensured });
                }
            }
        }
        effects.extend(self.group_change());
        let mut resources = volumes::claim_resources(job);
        resources.extend(plugin_objects::recorded(&plugins));
        records.extend(plugin_objects::first_doubts(job, &plugins));
        Some(Preparations { effects, plugins, resources })
    }

    fn group_change(&self) -> Option<Effect> {
        match self.view.group {
            None => Some(Effect::CreateGroup(Box::new(pod_group::build(self.view.job, self.view.priorities)))),
            // The group of an earlier version is on its way out, and has the same name.
            Some(_) if self.group_is_older() => None,
            Some(group) => {
                let patch = pod_group::difference(self.view.job, self.view.priorities, group)?;
                Some(Effect::UpdateGroup { name: group.metadata.name.clone()?, patch })
            }
        }
    }

    fn group_is_older(&self) -> bool {
        let older = self.group_version().is_some_and(|version| version < self.view.job.status.version);
        older || self.view.group.is_some_and(|group| group.metadata.deletion_timestamp.is_some())
    }

    fn group_is_admitted(&self) -> bool {
        let phase = self.view.group.and_then(|group| group.status.phase.as_ref());
        !self.group_is_older() && phase.is_some_and(|phase| *phase != PodGroupPhase::Pending)
    }

    fn creations(&self, plugins: &[Plugin], pending_events: &Remembered, covered: &mut Remembered) -> Vec<Effect> {
        let job = self.view.job;
        let ready = self.pod_counts.tasks.iter().filter(|task| depends_on::ready(task.spec, &self.pod_counts));
        let missing = ready.flat_map(|task| task.next().map(move |index| (task.spec, index)));
        let (sizes, retries) = (Sizes::read(job), PodRetries::read(job));
        missing
            .take(CREATE_MAX)
            .map(|(task, index)| {
                let evicted_at = Self::evicted_at(pending_events, &task.name, index);
                if let Some(at) = evicted_at {
                    covered.set(&task.name, index, at.as_second());
                }
                Effect::CreatePod(Box::new(pods::build(job, task, index, plugins, &sizes, &retries, evicted_at)))
            })
            .collect()
    }

    /// Tells that pods are replaced, and why.
    fn refusals(&self) -> impl Iterator<Item = Effect> {
        let reasons: BTreeSet<&str> = self.pod_counts.slots().filter_map(|pod| pod.refused.as_deref()).collect();
        let tell = |reason| {
            let message =
                format!("a node refused pods of the job: {reason}; they are made again, ever later, and cost no retry");
            Effect::warning("PodRefused", message)
        };
        reasons.into_iter().map(tell)
    }

    /// Tells why the group waits.
    fn group_pending(&self) -> Option<Effect> {
        if self.group_is_admitted() {
            return None;
        }
        let group = self.view.group?;
        let condition = group.status.conditions.iter().rev().find(|condition| condition.status == "True")?;
        let kind = condition.type_.as_ref().filter(|kind| **kind != PodGroupConditionType::Scheduled)?;
        let (namespace, name) = (job_object::namespace(self.view.job), job_object::name(self.view.job));
        let message =
            format!("PodGroup {namespace}:{name} {}, reason: {}", kind.as_str().to_lowercase(), condition.message);
        Some(Effect::warning("PodGroupPending", message))
    }
}

/// Most pods of a job whose hosts a plugin writes down: they must fit an object, and the environment of each pod.
fn hosts_max(plugin: &Plugin) -> Option<i64> {
    match plugin {
        Plugin::Svc(_) => Some(2_000),
        Plugin::Ssh(_) => Some(10_000),
        _ => None,
    }
}

struct Preparations {
    effects: Vec<Effect>,
    plugins: Vec<Plugin>,
    resources: std::collections::BTreeMap<String, String>,
}

/// The queue of a job.
pub(super) fn queue_name(job: &pumice_api::batch::Job) -> &str {
    match job.spec.queue.as_str() {
        "" => names::DEFAULT_QUEUE,
        queue => queue,
    }
}

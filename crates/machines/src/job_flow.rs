//! The JobFlow machine: Jobs made of templates, each when those it depends on are done.
//!
//! Invariant: a Job is made at most once for each name of a flow, and once more for each retry. One that has completed stays completed in the status, also
//! when it was deleted since, and is not made again. Called by the flow controller for each flow something happened to.

mod create;
mod status;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::{Flow, FlowPhase, JobFlow, JobFlowStatus, JobOfFlow, JobRetainPolicy, JobTemplate, Probe};
use pumice_api::names;

/// Most retries of one Job.
const RETRIES_MAX: usize = 10;

/// What a step looks at.
pub struct FlowView<'a> {
    pub flow: &'a JobFlow,
    /// The templates of its namespace that it names, by name.
    pub templates: BTreeMap<&'a str, &'a JobTemplate>,
    /// The Jobs that it controls, by name.
    pub jobs: BTreeMap<&'a str, &'a Job>,
}

/// One change to make.
#[derive(Clone, Debug, PartialEq)]
pub enum FlowEffect {
    CreateJob(Box<Job>),
    /// Delete a Job and what it made; the uid guards a namesake.
    DeleteJob {
        name: String,
        uid: String,
    },
    WriteStatus(Box<JobFlowStatus>),
    /// Record a warning on the flow.
    Warn {
        /// CamelCase word.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
}

/// Name of the Job made for `flow` of a JobFlow.
pub fn job_name(job_flow: &str, flow: &str) -> String {
    format!("{job_flow}-{flow}")
}

/// Decides what to do about a flow now. `O(flows × targets + jobs)`.
pub fn step(view: &FlowView<'_>, now: Timestamp) -> Vec<FlowEffect> {
    if view.flow.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let context = StepContext::of(view);
    let next = status::next(&context, now);
    let mut effects = Vec::new();
    let phase = next.state.phase.clone();
    if next != view.flow.status {
        effects.push(FlowEffect::WriteStatus(Box::new(next)));
    }
    match phase {
        Some(FlowPhase::Succeed) if deletes_jobs(view.flow) => effects.extend(view.jobs.values().filter_map(delete)),
        Some(FlowPhase::Succeed | FlowPhase::Failed | FlowPhase::Terminating) => {}
        _ => {
            effects.extend(context.creations());
            effects.extend(context.retries());
        }
    }
    effects
}

fn deletes_jobs(flow: &JobFlow) -> bool {
    flow.spec.job_retain_policy == Some(JobRetainPolicy::Delete)
}

fn delete(job: &&Job) -> Option<FlowEffect> {
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let (name, uid) = (job.metadata.name.clone()?, job.metadata.uid.clone()?);
    Some(FlowEffect::DeleteJob { name, uid })
}

/// A flow and how far its Jobs are.
struct StepContext<'a> {
    view: &'a FlowView<'a>,
    name: &'a str,
    /// The first of each name: a name is one Job.
    flows: Vec<&'a Flow>,
    /// Names of Jobs that completed and are gone.
    completed_before: BTreeSet<&'a str>,
}

impl<'a> StepContext<'a> {
    fn of(view: &'a FlowView<'a>) -> Self {
        let mut seen = BTreeSet::new();
        let flows = view.flow.spec.flows.iter().filter(|flow| seen.insert(flow.name.as_str())).collect();
        let ended = view
            .flow
            .status
            .job_status_list
            .iter()
            .filter(|job| job.state == Some(JobPhase::Completed) && !view.jobs.contains_key(job.name.as_str()));
        let completed_before = ended.map(|job| job.name.as_str()).collect();
        let name = view.flow.metadata.name.as_deref().unwrap_or_default();
        Self { view, name, flows, completed_before }
    }

    fn job_name(&self, flow: &str) -> String {
        job_name(self.name, flow)
    }

    fn job(&self, flow: &str) -> Option<&'a Job> {
        self.view.jobs.get(self.job_name(flow).as_str()).copied()
    }

    /// Whether the Job of `flow` has completed, if only in the past.
    fn is_completed(&self, flow: &str) -> bool {
        match self.job(flow) {
            Some(job) => job.status.state.phase == Some(JobPhase::Completed),
            None => self.completed_before.contains(self.job_name(flow).as_str()),
        }
    }

    fn creations(&self) -> Vec<FlowEffect> {
        let mut effects = Vec::new();
        for flow in &self.flows {
            if self.job(&flow.name).is_some() || self.is_completed(&flow.name) || !self.is_ready(flow) {
                continue;
            }
            effects.push(match self.view.templates.get(flow.name.as_str()) {
                Some(template) => FlowEffect::CreateJob(Box::new(create::job(self.view.flow, flow, template))),
                None => FlowEffect::Warn {
                    reason: "FailedCreate",
                    message: format!("job template {} does not exist; create it and the flow goes on", flow.name),
                },
            });
        }
        effects
    }

    /// Takes away Jobs that have failed and are made again, once the status says that they failed.
    fn retries(&self) -> Vec<FlowEffect> {
        let known = |name: &str| self.view.flow.status.job_status_list.iter().find(|job| job.name == name);
        let due = self.flows.iter().filter_map(|flow| {
            let job = self.job(&flow.name).filter(|job| job.status.state.phase == Some(JobPhase::Failed))?;
            let known = known(&self.job_name(&flow.name))?;
            let is_told = known.start_timestamp == job.metadata.creation_timestamp;
            if is_told && is_retried(self.view.flow, flow, known) { delete(&job) } else { None }
        });
        due.collect()
    }

    fn is_ready(&self, flow: &Flow) -> bool {
        let Some(depends) = &flow.depends_on else { return true };
        depends.targets.iter().all(|target| {
            let probed = depends.probe.as_ref().is_some_and(|probe| self.holds(probe, target));
            probed || self.is_completed(target)
        })
    }

    /// Whether all that a probe asks of the tasks of a Job can be seen in the Job. What only its network would tell never
    /// holds: then the Job has to complete.
    fn holds(&self, probe: &Probe, target: &str) -> bool {
        let of_tasks = &probe.task_status_list;
        if of_tasks.is_empty() || !probe.http_get_list.is_empty() || !probe.tcp_socket_list.is_empty() {
            return false;
        }
        let Some(job) = self.job(target) else { return false };
        of_tasks.iter().all(|wanted| {
            let task = job.status.task_status_count.get(&wanted.task_name);
            task.and_then(|task| task.phase.get(&wanted.phase)).is_some_and(|pods| *pods > 0)
        })
    }
}

/// How often the Job of `flow` is made again. The field counts before the annotation.
fn allowed(job_flow: &JobFlow, flow: &Flow) -> usize {
    let text = job_flow.metadata.annotations.as_ref().and_then(|all| all.get(names::FLOW_RETRIES));
    let annotated = || text.and_then(|text| read_retries(text).find(|(name, _)| *name == flow.name)?.1);
    let said = flow.retries.map(|retries| usize::try_from(retries).unwrap_or(0)).or_else(annotated);
    said.unwrap_or(0).min(RETRIES_MAX)
}

/// The names that the annotation `pumice.sh/flow-retries` says, each with its number if it can be read.
pub fn read_retries(text: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    text.split(',').map(|entry| {
        let (name, number) = entry.split_once('=').unwrap_or((entry, ""));
        (name.trim(), number.trim().parse().ok().filter(|number| *number <= RETRIES_MAX))
    })
}

/// Whether a Job that went through this has failed and is to be made again.
///
/// How often it has failed is in the flow's status, which is written before the Job is deleted. A course that is too long to be
/// remembered whole counts as used up. Only Failed counts: what a person or a policy terminated stays.
fn is_retried(job_flow: &JobFlow, flow: &Flow, of_flow: &JobOfFlow) -> bool {
    let histories = &of_flow.running_histories;
    let failures = histories.iter().filter(|history| history.state == Some(JobPhase::Failed)).count();
    let is_whole = histories.len() < status::HISTORY_MAX;
    of_flow.state == Some(JobPhase::Failed) && is_whole && failures <= allowed(job_flow, flow)
}

#[cfg(test)]
mod tests;

//! What is refused in a new Job. All reasons are told, in Volcano's order; two of them end the search.

use std::collections::BTreeSet;

use pumice_api::batch::{Job, TaskSpec};
use pumice_api::names::{self, JDB_MAX_UNAVAILABLE, JDB_MIN_AVAILABLE, ROOT_QUEUE};
use pumice_api::scheduling::QueueState;
use pumice_machines::plugins::mpi;
use pumice_objects::names::check_qualified_name;
use pumice_units::GoDuration;

use super::{
    BOTH_TIERS, annotations, dependencies, name_of, names_tier_twice, parallel, partition, plugins, pod_template,
    policies, replicas, volumes,
};
use crate::pod::budget_refusal;
use crate::view::{View, children};
use crate::{Findings, Rules};

/// Judges a new job that is already filled in.
pub fn validate_create(job: &Job, view: &dyn View, rules: &Rules, findings: &mut Findings) {
    if job.spec.tasks.is_empty() {
        findings.refuse("No task specified in job spec");
        return;
    }
    if mpi::lacks_master(job) {
        findings.refuse("The specified mpi master task was not found");
        return;
    }
    if names_tier_twice(job.spec.network_topology.as_ref()) {
        findings.refuse(BOTH_TIERS);
    }
    tasks(job, findings);
    if let Err(error) = check_qualified_name(name_of(job)) {
        findings.refuse(format!("create job with name {} validate failed {error};", name_of(job)));
    }
    if replicas(&job.spec.tasks) < i64::from(job.spec.min_available) {
        findings.refuse("job 'minAvailable' should not be greater than total replicas in tasks;");
    }
    parallel::validate(job, findings);
    policies::validate(&job.spec.policies, "spec.policies", findings);
    policies::doubt(&job.spec.policies, findings);
    budget(job, findings);
    annotations::validate(job, findings);
    estimate(job, findings);
    plugins::validate(job, findings);
    plugins::doubt(job, findings);
    volumes::validate(&job.spec.volumes, findings);
    queue(job, view, findings);
    if !dependencies::are_acyclic(&job.spec.tasks) {
        findings.refuse("job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);");
    }
    dependencies::doubt(job, rules, findings);
}

fn tasks(job: &Job, findings: &mut Findings) {
    let mut seen = BTreeSet::new();
    for (index, task) in job.spec.tasks.iter().enumerate() {
        if task.min_available.is_some_and(|least| least > task.replicas) {
            let job = name_of(job);
            findings.refuse(format!("'minAvailable' is greater than 'replicas' in task: {}, job: {job};", task.name));
        }
        if !seen.insert(task.name.as_str()) {
            findings.refuse(format!("duplicated task name {};", task.name));
            return;
        }
        policies::validate(&task.policies, "spec.tasks.policies", findings);
        policies::doubt(&task.policies, findings);
        pod_name(job, task, index, findings);
        pod_template::validate(task, index, findings);
        partition::validate(job, task, findings);
    }
}

/// Volcano tries the name of one pod; its index there is the task's position.
fn pod_name(job: &Job, task: &TaskSpec, position: usize, findings: &mut Findings) {
    let name = names::pod_name(name_of(job), &task.name, i32::try_from(position).unwrap_or(i32::MAX));
    if let Err(error) = check_qualified_name(&name) {
        findings.refuse(format!("create pod with name {name} validate failed {error};"));
    }
}

/// Pods take their budget over from the job, one of the two if both are there, and would be refused for it.
fn budget(job: &Job, findings: &mut Findings) {
    let annotations = job.metadata.annotations.as_ref();
    let of = |key: &str| annotations.and_then(|all| all.get(key)).map(String::as_str);
    let taken = if of(JDB_MIN_AVAILABLE).is_some() { JDB_MIN_AVAILABLE } else { JDB_MAX_UNAVAILABLE };
    if let Some(reason) = budget_refusal(|key| if key == taken { of(key) } else { None }) {
        findings.refuse(format!("{reason};"));
    }
}

fn estimate(job: &Job, findings: &mut Findings) {
    let Some(text) = &job.spec.running_estimate else { return };
    if let Err(error) = text.parse::<GoDuration>() {
        findings.refuse(format!("invalid runningEstimate: {error};"));
    }
}

/// A queue without a state is new: its controller opens it, so jobs may come.
pub(super) fn queue(job: &Job, view: &dyn View, findings: &mut Findings) {
    let name = job.spec.queue.as_str();
    let Some(queue) = view.queue(name) else {
        findings.refuse(format!("unable to find job queue: queue.scheduling.volcano.sh \"{name}\" not found;"));
        return;
    };
    let state = queue.status.state.unwrap_or(QueueState::Open);
    if state != QueueState::Open {
        findings.refuse(format!("can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"));
    }
    if name == ROOT_QUEUE {
        findings.refuse("can not submit job to root queue;");
        return;
    }
    let count = children(&view.queues(), name).count();
    if count > 0 {
        findings.refuse(format!("can only submit job to leaf queue, queue `{name}` has {count} child queues;"));
    }
}

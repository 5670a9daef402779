//! What a job says by annotations instead of fields that Volcano's own definitions drop. The words are ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use pumice_api::batch::{Job, LifecyclePolicy, TaskSpec};
use pumice_api::bus::{Action, Event};
use pumice_machines::job::{AFTER, After, ON_OOM, ScaleUp, TASK_NUMBERS};

use super::name_of;
use crate::Findings;

/// Judges the annotations of a new job and of its tasks.
pub(super) fn validate(job: &Job, findings: &mut Findings) {
    on_oom(job, findings);
    after(job, findings);
    for task in &job.spec.tasks {
        rule(of_template(task), &task.policies, &format!("task {}", task.name), findings);
        numbers(task, findings);
    }
    for task in job.spec.tasks.iter().filter(|task| is_raised(job, task) && !has_memory(&task.template)) {
        findings.warn(format!(
            "task {} has no container with a memory limit or request, so there is nothing that ScaleUpMemory could raise",
            task.name
        ));
    }
}

/// Judges the annotations of a job that is changed, if they are: those of its tasks can't be.
pub(super) fn validate_change(job: &Job, old: &Job, findings: &mut Findings) {
    let differs = |key: &str| {
        let text = |job: &'_ Job| job.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
        text(job) != text(old)
    };
    if differs(ON_OOM) {
        on_oom(job, findings);
    }
    if differs(AFTER) {
        after(job, findings);
    }
}

fn on_oom(job: &Job, findings: &mut Findings) {
    let place = format!("job {}", name_of(job));
    rule(job.metadata.annotations.as_ref(), &job.spec.policies, &place, findings);
}

/// A circle of several jobs can't be seen from one of them; its jobs say what they wait for.
fn after(job: &Job, findings: &mut Findings) {
    match After::of(job) {
        Err(error) => findings.refuse(format!("{error};")),
        Ok(Some(after)) if after.jobs().any(|name| name == name_of(job)) => {
            findings.refuse(format!("annotation {AFTER}: job {} can't wait for itself;", name_of(job)));
        }
        Ok(_) => {}
    }
}

type Annotations = BTreeMap<String, String>;

fn of_template(task: &TaskSpec) -> Option<&Annotations> {
    task.template.metadata.as_ref()?.annotations.as_ref()
}

fn answers_oom(policy: &LifecyclePolicy) -> bool {
    policy.event.iter().chain(&policy.events).any(|event| *event == Event::OomKilled)
}

/// A place has one rule.
fn rule(annotations: Option<&Annotations>, policies: &[LifecyclePolicy], place: &str, findings: &mut Findings) {
    let Some(text) = annotations.and_then(|all| all.get(ON_OOM)) else { return };
    if let Err(error) = ScaleUp::of_annotation(text) {
        findings.refuse(format!("annotation {ON_OOM} of {place}: {error};"));
    } else if policies.iter().any(answers_oom) {
        findings.refuse(format!(
            "{place} says what to do on OOMKilled by a policy and by annotation {ON_OOM}; leave one of them out;"
        ));
    }
}

fn numbers(task: &TaskSpec, findings: &mut Findings) {
    for number in TASK_NUMBERS {
        match (number.by_field(task), number.annotated(task)) {
            (_, Err(error)) => findings.refuse(format!("annotation of task {}: {error};", task.name)),
            (Some(field), Ok(Some(annotated))) if field != annotated => findings.refuse(format!(
                "task {} has {} {field} and annotation {} {annotated}; leave one of them out;",
                task.name, number.field, number.annotation
            )),
            _ => {}
        }
    }
}

/// Whether memory of the task's pods is to be raised, by its own rule or the job's.
fn is_raised(job: &Job, task: &TaskSpec) -> bool {
    let raises = |annotations: Option<&Annotations>, policies: &[LifecyclePolicy]| {
        let by_policy = |policy: &LifecyclePolicy| answers_oom(policy) && policy.action == Some(Action::ScaleUpMemory);
        annotations.is_some_and(|all| all.contains_key(ON_OOM)) || policies.iter().any(by_policy)
    };
    raises(of_template(task), &task.policies) || raises(job.metadata.annotations.as_ref(), &job.spec.policies)
}

fn has_memory(template: &PodTemplateSpec) -> bool {
    let containers =
        template.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let mut resources = containers.filter_map(|container| container.resources.as_ref());
    resources.any(|one| [&one.limits, &one.requests].into_iter().flatten().any(|list| list.contains_key("memory")))
}

//! What a job says by annotations instead of fields that Volcano's own definitions drop. The words are ours.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use pumice_api::batch::{Job, LifecyclePolicy, TaskSpec};
use pumice_api::bus::Event;
use pumice_api::names::{ACTIVE_DEADLINE_SECONDS, AFTER, ON_OOM, SCALE_DOWN, SUSPEND};
use pumice_machines::job::{
    After, LEARN_MEMORY, PENDING_FIRST, ScaleUp, TASK_NUMBERS, has_free_indices, rule_of, scale_down_of,
};

use super::name_of;
use crate::Findings;

/// Judges the annotations of a new job and of its tasks.
pub(super) fn validate(job: &Job, findings: &mut Findings) {
    on_oom(job, findings);
    after(job, findings);
    learn_memory(job, findings);
    suspend(job, findings);
    active_deadline(job, findings);
    for task in &job.spec.tasks {
        rule(of_template(task), &task.policies, &format!("task {}", task.name), findings);
        numbers(task, findings);
        scale_down(job, task, findings);
    }
    for task in job.spec.tasks.iter().filter(|task| rule_of(job, task).is_some() && !has_memory(&task.template)) {
        findings.warn(format!(
            "task {} has no container with a memory limit or request, so there is nothing that ScaleUpMemory could raise",
            task.name
        ));
    }
}

/// Judges the annotations of a job that is changed, if they are: those of its tasks can't be.
pub(super) fn validate_change(job: &Job, old: &Job, findings: &mut Findings) {
    let differs = |key: &str| text(job, key) != text(old, key);
    if differs(ON_OOM) {
        on_oom(job, findings);
    }
    if differs(AFTER) {
        after(job, findings);
    }
    if differs(LEARN_MEMORY) {
        learn_memory(job, findings);
    }
    if differs(SUSPEND) {
        suspend(job, findings);
    }
    if differs(ACTIVE_DEADLINE_SECONDS) {
        active_deadline(job, findings);
    }
}

fn text<'a>(job: &'a Job, key: &str) -> Option<&'a str> {
    job.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn learn_memory(job: &Job, findings: &mut Findings) {
    if let Some(text) = text(job, LEARN_MEMORY).filter(|text| *text != "off") {
        let name = name_of(job);
        findings.refuse(format!(
            "annotation {LEARN_MEMORY} of job {name}: {text:?} is not off; write off, or leave it out;"
        ));
    }
}

fn suspend(job: &Job, findings: &mut Findings) {
    if let Some(text) = text(job, SUSPEND).filter(|text| !matches!(*text, "true" | "false")) {
        let name = name_of(job);
        findings.refuse(format!("annotation {SUSPEND} of job {name}: {text:?} is neither true nor false;"));
    }
}

fn active_deadline(job: &Job, findings: &mut Findings) {
    let text = text(job, ACTIVE_DEADLINE_SECONDS);
    if let Some(text) = text.filter(|text| !text.parse::<i64>().is_ok_and(|seconds| seconds > 0)) {
        let name = name_of(job);
        findings.refuse(format!(
            "annotation {ACTIVE_DEADLINE_SECONDS} of job {name}: {text:?} is no whole number of seconds from 1;"
        ));
    }
}

/// It is a wish: where indices can't have holes nothing is refused.
fn scale_down(job: &Job, task: &TaskSpec, findings: &mut Findings) {
    let Some(text) = scale_down_of(job, task) else { return };
    let place = format!("annotation {SCALE_DOWN} of task {}", task.name);
    if text != PENDING_FIRST {
        findings.refuse(format!("{place}: {text:?} is not {PENDING_FIRST}; write that, or leave it out;"));
    } else if !has_free_indices(job, task) {
        findings
            .warn(format!("{place} has no effect: plugins or partitions number its pods, so the highest leave first"));
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
    match ScaleUp::of_annotation(text) {
        Err(error) => findings.refuse(format!("annotation {ON_OOM} of {place}: {error};")),
        Ok(Some(_)) if policies.iter().any(answers_oom) => findings.refuse(format!(
            "{place} says what to do on OOMKilled by a policy and by annotation {ON_OOM}; leave one of them out;"
        )),
        Ok(_) => {}
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

fn has_memory(template: &PodTemplateSpec) -> bool {
    let containers =
        template.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    let mut resources = containers.filter_map(|container| container.resources.as_ref());
    resources.any(|one| [&one.limits, &one.requests].into_iter().flatten().any(|list| list.contains_key("memory")))
}

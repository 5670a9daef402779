//! Jobs of Volcano's and of Kubernetes' own group, and their tasks.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1 as kubernetes;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::history::DELETED;
use pumice_api::names;
use pumice_api::profile::base_name;

use super::pod::{Amounts, amounts};
use super::{Facts, Fate, Seen, annotation, millis, text, versioned};
use crate::rows::{Row, Table};

/// What both kinds of jobs say.
struct JobFacts {
    api: &'static str,
    queue: String,
    priority_class: String,
    phase: String,
    reason: String,
    message: String,
    started: Option<i64>,
    ended: Option<i64>,
    replicas: i64,
    succeeded: i64,
    failed: i64,
    retries: i64,
    requests: Amounts,
}

impl Facts for Job {
    fn rows(&self, fate: Fate, seen: Seen, rows: &mut Vec<Row>) {
        let (spec, status) = (&self.spec, &self.status);
        let entered = |wanted: fn(&JobPhase) -> bool| {
            let entry = status.conditions.iter().rev().find(|condition| wanted(&condition.status));
            millis(entry.and_then(|condition| condition.last_transition_time.as_ref()))
        };
        let phase = status.state.phase.clone().unwrap_or(JobPhase::Pending);
        // Of a phase that is written without its condition the last change of the status tells the time.
        let changed = || millis(status.state.last_transition_time.as_ref());
        let mut total = Amounts::default();
        let mut replicas = 0;
        let uid = text(self.metadata.uid.as_ref());
        for (index, task) in spec.tasks.iter().enumerate() {
            let name = if task.name.is_empty() { names::unnamed_task(index) } else { task.name.clone() };
            let each = amounts(task.template.spec.as_ref());
            let pods = i64::from(task.replicas.max(0));
            replicas += pods;
            total = total.plus(each.times(pods));
            let ended = |phase: &str| {
                let counts = status.task_status_count.get(&name).map(|counts| &counts.phase);
                i64::from(counts.and_then(|counts: &BTreeMap<String, i32>| counts.get(phase)).copied().unwrap_or(0))
            };
            rows.push(
                versioned(Table::Task, &self.metadata, seen)
                    .text("job_uid", uid)
                    .text("name", &name)
                    .int("replicas", pods)
                    .int("succeeded", ended("Succeeded"))
                    .int("failed", ended("Failed"))
                    .int("cpu_milli", each.cpu_milli)
                    .int("memory_bytes", each.memory_bytes),
            );
        }
        let facts = JobFacts {
            api: "batch.volcano.sh",
            queue: if spec.queue.is_empty() { names::DEFAULT_QUEUE.to_owned() } else { spec.queue.clone() },
            priority_class: spec.priority_class_name.clone(),
            started: entered(|phase| *phase == JobPhase::Running),
            ended: if phase.is_finished() { entered(JobPhase::is_finished).or_else(changed) } else { None },
            phase: phase.to_string(),
            reason: status.state.reason.clone(),
            message: status.state.message.clone(),
            replicas,
            succeeded: status.succeeded.into(),
            failed: status.failed.into(),
            retries: status.retry_count.into(),
            requests: total,
        };
        rows.push(row(&self.metadata, facts, fate, seen));
    }
}

impl Facts for kubernetes::Job {
    fn rows(&self, fate: Fate, seen: Seen, rows: &mut Vec<Row>) {
        let (spec, status) = (self.spec.clone().unwrap_or_default(), self.status.clone().unwrap_or_default());
        let condition = |kind: &str| {
            status.conditions.iter().flatten().find(|condition| condition.type_ == kind && condition.status == "True")
        };
        let (failed, complete) = (condition("Failed"), condition("Complete"));
        let phase = match () {
            () if failed.is_some() => "Failed",
            () if complete.is_some() => "Completed",
            () if condition("Suspended").is_some() => "Suspended",
            () if status.active.unwrap_or(0) > 0 => "Running",
            () => "Pending",
        };
        let why = failed.or(complete);
        let ended = why.and_then(|condition| condition.last_transition_time.as_ref());
        let template: Option<&PodSpec> = spec.template.spec.as_ref();
        let replicas = i64::from(spec.completions.or(spec.parallelism).unwrap_or(1).max(0));
        let each = amounts(template);
        let (succeeded, lost) = (status.succeeded.unwrap_or(0).into(), status.failed.unwrap_or(0).into());
        rows.push(
            versioned(Table::Task, &self.metadata, seen)
                .text("job_uid", text(self.metadata.uid.as_ref()))
                .text("name", names::DEFAULT_TASK)
                .int("replicas", replicas)
                .int("succeeded", Some(succeeded))
                .int("failed", Some(lost))
                .int("cpu_milli", each.cpu_milli)
                .int("memory_bytes", each.memory_bytes),
        );
        let facts = JobFacts {
            api: "batch",
            queue: annotation(&self.metadata, names::SCHEDULING_QUEUE_NAME).to_owned(),
            priority_class: template.and_then(|spec| spec.priority_class_name.clone()).unwrap_or_default(),
            phase: phase.to_owned(),
            reason: why.and_then(|condition| condition.reason.clone()).unwrap_or_default(),
            message: why.and_then(|condition| condition.message.clone()).unwrap_or_default(),
            started: millis(status.start_time.as_ref()),
            ended: if why.is_some() { millis(ended.or(status.completion_time.as_ref())) } else { None },
            replicas,
            succeeded,
            failed: lost,
            retries: 0,
            requests: each.times(replicas),
        };
        rows.push(row(&self.metadata, facts, fate, seen));
    }
}

fn row(metadata: &ObjectMeta, facts: JobFacts, fate: Fate, seen: Seen) -> Row {
    let name = text(metadata.name.as_ref());
    let mut row = versioned(Table::Job, metadata, seen)
        .text("uid", text(metadata.uid.as_ref()))
        .text("api", facts.api)
        .text("namespace", text(metadata.namespace.as_ref()))
        .text("name", name)
        .text("profile", base_name(name))
        .text_if("submitter", annotation(metadata, names::USER))
        .text_if("queue", &facts.queue)
        .text("priority_class", &facts.priority_class)
        .text("phase", &facts.phase)
        .text("reason", &facts.reason)
        .text("message", &facts.message)
        .int("submitted", millis(metadata.creation_timestamp.as_ref()))
        .int("started", facts.started)
        .int("ended", facts.ended)
        .int("replicas", facts.replicas)
        .int("succeeded", facts.succeeded)
        .int("failed", facts.failed)
        .int("retries", facts.retries)
        .int("cpu_milli", facts.requests.cpu_milli)
        .int("memory_bytes", facts.requests.memory_bytes);
    if let Fate::Gone(now) = fate {
        row = row.int("gone", now.as_millisecond());
        if facts.ended.is_none() {
            row = row.text("phase", DELETED).int("ended", now.as_millisecond());
        }
    }
    row
}

//! The PodGroup of a job.
//!
//! Invariant: the group is named after the job's uid, so a new job of the same name gets a new group. `minResources` is what
//! the pods of the minimum would take from a quota. Only what the job controls is updated; the status is the scheduler's.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use pumice_api::batch::{Job, NetworkTopologySpec, TaskSpec};
use pumice_api::names;
use pumice_api::scheduling::{PodGroup, PodGroupSpec, ResourceList, SubGroupPolicySpec};
use pumice_units::Quantity;
use serde_json::{Map, Value};

use crate::job::memory::sizes::Sizes;
use crate::job::pod_counts::min_available;
use crate::job::sync;
use crate::job_object;
use crate::task_numbers::at_once;
use crate::usage::{self, Usage};

/// What `kubectl apply` was last given, as large as the object itself; annotation.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The group as it is created: the labels and annotations of the job, and the fields of the spec that follow it.
pub(in crate::job) fn build(job: &Job, priorities: &BTreeMap<String, i32>) -> PodGroup {
    let mut annotations = job.metadata.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| key != LAST_APPLIED && !names::NOTES_ON_JOBS.contains(&key.as_str()));
    annotations.insert(names::JOB_VERSION.to_owned(), job.status.version.to_string());
    PodGroup {
        metadata: ObjectMeta {
            name: Some(names::pod_group_name(job_object::name(job), job_object::uid(job))),
            namespace: job.metadata.namespace.clone(),
            annotations: Some(annotations),
            labels: job.metadata.labels.clone(),
            owner_references: Some(vec![job_object::owner(job)]),
            ..ObjectMeta::default()
        },
        spec: PodGroupSpec {
            network_topology: job.spec.network_topology.clone().map(one_tier),
            ..followed(job, priorities)
        },
        ..PodGroup::default()
    }
}

/// A merge patch of the fields that follow the job, if one differs.
pub(in crate::job) fn difference(job: &Job, priorities: &BTreeMap<String, i32>, group: &PodGroup) -> Option<Value> {
    let wanted = followed(job, priorities);
    let have = &group.spec;
    let mut spec = Map::new();
    if wanted.min_member != have.min_member {
        spec.insert("minMember".into(), wanted.min_member.into());
    }
    if wanted.queue != have.queue {
        spec.insert("queue".into(), wanted.queue.into());
    }
    if wanted.priority_class_name != have.priority_class_name {
        spec.insert("priorityClassName".into(), wanted.priority_class_name.into());
    }
    let kept = |(task, count): (&String, &i32)| have.min_task_member.get(task) == Some(count);
    if !wanted.min_task_member.iter().all(kept) {
        spec.insert("minTaskMember".into(), wanted.min_task_member.into_iter().collect());
    }
    if amounts(wanted.min_resources.as_ref()) != amounts(have.min_resources.as_ref()) {
        spec.insert("minResources".into(), resources_patch(wanted.min_resources, have.min_resources.as_ref()));
    }
    if wanted.sub_group_policy != have.sub_group_policy {
        spec.insert("subGroupPolicy".into(), serde_json::to_value(wanted.sub_group_policy).unwrap_or_default());
    }
    if spec.is_empty() {
        return None;
    }
    Some(Value::Object([("spec".to_owned(), Value::Object(spec))].into_iter().collect()))
}

/// The fields of the spec that follow the job during its life.
fn followed(job: &Job, priorities: &BTreeMap<String, i32>) -> PodGroupSpec {
    PodGroupSpec {
        queue: sync::queue_name(job).to_owned(),
        min_member: job.spec.min_available,
        min_task_member: job.spec.tasks.iter().map(|task| (task.name.clone(), min_available(task))).collect(),
        priority_class_name: job.spec.priority_class_name.clone(),
        min_resources: Some(min_resources(job, priorities)),
        sub_group_policy: job.spec.tasks.iter().filter_map(sub_group).collect(),
        ..PodGroupSpec::default()
    }
}

fn sub_group(task: &TaskSpec) -> Option<SubGroupPolicySpec> {
    let policy = task.partition_policy.as_ref()?;
    let labels = [(names::TASK_SPEC.to_owned(), task.name.clone())];
    Some(SubGroupPolicySpec {
        name: task.name.clone(),
        sub_group_size: Some(policy.partition_size),
        min_sub_groups: Some(policy.min_partitions),
        label_selector: Some(LabelSelector { match_labels: Some(labels.into()), ..LabelSelector::default() }),
        match_label_keys: vec![names::PARTITION_ID.to_owned()],
        network_topology: policy.network_topology.clone().map(one_tier),
    })
}

/// The number of a tier is preferred over its name.
fn one_tier(mut topology: NetworkTopologySpec) -> NetworkTopologySpec {
    if topology.highest_tier_allowed.is_some() {
        topology.highest_tier_name.clear();
    }
    topology
}

/// What the first pods of the minimum take.
fn min_resources(job: &Job, priorities: &BTreeMap<String, i32>) -> ResourceList {
    let mut tasks: Vec<&TaskSpec> = job.spec.tasks.iter().collect();
    tasks.sort_by_key(|task| std::cmp::Reverse(priority(job, &task.template, priorities)));
    let wanted = i64::from(job.spec.min_available.max(0));
    let minimum: i64 = tasks.iter().map(|task| i64::from(min_available(task))).sum();
    let mut left = wanted;
    let mut take = |count: i64| {
        let taken = count.clamp(0, left);
        left -= taken;
        taken
    };
    let most = |task: &TaskSpec| i64::from(at_once(task).max(0));
    let mut counts: Vec<i64> = Vec::with_capacity(tasks.len());
    if wanted < minimum {
        counts.extend(tasks.iter().map(|task| take(most(task))));
    } else {
        counts.extend(tasks.iter().map(|task| take(i64::from(min_available(task)))));
        for (task, count) in tasks.iter().zip(&mut counts) {
            *count += take(most(task) - *count);
        }
    }
    let mut total = Usage::new();
    let sizes = Sizes::read(job);
    for (task, count) in tasks.iter().zip(counts).filter(|(_, count)| *count > 0) {
        for (level, count) in sizes.levels(&task.name, count) {
            let template = sizes.template(job, task, &level);
            usage::add_times(&mut total, &usage::quota_usage(template.spec.as_ref()), count);
        }
    }
    usage::to_wire(total)
}

fn priority(job: &Job, template: &PodTemplateSpec, priorities: &BTreeMap<String, i32>) -> i32 {
    let own =
        template.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()).filter(|name| !name.is_empty());
    priorities.get(own.unwrap_or(&job.spec.priority_class_name)).copied().unwrap_or(0)
}

fn amounts(list: Option<&ResourceList>) -> BTreeMap<&str, Option<Quantity>> {
    list.into_iter().flatten().map(|(resource, amount)| (resource.as_str(), amount.0.parse().ok())).collect()
}

/// The new amounts, and null for what is no longer counted.
fn resources_patch(wanted: Option<ResourceList>, have: Option<&ResourceList>) -> Value {
    let wanted = wanted.unwrap_or_default();
    let gone = have.into_iter().flatten().filter(|(resource, _)| !wanted.contains_key(*resource));
    let mut patch: Map<String, Value> = gone.map(|(resource, _)| (resource.clone(), Value::Null)).collect();
    patch.extend(wanted.into_iter().map(|(resource, amount)| (resource, amount.0.into())));
    Value::Object(patch)
}

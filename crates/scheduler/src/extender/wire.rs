//! What the extender is told, in the words of Volcano's own structures: the fields that an extender reads, not all.

use pumice_engine::Resources;
use pumice_engine::plugin::{GroupId, NodeId, QueueId, Tables, TaskId, TaskState};
use serde_json::{Map, Value, json};

/// Everything there is, for the start of a session.
pub(super) fn session(tables: &Tables) -> Value {
    let jobs: Map<String, Value> =
        tables.group_ids().map(|group| (job_id(tables, group), job(tables, group))).collect();
    let nodes: Map<String, Value> =
        tables.node_ids().map(|node_id| (tables.node(node_id).name().to_owned(), node(tables, node_id))).collect();
    let queues: Map<String, Value> =
        tables.queue_ids().map(|id| (tables.queue(id).name().to_owned(), queue(tables, id))).collect();
    json!({ "Jobs": jobs, "Nodes": nodes, "Queues": queues })
}

pub(super) fn task(tables: &Tables, id: TaskId) -> Value {
    let row = tables.task(id);
    let requests = resources(&tables.requests(id));
    let mut annotations = Map::new();
    if let Some(group) = row.group() {
        annotations.insert("scheduling.k8s.io/group-name".to_owned(), tables.group(group).name().into());
    }
    json!({
        "UID": row.uid(),
        "Job": row.group().map(|group| job_id(tables, group)).unwrap_or_default(),
        "Name": row.name(),
        "Namespace": row.namespace(),
        "Resreq": requests,
        "InitResreq": requests,
        "NodeName": row.node().map(|node| tables.node(node).name()).unwrap_or_default(),
        "Status": status(row.state()),
        "Priority": row.priority(),
        "Preemptable": row.is_preemptable(),
        "BestEffort": row.is_best_effort(),
        "Pod": {
            "metadata": {
                "name": row.name(), "namespace": row.namespace(), "uid": row.uid(), "annotations": annotations,
            },
            "spec": { "nodeSelector": tables.template(id).node_selector, "priority": row.priority() },
        },
    })
}

pub(super) fn node(tables: &Tables, id: NodeId) -> Value {
    let row = tables.node(id);
    json!({
        "Name": row.name(),
        "Node": {
            "metadata": { "name": row.name(), "labels": row.labels(), "annotations": row.annotations() },
            "spec": { "unschedulable": row.is_unschedulable() },
        },
        "Allocatable": resources(&tables.allocatable(id)),
        "Used": resources(&tables.used(id)),
        "Idle": resources(&tables.idle(id)),
        "Releasing": resources(&tables.releasing(id)),
    })
}

pub(super) fn job(tables: &Tables, id: GroupId) -> Value {
    let row = tables.group(id);
    json!({
        "UID": job_id(tables, id),
        "Name": row.name(),
        "Namespace": row.namespace(),
        "Queue": tables.queue(row.queue()).name(),
        "Priority": row.priority(),
        "MinAvailable": row.min_member(),
        "Allocated": resources(&tables.group_allocated(id)),
        "PodGroup": {
            "metadata": {
                "name": row.name(), "namespace": row.namespace(), "uid": row.uid(), "annotations": row.annotations(),
            },
            "spec": { "minMember": row.min_member(), "queue": tables.queue(row.queue()).name() },
            "status": { "phase": crate::translate::phase_word(row.phase()) },
        },
    })
}

pub(super) fn queue(tables: &Tables, id: QueueId) -> Value {
    let row = tables.queue(id);
    json!({ "UID": row.name(), "Name": row.name(), "Weight": row.weight() })
}

fn job_id(tables: &Tables, id: GroupId) -> String {
    let row = tables.group(id);
    format!("{}/{}", row.namespace(), row.name())
}

/// Volcano's amounts: milli-cores, bytes, and thousandths of all else but `pods`.
fn resources(amounts: &Resources) -> Value {
    let scalar = |name: &str, amount: i64| if name == "pods" { amount } else { amount.saturating_mul(1_000) };
    let others = amounts.iter().filter(|(name, _)| *name != "cpu" && *name != "memory");
    let scalars: Map<String, Value> =
        others.map(|(name, amount)| (name.clone(), scalar(name, *amount).into())).collect();
    let of = |name: &str| amounts.get(name).copied().unwrap_or(0);
    json!({ "MilliCPU": of("cpu"), "Memory": of("memory"), "ScalarResources": scalars })
}

/// The state as the bit that Volcano's `TaskStatus` has for it.
fn status(state: TaskState) -> u32 {
    let bit = match state {
        TaskState::Pending => 0,
        TaskState::Allocated => 1,
        TaskState::Pipelined => 2,
        TaskState::Binding => 3,
        TaskState::Bound => 4,
        TaskState::Running => 5,
        TaskState::Releasing => 6,
        TaskState::Succeeded => 7,
        TaskState::Failed => 8,
        TaskState::Unknown => 9,
    };
    1 << bit
}

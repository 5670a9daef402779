//! The objects of the loads: the shapes of the public benchmarks that Volcano and its peers were measured with.
//!
//! A node has 32 cores, 256Gi and 110 pods; a pod asks for 1 core and 200Mi, wants linux and tolerates a taint.

use serde_json::{Value, json};

pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
pub const GROUPS: &str = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups";
pub const NODES: &str = "/api/v1/nodes";
pub const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
/// A scheduler that does not exist: its pods wait for the load generator.
pub const NOBODY: &str = "bench";
/// The scheduler name of pods that ours is to place.
pub const SCHEDULER: &str = "volcano";

/// The spec of a pod that asks for `cpu` and `memory`.
pub fn pod_spec(scheduler: &str, cpu: &str, memory: &str) -> Value {
    json!({
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}]}}},
        "tolerations": [{"key": "simulated", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
    })
}

/// A pod of the usual size, of a group if one is named.
pub fn pod(name: &str, scheduler: &str, group: Option<&str>) -> Value {
    let mut metadata = json!({"name": name});
    if let Some(group) = group {
        metadata["annotations"] = json!({"scheduling.k8s.io/group-name": group});
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(scheduler, "1", "200Mi")})
}

/// A pod that is on node number `node` already and takes `percent` of it.
pub fn filler(node: usize, percent: usize) -> Value {
    let (cpu, memory) = (format!("{}m", 32_000 * percent / 100), format!("{}Mi", 256 * 1024 * percent / 100));
    let mut spec = pod_spec(NOBODY, &cpu, &memory);
    spec["nodeName"] = json!(node_name(node));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("filler-{node}")}, "spec": spec})
}

/// A group of which `members` start together.
pub fn group(name: &str, members: usize) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
        "spec": {"minMember": members, "queue": "default"},
    })
}

/// The queue that groups go to.
pub fn queue() -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "default"},
        "spec": {"weight": 1, "reclaimable": true},
    })
}

/// A job of `replicas` pods that start together.
pub fn job(name: &str, replicas: usize) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "schedulerName": SCHEDULER, "minAvailable": replicas, "queue": "default",
            "tasks": [{"name": "main", "replicas": replicas, "template": {"spec": pod_spec(SCHEDULER, "1", "200Mi")}}],
        },
    })
}

/// Binds a pod to node number `node`.
pub fn binding(pod: &str, node: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name(node)},
    })
}

/// An event about a pod, as a scheduler writes one for each bind.
pub fn event(name: &str, pod: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Normal", "reason": "Scheduled",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": pod},
        "message": format!("Successfully assigned default/{pod} to a node"), "count": 1,
        "source": {"component": "bench"},
    })
}

/// A node as the simulated ones are, which nobody looks after.
pub fn static_node(node: usize) -> Value {
    let room = json!({"cpu": "32", "memory": "256Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(node), "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
        "spec": {"taints": [{"key": "simulated", "value": "true", "effect": "NoSchedule"}]},
        "status": {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// The name of a simulated node.
pub fn node_name(node: usize) -> String {
    format!("sim-{node:05}")
}

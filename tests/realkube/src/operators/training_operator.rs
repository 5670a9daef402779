//! Kubeflow's training operator v1 with `--gang-scheduler-name=volcano`: a PyTorchJob.
//!
//! Source: kubeflow/training-operator (v1 of what is kubeflow/trainer today)
//! - 5b6463033e37, pkg/controller.v1/common/scheduling.go and 021437b2955b, pkg/controller.v1/common/job.go: the group has the
//!   job's annotations and names its queue; its whole spec is written anew; no pod is made before its phase has left Pending
//! - 7c7aa9911c73, pkg/controller.v1/control/podgroup_control.go: what pods get; an empty scheduler's name is filled in
//! - 141c150173b0, pkg/controller.v1/common/pod.go: labels and names of pods

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP, GROUP_VERSION, Operator, Server, container, pod};

fn member(owner: &Value, kind: &str, index: usize) -> Value {
    let labels = json!({"training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "simple", "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": index.to_string()});
    pod(
        json!({"name": format!("simple-{kind}-{index}"), "labels": labels, "ownerReferences": [owner],
            "annotations": {"scheduling.k8s.io/group-name": "simple", "volcano.sh/task-spec": kind}}),
        json!({"schedulerName": "volcano", "restartPolicy": "OnFailure", "containers": [container("pytorch", "1")]}),
    )
}

/// The group is admitted before there are pods, or there never would be any.
pub fn training_operator(clients: &Clients, server: Server) {
    let verbs = ["create", "delete", "get", "list", "update", "watch"];
    let operator = Operator::new(clients, server, &verbs);
    let owner = operator.controller("kubeflow.org/v1", "PyTorchJob", "simple");
    let mut group = json!({
        "apiVersion": GROUP_VERSION, "kind": "PodGroup",
        "metadata": {"name": "simple", "creationTimestamp": null, "annotations": {"owner": "somebody"}, "ownerReferences": [owner]},
        "spec": {"minMember": 3, "queue": "default", "minResources": {"cpu": "3", "memory": "192Mi"}},
        "status": {},
    });
    operator.create(&group);
    operator.wait_for_group("simple", "Inqueue");
    operator.assert_kept(&group);

    operator.create(&member(&owner, "master", 0));
    for index in 0..2 {
        operator.create(&member(&owner, "worker", index));
    }
    operator.wait_for_pods("training.kubeflow.org/job-name=simple", "Running", 3);
    operator.wait_for_group("simple", "Running");

    // A worker more. The queue is the one that was read, all else as the job says it.
    let spec = json!({"minMember": 4, "queue": "default", "minResources": {"cpu": "4", "memory": "256Mi"}});
    operator.update(GROUP, "simple", |group| group["spec"] = spec.clone());
    group["spec"] = spec;
    operator.create(&member(&owner, "worker", 2));
    operator.wait_for_pods("training.kubeflow.org/job-name=simple", "Running", 4);
    operator.assert_kept(&group);

    for name in ["master-0", "worker-0", "worker-1", "worker-2"] {
        operator.delete("pod", &format!("simple-{name}"));
    }
    operator.delete(GROUP, "simple");
    operator.wait_until_gone(GROUP, "simple");
}

//! KubeRay with `--batch-scheduler=volcano`: a RayJob.
//!
//! Source: ray-project/kuberay feeaf72facab
//! - ray-operator/controllers/ray/batchscheduler/volcano/volcano_scheduler.go: the group and its updates, what pods get; the
//!   pod that submits counts for the resources and not for the members; at the end no members and no resources
//! - ray-operator/controllers/ray/utils/constant.go: labels
//! - helm-chart/kuberay-operator/templates/_helpers.tpl: the rights, of which `patch` is none
//! - ray-operator/config/samples/ray-job.volcano-scheduler-queue.yaml: the job

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP_VERSION, Operator, Server, container, pod, queue};

const GROUP_NAME: &str = "ray-rayjob-sample-pg";

fn metadata(name: &str, group: &str, owner: &Value) -> Value {
    json!({
        "name": name, "ownerReferences": [owner],
        "labels": {"ray.io/cluster": "rayjob-sample-x7k2", "ray.io/group": group, "volcano.sh/queue-name": "kuberay-test-queue",
            "ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "rayjob-sample"},
        "annotations": {"scheduling.k8s.io/group-name": GROUP_NAME, "volcano.sh/task-spec": group},
    })
}

fn spec(name: &str) -> Value {
    json!({"schedulerName": "volcano", "restartPolicy": "Never", "containers": [container(name, "1")]})
}

/// As the operator does it: number of members and resources are written anew, the rest as it was read.
fn resize(operator: &Operator<'_>, made: &mut Value, members: i64, resources: &Value) {
    let change = |group: &mut Value| {
        group["spec"]["minMember"] = members.into();
        if members == 0 {
            // Left out by its client.
            group["spec"].as_object_mut().expect("a spec").remove("minMember");
        }
        group["spec"]["minResources"] = resources.clone();
    };
    operator.update(super::operator::GROUP, GROUP_NAME, change);
    change(made);
}

/// A cluster that grows, then a finished job whose group asks for nothing.
pub fn kuberay(clients: &Clients, server: Server) {
    let operator = Operator::new(clients, server, &["create", "delete", "get", "list", "update", "watch"]);
    operator.by_user(&queue("kuberay-test-queue", "8"));
    let owner = operator.controller("ray.io/v1", "RayJob", "rayjob-sample");
    let mut group = json!({
        "apiVersion": GROUP_VERSION, "kind": "PodGroup",
        "metadata": {"name": GROUP_NAME, "creationTimestamp": null, "ownerReferences": [owner],
            "annotations": {"team": "vision", "volcano.sh/sla-waiting-time": "1h"}},
        "spec": {"minMember": 2, "queue": "kuberay-test-queue", "minResources": {"cpu": "2500m", "memory": "328Mi"},
            "networkTopology": {"mode": "soft", "highestTierAllowed": 2}},
        "status": {"phase": "Pending"},
    });
    operator.create(&group);
    operator.create(&pod(metadata("rayjob-sample-x7k2-head", "headgroup", &owner), spec("ray-head")));
    operator.create(&pod(metadata("rayjob-sample-x7k2-small-worker-a", "small", &owner), spec("ray-worker")));
    operator.wait_for_pods("ray.io/group in (headgroup,small)", "Running", 2);

    let submitter =
        json!({"metadata": metadata("rayjob-sample", "submittergroup", &owner), "spec": spec("ray-job-submitter")});
    match server {
        Server::Ours => operator.create(&pod(submitter["metadata"].clone(), submitter["spec"].clone())),
        Server::Kubernetes => operator.create(&json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "rayjob-sample", "ownerReferences": [owner]},
            "spec": {"backoffLimit": 2, "template": {
                "metadata": {"labels": submitter["metadata"]["labels"], "annotations": submitter["metadata"]["annotations"]},
                "spec": submitter["spec"]}}})),
    };
    operator.wait_for_pods("ray.io/group=submittergroup", "Running", 1);
    operator.assert_kept(&group);

    resize(&operator, &mut group, 3, &json!({"cpu": "3500m", "memory": "392Mi"}));
    operator.create(&pod(metadata("rayjob-sample-x7k2-small-worker-b", "small", &owner), spec("ray-worker")));
    operator.wait_for_pods("ray.io/group=small", "Running", 2);
    operator.assert_kept(&group);

    resize(&operator, &mut group, 0, &json!({}));
    for name in ["head", "small-worker-a", "small-worker-b"] {
        operator.delete("pod", &format!("rayjob-sample-x7k2-{name}"));
    }
    operator.wait_for_pods("ray.io/group in (headgroup,small)", "Running", 0);
    operator.assert_kept(&group);
}

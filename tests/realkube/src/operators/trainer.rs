//! Kubeflow Trainer v2: a TrainJob whose runtime has `podGroupPolicy: {volcano: {}}`.
//!
//! Source: kubeflow/trainer 8c0f5059bd51
//! - pkg/runtime/framework/plugins/volcano/volcano.go: the group, written again only while the job is suspended; pods get the
//!   annotation and nothing else
//! - pkg/controller/trainjob_controller.go: applied by the server, as `trainer`, by force
//! - manifests/base/rbac/role.yaml: the rights, of which `delete` is none
//! - examples/yaml/04-volcano-integration.yaml: names no scheduler; proposals/2437-volcano-scheduler/README.md: does

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP_VERSION, Operator, Server, container, pod};

/// The annotation always; the scheduler only where the runtime's template names it.
fn node(job: &str, scheduler: Option<&str>) -> (Value, Value) {
    let metadata = json!({
        "labels": {"jobset.sigs.k8s.io/jobset-name": job, "jobset.sigs.k8s.io/replicatedjob-name": "node"},
        "annotations": {"scheduling.k8s.io/group-name": job},
    });
    let mut spec = json!({"restartPolicy": "Never", "containers": [container("node", "1")]});
    if let Some(scheduler) = scheduler {
        spec["schedulerName"] = scheduler.into();
    }
    (metadata, spec)
}

/// JobSet makes a Job of the nodes, and that its pods.
fn nodes(operator: &Operator<'_>, job: &str, count: usize, scheduler: Option<&str>) {
    let (metadata, spec) = node(job, scheduler);
    if operator.server == Server::Kubernetes {
        operator.create(
            &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": format!("{job}-node-0")},
            "spec": {"parallelism": count, "completions": count, "completionMode": "Indexed",
                "template": {"metadata": metadata, "spec": spec}}}),
        );
        return;
    }
    for index in 0..count {
        let mut metadata = metadata.clone();
        metadata["name"] = format!("{job}-node-0-{index}").into();
        operator.create(&pod(metadata, spec.clone()));
    }
}

/// A job that is suspended and resumed, and one whose runtime forgot the scheduler.
pub fn trainer(clients: &Clients, server: Server) {
    let operator = Operator::new(clients, server, &["create", "get", "list", "patch", "update", "watch"]);
    let group = |name: &str, members: usize| {
        json!({
            "apiVersion": GROUP_VERSION, "kind": "PodGroup",
            "metadata": {"name": name,
                "ownerReferences": [operator.controller("trainer.kubeflow.org/v1alpha1", "TrainJob", name)]},
            "spec": {"minMember": members, "minResources": {"cpu": members.to_string(), "memory": format!("{}Mi", 64 * members)},
                "networkTopology": {"mode": "soft", "highestTierAllowed": 1}},
        })
    };
    let mut made = group("volcano-example", 3);
    operator.apply("trainer", &made);
    nodes(&operator, "volcano-example", 3, Some("volcano"));
    operator.wait_for_pods("jobset.sigs.k8s.io/jobset-name=volcano-example", "Running", 3);
    operator.assert_kept(&made);

    // Suspended: its pods go, and the group follows what the job says then.
    match server {
        Server::Ours => (0..3).for_each(|index| operator.delete("pod", &format!("volcano-example-node-0-{index}"))),
        Server::Kubernetes => operator.delete("job", "volcano-example-node-0"),
    }
    operator.wait_for_pods("jobset.sigs.k8s.io/jobset-name=volcano-example", "Running", 0);
    made["spec"]["minMember"] = 2.into();
    made["spec"]["minResources"] = json!({"cpu": "2", "memory": "128Mi"});
    operator.apply("trainer", &made);
    if server == Server::Kubernetes {
        operator.wait_until_gone("job", "volcano-example-node-0");
    }
    nodes(&operator, "volcano-example", 2, Some("volcano"));
    operator.wait_for_pods("jobset.sigs.k8s.io/jobset-name=volcano-example", "Running", 2);
    operator.assert_kept(&made);

    // The annotation alone does not make pods ours where there is another scheduler; where we are the only one we take them.
    let forgotten = group("forgotten", 2);
    operator.apply("trainer", &forgotten);
    nodes(&operator, "forgotten", 2, None);
    match server {
        Server::Ours => drop(operator.wait_for_pods("jobset.sigs.k8s.io/jobset-name=forgotten", "Running", 2)),
        Server::Kubernetes => {
            operator.wait_for_group("forgotten", "Inqueue");
            operator.wait_for_pods("jobset.sigs.k8s.io/jobset-name=forgotten", "Pending", 2);
        }
    }
    operator.assert_kept(&forgotten);
}

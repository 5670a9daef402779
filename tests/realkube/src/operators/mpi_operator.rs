//! Kubeflow's MPI operator with `--gang-scheduling=volcano`.
//!
//! Source: kubeflow/mpi-operator caa3c47fc42e
//! - pkg/controller/podgroup.go: the group; where it differs from what the job says its whole spec is replaced
//! - pkg/controller/mpi_job_controller.go: workers are pods, the launcher is a batch Job that all the same is a member; the group
//!   goes with the workers
//! - manifests/base/cluster-role.yaml: the rights

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP, GROUP_VERSION, Operator, Server, container, pod};

fn template(role: &str, index: Option<usize>) -> (Value, Value) {
    let mut labels = json!({"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-name": "pi",
        "training.kubeflow.org/job-role": role});
    let mut name = format!("pi-{role}");
    if let Some(index) = index {
        labels["training.kubeflow.org/replica-index"] = index.to_string().into();
        name += &format!("-{index}");
    }
    let metadata = json!({"labels": labels, "annotations": {"scheduling.k8s.io/group-name": "pi"}});
    let spec = json!({"schedulerName": "volcano", "hostname": name, "subdomain": "pi", "restartPolicy": "Never",
        "containers": [container("mpi", "1")]});
    (metadata, spec)
}

/// What the operator compares and replaces has to be what it wrote.
pub fn mpi_operator(clients: &Clients, server: Server) {
    let operator = Operator::new(clients, server, &["*"]);
    let owner = operator.controller("kubeflow.org/v2beta1", "MPIJob", "pi");
    let resources = json!({"cpu": "3", "memory": "192Mi"});
    let mut group = json!({
        "apiVersion": GROUP_VERSION, "kind": "PodGroup",
        "metadata": {"name": "pi", "creationTimestamp": null, "ownerReferences": [owner]},
        "spec": {"minMember": 3, "minResources": resources}, "status": {},
    });
    operator.create(&group);
    for index in 0..2 {
        let (mut metadata, spec) = template("worker", Some(index));
        metadata["name"] = format!("pi-worker-{index}").into();
        metadata["ownerReferences"] = json!([owner]);
        operator.create(&pod(metadata, spec));
    }
    let (mut metadata, spec) = template("launcher", None);
    match server {
        Server::Ours => {
            metadata["name"] = "pi-launcher".into();
            operator.create(&pod(metadata, spec))
        }
        Server::Kubernetes => operator.create(&json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "pi-launcher", "labels": {"app": "pi"}, "ownerReferences": [owner]},
            "spec": {"podReplacementPolicy": "Failed", "template": {"metadata": metadata, "spec": spec}}})),
    };
    operator.wait_for_pods("training.kubeflow.org/job-name=pi", "Running", 3);
    operator.wait_for_group("pi", "Running");
    operator.assert_kept(&group);

    // It wrote no queue and reads `default`, so it writes its spec again at every look: no write, or it would never end.
    let version = |group: &Value| group["metadata"]["resourceVersion"].clone();
    let (before, spec) = (operator.group("pi"), group["spec"].clone());
    let after = operator.update(GROUP, "pi", |group| group["spec"] = spec.clone());
    assert_eq!(version(&after), version(&before), "{before} became {after}");

    let spec = json!({"minMember": 4, "minResources": {"cpu": "4", "memory": "256Mi"}});
    operator.update(GROUP, "pi", |group| group["spec"] = spec.clone());
    group["spec"] = spec;
    operator.assert_kept(&group);

    for index in 0..2 {
        operator.delete("pod", &format!("pi-worker-{index}"));
    }
    operator.delete(GROUP, "pi");
    operator.wait_until_gone(GROUP, "pi");
}

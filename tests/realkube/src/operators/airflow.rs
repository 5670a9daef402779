//! Airflow's KubernetesPodOperator with `schedulername="volcano"`.
//!
//! Source: apache/airflow 00820978bf5d, providers/cncf/kubernetes/src/airflow/providers/cncf/kubernetes/operators/pod.py: a pod of
//! one container `base`, told apart by its labels; a pod that failed is labelled and may be deleted, the next try is found by the
//! same labels. Its client sends a change of labels as a strategic merge patch.

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{Operator, Server, container, pod};

fn task(attempt: u32, exit_code: u32) -> Value {
    pod(
        json!({"name": "train-model", "namespace": null,
            "labels": {"dag_id": "nightly", "task_id": "train", "run_id": "manual-1", "kubernetes_pod_operator": "True",
                "try_number": attempt.to_string(), "airflow_kpo_in_cluster": "False"},
            "annotations": {"volcano.sh/preemptable": "true", "pumice.sh/simulated-duration": "1s",
                "pumice.sh/simulated-exit-code": exit_code.to_string()}}),
        json!({"affinity": {}, "nodeSelector": {}, "tolerations": [], "initContainers": [], "volumes": [], "imagePullSecrets": [],
            "securityContext": {}, "schedulerName": "volcano", "restartPolicy": "Never", "hostNetwork": false,
            "priorityClassName": "airflow-high", "containers": [container("base", "500m")]}),
    )
}

/// A try fails, is labelled and deleted; the next has its name.
pub fn airflow(clients: &Clients, server: Server) {
    let airflow = Operator::new(clients, server, &["get"]);
    airflow.by_user(
        &json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "airflow-high"},
        "value": 1000}),
    );
    let labels = "dag_id=nightly,task_id=train,already_checked!=True";
    airflow.create(&task(1, 1));
    airflow.wait_for_pods(labels, "Failed", 1);
    let checked = json!({"metadata": {"labels": {"already_checked": "True"}}});
    airflow.patch("pod", "train-model", "strategic", &checked);
    airflow.wait_for_pods(labels, "Failed", 0);
    airflow.delete("pod", "train-model");
    airflow.wait_until_gone("pod", "train-model");

    airflow.create(&task(2, 0));
    let pod = airflow.wait_for_pods(labels, "Succeeded", 1).remove(0);
    assert_eq!(pod["spec"]["priority"], 1000, "{pod}");
    airflow.delete("pod", "train-model");
    airflow.wait_until_gone("pod", "train-model");
}

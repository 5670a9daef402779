//! Kubeflow's Spark operator with `batchScheduler: volcano`.
//!
//! Source: kubeflow/spark-operator 38082f3318e9
//! - internal/scheduler/volcano/scheduler.go: the definition is looked for at the start; a group of one member and the
//!   resources of all, with a phase in its status; deleted at the end, also if it is gone already
//! - internal/webhook/sparkpod_defaulter.go: the scheduler's name on both kinds of pods
//! - examples/spark-pi-volcano.yaml: the application

use pumice_testkit::Clients;
use serde_json::json;

use super::operator::{GROUP, GROUP_VERSION, Operator, Server, container, pod, queue, reference};

/// One group for driver and executors; an application that is submitted again gets another of the same name.
pub fn spark_operator(clients: &Clients, server: Server) {
    let operator = Operator::new(clients, server, &["create", "get", "update", "delete"]);
    clients.kubectl(["get", "crd", GROUP]).ok();
    operator.by_user(&queue("spark-apps", "8"));
    let application = operator.controller("sparkoperator.k8s.io/v1beta2", "SparkApplication", "spark-pi");

    for _try in 0..2 {
        let group = json!({
            "apiVersion": GROUP_VERSION, "kind": "PodGroup",
            "metadata": {"name": "spark-spark-pi-pg", "creationTimestamp": null, "ownerReferences": [application]},
            "spec": {"minMember": 1, "queue": "spark-apps", "minResources": {"cpu": "3", "memory": "2688Mi"}},
            "status": {"phase": "Pending"},
        });
        operator.create(&group);
        let annotations = json!({"scheduling.k8s.io/group-name": "spark-spark-pi-pg"});
        let labels = |role: &str| {
            json!({"sparkoperator.k8s.io/app-name": "spark-pi", "sparkoperator.k8s.io/launched-by-spark-operator": "true",
                "spark-role": role})
        };
        let spec = |name: &str| json!({"restartPolicy": "Never", "schedulerName": "volcano", "containers": [container(name, "1")]});
        let driver = operator.create(&pod(
            json!({"name": "spark-pi-driver", "labels": labels("driver"), "annotations": annotations,
                "ownerReferences": [application]}),
            spec("spark-kubernetes-driver"),
        ));
        operator.wait_for_pods("spark-role=driver", "Running", 1);
        for index in 1..=2 {
            operator.create(&pod(
                json!({"name": format!("spark-pi-exec-{index}"), "labels": labels("executor"), "annotations": annotations,
                    "ownerReferences": [reference(&driver)]}),
                spec("spark-kubernetes-executor"),
            ));
        }
        operator.wait_for_pods("spark-role=executor", "Running", 2);
        operator.assert_kept(&group);

        operator.delete("pod", "spark-pi-driver");
        operator.wait_until_gone("pod", "spark-pi-exec-2");
        operator.wait_until_gone("pod", "spark-pi-exec-1");
        operator.wait_until_gone("pod", "spark-pi-driver");
        operator.delete(GROUP, "spark-spark-pi-pg");
        operator.delete(GROUP, "spark-spark-pi-pg");
        operator.wait_until_gone(GROUP, "spark-spark-pi-pg");
    }
}

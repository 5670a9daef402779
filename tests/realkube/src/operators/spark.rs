//! Spark's own submission (`spark-submit --master k8s://...`) with its Volcano feature step.
//!
//! Source: apache/spark, resource-managers/kubernetes/core/ and resource-managers/kubernetes/integration-tests/
//! - fb5cb5ed668d, src/main/scala/org/apache/spark/deploy/k8s/submit/KubernetesClientApplication.scala: what is made before the
//!   driver is applied by the server, the driver created, and the same applied again with the driver as its controller
//! - 07625978f4cc, volcano/src/main/scala/org/apache/spark/deploy/k8s/features/VolcanoFeatureStep.scala: name and namespace go
//!   over the template's, its spec stays; driver and executors get the annotation
//! - 00012ecc0971, src/main/scala/org/apache/spark/deploy/k8s/features/BasicExecutorFeatureStep.scala: executors
//! - 8f4f6ca5562e and c02228da48ac, src/test/resources/volcano/{driver-podgroup-template-cpu-2u,queue0-driver-podgroup-template}.yml:
//!   templates, one of which has nothing but a queue

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP, GROUP_VERSION, Operator, Server, container, pod, queue, reference};

/// The field manager of fabric8, Spark's client.
const MANAGER: &str = "fabric8";

/// Driver and executors of an application whose template says `spec`.
fn application(spark: &Operator<'_>, id: &str, spec: Value) -> (Value, Value) {
    let name = format!("{id}-podgroup");
    let mut group = json!({"apiVersion": GROUP_VERSION, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec});
    spark.apply(MANAGER, &group);
    let annotations = json!({"scheduling.k8s.io/group-name": name});

    let driver = spark.create(&pod(
        json!({"name": format!("{id}-driver"), "annotations": annotations,
            "labels": {"spark-app-selector": id, "spark-role": "driver", "spark-app-name": "pi", "spark-version": "4.0.4"}}),
        json!({"restartPolicy": "Never", "schedulerName": "volcano", "containers": [container("spark-kubernetes-driver", "1")]}),
    ));
    group["metadata"]["ownerReferences"] = json!([reference(&driver)]);
    spark.apply(MANAGER, &group);
    spark.wait_for_pods(&format!("spark-app-selector={id},spark-role=driver"), "Running", 1);

    // By now it is the driver who talks to the API.
    for index in 1..=2 {
        let name = format!("{id}-exec-{index}");
        spark.create(&pod(
            json!({"name": name, "annotations": annotations, "ownerReferences": [reference(&driver)],
                "labels": {"spark-app-selector": id, "spark-role": "executor", "spark-exec-id": index.to_string(),
                    "spark-exec-resourceprofile-id": "0"}}),
            json!({"restartPolicy": "Never", "hostname": name, "schedulerName": "volcano",
                "containers": [container("spark-kubernetes-executor", "1")]}),
        ));
    }
    spark.wait_for_pods(&format!("spark-app-selector={id},spark-role=executor"), "Running", 2);
    (group, driver)
}

/// The group comes before its pods, is applied twice, and goes with the driver.
pub fn spark(clients: &Clients, server: Server) {
    // Of the user who submits.
    let spark = Operator::new(clients, server, &["create", "get", "patch", "update", "delete"]);
    spark.by_user(&queue("queue-2u-3g", "4"));
    spark.by_user(&queue("queue0", "4"));

    let whole = json!({"queue": "queue-2u-3g", "minMember": 1, "minResources": {"cpu": "2"}});
    let (group, driver) = application(&spark, "spark-a1", whole);
    spark.assert_kept(&group);
    // Nothing about members: the same as 0.
    let (bare, _) = application(&spark, "spark-b2", json!({"queue": "queue0"}));
    spark.assert_kept(&bare);

    // A driver that is done ends its executors, and takes the group with it when it is deleted.
    for index in 1..=2 {
        spark.delete("pod", &format!("spark-a1-exec-{index}"));
    }
    spark.assert_kept(&group);
    spark.delete("pod", driver["metadata"]["name"].as_str().expect("its name"));
    spark.wait_until_gone(GROUP, "spark-a1-podgroup");
    spark.assert_kept(&bare);
}

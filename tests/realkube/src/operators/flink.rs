//! Flink's own Kubernetes integration, a session cluster whose pod template names our scheduler and a group of the user's.
//!
//! Source: apache/flink, flink-kubernetes/src/main/java/org/apache/flink/kubernetes/kubeclient/
//! - 0c21e9b754cb, factory/KubernetesJobManagerFactory.java: the job manager is a Deployment made of the template
//! - 1214aa297fcd, decorators/InitJobManagerDecorator.java: what of the template is overwritten
//! - e50494c67acd, decorators/InitTaskManagerDecorator.java: task managers are pods of the template, each of another name, and
//!   never restarted

use pumice_testkit::Clients;
use serde_json::{Value, json};

use super::operator::{GROUP_VERSION, Operator, Server, container, pod, reference};

fn template(component: &str, restart: &str) -> (Value, Value) {
    let metadata = json!({
        "labels": {"app": "session", "component": component, "type": "flink-native-kubernetes"},
        "annotations": {"scheduling.k8s.io/group-name": "flink"},
    });
    let spec = json!({"schedulerName": "volcano", "restartPolicy": restart, "dnsPolicy": "ClusterFirst",
        "containers": [container("flink-main-container", "1")]});
    (metadata, spec)
}

/// The job manager is there first and asks for task managers as work comes: one member is enough, the room is for all.
pub fn flink(clients: &Clients, server: Server) {
    let flink = Operator::new(clients, server, &["get"]);
    let group = json!({"apiVersion": GROUP_VERSION, "kind": "PodGroup", "metadata": {"name": "flink"},
        "spec": {"minMember": 1, "minResources": {"cpu": "3"}}});
    flink.by_user(&group);
    let (mut metadata, spec) = template("jobmanager", "Always");
    let manager = match server {
        Server::Ours => {
            metadata["name"] = "session".into();
            flink.create(&pod(metadata, spec))
        }
        Server::Kubernetes => flink.create(&json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "session", "labels": metadata["labels"]},
            "spec": {"replicas": 1, "selector": {"matchLabels": metadata["labels"]},
                "template": {"metadata": metadata, "spec": spec}}})),
    };
    flink.wait_for_pods("component=jobmanager", "Running", 1);

    let start = |index: usize| {
        let (mut metadata, spec) = template("taskmanager", "Never");
        metadata["name"] = format!("session-taskmanager-1-{index}").into();
        let mut owner = reference(&manager);
        owner["blockOwnerDeletion"] = true.into();
        metadata["ownerReferences"] = json!([owner]);
        flink.create(&pod(metadata, spec));
    };
    start(1);
    start(2);
    flink.wait_for_pods("component=taskmanager", "Running", 2);
    // One was idle, one is wanted again.
    flink.delete("pod", "session-taskmanager-1-1");
    flink.wait_until_gone("pod", "session-taskmanager-1-1");
    start(3);
    flink.wait_for_pods("component=taskmanager", "Running", 2);
    flink.assert_kept(&group);

    let kind = if server == Server::Ours { "pod" } else { "deployment" };
    flink.delete(kind, "session");
    flink.wait_for_pods("app=session", "Running", 0);
    flink.assert_kept(&group);
}

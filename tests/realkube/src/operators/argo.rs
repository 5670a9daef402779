//! Argo Workflows: steps that are pods of their own, steps that start together, and a step that is a Job of Volcano.
//!
//! Source: argoproj/argo-workflows 2166a0c8a90a
//! - workflow/controller/workflowpod.go: the pod of a step; the scheduler's name comes from workflow or template, annotations
//!   from `podMetadata`
//! - workflow/common/common.go: labels and annotations, `completed` set when a step has been counted
//! - volcano's example/integrations/argo/10-job-step.yaml: a `resource` step that waits for `status.state.phase`

use pumice_testkit::{Clients, eventually};
use serde_json::{Value, json};

use super::operator::{GROUP_VERSION, Operator, Server, container, pod};

fn step(workflow: &Value, id: &str, group: Option<&str>) -> Value {
    let mut annotations = json!({"workflows.argoproj.io/node-name": format!("steps[0].{id}"),
        "workflows.argoproj.io/node-id": format!("steps-{id}"), "kubectl.kubernetes.io/default-container": "main",
        "pumice.sh/simulated-duration": "1s"});
    if let Some(group) = group {
        annotations["scheduling.k8s.io/group-name"] = group.into();
    }
    pod(
        json!({"name": format!("steps-work-{id}"), "ownerReferences": [workflow], "annotations": annotations,
            "labels": {"workflows.argoproj.io/workflow": "steps", "workflows.argoproj.io/completed": "false",
                "kind": group.unwrap_or("single")}}),
        json!({"restartPolicy": "Never", "schedulerName": "volcano", "activeDeadlineSeconds": 600,
            "initContainers": [container("init", "100m")],
            "containers": [container("wait", "100m"), container("main", "200m")]}),
    )
}

/// Every step runs, whether it names a group or not.
pub fn argo(clients: &Clients, server: Server) {
    let argo = Operator::new(clients, server, &["get"]);
    let workflow = argo.controller("argoproj.io/v1alpha1", "Workflow", "steps");
    for id in ["1", "2", "3"] {
        argo.create(&step(&workflow, id, None));
    }
    argo.wait_for_pods("kind=single", "Succeeded", 3);
    let counted = json!({"metadata": {"labels": {"workflows.argoproj.io/completed": "true"}}});
    for id in ["1", "2", "3"] {
        argo.patch("pod", &format!("steps-work-{id}"), "merge", &counted);
        argo.delete("pod", &format!("steps-work-{id}"));
    }
    argo.wait_for_pods("workflows.argoproj.io/completed=true", "Succeeded", 0);

    let group = json!({"apiVersion": GROUP_VERSION, "kind": "PodGroup", "metadata": {"name": "together"}, "spec": {"minMember": 2}});
    argo.by_user(&group);
    argo.create(&step(&workflow, "4", Some("together")));
    let waits = argo.wait_for_pods("kind=together", "Pending", 1);
    assert!(waits[0]["spec"]["nodeName"].is_null(), "alone it does not start: {}", waits[0]);
    argo.create(&step(&workflow, "5", Some("together")));
    argo.wait_for_pods("kind=together", "Succeeded", 2);
    argo.assert_kept(&group);

    let template = json!({"metadata": {"annotations": {"pumice.sh/simulated-duration": "1s"}},
        "spec": {"restartPolicy": "OnFailure", "containers": [container("main", "100m")]}});
    let mut job = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"generateName": "test-job-hello-", "ownerReferences": [workflow]},
        "spec": {"minAvailable": 1, "schedulerName": "volcano",
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}], "plugins": {"ssh": [], "env": [], "svc": []},
            "maxRetry": 1, "queue": "default", "tasks": [{"replicas": 2, "name": "default-hello", "template": template}]}});
    job = argo.by_user(&job);
    let name = job["metadata"]["name"].as_str().expect("a generated name");
    eventually("the condition of success holds", || {
        let path = "jsonpath={.status.state.phase}";
        let phase = clients.kubectl(["get", "jobs.batch.volcano.sh", name, "-o", path]).ok();
        if phase == "Completed" { Ok(()) } else { Err(phase) }
    });
}

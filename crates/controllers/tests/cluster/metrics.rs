//! What the controllers count of what they do.

use pumice_api::batch::JobPhase;
use pumice_api::scheduling::Queue;
use serde_json::json;

use crate::harness::{Cluster, DEADLINE};

/// Waits until the page is as wanted.
async fn until(cluster: &Cluster, what: &str, wanted: impl Fn(&str) -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !wanted(&cluster.counted()) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what}:\n{}", cluster.counted()));
}

async fn says(cluster: &Cluster, line: &str) {
    until(cluster, line, |page| page.lines().any(|there| there == line)).await;
}

fn value(cluster: &Cluster, name: &str) -> u64 {
    let page = cluster.counted();
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}:\n{page}")).parse().unwrap()
}

#[tokio::test]
async fn ends_of_jobs_groups_of_queues_and_writes_are_counted() {
    let cluster = Cluster::start().await;
    for (name, phase, end) in [("good", "Succeeded", JobPhase::Completed), ("bad", "Failed", JobPhase::Failed)] {
        let job = cluster.job(name, 2, json!({"maxRetry": 1})).await;
        cluster.admit(&job, 0).await;
        says(&cluster, "volcano_queue_pod_group_inqueue_count{queue_name=\"default\"} 1").await;
        cluster.set_pods(name, 2, phase).await;
        cluster.wait_phase(name, end).await;
        says(&cluster, "volcano_queue_pod_group_inqueue_count{queue_name=\"default\"} 0").await;
    }
    says(&cluster, "volcano_job_completed_phase_count{queue_name=\"default\"} 1").await;
    says(&cluster, "volcano_job_failed_phase_count{queue_name=\"default\"} 1").await;
    says(&cluster, "pumice_controllers_writes_total{verb=\"create\",resource=\"pods\",code=\"201\"} 4").await;
    says(&cluster, "volcano_controller_job_to_pod_creation_latency_milliseconds_count 2").await;
    says(&cluster, "pumice_controllers_waiting{controller=\"job\"} 0").await;
    says(&cluster, "pumice_controllers_plans{controller=\"job\"} 0").await;
    assert!(value(&cluster, "pumice_controllers_plan_milliseconds_count{controller=\"job\"}") >= 4);
    assert!(value(&cluster, "pumice_controllers_plan_milliseconds_count{controller=\"queue\"}") >= 1);
    assert!(!cluster.counted().contains("good"), "no line for a job");
}

#[tokio::test]
async fn a_queue_that_is_gone_has_no_lines() {
    let cluster = Cluster::start().await;
    let queues = kube::Api::<Queue>::all(cluster.admin.clone());
    let queue = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "brief"}});
    cluster.create(&queues, queue).await;
    says(&cluster, "volcano_queue_pod_group_running_count{queue_name=\"brief\"} 0").await;
    queues.delete("brief", &Default::default()).await.unwrap();
    until(&cluster, "its lines go", |page| !page.contains("brief")).await;
}

#[tokio::test]
async fn ends_of_flows_are_counted_by_namespace() {
    let cluster = Cluster::start().await;
    let template = json!({
        "apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate", "metadata": {"name": "t"},
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "queue": "default", "tasks": [{"name": "w", "replicas": 1,
            "template": {"spec": {"containers": [{"name": "c", "image": "none"}]}}}]},
    });
    cluster.create::<pumice_api::flow::JobTemplate>(&cluster.api(), template).await;
    let flow = json!({
        "apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"name": "f"},
        "spec": {"jobRetainPolicy": "retain", "flows": [{"name": "t"}]},
    });
    cluster.create::<pumice_api::flow::JobFlow>(&cluster.api(), flow).await;
    let job = cluster.wait_phase("f-t", JobPhase::Pending).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("f-t", 1, "Succeeded").await;
    says(&cluster, "volcano_jobflow_succeed_phase_count{jobflow_namespace=\"default\"} 1").await;
    assert!(value(&cluster, "pumice_controllers_plan_milliseconds_count{controller=\"jobflow\"}") >= 2);
}

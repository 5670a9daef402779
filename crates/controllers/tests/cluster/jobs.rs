//! Lives of jobs.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use pumice_api::batch::{Job, JobPhase};
use pumice_api::scheduling::PodGroup;
use serde_json::json;

use crate::harness::{Cluster, group_name};

#[tokio::test]
async fn a_job_runs_to_completion_with_hosts_and_keys() {
    let cluster = Cluster::start().await;
    let job = cluster.job("gang", 3, json!({"plugins": {"env": [], "svc": [], "ssh": []}})).await;
    let pending = cluster.wait_phase("gang", JobPhase::Pending).await;
    assert_eq!(pending.status.min_available, 3);
    assert!(cluster.pods("gang").await.is_empty());
    cluster.admit(&job, 0).await;
    cluster.set_pods("gang", 3, "Running").await;
    let running = cluster.wait_phase("gang", JobPhase::Running).await;
    assert_eq!(running.status.running, 3);

    let hosts = cluster.api::<ConfigMap>().get("gang-svc").await.unwrap().data.unwrap();
    assert_eq!(hosts["w.host"], "gang-w-0.gang\ngang-w-1.gang\ngang-w-2.gang");
    let service = cluster.api::<Service>().get("gang").await.unwrap().spec.unwrap();
    assert_eq!(service.cluster_ip.as_deref(), Some("None"));
    let secret = cluster.api::<Secret>().get("gang-ssh").await.unwrap().data.unwrap();
    assert!(secret["id_rsa"].0.starts_with(b"-----BEGIN RSA PRIVATE KEY-----"));
    assert_eq!(secret["id_rsa.pub"], secret["authorized_keys"]);
    assert!(secret["config"].0.ends_with(b"Host gang-w-2\n  HostName gang-w-2.gang\n  Port 22\n"));

    cluster.set_pods("gang", 3, "Succeeded").await;
    let done = cluster.wait_phase("gang", JobPhase::Completed).await;
    assert_eq!((done.status.succeeded, done.status.running), (3, 0), "fields that became zero are gone");
    assert_eq!(done.status.state.reason, "PodsSucceeded");
    cluster.wait(&cluster.api::<PodGroup>(), &group_name(&job), |group| group.is_none()).await;
    cluster.wait(&cluster.api::<ConfigMap>(), "gang-svc", |map| map.is_none()).await;
    cluster.wait(&cluster.api::<Secret>(), "gang-ssh", |secret| secret.is_none()).await;
    cluster.wait(&cluster.api::<Service>(), "gang", |service| service.is_none()).await;
    cluster.wait_job("gang", |job| job.status.controlled_resources.is_empty()).await;
    assert_eq!(cluster.pods("gang").await.len(), 3);
}

#[tokio::test]
async fn many_pods_are_created_once_each() {
    let cluster = Cluster::start().await;
    let job = cluster.job("many", 300, json!({})).await;
    cluster.admit(&job, 0).await;
    let all = cluster.wait_job("many", |job| job.status.pending == 300).await;
    assert_eq!(all.status.task_status_count["w"].phase["Pending"], 300);
    let mut uids: Vec<_> = cluster.pods("many").await.into_iter().map(|pod| pod.metadata.uid).collect();
    uids.sort();
    uids.dedup();
    assert_eq!(uids.len(), 300);
}

#[tokio::test]
async fn a_name_that_is_taken_is_waited_for() {
    let cluster = Cluster::start().await;
    let pods = cluster.api::<Pod>();
    cluster
        .create(
            &pods,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late-w-0"},
        "spec": {"containers": [{"name": "c", "image": "none"}]}}),
        )
        .await;
    let job = cluster.job("late", 2, json!({})).await;
    cluster.admit(&job, 0).await;
    let message = cluster.wait_event("late", "FailedCreate").await;
    assert!(message.contains("pod late-w-0 exists and belongs to something else"), "{message}");
    cluster.delete_pod("late-w-0").await;
    cluster.set_pods("late", 2, "Succeeded").await;
    let done = cluster.wait_phase("late", JobPhase::Completed).await;
    assert_eq!(done.status.retry_count, 0);
}

#[tokio::test]
async fn a_config_map_of_somebody_else_is_left_alone() {
    let cluster = Cluster::start().await;
    let maps = cluster.api::<ConfigMap>();
    cluster
        .create(
            &maps,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine-svc"},
        "data": {"mine": "yes"}}),
        )
        .await;
    cluster.job("mine", 1, json!({"plugins": {"svc": []}})).await;
    let message = cluster.wait_event("mine", "PluginError").await;
    assert!(message.contains("ConfigMap mine-svc exists"), "{message}");
    assert_eq!(maps.get("mine-svc").await.unwrap().data.unwrap()["mine"], "yes");
}

#[tokio::test]
async fn claims_are_made_or_waited_for() {
    let cluster = Cluster::start().await;
    let claims = cluster.api::<PersistentVolumeClaim>();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let job = cluster
        .job(
            "vol",
            1,
            json!({"volumes": [
        {"mountPath": "/in", "volumeClaimName": "data"}, {"mountPath": "/out", "volumeClaim": spec.clone()}]}),
        )
        .await;
    cluster.wait_event("vol", "PVCError").await;
    cluster
        .create(
            &claims,
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"}, "spec": spec}),
        )
        .await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("vol-w-0", "Succeeded").await;
    let done = cluster.wait_phase("vol", JobPhase::Completed).await;
    assert_eq!(done.status.controlled_resources.len(), 2, "{:?}", done.status.controlled_resources);
    let made = done.status.controlled_resources.values().find(|name| *name != "data").unwrap();
    assert!(claims.get(made).await.unwrap().metadata.owner_references.is_some());
}

#[tokio::test]
async fn a_finished_job_goes_when_its_time_is_over() {
    let cluster = Cluster::start().await;
    let job = cluster.job("brief", 1, json!({"ttlSecondsAfterFinished": 0})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("brief-w-0", "Succeeded").await;
    cluster.wait(&cluster.api::<Job>(), "brief", |job| job.is_none()).await;
}

#[tokio::test]
async fn a_new_job_of_the_same_name_starts_afresh() {
    let cluster = Cluster::start().await;
    let job = cluster.job("again", 1, json!({})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("again-w-0", "Running").await;
    cluster.wait_phase("again", JobPhase::Running).await;
    cluster.api::<Job>().delete("again", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.wait(&cluster.api::<Job>(), "again", |job| job.is_none()).await;
    let job = cluster.job("again", 1, json!({})).await;
    cluster.admit(&job, 0).await;
    let uid = job.metadata.uid.clone().unwrap();
    let pods = cluster.api::<Pod>();
    cluster
        .wait(&pods, "again-w-0", |pod| {
            let owners = pod.and_then(|pod| pod.metadata.owner_references.as_ref());
            owners.is_some_and(|owners| owners.iter().any(|owner| owner.uid == uid))
        })
        .await;
    cluster.set_pod("again-w-0", "Succeeded").await;
    cluster.wait_phase("again", JobPhase::Completed).await;
}

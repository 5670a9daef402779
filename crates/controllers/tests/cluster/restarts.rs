//! Restarts, Commands, evictions, and controllers that go away in between.

use k8s_openapi::api::core::v1::Pod;
use pumice_api::batch::JobPhase;
use pumice_api::scheduling::PodGroup;
use serde_json::json;

use crate::harness::{Cluster, group_name};

#[tokio::test]
async fn a_failed_pod_restarts_the_job() {
    let cluster = Cluster::start().await;
    let policy = json!({"policies": [{"event": "PodFailed", "action": "RestartJob"}]});
    let job = cluster.job("retry", 2, policy).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("retry", 2, "Running").await;
    cluster.wait_phase("retry", JobPhase::Running).await;
    let old: Vec<_> = cluster.pods("retry").await.into_iter().map(|pod| pod.metadata.uid).collect();
    cluster.set_pod("retry-w-1", "Failed").await;
    cluster.wait_job("retry", |job| job.status.retry_count == 1 && job.status.version == 1).await;
    cluster.admit(&job, 1).await;
    let pods = cluster.api::<Pod>();
    for name in ["retry-w-0", "retry-w-1"] {
        cluster.wait(&pods, name, |pod| pod.is_some_and(|pod| !old.contains(&pod.metadata.uid))).await;
        cluster.set_pod(name, "Succeeded").await;
    }
    let done = cluster.wait_phase("retry", JobPhase::Completed).await;
    assert_eq!((done.status.retry_count, done.status.succeeded), (1, 2));
    assert!(cluster.wait_event("retry", "ExecuteAction").await.contains("RestartJob: PodFailed of task w, pod 1"));
}

#[tokio::test]
async fn one_pod_restarts_and_the_others_stay() {
    let cluster = Cluster::start().await;
    let policy = json!({"minAvailable": 1, "policies": [{"exitCode": 1, "action": "RestartPod"}]});
    let job = cluster.job("one", 2, policy).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("one", 2, "Running").await;
    cluster.wait_phase("one", JobPhase::Running).await;
    let pods = cluster.api::<Pod>();
    let uid = |name: &'static str| {
        let pods = pods.clone();
        async move { pods.get(name).await.unwrap().metadata.uid }
    };
    let (stays, goes) = (uid("one-w-0").await, uid("one-w-1").await);
    cluster.set_pod("one-w-1", "Failed").await;
    cluster.wait(&pods, "one-w-1", |pod| pod.is_some_and(|pod| pod.metadata.uid != goes)).await;
    cluster.set_pods("one", 2, "Succeeded").await;
    let done = cluster.wait_phase("one", JobPhase::Completed).await;
    assert_eq!((done.status.retry_count, done.status.version), (1, 0));
    assert_eq!(uid("one-w-0").await, stays);
}

#[tokio::test]
async fn suspend_and_resume_by_command() {
    let cluster = Cluster::start().await;
    let job = cluster.job("pause", 2, json!({})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("pause", 2, "Running").await;
    cluster.wait_phase("pause", JobPhase::Running).await;
    cluster.job_command("AbortJob", "pause").await;
    let aborted = cluster.wait_phase("pause", JobPhase::Aborted).await;
    assert_eq!((aborted.status.running, aborted.status.version), (0, 1));
    cluster.wait(&cluster.api::<PodGroup>(), &group_name(&job), |group| group.is_none()).await;
    assert!(cluster.pods("pause").await.is_empty());
    cluster.job_command("ResumeJob", "pause").await;
    cluster.admit(&job, 2).await;
    cluster.set_pods("pause", 2, "Succeeded").await;
    let done = cluster.wait_phase("pause", JobPhase::Completed).await;
    assert_eq!(done.status.retry_count, 0);
}

#[tokio::test]
async fn an_evicted_pod_is_made_again_or_acts_by_policy() {
    let cluster = Cluster::start().await;
    let plain = cluster.job("plain", 1, json!({})).await;
    let policy = json!({"policies": [{"event": "PodEvicted", "action": "TerminateJob"}]});
    let strict = cluster.job("strict", 1, policy).await;
    for (job, name) in [(&plain, "plain"), (&strict, "strict")] {
        cluster.admit(job, 0).await;
        cluster.set_pods(name, 1, "Running").await;
        cluster.wait_phase(name, JobPhase::Running).await;
    }
    let uid = cluster.api::<Pod>().get("plain-w-0").await.unwrap().metadata.uid;
    cluster.delete_pod("plain-w-0").await;
    cluster.delete_pod("strict-w-0").await;
    cluster.wait(&cluster.api::<Pod>(), "plain-w-0", |pod| pod.is_some_and(|pod| pod.metadata.uid != uid)).await;
    cluster.wait_phase("strict", JobPhase::Terminated).await;
    cluster.set_pod("plain-w-0", "Succeeded").await;
    let done = cluster.wait_phase("plain", JobPhase::Completed).await;
    assert_eq!(done.status.retry_count, 0);
}

#[tokio::test]
async fn what_happens_while_the_controllers_are_away_counts() {
    let mut cluster = Cluster::start().await;
    let policy = json!({"policies": [{"event": "PodEvicted", "action": "RestartJob"}]});
    let evicted = cluster.job("evicted", 2, policy).await;
    let ended = cluster.job("ended", 2, json!({})).await;
    for (job, name) in [(&evicted, "evicted"), (&ended, "ended")] {
        cluster.admit(job, 0).await;
        cluster.set_pods(name, 2, "Running").await;
        cluster.wait_job(name, |job| job.status.running == 2).await;
    }
    cluster.stop_controllers().await;
    cluster.delete_pod("evicted-w-1").await;
    cluster.set_pods("ended", 2, "Succeeded").await;
    cluster.start_controllers();
    cluster.wait_phase("ended", JobPhase::Completed).await;
    cluster.wait_job("evicted", |job| job.status.retry_count == 1).await;
    cluster.admit(&evicted, 1).await;
    cluster.set_pods("evicted", 2, "Succeeded").await;
    cluster.wait_phase("evicted", JobPhase::Completed).await;
}

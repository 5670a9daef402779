//! CronJobs against an API server, by a schedule of seconds.

use kube::Api;
use kube::api::{Patch, PatchParams};
use pumice_api::batch::{CronJob, Job};
use serde_json::{Value, json};

use crate::harness::Cluster;

async fn cron(cluster: &Cluster, extra: Value) {
    let pod = json!({"spec": {"containers": [{"name": "c", "image": "none"}]}});
    let job = json!({"minAvailable": 1, "queue": "default", "maxRetry": 3, "schedulerName": "volcano",
        "tasks": [{"name": "w", "replicas": 1, "minAvailable": 1, "template": pod}]});
    let mut cron = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "@every 1s", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": job}}});
    cron["spec"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    cluster.create::<CronJob>(&cluster.api(), cron).await;
}

/// The name of the one Job that is active, other than `before`.
async fn active(cluster: &Cluster, before: &str) -> String {
    let one = |cron: Option<&CronJob>| {
        let active = cron.map_or(&[][..], |cron| &cron.status.active);
        active.first().is_some_and(|job| job.name.as_deref() != Some(before))
    };
    let cron = cluster.wait(&cluster.api::<CronJob>(), "c", one).await.unwrap();
    assert_eq!(cron.status.active.len(), 1, "{:?}", cron.status);
    cron.status.active[0].name.clone().unwrap()
}

/// Plays scheduler and node for a Job of one pod.
async fn run(cluster: &Cluster, name: &str) {
    let job = cluster.api::<Job>().get(name).await.unwrap();
    cluster.admit(&job, 0).await;
    cluster.set_pod(&format!("{name}-w-0"), "Succeeded").await;
}

#[tokio::test]
async fn jobs_come_one_after_the_other_and_only_the_newest_are_kept() {
    let mut cluster = Cluster::start().await;
    cron(&cluster, json!({"successfulJobsHistoryLimit": 1})).await;
    let first = active(&cluster, "").await;
    // A new controller knows what the one before has made.
    cluster.stop_controllers().await;
    cluster.start_controllers();
    run(&cluster, &first).await;
    let second = active(&cluster, &first).await;
    run(&cluster, &second).await;
    let jobs: Api<Job> = cluster.api();
    cluster.wait(&jobs, &first, |job| job.is_none()).await;
    let cron = cluster.api::<CronJob>().get("c").await.unwrap();
    assert!(cron.status.last_successful_time.is_some(), "{:?}", cron.status);
}

#[tokio::test]
async fn a_suspended_one_makes_nothing_until_it_goes_on() {
    let cluster = Cluster::start().await;
    cron(&cluster, json!({"suspend": true})).await;
    // Another one, made later, shows that the first had its turn.
    let crons: Api<CronJob> = cluster.api();
    let mut other = crons.get("c").await.unwrap();
    other.metadata = serde_json::from_value(json!({"name": "other"})).unwrap();
    other.spec.suspend = None;
    cluster.create::<CronJob>(&crons, serde_json::to_value(&other).unwrap()).await;
    let made = |cron: Option<&CronJob>| cron.is_some_and(|cron| !cron.status.active.is_empty());
    cluster.wait(&crons, "other", made).await;
    assert_eq!(crons.get("c").await.unwrap().status.last_schedule_time, None);
    let patch = json!({"spec": {"suspend": false}});
    crons.patch("c", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    active(&cluster, "").await;
}

//! Kubernetes' own kinds against an API server: the test plays scheduler and nodes.

#![allow(clippy::large_futures, reason = "a test has one of them")]

use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pumice_controllers::Enabled;
use serde_json::{Value, json};

use crate::harness::Cluster;

async fn start() -> Cluster {
    let mut cluster = Cluster::without_controllers(std::sync::Arc::new(pumice_apiserver::AdmitAll)).await;
    start_controllers(&mut cluster);
    cluster
}

fn start_controllers(cluster: &mut Cluster) {
    let mut options = pumice_controllers::Options::new(Client::new(cluster.controllers_service(), "default"));
    options.enabled = Enabled::default().with_workloads();
    cluster.start_controllers_with(options);
}

fn template(restart: &str) -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"restartPolicy": restart, "containers": [{"name": "c", "image": "i:1"}]}})
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

async fn pods(cluster: &Cluster) -> Vec<Pod> {
    cluster.api::<Pod>().list(&ListParams::default()).await.unwrap().items
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, "Succeeded" | "Failed")
}

fn name(pod: &Pod) -> String {
    pod.metadata.name.clone().unwrap()
}

/// Plays the node: the pod runs and is ready.
async fn ready(cluster: &Cluster, pod: &str) {
    let conditions = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let patch = json!({"status": {"phase": "Running", "conditions": conditions}});
    let api = cluster.api::<Pod>();
    // It may be gone by now.
    let _ = api.patch_status(pod, &PatchParams::default(), &Patch::Merge(&patch)).await;
}

/// Lets pods run, one change after the other, until an object is as wanted.
async fn run_until<K>(cluster: &Cluster, object: &str, wanted: impl Fn(&K) -> bool + Send + Sync) -> K
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + Send
        + serde::de::DeserializeOwned
        + 'static,
{
    use futures::StreamExt as _;
    let watched = pumice_cluster::watch(cluster.api::<Pod>(), pumice_cluster::WatchScope::default());
    let mut watched = std::pin::pin!(watched);
    let api = cluster.api::<K>();
    let nodes = async {
        while let Some(change) = watched.next().await {
            let pods = match change {
                pumice_cluster::Change::Replace(all) => all,
                pumice_cluster::Change::Applied(one) => vec![one],
                pumice_cluster::Change::Deleted(_) => Vec::new(),
            };
            let waits = |pod: &&Pod| {
                is_active(pod) && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending")
            };
            for pod in pods.iter().filter(waits) {
                ready(cluster, &name(pod)).await;
            }
        }
    };
    tokio::select! {
        found = cluster.wait(&api, object, |object| object.is_some_and(&wanted)) => found.unwrap(),
        () = nodes => panic!("the watch ended"),
    }
}

#[tokio::test]
async fn a_replica_set_keeps_its_pods_over_a_restart() {
    let mut cluster = start().await;
    let sets: Api<ReplicaSet> = cluster.api();
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"app": "x"}}, "template": template("Always")});
    cluster.create(&sets, object("apps/v1", "ReplicaSet", "r", spec)).await;
    let serves = |wanted: i32| {
        move |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.available_replicas == Some(wanted))
    };
    run_until(&cluster, "r", serves(3)).await;
    cluster.stop_controllers().await;
    let lost = name(&pods(&cluster).await[0]);
    cluster.delete_pod(&lost).await;
    // What the status said before the loss must not pass for what comes after it.
    let forgotten = json!({"status": {"availableReplicas": 0}});
    sets.patch_status("r", &PatchParams::default(), &Patch::Merge(&forgotten)).await.unwrap();
    start_controllers(&mut cluster);
    run_until(&cluster, "r", serves(3)).await;
    let names: Vec<String> = pods(&cluster).await.iter().map(name).collect();
    assert!(names.len() == 3 && !names.contains(&lost), "{names:?}");
    let scale = json!({"spec": {"replicas": 1}});
    sets.patch_scale("r", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    run_until(&cluster, "r", |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.replicas == 1)).await;
    assert_eq!(pods(&cluster).await.iter().filter(|pod| is_active(pod)).count(), 1);
    let found = sets.get_scale("r").await.unwrap();
    assert_eq!(found.status.unwrap().selector.as_deref(), Some("app=x"));
}

#[tokio::test]
async fn a_deployment_rolls_out_and_back() {
    let cluster = start().await;
    let deployments: Api<Deployment> = cluster.api();
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template("Always")});
    cluster.create(&deployments, object("apps/v1", "Deployment", "d", spec)).await;
    let done = |revision: &'static str| {
        move |deployment: &Deployment| {
            let status = deployment.status.clone().unwrap_or_default();
            let annotations = deployment.metadata.annotations.clone().unwrap_or_default();
            let numbered =
                annotations.get("deployment.kubernetes.io/revision").is_some_and(|number| number == revision);
            numbered
                && status.observed_generation == deployment.metadata.generation
                && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(2); 3]
        }
    };
    run_until(&cluster, "d", done("1")).await;
    let image = async |image: &str| {
        let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
        deployments.patch("d", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    };
    image("i:2").await;
    run_until(&cluster, "d", done("2")).await;
    let images = async || {
        let active: Vec<Pod> = pods(&cluster).await.into_iter().filter(is_active).collect();
        active.iter().map(|pod| pod.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(images().await, ["i:2", "i:2"]);
    image("i:1").await;
    run_until(&cluster, "d", done("3")).await;
    assert_eq!(images().await, ["i:1", "i:1"]);
    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(sets.len(), 2, "it went back to the first");
    deployments.delete("d", &DeleteParams::background()).await.unwrap();
    for set in sets {
        cluster.wait(&cluster.api::<ReplicaSet>(), &set.metadata.name.unwrap(), |set| set.is_none()).await;
    }
}

#[tokio::test]
async fn a_job_counts_each_pod_once_over_a_restart() {
    let mut cluster = start().await;
    let jobs: Api<Job> = cluster.api();
    let spec = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed", "template": template("Never")});
    cluster.create(&jobs, object("batch/v1", "Job", "j", spec)).await;
    let active = |wanted: i32| move |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(wanted));
    cluster.wait(&jobs, "j", |job| job.is_some_and(active(3))).await;
    let all: Vec<String> = pods(&cluster).await.iter().map(name).collect();
    cluster.set_pod(&all[0], "Succeeded").await;
    cluster.wait(&jobs, "j", |job| job.is_some_and(active(2))).await;
    cluster.stop_controllers().await;
    cluster.set_pod(&all[1], "Succeeded").await;
    cluster.set_pod(&all[2], "Succeeded").await;
    start_controllers(&mut cluster);
    let done = |job: Option<&Job>| job.is_some_and(|job| pumice_machines::batch_job::outcome(job) == Some(true));
    let job = cluster.wait(&jobs, "j", done).await.unwrap();
    let status = job.status.unwrap();
    assert_eq!((status.succeeded, status.failed, status.completed_indexes.as_deref()), (Some(3), None, Some("0-2")));
    assert!(
        pods(&cluster).await.iter().all(|pod| pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)),
        "nothing holds them"
    );
    jobs.delete("j", &DeleteParams::background()).await.unwrap();
    for pod in all {
        cluster.wait(&cluster.api::<Pod>(), &pod, |pod| pod.is_none()).await;
    }
}

#[tokio::test]
async fn pods_of_a_job_that_is_deleted_are_not_held() {
    let cluster = start().await;
    let jobs: Api<Job> = cluster.api();
    let spec = json!({"parallelism": 2, "template": template("Never")});
    cluster.create(&jobs, object("batch/v1", "Job", "j", spec)).await;
    cluster
        .wait(&jobs, "j", |job| {
            job.is_some_and(|job| job.status.as_ref().is_some_and(|status| status.active == Some(2)))
        })
        .await;
    let all: Vec<String> = pods(&cluster).await.iter().map(name).collect();
    jobs.delete("j", &DeleteParams::background()).await.unwrap();
    for pod in all {
        cluster.wait(&cluster.api::<Pod>(), &pod, |pod| pod.is_none()).await;
    }
}

#[tokio::test]
async fn a_stateful_set_comes_in_order_with_claims_and_is_replaced_from_the_last() {
    let cluster = start().await;
    let sets: Api<StatefulSet> = cluster.api();
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let spec = json!({"replicas": 2, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}},
        "template": template("Always"), "volumeClaimTemplates": [claim]});
    cluster.create(&sets, object("apps/v1", "StatefulSet", "s", spec)).await;
    cluster.wait(&cluster.api::<Pod>(), "s-0", |pod| pod.is_some()).await;
    assert!(cluster.api::<Pod>().get_opt("s-1").await.unwrap().is_none(), "it waits for the first");
    let serves = |set: &StatefulSet| {
        let status = set.status.clone().unwrap_or_default();
        status.observed_generation == set.metadata.generation
            && status.ready_replicas == Some(2)
            && status.updated_replicas == Some(2)
            && status.current_revision == status.update_revision
    };
    run_until(&cluster, "s", serves).await;
    let claims = cluster.api::<PersistentVolumeClaim>().list(&ListParams::default()).await.unwrap().items;
    let names: Vec<String> = claims.into_iter().filter_map(|claim| claim.metadata.name).collect();
    assert_eq!(names, ["data-s-0", "data-s-1"]);
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    sets.patch("s", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    run_until(&cluster, "s", serves).await;
    for pod in pods(&cluster).await {
        assert_eq!(pod.spec.unwrap().containers[0].image.as_deref(), Some("i:2"));
    }
    let revisions = cluster.api::<ControllerRevision>().list(&ListParams::default()).await.unwrap().items;
    assert_eq!(revisions.len(), 2);
}

#[tokio::test]
async fn a_cron_job_makes_jobs_and_keeps_the_newest() {
    let cluster = start().await;
    let crons: Api<CronJob> = cluster.api();
    let spec = json!({"schedule": "@every 1s", "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0,
        "jobTemplate": {"spec": {"template": template("Never")}}});
    cluster.create(&crons, object("batch/v1", "CronJob", "c", spec)).await;
    let active =
        |cron: Option<&CronJob>| cron.and_then(|cron| cron.status.as_ref()?.active.as_ref()?.first()?.name.clone());
    let cron = cluster.wait(&crons, "c", |cron| active(cron).is_some()).await;
    let first = active(cron.as_ref()).unwrap();
    let of_first =
        |pod: &Pod| pod.metadata.labels.as_ref().is_some_and(|labels| labels.get("job-name") == Some(&first));
    cluster
        .wait(&cluster.api::<Job>(), &first, |job| {
            job.is_some_and(|job| job.status.as_ref().is_some_and(|status| status.active == Some(1)))
        })
        .await;
    let pod = pods(&cluster).await.into_iter().find(of_first).unwrap();
    cluster.set_pod(&name(&pod), "Succeeded").await;
    cluster.wait(&cluster.api::<Job>(), &first, |job| job.is_none()).await;
    let again = |cron: Option<&CronJob>| active(cron).is_some_and(|name| name != first);
    let cron = cluster.wait(&crons, "c", again).await.unwrap();
    assert!(cron.status.unwrap().last_successful_time.is_some());
}

#[tokio::test]
async fn on_a_kubernetes_they_are_left_alone() {
    let cluster = Cluster::start().await;
    let jobs: Api<Job> = cluster.api();
    let spec = json!({"template": template("Never")});
    cluster.create(&jobs, object("batch/v1", "Job", "j", spec)).await;
    // A Volcano Job that was made after it has had its turn.
    let job = cluster.job("after", 1, json!({})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("after-w-0", "Running").await;
    assert_eq!(jobs.get("j").await.unwrap().status.unwrap_or_default().start_time, None);
}

//! Finished work that leaves, and what holds it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use pumice_api::batch::{Job, JobPhase};
use pumice_api::flow::JobFlow;
use pumice_api::retention::{NumberBound, Retention, TimeBound};
use pumice_controllers::Options;
use serde_json::json;

use crate::harness::{Cluster, eventually};

fn bounds(ttl: Option<Duration>, jobs_max: Option<usize>, pods_max: Option<usize>) -> Retention {
    Retention { ttl: TimeBound(ttl), jobs_max: NumberBound(jobs_max), pods_max: NumberBound(pods_max) }
}

/// A cluster where finished work stays so long, as on a platform of our own.
async fn cluster(retention: Retention) -> Cluster {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let options = own(&cluster, retention);
    cluster.start_controllers_with(options);
    cluster
}

fn own(cluster: &Cluster, retention: Retention) -> Options {
    let mut options = Options::new(Client::new(cluster.controllers_service(), "default"));
    options.enabled = options.enabled.with_workloads();
    options.retention = Some(retention);
    options
}

impl Cluster {
    /// A job that runs and completes.
    async fn completed(&self, name: &str, extra: serde_json::Value) {
        let job = self.job(name, 1, extra).await;
        self.admit(&job, 0).await;
        self.set_pods(name, 1, "Succeeded").await;
        self.wait(&self.api::<Job>(), name, |job| {
            job.is_none_or(|job| job.status.state.phase == Some(JobPhase::Completed))
        })
        .await;
    }

    async fn gone(&self, name: &str) {
        self.wait(&self.api::<Job>(), name, |job| job.is_none()).await;
    }

    async fn jobs(&self) -> BTreeSet<String> {
        let jobs = self.api::<Job>().list(&ListParams::default()).await.unwrap();
        jobs.items.into_iter().filter_map(|job| job.metadata.name).collect()
    }

    async fn bare_pod(&self, name: &str, phase: &str) {
        let spec = json!({"containers": [{"name": "c", "image": "none"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.create::<Pod>(&self.api(), pod).await;
        self.set_pod(name, phase).await;
    }

    /// What a namespace says of its finished work.
    async fn annotate_namespace(&self, name: &str, annotations: serde_json::Value) {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        Api::<Namespace>::all(self.admin.clone()).patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn the_oldest_finished_jobs_leave_and_what_runs_or_has_its_own_time_stays() {
    let cluster = cluster(bounds(None, Some(2), None)).await;
    cluster.completed("own-time", json!({"ttlSecondsAfterFinished": 3600})).await;
    cluster.job("waits", 1, json!({})).await;
    for name in ["a", "b", "c", "d"] {
        cluster.completed(name, json!({})).await;
    }
    cluster.gone("a").await;
    cluster.gone("b").await;
    assert_eq!(cluster.jobs().await, names(&["c", "d", "own-time", "waits"]));
    cluster.wait(&cluster.api::<Pod>(), "a-w-0", |pod| pod.is_none()).await;
    assert_eq!(cluster.pods("d").await.len(), 1, "pods stay with their job");
    let counted = cluster.counted();
    assert!(counted.contains("pumice_controllers_removed_total{kind=\"Job\",reason=\"number\"} 2\n"), "{counted}");
}

#[tokio::test]
async fn a_job_that_others_wait_for_stays_until_they_have_ended() {
    let cluster = cluster(bounds(Some(Duration::ZERO), None, None)).await;
    let after = json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
        "metadata": {"name": "next", "annotations": {"pumice.sh/after": "ok:first,ok:never"}},
        "spec": {"minAvailable": 1, "queue": "default", "schedulerName": "volcano", "tasks": [{"name": "w", "replicas": 1,
            "template": {"spec": {"containers": [{"name": "c", "image": "none"}]}}}]}});
    cluster.create::<Job>(&cluster.api(), after).await;
    cluster.completed("first", json!({})).await;
    // One that nobody waits for shows that it has been looked at.
    cluster.completed("other", json!({})).await;
    cluster.gone("other").await;
    assert!(cluster.jobs().await.contains("first"));
    cluster.api::<Job>().delete("next", &kube::api::DeleteParams::default()).await.unwrap();
    cluster.gone("first").await;
}

#[tokio::test]
async fn a_job_that_records_results_leaves_by_number_alone() {
    let cluster = cluster(bounds(Some(Duration::ZERO), Some(1), None)).await;
    let env = json!([{"name": "PUMICE_BUNDLE", "value": "objects:default/b#root/run"}]);
    let template = json!({"spec": {"containers": [{"name": "c", "image": "none", "env": env}]}});
    let with_results = json!({"tasks": [{"name": "w", "replicas": 1, "minAvailable": 1, "template": template}]});
    for name in ["r", "s"] {
        cluster.completed(name, with_results.clone()).await;
    }
    cluster.completed("plain", json!({})).await;
    cluster.gone("plain").await;
    cluster.gone("r").await;
    assert_eq!(cluster.jobs().await, names(&["s"]));
}

#[tokio::test]
async fn a_namespace_says_its_own_bounds_and_takes_them_back() {
    let cluster = cluster(bounds(None, Some(1), None)).await;
    cluster.annotate_namespace("default", json!({"pumice.sh/finished-jobs-max": "3"})).await;
    for name in ["a", "b", "c", "d"] {
        cluster.completed(name, json!({})).await;
    }
    cluster.gone("a").await;
    assert_eq!(cluster.jobs().await, names(&["b", "c", "d"]));
    cluster.annotate_namespace("default", json!({"pumice.sh/finished-jobs-max": null})).await;
    cluster.gone("c").await;
    assert_eq!(cluster.jobs().await, names(&["d"]));
    cluster.annotate_namespace("default", json!({"pumice.sh/finished-ttl": "0s"})).await;
    cluster.gone("d").await;
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"pumice.sh/finished-ttl": "soon"}}}));
    let namespaces = Api::<Namespace>::all(cluster.admin.clone());
    let refused = namespaces.patch("default", &PatchParams::default(), &patch).await.unwrap_err().to_string();
    assert!(refused.contains("is no time; try 7d, 12h or off"), "{refused}");
}

#[tokio::test]
async fn finished_pods_leave_by_number_but_not_those_of_a_job_that_runs() {
    let cluster = cluster(bounds(None, None, Some(1))).await;
    let job = cluster.job("half", 3, json!({})).await;
    cluster.admit(&job, 0).await;
    for index in 0..2 {
        cluster.set_pod(&format!("half-w-{index}"), "Succeeded").await;
    }
    cluster.set_pod("half-w-2", "Running").await;
    for name in ["p", "q"] {
        cluster.bare_pod(name, "Failed").await;
    }
    let pods = cluster.api::<Pod>();
    let left = async || {
        let all = pods.list(&ListParams::default()).await.unwrap();
        all.items.into_iter().filter_map(|pod| pod.metadata.name).collect::<BTreeSet<_>>()
    };
    let one_bare = || async { left().await.iter().filter(|name| ["p", "q"].contains(&name.as_str())).count() == 1 };
    eventually("one of the bare pods leaves", one_bare).await;
    assert_eq!(cluster.pods("half").await.len(), 3, "the job counts them");
    cluster.set_pod("half-w-2", "Succeeded").await;
    cluster.wait_phase("half", JobPhase::Completed).await;
    eventually("pods of a job that has ended leave", || async { cluster.pods("half").await.len() == 1 }).await;
    let done = cluster.api::<Job>().get("half").await.unwrap();
    assert_eq!(
        (done.status.succeeded, done.status.state.phase),
        (3, Some(JobPhase::Completed)),
        "the job stays as it ended"
    );
}

#[tokio::test]
async fn jobs_of_kubernetes_and_flows_leave_with_all_that_is_theirs() {
    let cluster = cluster(bounds(Some(Duration::ZERO), None, None)).await;
    let container = json!({"name": "c", "image": "none"});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container.clone()]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "native"}, "spec": {"template": template}});
    cluster.create::<batch::Job>(&cluster.api(), job).await;
    let of_native = ListParams::default().labels("batch.kubernetes.io/job-name=native");
    let pods = cluster.api::<Pod>();
    eventually("it makes a pod", || async { !pods.list(&of_native).await.unwrap().items.is_empty() }).await;
    let made = pods.list(&of_native).await.unwrap().items;
    cluster.set_pod(made[0].metadata.name.as_deref().unwrap(), "Succeeded").await;
    cluster.wait(&cluster.api::<batch::Job>(), "native", |job| job.is_none()).await;
    eventually("its pods go", || async { pods.list(&of_native).await.unwrap().items.is_empty() }).await;

    let template = json!({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate", "metadata": {"name": "t"},
        "spec": {"minAvailable": 1, "queue": "default", "schedulerName": "volcano",
            "tasks": [{"name": "w", "replicas": 1, "template": {"spec": {"containers": [container]}}}]}});
    cluster.create::<pumice_api::flow::JobTemplate>(&cluster.api(), template).await;
    let flow = json!({"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "metadata": {"name": "f"},
        "spec": {"jobRetainPolicy": "retain", "flows": [{"name": "t"}]}});
    cluster.create::<JobFlow>(&cluster.api(), flow).await;
    let job = cluster.wait(&cluster.api::<Job>(), "f-t", |job| job.is_some()).await.unwrap();
    cluster.admit(&job, 0).await;
    cluster.set_pod("f-t-w-0", "Succeeded").await;
    cluster.wait(&cluster.api::<JobFlow>(), "f", |flow| flow.is_none()).await;
    cluster.gone("f-t").await;
}

#[tokio::test]
async fn nothing_leaves_before_the_history_has_it() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let (has_it, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut options = own(&cluster, bounds(Some(Duration::ZERO), None, None));
    let (answer, was_asked) = (Arc::clone(&has_it), Arc::clone(&asked));
    options.taken_in = Some(Arc::new(move |_, version| {
        was_asked.store(version.parse::<u64>().is_ok(), Ordering::SeqCst);
        answer.load(Ordering::SeqCst)
    }));
    cluster.start_controllers_with(options);
    cluster.completed("j", json!({})).await;
    eventually("the history is asked", || async { asked.load(Ordering::SeqCst) }).await;
    assert_eq!(cluster.jobs().await, names(&["j"]));
    has_it.store(true, Ordering::SeqCst);
    cluster.gone("j").await;
}

#[tokio::test]
async fn a_restart_goes_on_and_a_cluster_of_others_keeps_all() {
    let mut cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.completed(name, json!({})).await;
    }
    cluster.bare_pod("p", "Failed").await;
    cluster.bare_pod("q", "Failed").await;
    cluster.stop_controllers().await;
    assert_eq!(cluster.jobs().await.len(), 3, "Volcano keeps them");
    // Where somebody asks for it, and yet no pods of others.
    let mut options = Options::new(Client::new(cluster.controllers_service(), "default"));
    options.retention = Some(bounds(None, Some(1), Some(0)));
    cluster.start_controllers_with(options);
    cluster.gone("a").await;
    cluster.gone("b").await;
    assert_eq!(cluster.jobs().await, names(&["c"]));
    let pods = cluster.api::<Pod>();
    assert!(pods.get_opt("p").await.unwrap().is_some() && pods.get_opt("q").await.unwrap().is_some());
    assert_eq!(cluster.pods("c").await.len(), 1);
}

//! What a job costs: each write is synced to the disk.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service as NetworkService};
use kube::Resource;
use kube::api::DeleteParams;
use pumice_api::batch::{Job, JobPhase};
use pumice_api::scheduling::PodGroup;
use pumice_apiserver::{Body, ClientService};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::Instant;
use tower::Service;

use crate::harness::{Cluster, group_name};

/// A write of mere counts.
const COUNTS: &str = "job counts";

/// Notes what is written.
#[derive(Clone)]
struct Counted {
    inner: ClientService,
    writes: Arc<Mutex<Vec<Arc<Write>>>>,
}

struct Write {
    what: String,
    begun: Instant,
    answered: Mutex<Instant>,
}

impl Service<Request<kube::client::Body>> for Counted {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<kube::client::Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let mut counted = self.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let (what, begun) = (written(&head.method, head.uri.path(), &body), Instant::now());
            let request = Request::from_parts(head, kube::client::Body::from(body.to_vec()));
            // Who sees what was written must find it here.
            let write = what.map(|what| Write { what, begun, answered: Mutex::new(begun) }).map(Arc::new);
            counted.writes.lock().unwrap().extend(write.clone());
            let answer = counted.inner.call(request).await;
            if let Some(write) = write {
                *write.answered.lock().unwrap() = Instant::now();
            }
            answer
        }
        .boxed()
    }
}

/// What a request writes.
fn written(method: &Method, path: &str, body: &[u8]) -> Option<String> {
    let kind = path.split('/').skip_while(|part| *part != "default").nth(1).unwrap_or(path);
    // Events may be lost, so nobody waits for them; how many groups a queue has is told once a second.
    if *method == Method::GET || kind == "events" || path.contains("/queues/") {
        return None;
    }
    if (method, kind) != (&Method::PATCH, "jobs") {
        return Some(format!("{method} {kind}"));
    }
    let patch: serde_json::Value = serde_json::from_slice(body).unwrap();
    let phase = patch["status"]["state"]["phase"].as_str().map(|phase| format!("job {phase}"));
    let resources = || patch["status"].get("controlledResources").map(|_| "job resources".to_owned());
    phase.or_else(resources).or_else(|| Some(COUNTS.to_owned()))
}

/// Runs a job of one pod to its end, and gives what the controllers wrote for it.
async fn writes_of(extra: serde_json::Value, seen_running: bool) -> Vec<Arc<Write>> {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let writes = Arc::new(Mutex::new(Vec::new()));
    let service = Counted { inner: cluster.controllers_service(), writes: Arc::clone(&writes) };
    cluster.start_controllers_over(kube::Client::new(service, "default"));
    cluster
        .wait(&kube::Api::<pumice_api::scheduling::Queue>::all(cluster.admin.clone()), "default", |queue| {
            queue.is_some_and(|queue| queue.status.state.is_some())
        })
        .await;
    writes.lock().unwrap().clear();
    let job = cluster.job("cheap", 1, extra).await;
    cluster.admit(&job, 0).await;
    if seen_running {
        cluster.set_pod("cheap-w-0", "Running").await;
        cluster.wait_phase("cheap", JobPhase::Running).await;
    }
    cluster.set_pod("cheap-w-0", "Succeeded").await;
    cluster.wait_phase("cheap", JobPhase::Completed).await;
    cluster.wait(&cluster.api::<PodGroup>(), &group_name(&job), |group| group.is_none()).await;
    cluster
        .wait(&cluster.api::<Job>(), "cheap", |job| job.is_some_and(|job| job.status.controlled_resources.is_empty()))
        .await;
    std::mem::take(&mut *writes.lock().unwrap())
}

#[tokio::test]
async fn a_job_costs_no_more_writes_than_it_has_news() {
    let make = ["POST podgroups", "POST pods", "job Completed", "DELETE podgroups"];
    let svc = [
        "POST configmaps",
        "POST networkpolicies",
        "POST services",
        "DELETE configmaps",
        "DELETE networkpolicies",
        "DELETE services",
        "job resources",
    ];
    let cases = [
        (json!({}), true, &["job Running"][..]),
        (json!({}), false, &[]),
        (json!({"plugins": {"env": [], "svc": []}}), false, &svc),
    ];
    for (extra, seen_running, more) in cases {
        let writes = writes_of(extra.clone(), seen_running).await.into_iter().map(|write| write.what.clone());
        // How often mere counts are written depends on how fast the test is.
        let mut writes: Vec<String> = writes.filter(|what| what != COUNTS).collect();
        // Only of a job that waits longer than its first status does.
        let pending = writes.extract_if(.., |write| write == "job Pending").count();
        assert!(pending <= 1, "{extra}, seen running: {seen_running}: {pending} times");
        let mut expected = [make.as_slice(), more].concat();
        writes.sort();
        expected.sort_unstable();
        assert_eq!(writes, expected, "{extra}, seen running: {seen_running}");
    }
}

#[tokio::test]
async fn a_status_is_written_twice_a_second_at_most() {
    let writes = writes_of(json!({"plugins": {"env": [], "svc": []}}), true).await;
    let of_job: Vec<&Arc<Write>> = writes.iter().filter(|write| write.what.starts_with("job ")).collect();
    let said: Vec<&str> = of_job.iter().map(|write| write.what.as_str()).collect();
    assert!(of_job.len() >= 3, "running, completed, cleaned up: {said:?}");
    for three in of_job.windows(3) {
        let apart = three[2].begun.duration_since(*three[0].answered.lock().unwrap());
        assert!(apart >= Duration::from_secs(1), "three within {apart:?}: {said:?}");
    }
}

#[tokio::test]
async fn a_restart_writes_nothing_where_all_is_well() {
    let mut cluster = Cluster::start().await;
    let plugins = json!({"plugins": {"env": [], "svc": [], "ssh": []}});
    let job = cluster.job("lasting", 1, plugins).await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("lasting-w-0", "Running").await;
    cluster.wait_phase("lasting", JobPhase::Running).await;
    cluster.stop_controllers().await;

    let writes = Arc::new(Mutex::new(Vec::new()));
    let service = Counted { inner: cluster.controllers_service(), writes: Arc::clone(&writes) };
    cluster.start_controllers_over(kube::Client::new(service, "default"));
    // What there is to do for the other one is done by the time that this one runs.
    let later = cluster.job("later", 1, json!({})).await;
    cluster.admit(&later, 0).await;
    cluster.set_pod("later-w-0", "Running").await;
    cluster.wait_phase("later", JobPhase::Running).await;
    let writes = writes.lock().unwrap();
    let said = writes.iter().map(|write| write.what.as_str());
    let others: Vec<&str> = said.filter(|what| ![COUNTS, "job Pending"].contains(what)).collect();
    assert_eq!(others, ["POST podgroups", "POST pods", "job Running"], "all of them are about the later job");
}

#[tokio::test]
async fn what_a_plugin_made_is_made_again_when_somebody_removes_it() {
    let mut cluster = Cluster::start().await;
    let job = cluster.job("bereft", 1, json!({"plugins": {"svc": [], "ssh": []}})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pod("bereft-w-0", "Running").await;
    cluster.wait_phase("bereft", JobPhase::Running).await;
    for restarted in [false, true] {
        if restarted {
            cluster.stop_controllers().await;
            cluster.start_controllers();
        }
        remove::<NetworkService>(&cluster, "bereft").await;
        remove::<ConfigMap>(&cluster, "bereft-svc").await;
        remove::<Secret>(&cluster, "bereft-ssh").await;
        is_there::<NetworkService>(&cluster, "bereft").await;
        is_there::<ConfigMap>(&cluster, "bereft-svc").await;
        is_there::<Secret>(&cluster, "bereft-ssh").await;
    }
}

async fn remove<K>(cluster: &Cluster, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    cluster.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
}

async fn is_there<K>(cluster: &Cluster, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    cluster.wait(&cluster.api::<K>(), name, |object| object.is_some()).await;
}

//! What a job costs: each write is synced to the disk.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response};
use pumice_api::batch::{Job, JobPhase};
use pumice_api::scheduling::PodGroup;
use pumice_apiserver::{Body, ClientService};
use serde_json::json;
use tower::Service;

use crate::harness::{Cluster, group_name};

/// Notes what is written.
#[derive(Clone)]
struct Counted {
    inner: ClientService,
    writes: Arc<Mutex<Vec<String>>>,
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
            counted.writes.lock().unwrap().extend(written(&head.method, head.uri.path(), &body));
            let request = Request::from_parts(head, kube::client::Body::from(body.to_vec()));
            counted.inner.call(request).await
        }
        .boxed()
    }
}

/// What a request writes. Mere counts are left out: how many of those are written depends on how fast the test is.
fn written(method: &Method, path: &str, body: &[u8]) -> Option<String> {
    let kind = path.split('/').skip_while(|part| *part != "default").nth(1).unwrap_or(path);
    // Events may be lost, so nobody waits for them.
    if *method == Method::GET || kind == "events" {
        return None;
    }
    if (method, kind) != (&Method::PATCH, "jobs") {
        return Some(format!("{method} {kind}"));
    }
    let patch: serde_json::Value = serde_json::from_slice(body).unwrap();
    let phase = patch["status"]["state"]["phase"].as_str().map(|phase| format!("job {phase}"));
    phase.or_else(|| patch["status"].get("controlledResources").map(|_| "job resources".to_owned()))
}

/// Runs a job of one pod to its end, and gives what the controllers wrote for it.
async fn writes_of(extra: serde_json::Value, seen_running: bool) -> Vec<String> {
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
    let svc = ["POST configmaps", "POST services", "DELETE configmaps", "DELETE services", "job resources"];
    let cases = [
        (json!({}), true, &["job Running"][..]),
        (json!({}), false, &[]),
        (json!({"plugins": {"env": [], "svc": []}}), false, &svc),
    ];
    for (extra, seen_running, more) in cases {
        let mut writes = writes_of(extra.clone(), seen_running).await;
        // Only of a job that waits longer than its first status does.
        let pending = writes.extract_if(.., |write| write == "job Pending").count();
        assert!(pending <= 1, "{extra}, seen running: {seen_running}: {pending} times");
        let mut expected = [make.as_slice(), more].concat();
        writes.sort();
        expected.sort_unstable();
        assert_eq!(writes, expected, "{extra}, seen running: {seen_running}");
    }
}

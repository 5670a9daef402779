//! An API that refuses, fails and loses answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::Api;
use kube::api::{Patch, PatchParams};
use pumice_api::batch::JobPhase;
use pumice_apiserver::{Body, ClientService};
use serde_json::json;
use tower::Service;

use crate::harness::Cluster;

#[tokio::test]
async fn a_full_quota_is_waited_out() {
    let cluster = Cluster::start().await;
    let quotas: Api<ResourceQuota> = cluster.api();
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": {"pods": "1"}}});
    cluster.create(&quotas, quota).await;
    let job = cluster.job("short", 2, json!({})).await;
    cluster.admit(&job, 0).await;
    let message = cluster.wait_event("short", "FailedCreate").await;
    let wanted = "exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1";
    assert!(message.contains(wanted), "{message}");
    assert_eq!(cluster.pods("short").await.len(), 1, "what fits is made");
    let more = Patch::Merge(json!({"spec": {"hard": {"pods": "2"}}}));
    quotas.patch("team", &PatchParams::default(), &more).await.unwrap();
    cluster.set_pods("short", 2, "Running").await;
    cluster
        .wait(&quotas, "team", |quota| {
            let status = quota.and_then(|quota| quota.status.as_ref()).and_then(|status| status.used.as_ref());
            status.and_then(|used| used.get("pods")).is_some_and(|used| used.0 == "2")
        })
        .await;
    cluster.set_pods("short", 2, "Succeeded").await;
    let done = cluster.wait_phase("short", JobPhase::Completed).await;
    assert_eq!(done.status.retry_count, 0, "our own failures cost the job nothing");
    // Pods that have ended leave their room to others, though they are still there.
    let next = cluster.job("next", 2, json!({})).await;
    cluster.admit(&next, 0).await;
    cluster.set_pods("next", 2, "Succeeded").await;
    cluster.wait_phase("next", JobPhase::Completed).await;
}

fn lost() -> Response<Body> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503,
        "reason": "ServiceUnavailable", "message": "lost"});
    Response::builder().status(503).body(Body::from(status.to_string())).unwrap()
}

/// Of the writes, every fifth never arrives and every third is carried out but its answer is lost.
#[derive(Clone)]
struct Unreliable {
    inner: ClientService,
    writes: Arc<AtomicU64>,
}

impl Service<Request<kube::client::Body>> for Unreliable {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<kube::client::Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let events = request.uri().path().contains("/events");
        if request.method() == Method::GET || events {
            return self.inner.call(request).boxed();
        }
        let number = self.writes.fetch_add(1, Ordering::SeqCst);
        if number % 5 == 4 {
            return std::future::ready(Ok(lost())).boxed();
        }
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await?;
            Ok(if number % 3 == 2 { lost() } else { answer })
        }
        .boxed()
    }
}

#[tokio::test]
async fn lost_answers_lose_nothing_and_repeat_nothing() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let service = Unreliable { inner: cluster.controllers_service(), writes: Arc::default() };
    cluster.start_controllers_over(kube::Client::new(service, "default"));
    let extra = json!({"plugins": {"svc": [], "ssh": []}, "policies": [{"exitCode": 1, "action": "RestartTask"}]});
    let job = cluster.job("rough", 8, extra).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("rough", 8, "Running").await;
    cluster.wait_phase("rough", JobPhase::Running).await;
    let old: Vec<_> = cluster.pods("rough").await.into_iter().map(|pod| pod.metadata.uid).collect();
    cluster.set_pod("rough-w-3", "Failed").await;
    cluster.wait_job("rough", |job| job.status.retry_count == 1).await;
    for index in 0..8 {
        let name = format!("rough-w-{index}");
        let pods = cluster.api();
        let new =
            |pod: Option<&k8s_openapi::api::core::v1::Pod>| pod.is_some_and(|pod| !old.contains(&pod.metadata.uid));
        cluster.wait(&pods, &name, new).await;
        cluster.set_pod(&name, "Succeeded").await;
    }
    let done = cluster.wait_phase("rough", JobPhase::Completed).await;
    assert_eq!((done.status.retry_count, done.status.succeeded), (1, 8));
}

/// A client that drops each deletion of a Command.
#[derive(Clone)]
struct Stuck {
    inner: ClientService,
}

impl Service<Request<kube::client::Body>> for Stuck {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<kube::client::Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        if request.method() == Method::DELETE && request.uri().path().contains("/commands/") {
            return std::future::ready(Ok(lost())).boxed();
        }
        self.inner.call(request).boxed()
    }
}

#[tokio::test]
async fn a_command_of_a_controller_that_stopped_is_carried_out_once() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let service = Stuck { inner: cluster.controllers_service() };
    cluster.start_controllers_over(kube::Client::new(service, "default"));
    let job = cluster.job("again", 2, json!({})).await;
    cluster.admit(&job, 0).await;
    cluster.set_pods("again", 2, "Running").await;
    cluster.wait_phase("again", JobPhase::Running).await;
    let restart = cluster.give_job_command("RestartJob", "again").await;
    let stop = cluster.give_job_command("TerminateJob", "again").await;
    // Until the Command is gone the job stays where it was led.
    cluster.wait_job("again", |job| job.status.retry_count == 1).await;
    cluster.set_pod("again-w-0", "Failed").await;
    cluster.stop_controllers().await;
    let left = cluster.wait_phase("again", JobPhase::Restarting).await;
    assert_eq!((left.status.retry_count, left.status.version), (1, 1));
    cluster.start_controllers();
    let commands = cluster.api::<pumice_api::bus::Command>();
    cluster.wait(&commands, &restart, |command| command.is_none()).await;
    cluster.wait(&commands, &stop, |command| command.is_none()).await;
    let ended = cluster.wait_phase("again", JobPhase::Terminated).await;
    assert_eq!(ended.status.retry_count, 1, "the restart was not repeated, and came before the end");
}

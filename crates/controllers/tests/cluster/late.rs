//! Answers that come late, when what they tell of has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use pumice_api::batch::{Job, JobPhase};
use pumice_apiserver::{Body, ClientService};
use pumice_cluster::Change;
use serde_json::json;
use tokio::sync::Notify;
use tower::Service;

use crate::harness::{Cluster, DEADLINE};

/// Keeps back the answer to the first call of a kind until told to let go; the call itself is carried out.
#[derive(Clone)]
struct Slow {
    inner: ClientService,
    method: Method,
    path: &'static str,
    first: Arc<AtomicBool>,
    go: Arc<Notify>,
}

impl Slow {
    fn start(cluster: &mut Cluster, method: Method, path: &'static str) -> Arc<Notify> {
        let (first, go) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let service = Slow { inner: cluster.controllers_service(), method, path, first, go: Arc::clone(&go) };
        cluster.start_controllers_over(kube::Client::new(service, "default"));
        go
    }
}

impl Service<Request<kube::client::Body>> for Slow {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<kube::client::Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let meant = *request.method() == self.method && request.uri().path() == self.path;
        let held = meant && self.first.swap(false, Ordering::SeqCst);
        let go = Arc::clone(&self.go);
        let answer = self.inner.call(request);
        async move {
            let answer = answer.await;
            if held {
                go.notified().await;
            }
            answer
        }
        .boxed()
    }
}

#[tokio::test]
async fn a_pod_that_went_before_its_creation_was_answered_is_made_again() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    let go = Slow::start(&mut cluster, Method::POST, "/api/v1/namespaces/default/pods");
    let pods = cluster.api::<Pod>();
    let job = cluster.job("slow", 1, json!({})).await;
    cluster.admit(&job, 0).await;
    let gone = cluster.wait(&pods, "slow-w-0", |pod| pod.is_some()).await.unwrap().metadata.uid;
    cluster.delete_pod("slow-w-0").await;
    // The controllers have heard of it once they know what came later from the same watch.
    let other = cluster.job("other", 1, json!({})).await;
    cluster.admit(&other, 0).await;
    cluster.set_pod("other-w-0", "Running").await;
    cluster.wait_phase("other", JobPhase::Running).await;
    go.notify_one();
    cluster.wait(&pods, "slow-w-0", |pod| pod.is_some_and(|pod| pod.metadata.uid != gone)).await;
    cluster.set_pod("slow-w-0", "Succeeded").await;
    let done = cluster.wait_phase("slow", JobPhase::Completed).await;
    assert_eq!(done.status.retry_count, 0);
}

#[tokio::test]
async fn a_command_that_comes_before_its_job_is_not_lost() {
    let mut cluster = Cluster::without_controllers(Arc::new(pumice_apiserver::AdmitAll)).await;
    cluster.job("early", 1, json!({})).await;
    let go = Slow::start(&mut cluster, Method::GET, "/apis/batch.volcano.sh/v1alpha1/jobs");
    let given = cluster.give_job_command("TerminateJob", "early").await;
    go.notify_one();
    cluster.wait_phase("early", JobPhase::Terminated).await;
    cluster.wait(&cluster.api::<pumice_api::bus::Command>(), &given, |command| command.is_none()).await;
}

#[tokio::test]
async fn a_job_deleted_while_its_pods_are_made_leaves_none() {
    use futures::StreamExt as _;
    let mut cluster = Cluster::start().await;
    let job = cluster.job("doomed", 300, json!({})).await;
    cluster.admit(&job, 0).await;
    let pods = cluster.api::<Pod>();
    cluster.wait(&pods, "doomed-w-20", |pod| pod.is_some()).await;
    cluster.api::<Job>().delete("doomed", &DeleteParams::default()).await.unwrap();
    cluster.wait(&cluster.api::<Job>(), "doomed", |job| job.is_none()).await;
    cluster.stop_controllers().await;
    let mut changes = std::pin::pin!(pumice_cluster::watch(pods, pumice_cluster::WatchScope::default()));
    let mut left = std::collections::BTreeSet::new();
    let all_gone = async {
        loop {
            match changes.next().await.unwrap() {
                Change::Replace(all) => left = all.into_iter().filter_map(|pod| pod.metadata.name).collect(),
                Change::Applied(pod) => left.extend(pod.metadata.name),
                Change::Deleted(pod) => drop(left.remove(&pod.metadata.name.unwrap())),
            }
            if left.is_empty() {
                return;
            }
        }
    };
    tokio::time::timeout(DEADLINE, all_gone).await.expect("the garbage collector removes them");
}

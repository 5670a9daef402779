//! Simulated nodes against the embedded API server; the test plays user and scheduler.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic, and supervises what it spawns")]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use pumice_apiserver::ApiServer;
use pumice_auth::{AUTHENTICATED, Identity, Policy, built_in};
use pumice_node::{Faults, SimulatedHandle, SimulatedOptions};
use pumice_store::Store;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything; a test that needs it fails.
const DEADLINE: Duration = Duration::from_secs(60);

struct Cluster {
    admin: Client,
    server: ApiServer,
    nodes: Option<(CancellationToken, JoinHandle<()>, SimulatedHandle)>,
}

impl Cluster {
    async fn with_nodes(nodes: u32, shape: &str, faults: Faults) -> Cluster {
        let store = Store::in_memory(pumice_store::Options::default()).unwrap();
        let server = ApiServer::builder(store, Policy::new(built_in())).build().await.unwrap();
        let admin = Client::new(server.client_service(Identity::new("admin", ["system:masters"])), "default");
        let mut cluster = Cluster { admin, server, nodes: None };
        cluster.start(nodes, shape, faults).await;
        cluster
    }

    async fn start(&mut self, nodes: u32, shape: &str, faults: Faults) {
        self.start_renewing(nodes, shape, faults, None).await;
    }

    async fn start_renewing(&mut self, nodes: u32, shape: &str, faults: Faults, every: Option<Duration>) {
        let identity = Identity::new("system:pumice:node", [AUTHENTICATED]);
        let client = Client::new(self.server.client_service(identity), "default");
        let options = SimulatedOptions { client, nodes, shape: shape.parse().unwrap(), faults };
        let mut simulated = options.build().unwrap();
        if let Some(every) = every {
            simulated = simulated.renewing(every);
        }
        let (mut handle, shutdown) = (simulated.handle(), CancellationToken::new());
        let token = shutdown.clone();
        let task = tokio::spawn(async move { simulated.run(token).await.unwrap() });
        tokio::time::timeout(DEADLINE, handle.registered()).await.unwrap();
        self.nodes = Some((shutdown, task, handle));
    }

    async fn stop(&mut self) {
        let (shutdown, task, _) = self.nodes.take().unwrap();
        shutdown.cancel();
        task.await.unwrap();
    }

    fn handle(&self) -> &SimulatedHandle {
        &self.nodes.as_ref().unwrap().2
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    async fn create(&self, name: &str, node: &str, cpu: &str, annotations: Value) {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
    }

    /// Waits until a pod is as wanted; `None` is one that is gone.
    async fn until(&self, name: &str, what: &str, wanted: impl Fn(Option<&Pod>) -> bool) -> Option<Pod> {
        let mut last = None;
        let waiting = async {
            loop {
                last = self.pods().get_opt(name).await.unwrap();
                if wanted(last.as_ref()) {
                    return last.clone();
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let found = tokio::time::timeout(DEADLINE, waiting).await;
        found.unwrap_or_else(|_| panic!("pod {name} never was {what}: {:#?}", last.and_then(|pod| pod.status)))
    }

    async fn phase(&self, name: &str, phase: &str) -> Pod {
        let is = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase);
        self.until(name, phase, |pod| pod.is_some_and(is)).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_on_simulated_nodes_run_end_and_go() {
    let mut cluster = Cluster::with_nodes(50, "cpu=2,memory=1Gi", Faults::default()).await;
    let nodes: Api<Node> = Api::all(cluster.admin.clone());
    let listed = nodes.list(&ListParams::default().labels("pumice.sh/simulated=true")).await.unwrap();
    assert_eq!(listed.items.len(), 50);
    let status = listed.items[0].status.clone().unwrap();
    assert_eq!(status.allocatable.unwrap()["cpu"].0, "2", "a node registers with its status");

    cluster.create("short", "sim-00000", "1", json!({"pumice.sh/simulated-duration": "20ms"})).await;
    cluster
        .create(
            "bad",
            "sim-00001",
            "1",
            json!({
        "pumice.sh/simulated-duration": "1ms", "pumice.sh/simulated-oom": "true"}),
        )
        .await;
    cluster.create("long", "sim-00000", "1500m", json!({})).await;
    cluster.phase("short", "Succeeded").await;
    let failed = cluster.phase("bad", "Failed").await;
    let ended = failed.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("OOMKilled")));

    // `long` came while `short` may still have run, so that its node may have refused it.
    let long = cluster.until("long", "decided on", |pod| {
        pod.is_some_and(|pod| pod.status.as_ref().is_some_and(|status| status.phase.as_deref() != Some("Pending")))
    });
    let refused = long.await.unwrap().status.unwrap().phase.as_deref() == Some("Failed");
    assert_eq!(cluster.handle().counts().refused, u64::from(refused));

    cluster.create("over", "sim-00002", "3", json!({})).await;
    let over = cluster.phase("over", "Failed").await.status.unwrap();
    assert_eq!(over.reason.as_deref(), Some("OutOfcpu"));

    // A new fleet takes over what runs.
    cluster.create("stays", "sim-00003", "2", json!({})).await;
    cluster.phase("stays", "Running").await;
    cluster.stop().await;
    cluster.start(50, "cpu=2,memory=1Gi", Faults::default()).await;
    cluster.create("second", "sim-00003", "1", json!({})).await;
    assert_eq!(cluster.phase("second", "Failed").await.status.unwrap().reason.as_deref(), Some("OutOfcpu"));
    cluster.pods().delete("stays", &DeleteParams::default()).await.unwrap();
    cluster.until("stays", "gone", |pod| pod.is_none()).await;
    cluster.create("third", "sim-00003", "1", json!({})).await;
    cluster.phase("third", "Running").await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_are_made_as_asked_for() {
    let faults = "seed=3,refused=1,start=0s".parse().unwrap();
    let mut cluster = Cluster::with_nodes(1, "cpu=2", faults).await;
    cluster.create("any", "sim-00000", "1", json!({})).await;
    let status = cluster.phase("any", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(cluster.handle().counts().faults, 1);
    cluster.stop().await;
}

/// A cluster with a node lifecycle controller calls nodes lost that don't renew their Leases.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_renew_their_leases_where_that_is_asked_for() {
    let mut cluster = Cluster::with_nodes(3, "cpu=2", Faults::default()).await;
    let renewed = async |cluster: &Cluster| -> Vec<_> {
        let leases: Api<Lease> = Api::namespaced(cluster.admin.clone(), "kube-node-lease");
        let all = leases.list(&ListParams::default()).await.unwrap().items;
        all.into_iter().map(|lease| lease.spec.unwrap().renew_time.unwrap().0).collect()
    };
    assert_eq!(renewed(&cluster).await, [], "on one machine nothing looks at them");
    cluster.stop().await;
    cluster.start_renewing(3, "cpu=2", Faults::default(), Some(Duration::from_millis(20))).await;
    let first = tokio::time::timeout(DEADLINE, async {
        loop {
            let times = renewed(&cluster).await;
            if times.len() == 3 {
                return times;
            }
        }
    });
    let first = first.await.unwrap();
    let all_later = async { while !renewed(&cluster).await.iter().zip(&first).all(|(now, then)| now > then) {} };
    tokio::time::timeout(DEADLINE, all_later).await.unwrap();
    cluster.stop().await;
}

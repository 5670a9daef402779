//! What is measured: a running `pumice up`, or the bare API server in this process.
//!
//! The bare server is the same one with the same disk, admission, rights and simulated nodes, reached without a socket, as the
//! platform's own components reach it. The scheduler can run beside it, so that the same watches are served.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use http_body_util::BodyExt;
use pumice_admission::VolcanoAdmission;
use pumice_api::names;
use pumice_apiserver::ApiServer;
use pumice_auth::{Ca, Identity, MASTERS, Policy, server_config};
use pumice_cluster::{Client, client_over, install_definitions};
use pumice_jobs::Connection;
use pumice_jobs::platform::target::Target;
use pumice_node::{Faults, SimulatedHandle, SimulatedOptions};
use pumice_store::Store;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::http2;
use crate::load::{self, Call};
use crate::machine;
use crate::objects::{self, PODS, QUEUES};
use crate::unreliable::{Met, Unreliable};

/// What a simulated node offers.
pub const SHAPE: &str = "cpu=32,memory=256Gi,pods=110";
/// Calls in flight while a scene is set.
const SETTING_IN_FLIGHT: usize = 128;
/// Nothing may have been written for this long where quiet is asked for.
const QUIET: Duration = Duration::from_millis(1000);

/// A server to measure, and the process it is in.
#[derive(Clone)]
pub struct Cluster {
    pub client: Client,
    /// The process that serves.
    pub pid: u32,
}

impl Cluster {
    /// The platform of a kubeconfig, which runs as `pid`.
    ///
    /// # Errors
    /// When the kubeconfig can't be used.
    pub async fn of_kubeconfig(path: &Path, pid: u32) -> anyhow::Result<Cluster> {
        let target = Target::Kubeconfig { path: path.to_owned(), context: None };
        let connection = Connection::open(target, None).await?;
        Ok(Cluster { client: connection.client().clone(), pid })
    }

    /// The same, for calls over HTTP/2: see [`http2`].
    ///
    /// # Errors
    /// When the kubeconfig can't be used.
    pub async fn over_http2(path: &Path, pid: u32) -> anyhow::Result<Cluster> {
        Ok(Cluster { client: http2::client(path).await?, pid })
    }

    /// The newest revision.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn revision(&self) -> anyhow::Result<u64> {
        let request = http::Request::get("/api/v1/namespaces?limit=1").body(Vec::new().into())?;
        let body = self.client.send(request).await?.into_body().collect().await?.to_bytes();
        let list: Value = serde_json::from_slice(&body)?;
        list["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).context("a list has a revision")
    }

    /// Waits until nothing is written any more; gives the revision. Goes on after `limit` in any case.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn quiet(&self, limit: Duration) -> anyhow::Result<u64> {
        self.quiet_for(QUIET, limit).await
    }

    /// As [`Self::quiet`], where nothing may have been written for as long as `rest`.
    ///
    /// # Errors
    /// When the server does not answer.
    #[allow(clippy::disallowed_methods)] // a benchmark's own clock
    pub async fn quiet_for(&self, rest: Duration, limit: Duration) -> anyhow::Result<u64> {
        let deadline = Instant::now() + limit;
        let (mut last, mut since) = (self.revision().await?, Instant::now());
        loop {
            tokio::time::sleep(QUIET / 10).await;
            let revision = self.revision().await?;
            if revision != last {
                (last, since) = (revision, Instant::now());
            }
            if since.elapsed() >= rest || Instant::now() >= deadline {
                return Ok(last);
            }
        }
    }

    /// Makes calls that only set the scene.
    ///
    /// # Errors
    /// With the first call that failed.
    pub async fn set(&self, calls: Vec<Call>) -> anyhow::Result<()> {
        load::run(&self.client, SETTING_IN_FLIGHT, calls).await.map(drop)
    }

    /// Fills each node to `percent` with one pod.
    ///
    /// # Errors
    /// With the first call that failed.
    pub async fn fill(&self, nodes: usize, percent: usize) -> anyhow::Result<()> {
        let filled = if percent == 0 { 0 } else { nodes };
        self.set((0..filled).map(|node| Call::create(PODS, &objects::filler(node, percent))).collect()).await
    }

    /// Makes sure that the default queue is there.
    ///
    /// # Errors
    /// When it can't be made.
    pub async fn default_queue(&self) -> anyhow::Result<()> {
        match load::run(&self.client, 1, vec![Call::create(QUEUES, &objects::queue())]).await {
            Err(error) if !error.to_string().contains("already exists") => Err(error),
            _ => Ok(()),
        }
    }

    /// CPU time of the process so far.
    pub fn cpu(&self) -> Duration {
        machine::cpu_time(self.pid)
    }
}

/// Who schedules beside the bare API server.
pub enum Beside {
    Nobody,
    Scheduler,
    /// The scheduler, whose binds meet faults.
    Unreliable {
        seed: u64,
        met: Arc<Met>,
    },
}

/// The bare API server with simulated nodes, in this process.
pub struct Bare {
    /// How it is reached: without a socket.
    pub cluster: Cluster,
    /// What the nodes have to say.
    pub simulated: SimulatedHandle,
    api: ApiServer,
    store: Store,
    components: JoinSet<()>,
    stop: CancellationToken,
    directory: tempfile::TempDir,
}

impl Bare {
    /// Starts a server on a disk of its own; `watched`: with the scheduler beside it.
    ///
    /// # Errors
    /// When a part can't be started.
    pub async fn start(nodes: usize, watched: bool) -> anyhow::Result<Bare> {
        let scheduler = if watched { Beside::Scheduler } else { Beside::Nobody };
        Bare::with(nodes, SHAPE, Faults::default(), scheduler).await
    }

    /// Starts a server with nodes of a shape that make faults, and a scheduler or none.
    ///
    /// # Errors
    /// When a part can't be started.
    pub async fn with(nodes: usize, shape: &str, faults: Faults, beside: Beside) -> anyhow::Result<Bare> {
        let directory = tempfile::Builder::new().prefix("pumice-bench-").tempdir()?;
        let store = Store::open(directory.path(), pumice_store::Options::default())?;
        let api = ApiServer::builder(store.clone(), Policy::new(pumice_auth::built_in()))
            .admission(Arc::new(VolcanoAdmission::default()))
            .build()
            .await?;
        let client =
            |user: &str, groups: &[&str]| client_over(api.client_service(Identity::new(user, groups.iter().copied())));
        let administrator = client("bench", &[MASTERS]);
        install_definitions(&administrator, pumice_api::crds::all()).await?;
        let (mut components, stop) = (JoinSet::new(), CancellationToken::new());
        let nodes = u32::try_from(nodes)?;
        let shape = shape.parse()?;
        let simulated = SimulatedOptions { client: client(names::USER_NODE, &[]), nodes, shape, faults };
        let simulated = simulated.build()?;
        let mut handle = simulated.handle();
        let token = stop.clone();
        components.spawn(async move {
            let _ = simulated.run(token).await;
        });
        let scheduler = match beside {
            Beside::Nobody => None,
            Beside::Scheduler => Some(client(names::USER_SCHEDULER, &[])),
            Beside::Unreliable { seed, met } => {
                let service = api.client_service(Identity::new(names::USER_SCHEDULER, [""; 0]));
                Some(client_over(Unreliable::new(service, seed, met)))
            }
        };
        if let Some(client) = scheduler {
            let scheduler = pumice_scheduler::Options::new(client).build()?;
            let token = stop.clone();
            components.spawn(async move {
                let _ = Box::pin(scheduler.run(token)).await;
            });
        }
        handle.registered().await;
        let cluster = Cluster { client: administrator, pid: std::process::id() };
        cluster.default_queue().await?;
        Ok(Bare { cluster, simulated: handle, api, store, components, stop, directory })
    }

    /// The objects, as they are kept.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A directory that ends with it.
    pub fn scratch(&self) -> &Path {
        self.directory.path()
    }

    /// Serves on a socket of this machine, too; gives the kubeconfig of `user`.
    ///
    /// # Errors
    /// When there is no port, or no certificate.
    #[allow(clippy::disallowed_methods)] // a benchmark's own clock
    pub async fn serve(&mut self, user: &str) -> anyhow::Result<PathBuf> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("https://{}", listener.local_addr()?);
        let now = jiff::Timestamp::now();
        let ca = Ca::open_or_create(&self.scratch().join("pki"), now)?;
        let tls = server_config(&ca, &ca.issue_server(&["127.0.0.1".to_owned()], now)?)?;
        let kubeconfig = self.scratch().join("kubeconfig");
        let text = pumice_auth::kubeconfig(&url, &ca, &ca.issue_client(user, &[], now)?);
        pumice_auth::write_private(&kubeconfig, text.as_bytes())?;
        let (api, stop) = (self.api.clone(), self.stop.clone());
        self.components.spawn(async move { api.serve(listener, tls, stop).await });
        Ok(kubeconfig)
    }

    /// Ends it.
    ///
    /// # Errors
    /// When the store can't be closed.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while self.components.join_next().await.is_some() {}
        self.api.stop().await;
        Ok(self.store.close().await?)
    }
}

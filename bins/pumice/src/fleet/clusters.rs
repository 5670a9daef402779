//! Clusters of simulated nodes with their executors, for `pumice fleet up`.
//!
//! Invariant: each is a cluster like any other, with an API server, a scheduler and a store of its own, and its executor
//! reaches the fleet's server as one from elsewhere does. Nothing is shared but the process.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use pumice_admission::{Rules, TenantAdmission, VolcanoAdmission};
use pumice_api::names;
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, MASTERS, Policy};
use pumice_cluster::{client_over, install_definitions};
use pumice_fleet_executor as executor;
use pumice_node::{Faults, SimulatedOptions};
use pumice_store::Store;
use tokio_util::sync::CancellationToken;

use super::server::Server;
use crate::args::fleet::FleetUpArgs;
use crate::parts::Parts;

/// How long nodes may take to be there.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// What runs whole jobs.
const JOB_CONTROLLERS: &str = "job-controller,queue-controller,gc-controller";

/// Simulated clusters of `pumice fleet up`, with what runs in them.
pub struct Clusters {
    clusters: Vec<Cluster>,
    parts: Parts,
}

struct Cluster {
    api: ApiServer,
    store: Store,
}

/// Starts them; their nodes are there when it returns.
pub async fn start(server: &Server, args: &FleetUpArgs) -> Result<Clusters> {
    let mut clusters = Clusters { clusters: Vec::new(), parts: Parts::default() };
    for number in 1..=args.clusters {
        let name = format!("cluster-{number}");
        let folder = server.folder("clusters").join(&name);
        clusters.add(server, args, &name, &folder).await.with_context(|| format!("start {name}"))?;
    }
    Ok(clusters)
}

/// Volcano's rules, and those of tenants.
fn admission() -> Arc<TenantAdmission> {
    let volcano = VolcanoAdmission::new(Rules::alone());
    let rules = volcano.rules();
    Arc::new(TenantAdmission::over(Arc::new(volcano), rules))
}

impl Clusters {
    async fn add(&mut self, server: &Server, args: &FleetUpArgs, name: &str, folder: &Path) -> Result<()> {
        let store = Store::open(folder, pumice_store::Options::default()).context("open its store")?;
        let api = ApiServer::builder(store.clone(), Policy::new(pumice_auth::built_in()))
            .admission(admission())
            .build()
            .await
            .context("start its API server")?;
        let client = |user: &str| client_over(api.client_service(Identity::new(user, [] as [&str; 0])));
        let administrator = client_over(api.client_service(Identity::new("pumice:administrator", [MASTERS])));
        install_definitions(&administrator, pumice_api::crds::all()).await.context("install Volcano's definitions")?;
        let nodes = SimulatedOptions {
            client: client(names::USER_NODE),
            nodes: args.nodes,
            shape: args.node_shape.clone(),
            faults: Faults::default(),
        };
        let nodes = nodes.build().context("make its nodes")?;
        let mut registered = nodes.handle();
        let scheduler = pumice_scheduler::Options::new(client(names::USER_SCHEDULER)).build();
        let scheduler = scheduler.context("make its scheduler")?;
        self.parts.spawn(format!("scheduler of {name}"), |stop| scheduler.run(stop));
        self.parts.spawn(format!("nodes of {name}"), |stop| nodes.run(stop));
        let mut controllers = pumice_controllers::Options::new(client(names::USER_CONTROLLERS));
        controllers.enabled = JOB_CONTROLLERS.parse().context("choose its controllers")?;
        let controllers = controllers.build();
        self.parts.spawn(format!("controllers of {name}"), |stop| controllers.run(stop));
        self.clusters.push(Cluster { api: api.clone(), store });
        tokio::time::timeout(READY_WITHIN, registered.registered())
            .await
            .context("its nodes were not there in time")?;
        let credentials = server.executor(name)?;
        let executor = executor::build(executor::Options {
            name: name.to_owned(),
            servers: vec![server.url().to_owned()],
            tls: Some(credentials.tls),
            authorization: None,
            client: client(names::USER_EXECUTOR),
            settings: executor::Settings::default(),
        })?;
        self.parts.spawn(format!("executor of {name}"), async |stop| {
            executor.run(stop).await;
            Ok::<(), std::convert::Infallible>(())
        });
        Ok(())
    }

    /// Runs until `stop`, or until a part of one ends, which none should.
    pub async fn run(mut self, stop: CancellationToken) -> Result<()> {
        let ended = tokio::select! {
            () = stop.cancelled() => Ok(()),
            failure = self.parts.failure() => Err(failure),
        };
        let rest = self.parts.end().await;
        for Cluster { api, store } in self.clusters {
            api.stop().await;
            store.close().await.context("close a cluster's store")?;
        }
        ended.and(rest)
    }
}

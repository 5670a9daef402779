//! Components that run by themselves on a cluster.
//!
//! Invariant: what is built and run is what `pumice up` builds and runs; only where the client comes from, the Lease and
//! the signals are of this file. Each ends at a signal, or when it may no longer go on: whoever runs it starts it again.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use pumice_clock::now;
use pumice_cluster::{Client, Elector, LeaseOptions, Pages, Vitals, serve};
use pumice_node::SimulatedOptions;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::cluster::{ClusterArgs, ControllersArgs, NodeArgs};
use crate::args::serving::ServingArgs;
use crate::credentials::{Credentials, renewed_client};
use crate::output::announce;

/// Name of the Lease of Volcano's controllers.
const CONTROLLERS_LEASE: &str = "vc-controller-manager";
/// Volcano's port of the controllers' metrics.
const CONTROLLERS_METRICS_PORT: u16 = 8081;

/// Connects to the cluster and does `work` until it ends; the token is cancelled by a signal.
pub fn run(args: &ClusterArgs, work: impl AsyncFnOnce(Client, CancellationToken) -> Result<()>) -> Result<()> {
    run_renewed(args, |_| Ok(()), work)
}

/// The same; `used` is told of new credentials.
pub fn run_renewed(
    args: &ClusterArgs,
    used: impl Fn(&Credentials) -> Result<()>,
    work: impl AsyncFnOnce(Client, CancellationToken) -> Result<()>,
) -> Result<()> {
    crate::logging::start(&args.log, None)?;
    let runtime = crate::process::runtime()?;
    runtime.block_on(async {
        let stop = crate::process::stop_on_signal()?;
        let (client, renewing) = renewed_client(args.kubeconfig.as_deref(), args.master.as_deref(), used).await?;
        tokio::select! {
            result = work(client, stop) => result,
            () = renewing => Ok(()),
        }
    })
}

/// Who this instance is: a pod's host name is its own; a process of a host is told from others by its number.
pub fn identity() -> String {
    format!("{}_{}", crate::process::host_name(), std::process::id())
}

/// Listens where the flags say. What comes back answers what a component says of itself, and never ends.
pub async fn watched(args: &ServingArgs, port: u16, vitals: impl Vitals) -> Result<impl Future<Output = ()>> {
    let metrics = answered(args.metrics(port), Pages { metrics: true, health: true }, vitals.clone()).await?;
    let health = answered(args.health(), Pages { metrics: false, health: true }, vitals).await?;
    Ok(async {
        tokio::select! {
            () = metrics => {}
            () = health => {}
        }
    })
}

/// Listens at `address`, if there is one. What comes back answers, and never ends.
pub async fn answered(
    address: Option<SocketAddr>,
    pages: Pages,
    vitals: impl Vitals,
) -> Result<impl Future<Output = ()>> {
    let listener = match address {
        None => None,
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            let bound = bound.with_context(|| format!("{address} can't be listened on: choose another address"))?;
            let address = bound.local_addr().unwrap_or(address);
            let what = if pages.metrics { "/metrics and /healthz" } else { "/healthz" };
            tracing::info!(%address, what, "metrics and health are served");
            Some(bound)
        }
    };
    Ok(async move {
        match listener {
            Some(listener) => serve(vitals, listener, pages).await,
            None => std::future::pending().await,
        }
    })
}

/// `pumice controllers run`.
pub fn controllers(args: &ControllersArgs) -> Result<()> {
    args.warn();
    let lease = args.lease.lease(CONTROLLERS_LEASE, identity()).map_err(anyhow::Error::msg)?;
    run(&args.cluster, async |client, stop| {
        let mut options = pumice_controllers::Options::new(client.clone());
        args.which.apply(&mut options).map_err(anyhow::Error::msg)?;
        options.retention = args.retention.others();
        if args.own.own_cluster {
            options.enabled = options.enabled.with_workloads();
            options.retention = Some(args.retention.own());
        }
        options.scheduler_names = match &args.scheduler_name[..] {
            [] => args.own.schedulers(),
            names => names.to_vec(),
        };
        let controllers = options.build();
        let directories = pumice_directory::Options::new(client.clone()).build();
        let handle = controllers.handle();
        // Who stands by is watched, too.
        let watched = watched(&args.serving, CONTROLLERS_METRICS_PORT, handle.clone()).await?;
        let work = async {
            handle.leads(true);
            tokio::select! {
                ended = controllers.run(stop.clone()) => ended.context("run the controllers"),
                ended = directories.run(stop.clone()) => ended.context("read the directories"),
            }
        };
        tokio::select! {
            result = Box::pin(while_leading(client, lease, &stop, work)) => result,
            () = watched => Ok(()),
        }
    })
}

/// Does `work` while the Lease is held, if there is one, and gives it back when the work has ended well.
pub async fn while_leading(
    client: Client,
    lease: Option<LeaseOptions>,
    stop: &CancellationToken,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    let Some(options) = lease else { return work.await };
    let name = options.name.clone();
    let mut elector = Elector::new(client, options, now);
    tokio::select! {
        biased;
        () = stop.cancelled() => return Ok(()),
        () = elector.acquire() => tracing::info!(lease = name, "this instance leads"),
    }
    tokio::select! {
        biased;
        result = work => result?,
        () = elector.hold() => bail!("the lease {name} could not be renewed in time: another instance may work now"),
    }
    elector.release().await;
    Ok(())
}

/// `pumice node simulated`.
pub fn simulated_nodes(args: NodeArgs) -> Result<()> {
    let NodeArgs { cluster, nodes, shape, faults, renew_every } = args;
    run(&cluster, async |client, stop| {
        let mut simulated = SimulatedOptions { client, nodes, shape, faults }.build().context("make the nodes")?;
        if renew_every > Duration::ZERO {
            simulated = simulated.renewing(renew_every);
        }
        let mut handle = simulated.handle();
        let told = async {
            handle.registered().await;
            announce(format_args!("{nodes} simulated nodes are registered"));
            std::future::pending().await
        };
        tokio::select! {
            result = simulated.run(stop) => result.context("run the nodes"),
            () = told => Ok(()),
        }
    })
}

//! `pumice admission`: admission by itself, as the webhooks of a cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::{Context as _, Result};
use pumice_admission::VolcanoAdmission;
use pumice_admission::server::Options;
use pumice_cluster::Pages;
use tokio::net::TcpListener;

use crate::args::admission::AdmissionArgs;
use crate::standalone;

/// `pumice admission run`: answers until a signal.
pub fn run(args: &AdmissionArgs) -> Result<()> {
    args.warn();
    let routes = args.routes().map_err(anyhow::Error::msg)?;
    let certificate = args.certificate().map_err(anyhow::Error::msg)?;
    standalone::run(&args.cluster, async |client, stop| {
        let options = Options {
            client,
            admission: VolcanoAdmission::new(args.rules.rules(&args.webhook_namespace)),
            endpoint: args.endpoint(),
            routes,
            resource_groups: args.admission_conf.clone(),
            certificate,
            drain: args.graceful_shutdown_time,
        };
        let server = options.build().context("set up admission")?;
        let address = address(args)?;
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("{address} can't be listened on: choose another --port"))?;
        let pages = Pages { metrics: true, health: true };
        let watched = standalone::answered(args.health.address(), pages, server.handle()).await?;
        tokio::select! {
            result = Box::pin(server.run(listener, stop)) => result.context("run admission"),
            () = watched => Ok(()),
        }
    })
}

fn address(args: &AdmissionArgs) -> Result<SocketAddr> {
    let ip = match args.listen_address.as_str() {
        "" => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        text => text.parse().with_context(|| format!("--listen-address {text:?} is no IP address; try 0.0.0.0"))?,
    };
    Ok(SocketAddr::from((ip, args.port)))
}

//! A platform that users share: the Directory of this machine's users, the socket for them, and listeners for other machines.
//!
//! Invariant: other machines are served only while nobody could make himself administrator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Api as Objects;
use kube::api::{Patch, PatchParams, PostParams};
use pumice_api::directory::{Directory, DirectorySpec, SYSTEM, SystemDirectory, TenantTemplate};
use pumice_apiserver::ApiServer;
use pumice_cluster::Client;
use rustls::ServerConfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::listen;
use crate::args::tenants::{ListenAddress, TenantsArg, TenantsArgs};

/// How often it is looked whether somebody could become administrator.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Where users of a machine have their homes, if nobody says otherwise.
const HOMES: &str = "/home";

/// Makes the Directory of this machine's users, or has the one that is there follow the groups of the flags; what else people
/// have written in it stays.
pub async fn make_directory(administrator: &Client, args: &TenantsArgs) -> Result<()> {
    if args.tenants != Some(TenantsArg::System) {
        return Ok(());
    }
    let directories: Objects<Directory> = Objects::all(administrator.clone());
    let failed = || format!("make the Directory {SYSTEM}");
    let groups = &args.group;
    if directories.get_opt(SYSTEM).await.with_context(failed)?.is_some() {
        let patch = json!({"spec": {"system": {"groups": groups}}});
        directories.patch(SYSTEM, &PatchParams::default(), &Patch::Merge(&patch)).await.with_context(failed)?;
        return Ok(());
    }
    let spec = DirectorySpec {
        system: Some(SystemDirectory { groups: groups.clone() }),
        template: TenantTemplate { homes: HOMES.to_owned(), ..TenantTemplate::default() },
        ..DirectorySpec::default()
    };
    let mut directory = Directory { spec, ..Directory::default() };
    directory.metadata.name = Some(SYSTEM.to_owned());
    directories.create(&PostParams::default(), &directory).await.with_context(failed)?;
    Ok(())
}

/// The addresses of flags, taken. Without a port they have `port`.
pub async fn listeners(addresses: &[ListenAddress], port: u16) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for ListenAddress { ip, port: own } in addresses {
        ensure!(
            own.is_some() || !ip.is_unspecified(),
            "--listen {ip} needs a port of its own, since the platform has port {port} of 127.0.0.1 by --port: say --listen {}, or one \
             address of this machine",
            SocketAddr::from((*ip, 6443))
        );
        listeners.push(listen(*ip, own.unwrap_or(port)).await?);
    }
    Ok(listeners)
}

/// Names of the certificate besides the usual ones: what the flags say, and the addresses.
pub fn certificate_names(args: &TenantsArgs, listeners: &[TcpListener]) -> Vec<String> {
    let addresses =
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).map(|address| match address.ip() {
            ip if ip.is_unspecified() => pumice_node::host_ip().to_string(),
            ip => ip.to_string(),
        });
    args.name.iter().cloned().chain(addresses).collect()
}

/// How other machines reach a listener: by the first name, else by its address.
pub fn url(args: &TenantsArgs, listener: &TcpListener) -> Result<String> {
    let address = listener.local_addr().context("read an address")?;
    Ok(match (args.name.first(), address.ip()) {
        (Some(name), _) => format!("https://{name}:{}", address.port()),
        (None, ip) if ip.is_unspecified() => {
            format!("https://{}", SocketAddr::from((pumice_node::host_ip(), address.port())))
        }
        (None, _) => format!("https://{address}"),
    })
}

/// Refuses to serve other machines where somebody could become administrator.
pub fn check_exposure(server: &ApiServer, args: &TenantsArgs) -> Result<()> {
    match server.exposure() {
        Some(exposure) if !args.listen.is_empty() => {
            bail!(
                "--listen is refused: {exposure}; delete that binding (kubectl get clusterrolebindings), or leave --listen out"
            )
        }
        _ => Ok(()),
    }
}

/// Serves other machines until `closing`, with breaks for as long as somebody could become administrator.
pub async fn serve(server: ApiServer, listener: TcpListener, tls: Arc<ServerConfig>, closing: CancellationToken) {
    let Ok(listener) = listener.into_std() else { return };
    let reopened = || {
        let reopened = listener.try_clone().and_then(TcpListener::from_std);
        reopened.inspect_err(|error| tracing::error!(%error, "other machines can't be served")).ok()
    };
    while !closing.is_cancelled() {
        let Some(listener) = reopened() else { return };
        if server.exposure().is_none() {
            let open = closing.child_token();
            tokio::join!(server.serve(listener, Arc::clone(&tls), open.clone()), until_exposed(&server, &open));
        } else {
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = hang_up(listener) => {}
            }
        }
    }
}

/// Ends each connection at once, so that nobody waits for an answer.
async fn hang_up(listener: TcpListener) {
    while listener.accept().await.is_ok() {}
}

/// Ends `open` when somebody could become administrator.
async fn until_exposed(server: &ApiServer, open: &CancellationToken) {
    loop {
        tokio::select! {
            () = open.cancelled() => return,
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if let Some(exposure) = server.exposure() {
            tracing::error!(%exposure, "other machines are not served any more, until that binding is deleted");
            open.cancel();
        }
    }
}

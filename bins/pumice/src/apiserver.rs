//! `pumice apiserver`: the API server by itself, for components in processes of their own.
//!
//! Invariant: each component finds a kubeconfig of its own, with the rights that it has in `pumice up` and no more, before the
//! one line on standard output appears.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use pumice_api::names;
use pumice_apiserver::RemoteNodes;
use pumice_auth::{Identity, write_private};
use pumice_clock::now;
use pumice_cluster::{client_over, install_definitions};
use tokio_util::sync::CancellationToken;

use crate::api::{self, ADMINISTRATOR, Api};
use crate::args::api::ApiServerArgs;
use crate::data_dir::DataDir;
use crate::process::{go_last_for_memory, host_name, stop_on_signal};
use crate::{logging, room};

/// Components besides nodes, and who they are.
const COMPONENTS: [(&str, &str); 4] = [
    ("scheduler", names::USER_SCHEDULER),
    ("controllers", names::USER_CONTROLLERS),
    ("admission", names::USER_ADMISSION),
    ("history", names::USER_HISTORY),
];

/// Serves until a signal.
pub fn run(args: &ApiServerArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    data.create()?;
    room::check_for_start(data.path())?;
    logging::start(&args.log, None)?;
    go_last_for_memory();
    let runtime = crate::process::runtime()?;
    runtime.block_on(serve(args, &data))
}

async fn serve(args: &ApiServerArgs, data: &DataDir) -> Result<()> {
    let stop = stop_on_signal()?;
    let (mut api, listener) =
        Api::open(data, &args.api, args.bind_address, &args.scheduler_name, |builder, store, ca| {
            let shown = ca.issue_client(names::USER_APISERVER, &[], now())?;
            let tls = pumice_auth::client_config(ca.pem(), Some(&shown)).context("set up TLS to the nodes")?;
            Ok(builder.node_proxy(Arc::new(RemoteNodes::new(store.clone(), tls))))
        })
        .await?;
    let port = listener.local_addr().context("read the port")?.port();
    let host = match args.bind_address {
        address if address.is_unspecified() => pumice_node::host_ip().into(),
        address => address,
    };
    let url = format!("https://{}", std::net::SocketAddr::from((host, port)));
    let names = api::names(&host_name(), [pumice_node::host_ip()]);
    let names: Vec<String> = names.into_iter().chain([host.to_string()]).collect();
    let certificate = api.ca.issue_server(&names, now()).context("issue the server's certificate")?;
    let tls = pumice_auth::server_config(&api.ca, &certificate).context("set up TLS")?;

    let administrator = client_over(api.server.client_service(Identity::new(ADMINISTRATOR, [pumice_auth::MASTERS])));
    install_definitions(&administrator, pumice_api::crds::all()).await.context("install Volcano's definitions")?;
    components_namespace(&administrator).await?;
    write_kubeconfigs(args, data, &api, &url)?;
    let closing = CancellationToken::new();
    let serving = api.server.serve(listener, tls, closing.clone());
    let following = std::mem::replace(&mut api.following, Box::pin(std::future::pending()));
    api.announce(data, &url)?;
    let ending = async {
        tokio::select! {
            () = stop.cancelled() => {}
            () = following => {}
        }
        closing.cancel();
    };
    tokio::join!(serving, ending);
    api.close(data).await
}

/// Makes the namespace of the components' Leases, if it isn't there.
async fn components_namespace(client: &pumice_cluster::Client) -> Result<()> {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names::NAMESPACE_SYSTEM},
    });
    let request = http::Request::post("/api/v1/namespaces").header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(object.to_string().into_bytes().into()).context("make the components' namespace")?;
    let response = client.send(request).await.context("make the components' namespace")?;
    match response.status() {
        code if code.is_success() || code == http::StatusCode::CONFLICT => Ok(()),
        code => anyhow::bail!("the namespace {} can't be made: {code}", names::NAMESPACE_SYSTEM),
    }
}

/// Writes a kubeconfig for each component, and for each node.
fn write_kubeconfigs(args: &ApiServerArgs, data: &DataDir, api: &Api, url: &str) -> Result<()> {
    let folder = data.kubeconfigs();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.with_context(|| format!("make {}", folder.display()))?;
    for (component, user) in COMPONENTS {
        write_private(&folder.join(component), api.kubeconfig(url, user, &[])?.as_bytes())?;
    }
    write_node(&folder.join("node"), api, url, &host_name())?;
    for node in &args.node {
        write_node(&folder.join(format!("node-{node}")), api, url, node)?;
    }
    Ok(())
}

fn write_node(path: &Path, api: &Api, url: &str, node: &str) -> Result<()> {
    let issued = api.ca.issue_node(node, now()).context("issue a node's certificate")?;
    Ok(write_private(path, pumice_auth::kubeconfig(url, &api.ca, &issued).as_bytes())?)
}

//! `pumice apiserver`: the API server by itself, for components in processes of their own.
//!
//! Invariant: each component finds a kubeconfig of its own, with the rights that it has in `pumice up` and no more, before the
//! one line on standard output appears.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use pumice_api::names;
use pumice_apiserver::RemoteNodes;
use pumice_auth::{Identity, write_private};
use pumice_clock::now;
use pumice_cluster::{client_over, install_definitions};
use tokio_util::sync::CancellationToken;

use crate::api::{self, ADMINISTRATOR, Api, Places};
use crate::args::api::ApiServerArgs;
use crate::certificates::Certificates;
use crate::certificates::service::COMPONENTS;
use crate::data_dir::DataDir;
use crate::process::{go_last_for_memory, host_name, stop_on_signal};
use crate::{logging, room};

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
    let nodes = OnceLock::new();
    let (mut api, listener) =
        Api::open(data, &args.api, args.bind_address, &args.scheduler_name, |builder, store, certificates| {
            let reached = Arc::new(RemoteNodes::new(store.clone(), certificates.to_nodes()?));
            let nodes = nodes.get_or_init(|| reached);
            Ok(builder.node_proxy(Arc::new(Arc::clone(nodes))))
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
    let tls = api.certificates.listen(names)?;

    let administrator = client_over(api.server.client_service(Identity::new(ADMINISTRATOR, [pumice_auth::MASTERS])));
    install_definitions(&administrator, pumice_api::crds::all()).await.context("install Volcano's definitions")?;
    components_namespace(&administrator).await?;
    let kubeconfigs = Kubeconfigs::new(args, data, &url)?;
    api.certificates
        .runs(api.server.clone(), nodes.into_inner(), move |certificates| kubeconfigs.write(certificates))?;
    let closing = CancellationToken::new();
    let serving = api.server.serve(listener, tls, closing.clone());
    let following = std::mem::replace(&mut api.following, Box::pin(std::future::pending()));
    api.announce(data, &url, Places::default())?;
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

/// The kubeconfigs of the administrator, of each component and of each node.
struct Kubeconfigs {
    url: String,
    administrator: PathBuf,
    folder: PathBuf,
    /// By their files.
    nodes: Vec<(String, String)>,
}

impl Kubeconfigs {
    fn new(args: &ApiServerArgs, data: &DataDir, url: &str) -> Result<Self> {
        let folder = data.kubeconfigs();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("make {}", folder.display()))?;
        let named = args.node.iter().map(|node| (format!("node-{node}"), node.clone()));
        let nodes = std::iter::once(("node".to_owned(), host_name())).chain(named).collect();
        Ok(Self { url: url.to_owned(), administrator: data.kubeconfig(), folder, nodes })
    }

    fn write(&self, certificates: &Certificates) -> Result<()> {
        for (component, user) in COMPONENTS {
            let text = certificates.component(&self.url, |ca| Ok(ca.issue_component(user, now())?))?;
            write_private(&self.folder.join(component), text.as_bytes())?;
        }
        for (file, node) in &self.nodes {
            let text = certificates.component(&self.url, |ca| {
                ca.issue_node(node, now()).with_context(|| format!("issue a certificate for node {node}"))
            })?;
            write_private(&self.folder.join(file), text.as_bytes())?;
        }
        Ok(write_private(&self.administrator, certificates.administrator(&self.url)?.as_bytes())?)
    }
}

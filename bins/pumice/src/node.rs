//! `pumice node run`: the agent of this machine by itself.
//!
//! Invariant: only the API server is answered, by the certificate that it shows; everything else of the agent is as in
//! `pumice up`. Pods go on when the agent ends, and the next one takes them over.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use pumice_api::names;
use pumice_apiserver::{Body, ConnectionLimits, Handler, serve_connections};
use pumice_auth::{ClientTrust, ServingCertificate};
use pumice_node::{Handle, NodeBody};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::args::node::NodeRunArgs;
use crate::credentials::Credentials;
use crate::data_dir::DataDir;
use crate::descriptors;
use crate::output::announce;
use crate::process::{go_last_for_memory, host_name};
use crate::standalone;
use crate::up::{node_options, tell_what_is_missing};

/// How long requests under way may take at the end.
const DRAIN: Duration = Duration::from_secs(5);

/// Runs the agent until a signal.
pub fn run(args: &NodeRunArgs) -> Result<()> {
    let data = DataDir::choose(args.data_dir.data_dir.as_deref())?;
    data.create()?;
    let _lock = data.lock_node()?;
    let kubeconfig =
        args.cluster.kubeconfig.as_deref().context("say with --kubeconfig which API server and as whom")?;
    let credentials = Credentials::read(kubeconfig)?;
    let unusable = || format!("use the certificate in {}", kubeconfig.display());
    let trust = Arc::new(ClientTrust::new(&credentials.authorities, true).with_context(unusable)?);
    let shown = Arc::new(ServingCertificate::default());
    shown.show(&credentials.certificate, &credentials.key).with_context(unusable)?;
    let tls = pumice_auth::trusting_server_config(&trust, Arc::clone(&shown)).with_context(unusable)?;
    let used = |fresh: &Credentials| {
        trust.replace(&fresh.authorities)?;
        Ok(shown.show(&fresh.certificate, &fresh.key)?)
    };
    standalone::run_renewed(&args.cluster, used, async |client, stop| {
        go_last_for_memory();
        // Where its Node object says that it is.
        let address = SocketAddr::from((pumice_node::host_ip(), args.port));
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("{address} can't be listened on: choose another --port"))?;
        let name = args.node_name.clone().unwrap_or_else(host_name);
        let mut options = node_options(&args.node, data.path(), &name, client)?;
        options.default_profile = args.profile.enforced();
        options.kubelet_port = Some(listener.local_addr().context("read the port")?.port());
        let agent = options.build().context("start the node agent")?;
        let handle = agent.handle();
        tell_what_is_missing(&handle);
        announce(format_args!("pumice node {name} runs"));
        let closing = CancellationToken::new();
        let limits = Arc::new(ConnectionLimits::for_descriptors(descriptors::limit()));
        let answering = serve_connections(listener, tls, limits, closing.clone(), DRAIN, move |_, certificate| {
            let asks = certificate.map(|certificate| pumice_auth::identity_of(certificate)).transpose()?;
            let trusted = asks.is_some_and(|identity| identity.user == names::USER_APISERVER);
            let handle = handle.clone();
            let handler: Handler = Box::new(move |request| {
                let response = answer(&handle, trusted, request).map(Body::new);
                Box::pin(std::future::ready(response))
            });
            Ok(handler)
        });
        let running = async {
            let result = Box::pin(agent.run(stop.clone())).await.context("run the node agent");
            closing.cancel();
            result
        };
        tokio::join!(running, answering).0
    })
}

fn answer<B>(handle: &Handle, trusted: bool, request: Request<B>) -> Response<NodeBody> {
    if trusted {
        return handle.answer(request);
    }
    let said = Full::new("only the API server is answered here\n".into());
    let mut response = Response::new(said.map_err(|never: Infallible| match never {}).boxed());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

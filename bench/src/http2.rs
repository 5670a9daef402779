//! A client over HTTP/2, as client-go is one: many calls on few connections. The one of `kube` speaks HTTP/1.1.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use http::Request;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::{self, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::config::Kubeconfig;
use kube::{Client, Config};
use tower::Layer;

/// Connections, as in the public figures of kube-apiserver.
const CONNECTIONS: usize = 4;

/// Whom the kubeconfig names, over HTTP/2 and nothing else. It must name a certificate, not a token.
///
/// # Errors
/// When the kubeconfig can't be used.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &Default::default()).await?;
    let connections: Vec<legacy::Client<_, Body>> = std::iter::repeat_with(|| {
        let tls = config.rustls_client_config().context("the kubeconfig has a certificate")?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // As Go does. Else a call waits for the answer to another, 40 ms at times.
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http2().wrap_connector(tcp);
        Ok(legacy::Client::builder(TokioExecutor::new()).http2_only(true).build(connector))
    })
    .take(CONNECTIONS)
    .collect::<anyhow::Result<_>>()?;
    let turn = AtomicUsize::new(0);
    let service = tower::service_fn(move |request: Request<Body>| {
        connections[turn.fetch_add(1, Ordering::Relaxed) % CONNECTIONS].request(request)
    });
    Ok(Client::new(config.base_uri_layer().layer(service), "default"))
}

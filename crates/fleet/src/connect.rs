//! Connections to a server: the one place where they are opened.

use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use rustls::ClientConfig;
use tonic::transport::{Channel, Endpoint, Error};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// A connection to the address, encrypted where `tls` says how.
///
/// # Errors
/// Nobody answers there, or not whom `tls` trusts.
pub(crate) async fn connect(endpoint: Endpoint, tls: Option<&ClientConfig>) -> Result<Channel, Error> {
    let endpoint = endpoint
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    match tls {
        None => endpoint.connect().await,
        Some(tls) => {
            let connector = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only().enable_http2();
            endpoint.connect_with_connector(connector.build()).await
        }
    }
}

//! Connections to a server: the one place where they are opened, and what both sides allow.

use std::time::Duration;

use hyper_rustls::HttpsConnectorBuilder;
use rustls::ClientConfig;
use tonic::transport::{Channel, Endpoint, Error};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Largest answer of a server: an event of a job set is small, details of a thousand jobs are not.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// The address, where it is one of the kind that is spoken.
pub(crate) fn endpoint(address: &str, is_encrypted: bool) -> Option<Endpoint> {
    let is_spoken = address.starts_with(if is_encrypted { "https://" } else { "http://" });
    Endpoint::from_shared(address.to_owned()).ok().filter(|_| is_spoken)
}

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

//! Reaching a server: what a client shows, and the one place where connections are opened.
//!
//! Invariant: a file of credentials holds a private key, of which nothing is told, not even in errors. Whoever is reached is
//! whom the file's authority names. Used by executors, by test specifications and by `jobctl`.

use std::sync::Arc;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tonic::transport::{Channel, Endpoint};

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Largest answer of a server: an event of a job set is small, details of a thousand jobs are not.
pub const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Why a file is no credentials.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// It is no PEM.
    #[error("it is no file of keys and certificates in PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// A part is missing.
    #[error("it has no {0}; a private key, its certificate and that of the authority are needed, in this order")]
    Missing(&'static str),
    /// The parts do not fit.
    #[error("its parts do not fit together")]
    Tls(#[source] rustls::Error),
}

/// A client as such a file says it. Names no protocol.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Names the client to those who trust the authority.
    pub certificate: CertificateDer<'static>,
    /// Trusts the file's authority alone and shows the file's certificate.
    pub tls: Arc<ClientConfig>,
}

impl Credentials {
    /// Reads the text of such a file.
    ///
    /// # Errors
    /// Where a part is missing or of no use.
    pub fn read(text: &str) -> Result<Self, CredentialsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let mut certificates = certificates.map_err(CredentialsError::Pem)?.into_iter();
        let key =
            PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| CredentialsError::Missing("private key"))?;
        let certificate = certificates.next().ok_or(CredentialsError::Missing("certificate"))?;
        let mut trusted = RootCertStore::empty();
        for authority in certificates {
            trusted.add(authority).map_err(CredentialsError::Tls)?;
        }
        if trusted.is_empty() {
            return Err(CredentialsError::Missing("authority"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CredentialsError::Tls)?
            .with_root_certificates(trusted)
            .with_client_auth_cert(vec![certificate.clone()], key)
            .map_err(CredentialsError::Tls)?;
        Ok(Self { certificate, tls: Arc::new(tls) })
    }
}

/// The address, where it is one of the kind that is spoken.
pub fn endpoint(address: &str, is_encrypted: bool) -> Option<Endpoint> {
    let scheme = if is_encrypted { "https://" } else { "http://" };
    if address.starts_with(scheme) { Endpoint::from_shared(address.to_owned()).ok() } else { None }
}

/// A connection to the address, encrypted where `tls` says how.
///
/// # Errors
/// Nobody answers there, or not whom `tls` trusts.
pub async fn connect(endpoint: Endpoint, tls: Option<&ClientConfig>) -> Result<Channel, tonic::transport::Error> {
    match tls {
        None => limited(endpoint).connect().await,
        Some(tls) => limited(endpoint).connect_with_connector(connector(tls)).await,
    }
}

/// The same, opened by the first call, and again by one after it was lost.
pub fn connect_lazily(endpoint: Endpoint, tls: &ClientConfig) -> Channel {
    limited(endpoint).connect_with_connector_lazy(connector(tls))
}

fn limited(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_LIMIT)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
}

fn connector(tls: &ClientConfig) -> HttpsConnector<HttpConnector> {
    HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only().enable_http2().build()
}

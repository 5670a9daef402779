//! TLS configurations with one explicit cryptography provider.
//!
//! Invariant: a client certificate is optional, but one that is offered must be signed by our
//! authority; there is no process-wide default provider. Used by the listeners and by tests.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

use crate::ca::{Ca, Issued};

/// What servers and clients speak: TLS 1.3 and 1.2. The last of them is the minimum.
pub(crate) const TLS_VERSIONS: &[&rustls::SupportedProtocolVersion] =
    &[&rustls::version::TLS13, &rustls::version::TLS12];

/// Why a configuration could not be made.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A certificate or key in PEM cannot be read.
    #[error("cannot read the PEM of a certificate or key")]
    ReadPem(#[source] rustls::pki_types::pem::Error),
    /// The TLS library refuses a certificate, key or version.
    #[error("cannot configure TLS")]
    Configure(#[source] rustls::Error),
    /// The verifier of client certificates refuses the authority.
    #[error("cannot verify client certificates")]
    ClientVerifier(#[source] rustls::server::VerifierBuilderError),
    /// The verifier of servers refuses the bundle.
    #[error("cannot verify servers")]
    ServerVerifier(#[source] rustls::server::VerifierBuilderError),
}

/// A server with certificate `issued`, for clients with a certificate of `ca` or with none.
/// Offers HTTP/2 and HTTP/1.1.
pub fn server_config(ca: &Ca, issued: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(optional(ca)?)
        .with_single_cert(vec![issued.certificate.clone()], issued.key().map_err(TlsError::ReadPem)?)
        .map_err(TlsError::Configure)?;
    config.alpn_protocols = protocols();
    Ok(Arc::new(config))
}

/// The certificate that a server shows, which may change while it runs: connections that are there go on, new ones see the
/// new certificate. Until there is one no handshake succeeds.
#[derive(Debug, Default)]
pub struct ServingCertificate(RwLock<Option<Arc<CertifiedKey>>>);

impl ServingCertificate {
    /// Shows this certificate from now on, and those that follow it, up to its authority. Refused, and nothing changed, where
    /// the key does not belong to it.
    pub fn show(&self, certificate_pem: &str, key_pem: &str) -> Result<(), TlsError> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).collect();
        let chain = chain.map_err(TlsError::ReadPem)?;
        if chain.is_empty() {
            return Err(TlsError::ReadPem(rustls::pki_types::pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(TlsError::ReadPem)?;
        let shown = CertifiedKey::from_der(chain, key, &provider()).map_err(TlsError::Configure)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(shown));
        Ok(())
    }

    /// Whether there is one.
    pub fn is_shown(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A server that shows `shown`, for clients with a certificate of `ca` or with none. Offers HTTP/2 and HTTP/1.1.
pub fn peer_server_config(ca: &Ca, shown: Arc<ServingCertificate>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(optional(ca)?)
        .with_cert_resolver(shown);
    config.alpn_protocols = protocols();
    Ok(Arc::new(config))
}

/// Takes clients with a certificate of `ca`, and those with none.
fn optional(ca: &Ca) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(roots(ca.certificate().clone())?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).allow_unauthenticated().build();
    verifier.map_err(TlsError::ClientVerifier)
}

/// A server that shows `shown`, for clients without a certificate. Offers HTTP/2 and HTTP/1.1.
pub fn changing_server_config(shown: Arc<ServingCertificate>) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = protocols();
    Ok(Arc::new(config))
}

/// A server that shows the certificate `certificate_pem` with its key, to clients with a certificate of the authority
/// `ca_pem` and to no others. Offers HTTP/1.1 alone, as streams need it.
pub fn agent_server_config(ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(TlsError::ReadPem)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authority)?), provider())
        .build()
        .map_err(TlsError::ClientVerifier)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).map_err(TlsError::ReadPem)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.map_err(TlsError::ReadPem)?, key)
        .map_err(TlsError::Configure)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

/// A client that trusts the certificates in `ca_pem` alone and shows `issued`, if any. Names no protocol: the HTTP
/// connector adds its own.
pub fn client_config(ca_pem: &str, issued: Option<&Issued>) -> Result<ClientConfig, TlsError> {
    let mut trusted = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        trusted.add(authority.map_err(TlsError::ReadPem)?).map_err(TlsError::Configure)?;
    }
    if trusted.is_empty() {
        return Err(TlsError::ReadPem(rustls::pki_types::pem::Error::NoItemsFound));
    }
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_root_certificates(trusted);
    match issued {
        None => Ok(builder.with_no_client_auth()),
        Some(issued) => builder
            .with_client_auth_cert(vec![issued.certificate.clone()], issued.key().map_err(TlsError::ReadPem)?)
            .map_err(TlsError::Configure),
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(TlsError::Configure)?;
    Ok(roots)
}

//! TLS configurations with one explicit cryptography provider.
//!
//! Invariant: a client certificate is optional, but one that is offered must be signed by our
//! authority; there is no process-wide default provider. Used by the listener and by tests.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;

use crate::ca::{Ca, Issued};

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
}

/// A server with certificate `issued`, for clients with a certificate of `ca` or with none.
/// Offers HTTP/2 and HTTP/1.1.
pub fn server_config(ca: &Ca, issued: &Issued) -> Result<Arc<ServerConfig>, TlsError> {
    let roots = Arc::new(roots(ca.certificate().clone())?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
        .allow_unauthenticated()
        .build()
        .map_err(TlsError::ClientVerifier)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![issued.certificate.clone()], issued.key().map_err(TlsError::ReadPem)?)
        .map_err(TlsError::Configure)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// A client that trusts `ca_pem` alone and shows `issued`, if any. Names no protocol: the HTTP
/// connector adds its own.
pub fn client_config(ca_pem: &str, issued: Option<&Issued>) -> Result<ClientConfig, TlsError> {
    let authority = CertificateDer::from_pem_slice(ca_pem.as_bytes()).map_err(TlsError::ReadPem)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Configure)?
        .with_root_certificates(roots(authority)?);
    match issued {
        None => Ok(builder.with_no_client_auth()),
        Some(issued) => builder
            .with_client_auth_cert(vec![issued.certificate.clone()], issued.key().map_err(TlsError::ReadPem)?)
            .map_err(TlsError::Configure),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn roots(authority: CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(TlsError::Configure)?;
    Ok(roots)
}

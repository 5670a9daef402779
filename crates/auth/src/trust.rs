//! Whom this side trusts when it dials somebody that is no part of the platform.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Why nobody could be trusted.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The authorities can't be read.
    #[error("the authorities of the CA file can't be read")]
    Authorities(#[source] rustls::pki_types::pem::Error),
    /// There are none.
    #[error("there is no authority that it could be known by; give its certificates in a CA file")]
    NoAuthority,
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[from] rustls::Error),
}

/// Trusts the authorities of a file, or those of the system; there have to be some where TLS is needed.
///
/// # Errors
/// Where they can't be read, or there are none.
pub fn authorities(ca_file: Option<&Path>, is_needed: bool) -> Result<ClientConfig, TrustError> {
    let mut trusted = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let certificates = CertificateDer::pem_file_iter(path).map_err(TrustError::Authorities)?;
            for certificate in certificates {
                trusted.add(certificate.map_err(TrustError::Authorities)?)?;
            }
        }
        None => drop(trusted.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    if trusted.is_empty() && is_needed {
        return Err(TrustError::NoAuthority);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(trusted).with_no_client_auth())
}

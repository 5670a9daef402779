//! One file with everything that a client needs: its private key, its certificate, and the authority that it trusts.
//!
//! Invariant: it holds a private key: write it with [`crate::write_private`].

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;

use crate::ca::{Ca, Issued};
use crate::identity::{Identity, IdentityError, identity_of};
use crate::tls::{TlsError, client};

/// The text of such a file for the holder of `client`.
pub fn credentials(ca: &Ca, client: &Issued) -> String {
    let lines = [client.key_pem.as_str(), client.certificate_pem.as_str(), ca.pem()].map(str::trim_end);
    lines.join("\n") + "\n"
}

/// Why such a file is of no use.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// It is no PEM.
    #[error("it is no file of keys and certificates in PEM")]
    Pem(#[source] rustls::pki_types::pem::Error),
    /// A part is missing.
    #[error("it has no {0}; a private key, its certificate and that of the authority are needed, in this order")]
    Missing(&'static str),
    /// Its certificate names nobody.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The parts do not fit.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A client as such a file says it: who it is, and its side of TLS. Names no protocol.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Who the client is to those who trust the authority.
    pub identity: Identity,
    /// Trusts the file's authority alone and shows the file's certificate.
    pub tls: Arc<ClientConfig>,
}

impl Credentials {
    /// Reads the text of such a file.
    pub fn read(text: &str) -> Result<Self, CredentialsError> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let mut certificates = certificates.map_err(CredentialsError::Pem)?.into_iter();
        let key =
            PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|_| CredentialsError::Missing("private key"))?;
        let own = certificates.next().ok_or(CredentialsError::Missing("certificate"))?;
        let mut trusted = RootCertStore::empty();
        for authority in certificates {
            trusted.add(authority).map_err(TlsError::Configure)?;
        }
        if trusted.is_empty() {
            return Err(CredentialsError::Missing("authority"));
        }
        let identity = identity_of(&own)?;
        Ok(Self { identity, tls: Arc::new(client(trusted, Some((own, key)))?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued() -> (Ca, Issued) {
        let now = jiff::Timestamp::constant(1_764_000_000, 0);
        let ca = Ca::passing(now).unwrap();
        let client = ca.issue_client("ann", &["team"], now).unwrap();
        (ca, client)
    }

    #[test]
    fn what_is_written_is_read() {
        let (ca, client) = issued();
        let read = Credentials::read(&credentials(&ca, &client)).unwrap();
        assert_eq!(read.identity, Identity::new("ann", ["team"]));
    }

    #[test]
    fn a_missing_part_is_named() {
        let (ca, client) = issued();
        let all = credentials(&ca, &client);
        let without_authority = all.replace(ca.pem().trim_end(), "");
        for (text, says) in [
            (String::new(), "private key"),
            (ca.pem().to_owned(), "private key"),
            (client.key_pem, "no certificate"),
            (without_authority, "authority"),
        ] {
            let error = Credentials::read(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}

//! TLS configurations with one explicit cryptography provider.
//!
//! Invariant: a client certificate is optional, but one that is offered must be signed by our
//! authority; there is no process-wide default provider. Used by the listeners and by tests.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme};
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

/// A server that shows `shown`, for clients that `trust` takes. Offers HTTP/2 and HTTP/1.1. Sessions are not resumed: whoever comes
/// again is looked at again, as the trust may have changed.
pub fn trusting_server_config(
    trust: &Arc<ClientTrust>,
    shown: Arc<ServingCertificate>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?
        .with_client_cert_verifier(Arc::clone(trust) as Arc<dyn ClientCertVerifier>)
        .with_cert_resolver(shown);
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = match trust.is_mandatory {
        // Streams of agents need it.
        true => vec![b"http/1.1".to_vec()],
        false => protocols(),
    };
    Ok(Arc::new(config))
}

/// Whose certificates clients may show, which may change while a server runs.
#[derive(Debug)]
pub struct ClientTrust {
    verifier: RwLock<Arc<dyn ClientCertVerifier>>,
    /// Authorities of a platform have one name.
    hints: Vec<DistinguishedName>,
    is_mandatory: bool,
}

impl ClientTrust {
    /// Certificates of the authorities in `bundle_pem`; whether a client has to show one.
    pub fn new(bundle_pem: &str, is_mandatory: bool) -> Result<Self, TlsError> {
        let verifier = verifier(bundle_pem, is_mandatory)?;
        let hints = verifier.root_hint_subjects().to_vec();
        Ok(Self { verifier: RwLock::new(verifier), hints, is_mandatory })
    }

    /// Takes these from now on, and no others.
    pub fn replace(&self, bundle_pem: &str) -> Result<(), TlsError> {
        *self.verifier.write().unwrap_or_else(PoisonError::into_inner) = verifier(bundle_pem, self.is_mandatory)?;
        Ok(())
    }

    /// Whether a client may show this certificate (DER) now.
    pub fn takes(&self, certificate: &[u8]) -> bool {
        let now = UnixTime::now();
        self.now().verify_client_cert(&CertificateDer::from(certificate), &[], now).is_ok()
    }

    fn now(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn verifier(bundle_pem: &str, is_mandatory: bool) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(bundle(bundle_pem)?), provider());
    let builder = if is_mandatory { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(TlsError::ClientVerifier)
}

impl ClientCertVerifier for ClientTrust {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.now().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.now().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.now().supported_verify_schemes()
    }
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

/// A server that shows the certificate `certificate_pem` with its key, to clients with a certificate of an authority in
/// `ca_pem` and to no others. Offers HTTP/1.1 alone, as streams need it.
pub fn agent_server_config(ca_pem: &str, certificate_pem: &str, key_pem: &str) -> Result<Arc<ServerConfig>, TlsError> {
    let shown = ServingCertificate::default();
    shown.show(certificate_pem, key_pem)?;
    trusting_server_config(&Arc::new(ClientTrust::new(ca_pem, true)?), Arc::new(shown))
}

fn protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

/// A client that trusts the certificates in `ca_pem` alone and shows `issued`, if any. Names no protocol: the HTTP
/// connector adds its own.
pub fn client_config(ca_pem: &str, issued: Option<&Issued>) -> Result<ClientConfig, TlsError> {
    let trusted = bundle(ca_pem)?;
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

/// The authorities in a text, of which there is one at least.
fn bundle(bundle_pem: &str) -> Result<RootCertStore, TlsError> {
    let mut trusted = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle_pem.as_bytes()) {
        trusted.add(authority.map_err(TlsError::ReadPem)?).map_err(TlsError::Configure)?;
    }
    if trusted.is_empty() {
        return Err(TlsError::ReadPem(rustls::pki_types::pem::Error::NoItemsFound));
    }
    Ok(trusted)
}

fn roots(authority: CertificateDer<'static>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add(authority).map_err(TlsError::Configure)?;
    Ok(roots)
}

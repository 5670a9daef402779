//! TLS to servers that somebody gave us certificates for: a bundle of authorities, or the server's own certificate.
//!
//! Invariant: a certificate that calls itself an authority is taken for a server's only if it is itself in the bundle, byte for
//! byte, and for this name, time and use. Everything else is the TLS library's to judge. Used for webhooks.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{ASN1Time, X509Certificate, parse_x509_certificate};

use crate::tls::TLS_VERSIONS;
use crate::tls::{TlsError, provider};

/// A client without a certificate of its own that trusts what `bundle_pem` lists, as Go's clients do.
pub fn bundle_client_config(bundle_pem: &str) -> Result<ClientConfig, TlsError> {
    let listed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle_pem.as_bytes()).collect();
    let listed = listed.map_err(TlsError::ReadPem)?;
    if listed.is_empty() {
        return Err(TlsError::ReadPem(rustls::pki_types::pem::Error::NoItemsFound));
    }
    let mut roots = RootCertStore::empty();
    for certificate in &listed {
        roots.add(certificate.clone()).map_err(TlsError::Configure)?;
    }
    let library = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(TlsError::ServerVerifier)?;
    let verifier = Arc::new(Verifier { listed, library });
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(TLS_VERSIONS)
        .map_err(TlsError::Configure)?;
    // Not less strict than the library, but for servers that are listed themselves.
    Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

#[derive(Debug)]
struct Verifier {
    listed: Vec<CertificateDer<'static>>,
    library: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The library refuses an authority's certificate as a server's, though `openssl req -x509` makes such ones.
        if self.listed.iter().any(|one| one == end_entity)
            && let Ok((_, parsed)) = parse_x509_certificate(end_entity)
            && parsed.is_ca()
        {
            check(&parsed, now)?;
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.library.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.library.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.library.supported_verify_schemes()
    }
}

/// Whether a listed certificate may be a server's now.
fn check(certificate: &X509Certificate<'_>, now: UnixTime) -> Result<(), Error> {
    let now = i64::try_from(now.as_secs()).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    let validity = certificate.validity();
    match now {
        Some(now) if now < validity.not_before => return Err(CertificateError::NotValidYet.into()),
        Some(now) if now <= validity.not_after => {}
        _ => return Err(CertificateError::Expired.into()),
    }
    let usage = certificate.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    match usage {
        Some(usage) if !usage.value.server_auth && !usage.value.any => Err(CertificateError::InvalidPurpose.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, Certificate, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    /// A certificate that signed itself, and the server that shows it.
    fn signed_by_itself(change: impl FnOnce(&mut CertificateParams)) -> (Certificate, ServerConfig) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["hook.example.com".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        let secret = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(TLS_VERSIONS)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], secret)
            .unwrap();
        (certificate, config)
    }

    /// What becomes of a handshake with a server of this name.
    fn handshake(bundle: &str, server: ServerConfig, name: &str) -> Result<(), Error> {
        let config = Arc::new(bundle_client_config(bundle).unwrap());
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(config, name).unwrap();
        let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            let of_server = server.process_new_packets();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets()?;
            of_server?;
        }
        Ok(())
    }

    const NAME: &str = "hook.example.com";

    #[test]
    fn a_listed_certificate_that_calls_itself_an_authority_is_its_servers() {
        let (certificate, server) = signed_by_itself(|_| ());
        assert_eq!(handshake(&certificate.pem(), server.clone(), NAME), Ok(()));
        let (other, _) = signed_by_itself(|_| ());
        assert_eq!(handshake(&format!("{}{}", other.pem(), certificate.pem()), server, NAME), Ok(()));
    }

    #[test]
    fn everything_else_is_refused_as_before() {
        let wrong = |error| Err(Error::InvalidCertificate(error));
        let (certificate, server) = signed_by_itself(|_| ());
        assert!(
            matches!(
                handshake(&certificate.pem(), server.clone(), "other.example.com"),
                Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))
            ),
            "the name must be right"
        );
        // The same names and key usage, but another certificate.
        let (other, _) = signed_by_itself(|_| ());
        assert!(handshake(&other.pem(), server, NAME).is_err());
        let (certificate, server) = signed_by_itself(|params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
        assert_eq!(handshake(&certificate.pem(), server, NAME), wrong(CertificateError::Expired));
        let (certificate, server) = signed_by_itself(|params| params.not_before = rcgen::date_time_ymd(2999, 1, 1));
        assert_eq!(handshake(&certificate.pem(), server, NAME), wrong(CertificateError::NotValidYet));
        let of_clients = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, server) = signed_by_itself(|params| params.extended_key_usages = of_clients);
        assert_eq!(handshake(&certificate.pem(), server, NAME), wrong(CertificateError::InvalidPurpose));
        assert!(bundle_client_config("").is_err() && bundle_client_config("nonsense").is_err());
    }

    #[test]
    fn authorities_and_plain_certificates_are_judged_by_the_library() {
        let (certificate, server) = signed_by_itself(|params| params.is_ca = IsCa::ExplicitNoCa);
        assert_eq!(handshake(&certificate.pem(), server, NAME), Ok(()));
    }
}

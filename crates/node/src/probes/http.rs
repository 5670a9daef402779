//! One question over HTTP or HTTPS, good from 200 to 399. Redirects are not followed.
//!
//! Invariant: it asks whether somebody answers, not who: certificates are not looked at, as a kubelet does not. Nothing is sent
//! that has to be kept from others, and of the answer nothing is read but its head, nor told but its status.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use crate::probes::action::{ContainerTarget, connect, over};

/// Longest head of an answer, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// As whom probes ask; servers know a kubelet's by how it begins.
pub(crate) const AGENT: &str = "kube-probe/pumice";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Get {
    pub tls: bool,
    /// The pod's address where there is none.
    pub host: Option<String>,
    pub port: u16,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// Asks from within the pod's network. The error is a sentence.
pub(crate) async fn ask(get: &Get, container: &ContainerTarget<'_>) -> Result<(), String> {
    let target = container.target(get.host.as_deref())?;
    let host = &match target {
        IpAddr::V6(address) => format!("[{address}]"),
        IpAddr::V4(address) => get.host.clone().unwrap_or_else(|| address.to_string()),
    };
    let request = request(get, host)?;
    let stream = connect(container, target, get.port).await?;
    if !get.tls {
        return exchange(get, host, request, stream).await;
    }
    let refused = |error: &dyn std::fmt::Display| format!("{}: no TLS: {error}", question(get, host));
    let name = ServerName::from(target);
    let config = any_server().map_err(|error| refused(&error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.map_err(|error| refused(&error))?;
    exchange(get, host, request, stream).await
}

fn question(get: &Get, host: &str) -> String {
    format!("Get \"http{}://{host}:{}{}\"", if get.tls { "s" } else { "" }, get.port, get.path)
}

async fn exchange<S>(get: &Get, host: &str, request: Request<Empty<Bytes>>, stream: S) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let failed = |error: hyper::Error| format!("{}: {error}", question(get, host));
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async { sender.send_request(request).await.map(|answer| answer.status().as_u16()) };
    match over(connection, answer).await.map_err(failed)? {
        200..400 => Ok(()),
        status => Err(format!("HTTP probe failed with statuscode: {status}")),
    }
}

fn request(get: &Get, host: &str) -> Result<Request<Empty<Bytes>>, String> {
    let Get { port, path, headers, .. } = get;
    let target: Uri = path.parse().map_err(|error| format!("the path {path:?} can't be asked for: {error}"))?;
    let mut request = Request::new(Empty::new());
    *request.uri_mut() = target;
    let own = [(HOST, format!("{host}:{port}")), (USER_AGENT, AGENT.to_owned()), (ACCEPT, "*/*".to_owned())];
    for (name, value) in own {
        request.headers_mut().insert(name, HeaderValue::from_str(&value).map_err(|error| error.to_string())?);
    }
    for (name, value) in headers {
        let wrong = |error: &dyn std::fmt::Display| format!("the header {name:?} can't be sent: {error}");
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|error| wrong(&error))?;
        request.headers_mut().insert(known, HeaderValue::from_str(value).map_err(|error| wrong(&error))?);
    }
    Ok(request)
}

/// TLS with whoever answers.
fn any_server() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer { provider })).with_no_client_auth())
}

/// Takes any certificate, and so any proof of it.
#[derive(Debug)]
struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

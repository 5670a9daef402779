//! One question over HTTP or HTTPS, good from 200 to 399. Redirects are not followed.
//!
//! Invariant: it asks whether somebody answers, not who: certificates are not looked at, as a kubelet does not. Nothing is sent
//! that has to be kept from others.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::action::{SAID_BYTES_MAX, connect, over};

/// Most of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 10 << 10;
/// As whom probes ask; servers know a kubelet's by how it begins.
pub(super) const AGENT: &str = "kube-probe/pumice";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Get {
    /// Whether over TLS.
    pub tls: bool,
    /// The pod's address where there is none.
    pub host: Option<String>,
    pub port: u16,
    pub path: String,
    pub headers: Vec<(String, String)>,
}

/// Asks `host`. The error is a sentence.
pub(super) async fn ask(get: &Get, host: &str) -> Result<(), String> {
    let request = request(get, host)?;
    let stream = connect(host, get.port).await?;
    if !get.tls {
        return exchange(get, host, request, stream).await;
    }
    let refused = |error: &dyn std::fmt::Display| format!("{}: no TLS: {error}", question(get, host));
    let name = ServerName::try_from(host.to_owned()).map_err(|error| refused(&error))?;
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
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        if (200..400).contains(&status.as_u16()) {
            return Ok(Ok(()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&body[..body.len().min(SAID_BYTES_MAX)]).trim().to_owned();
        let text = if text.is_empty() { text } else { format!(": {text}") };
        Ok(Err(format!("HTTP probe failed with statuscode: {}{text}", status.as_u16())))
    };
    over(connection, answer).await.map_err(failed)?
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

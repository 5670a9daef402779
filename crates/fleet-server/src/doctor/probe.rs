//! Asking a server how the fleet does, with a look at the certificate that it shows.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use pumice_auth::IdentityError;
use pumice_clock as clock;
use pumice_ledger::TimeMs;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::health::{FleetHealth, PATH};

/// Longest time for everything: the server itself waits for its database and its leader.
const ASK_MAX: Duration = Duration::from_secs(20);
/// Bytes of one answer; what is larger is no answer of a fleet.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The port of an address without one.
const PORT: u16 = 443;

/// Why a server says nothing.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It is no address.
    #[error("{0:?} is no address of a server; try https://127.0.0.1:50051")]
    Address(String),
    /// It has a name that no certificate can have.
    #[error("no certificate has the name of the server")]
    Name(#[from] InvalidDnsNameError),
    /// Nobody listens there, or a wall is between.
    #[error("nobody answers there")]
    Connect(#[source] io::Error),
    /// It is not whom the identity trusts, or does not trust the identity.
    #[error("the server and this identity do not trust each other")]
    Tls(#[source] io::Error),
    /// Its certificate can't be read.
    #[error("the server's certificate can't be read")]
    Certificate(#[from] IdentityError),
    /// The connection broke off.
    #[error("the connection broke off")]
    Http(#[from] hyper::Error),
    /// The answer is too long, or broke off.
    #[error("the answer broke off, or has more than {ANSWER_BYTES_MAX} bytes")]
    Body,
    #[error("the server answers {0}: {1}")]
    Refused(StatusCode, String),
    /// It says something else.
    #[error("the server's answer can't be read; is it a fleet's server of this release?")]
    Answer(#[from] serde_json::Error),
    #[error("no answer within {seconds} s", seconds = ASK_MAX.as_secs())]
    Timeout,
}

/// What a server said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// How the fleet does.
    pub health: FleetHealth,
    /// For how many seconds its certificate is good.
    pub certificate_seconds: i64,
    /// How far its clock is ahead of this machine's, milliseconds; right to half of the time of the answer.
    pub ahead_ms: i64,
}

/// Asks a server, as whoever `tls` shows.
///
/// # Errors
/// Where it says nothing, and why.
pub async fn ask(server: &str, tls: Arc<ClientConfig>) -> Result<Answer, AskError> {
    tokio::time::timeout(ASK_MAX, request_health(server, tls)).await.unwrap_or(Err(AskError::Timeout))
}

async fn request_health(server: &str, tls: Arc<ClientConfig>) -> Result<Answer, AskError> {
    let bad = || AskError::Address(server.to_owned());
    let uri: Uri = server.parse().map_err(|_| bad())?;
    if uri.scheme_str() != Some("https") {
        return Err(bad());
    }
    let host = uri.host().ok_or_else(bad)?;
    let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned())?;
    let port = uri.port_u16().unwrap_or(PORT);
    let socket = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(AskError::Connect)?;
    let stream = TlsConnector::from(tls).connect(name, socket).await.map_err(AskError::Tls)?;
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    let until = pumice_auth::valid_until(shown.map(AsRef::as_ref).unwrap_or_default())?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let began: Instant = clock::monotonic();
    let asking = async {
        let authority = format!("{host}:{port}");
        let request = Request::get(PATH).header(http::header::HOST, authority);
        let request = request.body(Empty::<Bytes>::new()).map_err(|_| bad())?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        Ok::<_, AskError>((status, body.map_err(|_| AskError::Body)?.to_bytes()))
    };
    // The connection is driven for as long as the answer takes.
    let (status, body) = tokio::select! {
        asked = asking => asked?,
        ended = connection => {
            ended?;
            return Err(AskError::Body);
        }
    };
    let here = TimeMs(clock::now_ms()).0;
    let half = i64::try_from(began.elapsed().as_millis()).unwrap_or(0) / 2;
    if !status.is_success() {
        let said = String::from_utf8_lossy(&body).chars().take(200).collect();
        return Err(AskError::Refused(status, said));
    }
    let health: FleetHealth = serde_json::from_slice(&body)?;
    // The server reads its clock last of all.
    let ahead_ms = health.now_ms - here;
    let ahead_ms = if ahead_ms.abs() <= 2 * half { 0 } else { ahead_ms };
    Ok(Answer { certificate_seconds: until - here / 1_000, ahead_ms, health })
}

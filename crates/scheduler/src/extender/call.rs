//! One HTTP POST at a time, for a caller that blocks: a thread of its own drives the connection.
//!
//! Invariant: `call` returns within the timeout, or little after; a body above the limit is cut off, not read. The
//! thread ends with its `Caller`.

use std::fmt;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Largest question or answer, in bytes.
const BODY_MAX: usize = 10 << 20;
/// What the thread may take beyond the timeout to say so.
const SLACK: Duration = Duration::from_millis(500);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// An earlier call of this cycle got none.
    #[error("the server did not answer before in this cycle")]
    Down,
    /// It took too long.
    #[error("no answer within {limit:?}")]
    Timeout {
        /// How long may be waited.
        limit: Duration,
    },
    /// No connection, or it broke.
    #[error("the connection failed: {0}")]
    Connection(String),
    /// The thread is gone.
    #[error("the caller's thread has ended; read the configuration again")]
    Gone,
    #[error("the server answered with status {status}")]
    Status { status: u16 },
    /// The question or the answer is too large.
    #[error("the body has more than {limit} bytes")]
    TooLarge { limit: usize },
    /// The answer is not the JSON that is expected.
    #[error("the answer can't be read: {0}")]
    Answer(#[source] serde_json::Error),
}

impl CallError {
    /// Nobody seems to be there: asking again now would only cost time.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Down | Self::Timeout { .. } | Self::Connection(_) | Self::Gone)
    }
}

/// Why no server can be called.
#[derive(Debug, thiserror::Error)]
pub(super) enum AddressError {
    /// It is no address of an HTTP server.
    #[error("must be an address such as http://127.0.0.1:8090/api, without TLS")]
    Unusable,
    #[error("can't be called: no thread could be started: {0}")]
    Thread(#[source] std::io::Error),
}

struct Question {
    uri: Uri,
    body: Bytes,
    answer: SyncSender<Result<Bytes, CallError>>,
}

/// Puts questions to one server, on a thread of its own.
pub(super) struct Caller {
    prefix: String,
    timeout: Duration,
    questions: SyncSender<Question>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({})", self.prefix)
    }
}

impl Caller {
    /// A caller of the server at `prefix`.
    pub(super) fn new(prefix: &str, timeout: Duration) -> Result<Self, AddressError> {
        let uri: Uri = prefix.parse().map_err(|_| AddressError::Unusable)?;
        if uri.scheme_str() != Some("http") || uri.host().is_none() {
            return Err(AddressError::Unusable);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(AddressError::Thread)?;
        let (questions, asked) = sync_channel(1);
        std::thread::Builder::new()
            .name("extender".to_owned())
            .spawn(move || serve(&runtime, &asked, timeout))
            .map_err(AddressError::Thread)?;
        Ok(Self { prefix: prefix.trim_end_matches('/').to_owned(), timeout, questions })
    }

    /// Posts `question` to the path `verb`; the body of a good answer.
    pub(super) fn call(&self, verb: &str, question: &Value) -> Result<Bytes, CallError> {
        let body = serde_json::to_vec(question).map_err(CallError::Answer)?;
        if body.len() > BODY_MAX {
            return Err(CallError::TooLarge { limit: BODY_MAX });
        }
        let uri = format!("{}/{verb}", self.prefix).parse().map_err(|_| CallError::Status { status: 404 })?;
        let (answer, answered) = sync_channel(1);
        self.questions.send(Question { uri, body: body.into(), answer }).map_err(|_| CallError::Gone)?;
        let late = CallError::Timeout { limit: self.timeout };
        answered.recv_timeout(self.timeout.saturating_add(SLACK)).unwrap_or(Err(late))
    }
}

fn serve(runtime: &tokio::runtime::Runtime, asked: &Receiver<Question>, limit: Duration) {
    while let Ok(question) = asked.recv() {
        let Question { uri, body, answer } = question;
        let exchange = async { tokio::time::timeout(limit, exchange(&uri, body)).await };
        let outcome = runtime.block_on(exchange).unwrap_or(Err(CallError::Timeout { limit }));
        // Who asked may have stopped waiting.
        let _ = answer.send(outcome);
    }
}

async fn exchange(uri: &Uri, body: Bytes) -> Result<Bytes, CallError> {
    let broke = |error: &dyn fmt::Display| CallError::Connection(error.to_string());
    let host = uri.host().unwrap_or_default();
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await.map_err(|error| broke(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| broke(&error))?;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = http::Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(body))
        .map_err(|error| broke(&error))?;
    let reply = async {
        let response = sender.send_request(request).await.map_err(|error| broke(&error))?;
        if response.status() != http::StatusCode::OK {
            return Err(CallError::Status { status: response.status().as_u16() });
        }
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { CallError::TooLarge { limit: BODY_MAX } } else { broke(&error) }
        })?;
        Ok(body.to_bytes())
    };
    let mut reply = std::pin::pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => reply,
        // The connection may end with the answer already read.
        _ = connection => reply.await,
    }
}

//! Connections over TLS: HTTP/1.1 and HTTP/2, limits, graceful end.
//!
//! Invariant: whatever a peer does costs at most one connection for a bounded time, and a connection that was accepted is
//! answered to its end, also at the shutdown. Used by the API server's listener and by admission's.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Most connections at a time; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 4096;
/// Longest TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for a request's head.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most request header bytes.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// Most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1000;
/// How often an HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Pause after a failed accept (no more file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a connection ended badly.
pub type ConnectionError = Box<dyn Error + Send + Sync>;

/// Answers connections until `shutdown`: then stops accepting and lets requests under way finish for as long as `drain`.
/// `answering` makes what answers one connection, from the certificate that its peer showed.
pub async fn serve_connections<F, S, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    shutdown: CancellationToken,
    drain: Duration,
    answering: F,
) where
    F: Fn(Option<&CertificateDer<'static>>) -> Result<S, ConnectionError> + Clone + Send + Sync + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<ConnectionError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<ConnectionError>,
{
    let acceptor = TlsAcceptor::from(tls);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let permit = tokio::select! {
            () = shutdown.cancelled() => break,
            permit = Arc::clone(&room).acquire_owned() => permit,
        };
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (answering, acceptor, shutdown) = (answering.clone(), acceptor.clone(), shutdown.clone());
        connections.spawn(async move {
            let _permit = permit;
            if let Err(error) = connection(socket, acceptor, shutdown, answering).await {
                tracing::debug!(%peer, error = %error, "a connection ended");
            }
        });
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    let drained = tokio::time::timeout(drain, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(left = connections.len(), "requests are cut off by the shutdown");
        connections.shutdown().await;
    }
}

async fn connection<F, S, B>(
    socket: TcpStream,
    acceptor: TlsAcceptor,
    shutdown: CancellationToken,
    answering: F,
) -> Result<(), ConnectionError>
where
    F: Fn(Option<&CertificateDer<'static>>) -> Result<S, ConnectionError>,
    S: Service<Request<Incoming>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<ConnectionError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<ConnectionError>,
{
    socket.set_nodelay(true)?;
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await??;
    let service = answering(stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()))?;
    let builder = builder();
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

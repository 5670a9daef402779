//! Connections over TLS: HTTP/1.1 and HTTP/2, limits, graceful end.
//!
//! Invariant: whatever a peer does costs at most one connection for a bounded time, and a connection that was accepted is
//! answered to its end, also at the shutdown. A connection that became something else than HTTP (an upgrade) still counts,
//! but who took it over ends it. Used by the API server's listener and by admission's.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
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
/// `answering` makes what answers one connection, from its peer's address and the certificate that the peer showed.
pub async fn serve_connections<F, S, B>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    shutdown: CancellationToken,
    drain: Duration,
    answering: F,
) where
    F: Fn(SocketAddr, Option<&CertificateDer<'static>>) -> Result<S, ConnectionError> + Clone + Send + Sync + 'static,
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
            permit = Arc::clone(&room).acquire_owned() => permit.ok(),
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
            let answering = |certificate: Option<&_>| answering(peer, certificate);
            if let Err(error) = connection(socket, permit, acceptor, shutdown, answering).await {
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
    permit: Option<OwnedSemaphorePermit>,
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
    let counted = Counted { stream, _permit: permit };
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(counted), service));
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}

/// A connection with its share of the room, which it keeps when it is taken over.
struct Counted {
    stream: TlsStream<TcpStream>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
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

//! Connections over TLS, or plain ones where that is asked for: HTTP/1.1 and HTTP/2, limits, graceful end.
//!
//! Invariant: whatever a peer does costs at most one connection for a bounded time, and a connection that was accepted is
//! answered to its end, also at the shutdown. A new connection is always accepted: where there are too many,
//! [`ConnectionLimits`] choose one that goes. A connection that became something else than HTTP (an upgrade) still counts, but
//! who took it over ends it. Used by the API server's listener, by admission's, by the fleet's and by those of components.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use pumice_auth::{Authenticated, identity_of};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::http::body::Body;

mod activity;
mod limits;
mod transport;

use limits::{Ended, Seat};
use transport::{Counted, Transport};

pub(crate) use transport::ConnectionEnd;

pub use limits::ConnectionLimits;

/// How long a TLS handshake may take before the connection is closed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Most request header bytes.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// Most requests at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 1000;
/// Most bytes of requests that an HTTP/2 connection may send before they are read.
const WINDOW_BYTES: u32 = 256 * 1024;
/// How often an HTTP/2 connection is asked whether it lives, and how long it may take to say so.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// How long a connection that is overdue may take to end by itself.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed accept (no more file descriptors, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a connection ended badly.
pub type ConnectionError = Box<dyn Error + Send + Sync>;

/// Answers the requests of one connection. An answer that carries [`Authenticated`] shows whose the connection is.
pub type Handler = Box<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Body>> + Send>;

/// Makes the handler of one connection, from its peer's address and the certificate that the peer showed.
type Handlers =
    Arc<dyn Fn(SocketAddr, Option<&CertificateDer<'static>>) -> Result<Handler, ConnectionError> + Send + Sync>;

/// Answers connections until `shutdown`: then stops accepting and lets requests under way finish for as long as `drain`.
/// `handlers` makes what answers one connection.
pub fn serve_connections<F>(
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: Arc<ConnectionLimits>,
    shutdown: CancellationToken,
    drain: Duration,
    handlers: F,
) -> BoxFuture<'static, ()>
where
    F: Fn(SocketAddr, Option<&CertificateDer<'static>>) -> Result<Handler, ConnectionError> + Send + Sync + 'static,
{
    serve(Listening { listener, tls: Some(tls), limits, shutdown, drain }, Arc::new(handlers))
}

/// The same without TLS: whoever can listen to the network reads all of it. For listeners on loopback.
pub fn serve_plaintext_connections<F>(
    listener: TcpListener,
    limits: Arc<ConnectionLimits>,
    shutdown: CancellationToken,
    drain: Duration,
    handlers: F,
) -> BoxFuture<'static, ()>
where
    F: Fn(SocketAddr, Option<&CertificateDer<'static>>) -> Result<Handler, ConnectionError> + Send + Sync + 'static,
{
    serve(Listening { listener, tls: None, limits, shutdown, drain }, Arc::new(handlers))
}

/// A listener and how it is served.
struct Listening {
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    limits: Arc<ConnectionLimits>,
    shutdown: CancellationToken,
    drain: Duration,
}

/// Knows no types of its callers, so that HTTP is compiled here only and not by each of them.
fn serve(listening: Listening, handlers: Handlers) -> BoxFuture<'static, ()> {
    Box::pin(accept(listening, handlers))
}

async fn accept(listening: Listening, handlers: Handlers) {
    let Listening { listener, tls, limits, shutdown, drain } = listening;
    let acceptor = tls.map(TlsAcceptor::from);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (socket, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                limits.shrink();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let seat = limits.enter(peer.ip());
        let (handlers, acceptor, shutdown) = (Arc::clone(&handlers), acceptor.clone(), shutdown.clone());
        connections.spawn(async move {
            if let Err(error) = connection(socket, peer, seat, acceptor, shutdown, handlers).await {
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

async fn connection(
    socket: TcpStream,
    peer: SocketAddr,
    seat: Seat,
    acceptor: Option<TlsAcceptor>,
    shutdown: CancellationToken,
    handlers: Handlers,
) -> Result<(), ConnectionError> {
    socket.set_nodelay(true)?;
    let seat = Arc::new(seat);
    let (activity, end) = (Arc::clone(&seat.activity), seat.end.clone());
    let transport = match acceptor {
        None => Transport::Plain(socket),
        Some(acceptor) => {
            let shaking = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket));
            tokio::select! {
                shaken = shaking => {
                    Transport::Tls(Box::new(shaken.inspect_err(|_| seat.ends(Ended::HandshakeTimeout))??))
                }
                () = end.cancelled() => return Ok(()),
            }
        }
    };
    let certificate = transport.certificate();
    let handler = handlers(peer, certificate)?;
    let user = certificate.map(|certificate| identity_of(certificate)).transpose()?.map(|identity| identity.user);
    seat.shook_hands(user.as_deref());
    if let Some(certificate) = transport.certificate() {
        seat.showed(certificate);
    }
    let broken_off = ConnectionEnd(CancellationToken::new());
    let counted = Counted::new(transport, Arc::clone(&seat), &broken_off);
    let asked = Arc::clone(&seat);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(broken_off.clone());
        let (seat, answering) = (Arc::clone(&asked), asked.activity.request());
        handler(request).map(move |response| {
            if let Some(Authenticated(user)) = response.extensions().get() {
                seat.authenticated(user);
            }
            Ok::<_, Infallible>(response.map(|body| answering.offer(body)))
        })
    });
    let builder = builder();
    let mut connection = std::pin::pin!(builder.serve_connection_with_upgrades(TokioIo::new(counted), service));
    let mut overdue = std::pin::pin!(activity.overdue().fuse());
    let mut closing = std::pin::pin!(shutdown.cancelled().fuse());
    loop {
        tokio::select! {
            ended = connection.as_mut() => {
                // What still holds it then has taken it over.
                activity.upgrade();
                return ended;
            }
            () = end.cancelled() => return Ok(()),
            () = &mut closing => connection.as_mut().graceful_shutdown(),
            reason = &mut overdue => {
                seat.ends(reason);
                connection.as_mut().graceful_shutdown();
                return tokio::time::timeout(LEAVE_TIMEOUT, connection).await.unwrap_or(Ok(()));
            }
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // How long a head may take is a matter of the connection's activity.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEADER_BYTES_MAX as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

//! Connections over TLS, plain ones where that is asked for, and those of a local socket: HTTP/1.1 and HTTP/2, limits, graceful end.
//!
//! Invariant: whatever a peer does costs at most one connection for a bounded time, and a connection that was accepted is
//! answered to its end, also at the shutdown. A new connection is always accepted: where there are too many,
//! [`ConnectionLimits`] choose one that goes. A connection that became something else than HTTP (an upgrade) still counts, but
//! who took it over ends it. Used by the API server's listener, by admission's, by the fleet's and by those of components.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
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
use tokio::net::{TcpListener, TcpStream, UnixListener};
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

/// What answers one connection of a local socket, and the user that it is, where it is somebody.
pub(crate) type LocalHandler = (Handler, Option<String>);

/// Makes the handler of one connection, from its peer's address and the certificate that the peer showed.
type Handlers =
    Arc<dyn Fn(SocketAddr, Option<&CertificateDer<'static>>) -> Result<Handler, ConnectionError> + Send + Sync>;
/// The same of a local socket, from what the kernel says of the other end.
type LocalHandlers = Arc<dyn Fn(BorrowedFd<'_>) -> BoxFuture<'static, LocalHandler> + Send + Sync>;

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
    let listener = Listener::Network { listener, tls: Some(tls.into()), handlers: Arc::new(handlers) };
    serve(Listening { listener, limits, shutdown, drain })
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
    let listener = Listener::Network { listener, tls: None, handlers: Arc::new(handlers) };
    serve(Listening { listener, limits, shutdown, drain })
}

/// The same on a local socket, where the kernel says who connects.
pub(crate) fn serve_local_connections<F>(
    listener: UnixListener,
    limits: Arc<ConnectionLimits>,
    shutdown: CancellationToken,
    drain: Duration,
    handlers: F,
) -> BoxFuture<'static, ()>
where
    F: Fn(BorrowedFd<'_>) -> BoxFuture<'static, LocalHandler> + Send + Sync + 'static,
{
    let listener = Listener::Local { listener, handlers: Arc::new(handlers) };
    serve(Listening { listener, limits, shutdown, drain })
}

/// Where connections come in, and who answers them.
enum Listener {
    Network { listener: TcpListener, tls: Option<TlsAcceptor>, handlers: Handlers },
    Local { listener: UnixListener, handlers: LocalHandlers },
}

/// A peer that has shown who it is or that it is nobody: how bytes come and go from then on, what answers, and its user.
type Introduced = (Transport, Handler, Option<String>);

impl Listener {
    /// The next connection: whose it is until it has shown more, and the handshake.
    async fn accept(&self) -> io::Result<(IpAddr, BoxFuture<'static, Result<Introduced, ConnectionError>>)> {
        match self {
            Self::Network { listener, tls, handlers } => {
                let (socket, peer) = listener.accept().await?;
                let (tls, handlers) = (tls.clone(), Arc::clone(handlers));
                Ok((peer.ip(), Box::pin(introduce(socket, peer, tls, handlers))))
            }
            Self::Local { listener, handlers } => {
                let (socket, _) = listener.accept().await?;
                let uid = socket.peer_cred().map_or(u32::MAX, |credentials| credentials.uid());
                let handling = handlers(socket.as_fd());
                let introduced = handling.map(|(handler, user)| Ok((Transport::Local(socket), handler, user)));
                Ok((local_address(uid), Box::pin(introduced)))
            }
        }
    }
}

async fn introduce(
    socket: TcpStream,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    handlers: Handlers,
) -> Result<Introduced, ConnectionError> {
    socket.set_nodelay(true)?;
    let transport = match tls {
        None => Transport::Plain(socket),
        Some(tls) => Transport::Tls(Box::new(tls.accept(socket).await?)),
    };
    let certificate = transport.certificate();
    let handler = handlers(peer, certificate)?;
    let user = certificate.map(|certificate| identity_of(certificate)).transpose()?.map(|identity| identity.user);
    Ok((transport, handler, user))
}

/// Stands for a user of this machine among the addresses that limits count: of the range for private networks, one that nobody has.
fn local_address(uid: u32) -> IpAddr {
    Ipv6Addr::new(0xfd70, 0x756d, (uid >> 16) as u16, uid as u16, 0, 0, 0, 1).into()
}

/// A listener and how it is served.
struct Listening {
    listener: Listener,
    limits: Arc<ConnectionLimits>,
    shutdown: CancellationToken,
    drain: Duration,
}

/// Knows no types of its callers, so that HTTP is compiled here only and not by each of them.
fn serve(listening: Listening) -> BoxFuture<'static, ()> {
    Box::pin(accept(listening))
}

async fn accept(listening: Listening) {
    let Listening { listener, limits, shutdown, drain } = listening;
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (address, introduction) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                limits.shrink();
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let seat = limits.enter(address);
        let shutdown = shutdown.clone();
        connections.spawn(async move {
            if let Err(error) = connection(introduction, seat, shutdown).await {
                tracing::debug!(peer = %address, error = %error, "a connection ended");
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
    introduction: BoxFuture<'static, Result<Introduced, ConnectionError>>,
    seat: Seat,
    shutdown: CancellationToken,
) -> Result<(), ConnectionError> {
    let seat = Arc::new(seat);
    let (activity, end) = (Arc::clone(&seat.activity), seat.end.clone());
    let introduced = tokio::time::timeout(HANDSHAKE_TIMEOUT, introduction);
    let (transport, handler, user) = tokio::select! {
        introduced = introduced => introduced.inspect_err(|_| seat.ends(Ended::HandshakeTimeout))??,
        () = end.cancelled() => return Ok(()),
    };
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

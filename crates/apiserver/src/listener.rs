//! The socket: TLS, HTTP/1.1 and HTTP/2, limits, graceful end.
//!
//! Invariant: the identity of a request comes from the client certificate of its connection and from nothing else. Run
//! by `pumice up`.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use pumice_auth::{Identity, identity_of};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::pipeline::Closing;
use crate::server::ApiServer;

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
/// How long requests may take to end after the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl ApiServer {
    /// Answers connections until `shutdown`: then stops accepting, ends watches, and lets other requests finish for a
    /// few seconds.
    pub async fn serve(&self, listener: TcpListener, tls: Arc<ServerConfig>, shutdown: CancellationToken) {
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
            let (server, acceptor, shutdown) = (self.clone(), acceptor.clone(), shutdown.clone());
            connections.spawn(async move {
                let _permit = permit;
                if let Err(error) = server.connection(socket, acceptor, shutdown).await {
                    tracing::debug!(%peer, error = %error, "a connection ended");
                }
            });
            while connections.try_join_next().is_some() {}
        }
        drop(listener);
        let drained = tokio::time::timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(left = connections.len(), "requests are cut off by the shutdown");
            connections.shutdown().await;
        }
    }

    async fn connection(
        &self,
        socket: TcpStream,
        acceptor: TlsAcceptor,
        shutdown: CancellationToken,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        socket.set_nodelay(true)?;
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(socket)).await??;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let identity = match certificate {
            Some(certificate) => Some(identity_of(certificate)?),
            None => None,
        };
        let closing = Closing(shutdown.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let mut server = self.clone();
            server.call(with_identity(request, identity.as_ref(), &closing))
        });
        let builder = builder();
        let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }
}

/// Sets who the caller is; whatever a request brought along does not count.
fn with_identity(mut request: Request<Incoming>, identity: Option<&Identity>, closing: &Closing) -> Request<Incoming> {
    let extensions = request.extensions_mut();
    extensions.remove::<Identity>();
    if let Some(identity) = identity {
        extensions.insert(identity.clone());
    }
    extensions.insert(closing.clone());
    request
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

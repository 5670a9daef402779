//! The socket of the API server.
//!
//! Invariant: what a request brings along as its identity does not count: it is the client certificate's of its connection,
//! or a token's, which the pipeline reads. Run by `pumice up`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use pumice_auth::{Identity, identity_of};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Source;
use crate::context::Listener;
use crate::http::body::Body;
use crate::http::connections::{Handler, serve_connections};
use crate::server::ApiServer;

/// How long requests may take to end after the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

impl ApiServer {
    /// Answers connections until `shutdown`: then stops accepting, ends watches, and lets other requests finish for a
    /// few seconds.
    pub fn serve(
        &self,
        listener: TcpListener,
        tls: Arc<ServerConfig>,
        shutdown: CancellationToken,
    ) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let of = Listener { closing: shutdown.clone(), sockets: TaskTracker::new() };
            let sockets = of.sockets.clone();
            let server = self.clone();
            let handlers = move |peer: SocketAddr, certificate: Option<&CertificateDer<'static>>| {
                let identity = certificate.map(|certificate| identity_of(certificate)).transpose()?;
                let (server, of, source) = (server.clone(), of.clone(), Source(peer.ip()));
                let handler: Handler = Box::new(move |request| {
                    server.answer(with_identity(request, identity.as_ref(), source, &of).map(Body::new))
                });
                Ok(handler)
            };
            let limits = Arc::clone(&self.state.connections);
            serve_connections(listener, tls, limits, shutdown, DRAIN_TIMEOUT, handlers).await;
            sockets.close();
            if tokio::time::timeout(DRAIN_TIMEOUT, sockets.wait()).await.is_err() {
                tracing::warn!(left = sockets.len(), "watches over WebSockets are cut off by the shutdown");
            }
        })
    }
}

/// Sets who the caller is; whatever a request brought along does not count.
fn with_identity(
    mut request: Request<Incoming>,
    identity: Option<&Identity>,
    source: Source,
    of: &Listener,
) -> Request<Incoming> {
    let extensions = request.extensions_mut();
    extensions.remove::<Identity>();
    if let Some(identity) = identity {
        extensions.insert(identity.clone());
    }
    extensions.insert(source);
    extensions.insert(of.clone());
    request
}

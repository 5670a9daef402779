//! The sockets of the API server.
//!
//! Invariant: what a request brings along as its identity does not count: it is the client certificate's of its connection, what the
//! kernel says of the process at the other end of the local socket, or a token's, which the pipeline reads. Run by `pumice up`.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::Request;
use hyper::body::Incoming;
use pumice_auth::{Identity, LocalPeer, LocalPeers, PeerError, identity_of, valid_until};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Source;
use crate::authn::local_users::{LocalUsers, Unidentified};
use crate::context::{Listener, ShownBy, UnknownPeer};
use crate::http::body::Body;
use crate::http::connections::{Handler, LocalHandler, serve_connections, serve_local_connections};
use crate::server::ApiServer;

/// How long requests may take to end after the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How certificates and the local socket are called where it matters.
const CERTIFICATE: &str = "certificate";
const LOCAL_SOCKET: &str = "local socket";

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
                let until = certificate.map(|certificate| valid_until(certificate)).transpose()?;
                let sender = Sender::known(identity, ShownBy { what: CERTIFICATE, until });
                let (server, of, source) = (server.clone(), of.clone(), Source(peer.ip()));
                let handler: Handler = Box::new(move |request| {
                    server.answer(of_sender(request, sender.clone(), source, &of).map(Body::new))
                });
                Ok(handler)
            };
            let limits = Arc::clone(&self.state.connections);
            serve_connections(listener, tls, limits, shutdown, DRAIN_TIMEOUT, handlers).await;
            finish(&sockets).await;
        })
    }

    /// The same on a local socket, where the kernel says who connects: users of this machine are their tenants' users, root and the
    /// platform's own user are `administrator`, and everybody else is answered why he is nobody. A user's tenant is looked up for
    /// each request, so that one which is suspended ends at once.
    ///
    /// # Errors
    /// Where `/proc` does not say what this process is.
    pub fn serve_local(
        &self,
        listener: UnixListener,
        administrator: Identity,
        shutdown: CancellationToken,
    ) -> std::io::Result<BoxFuture<'static, ()>> {
        let users = Arc::new(LocalUsers::new(LocalPeers::of_this_process()?, own_uid()?, administrator));
        let (server, limits) = (self.clone(), Arc::clone(&self.state.connections));
        Ok(Box::pin(async move {
            let of = Listener { closing: shutdown.clone(), sockets: TaskTracker::new() };
            let sockets = of.sockets.clone();
            let handlers = move |socket: BorrowedFd<'_>| {
                let (server, users, of) = (server.clone(), Arc::clone(&users), of.clone());
                // At once: the longer it takes, the likelier it is that the process has ended.
                let peer = users.peer(socket);
                let handler = async move { local_handler(server, &users, peer, of).await };
                Box::pin(handler) as BoxFuture<'static, LocalHandler>
            };
            serve_local_connections(listener, limits, shutdown, DRAIN_TIMEOUT, handlers).await;
            finish(&sockets).await;
        }))
    }
}

/// Waits for what goes on over connections that became something else.
async fn finish(sockets: &TaskTracker) {
    sockets.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, sockets.wait()).await.is_err() {
        tracing::warn!(left = sockets.len(), "watches over WebSockets are cut off by the shutdown");
    }
}

/// The user that this process runs as.
fn own_uid() -> std::io::Result<u32> {
    use std::os::unix::fs::MetadataExt as _;
    Ok(std::fs::metadata("/proc/self")?.uid())
}

/// What answers a connection of the local socket.
async fn local_handler(
    server: ApiServer,
    users: &LocalUsers,
    peer: Result<LocalPeer, PeerError>,
    of: Listener,
) -> LocalHandler {
    let storage = Arc::clone(&server.state.storage);
    let user = match peer {
        Ok(peer) => users.user(peer, &storage.tenant_users.load(&storage.store)).await.map_err(Unidentified::from),
        Err(error) => Err(error.into()),
    };
    let user = user.map_err(|error| {
        tracing::info!(%error, "somebody at the local socket is nobody");
        error.status()
    });
    let sender = move || -> Sender {
        let identity = user.as_ref().map_err(Clone::clone).and_then(|user| {
            user.identity(&storage.tenant_users.load(&storage.store))
                .map_err(|error| Unidentified::from(error).status())
        });
        match identity {
            Ok(identity) => Sender::known(Some(identity), ShownBy { what: LOCAL_SOCKET, until: None }),
            Err(status) => Sender::Unknown(UnknownPeer(status)),
        }
    };
    let first = match sender() {
        Sender::Known(identity, _) => Some(identity.user),
        Sender::Nobody | Sender::Unknown(_) => None,
    };
    let source = Source(Ipv4Addr::LOCALHOST.into());
    let handler: Handler =
        Box::new(move |request| server.answer(of_sender(request, sender(), source, &of).map(Body::new)));
    (handler, first)
}

/// Who sends a request, as the listener knows.
#[derive(Clone)]
enum Sender {
    Known(Identity, ShownBy),
    /// He may show a token.
    Nobody,
    Unknown(UnknownPeer),
}

impl Sender {
    fn known(identity: Option<Identity>, shown_by: ShownBy) -> Self {
        identity.map_or(Self::Nobody, |identity| Self::Known(identity, shown_by))
    }
}

/// Sets who the caller is; whatever a request brought along does not count.
fn of_sender(mut request: Request<Incoming>, sender: Sender, source: Source, of: &Listener) -> Request<Incoming> {
    let extensions = request.extensions_mut();
    extensions.remove::<Identity>();
    match sender {
        Sender::Known(identity, shown_by) => {
            extensions.insert(identity);
            extensions.insert(shown_by);
        }
        Sender::Nobody => {}
        Sender::Unknown(unknown) => {
            extensions.insert(unknown);
        }
    }
    extensions.insert(source);
    extensions.insert(of.clone());
    request
}

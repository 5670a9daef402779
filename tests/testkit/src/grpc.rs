//! Services that tests have on this machine, without TLS.

use std::convert::Infallible;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Serves until what it gives is dropped.
pub fn serve<S>(listener: TcpListener, service: S) -> JoinSet<()>
where
    S: tower::Service<Request<Incoming>, Response = Response<tonic::body::Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let service = TowerToHyperService::new(service);
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let service = service.clone();
            connections.spawn(async move {
                auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await
            });
        }
    });
    tasks
}

//! `/metrics` and `/healthz` over plain HTTP, where the scheduler runs by itself.
//!
//! Invariant: few connections, short requests, no wait for a cycle: watching the scheduler never slows it down.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::ask::Handle;

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for a request's head, and for a connection that asks nothing.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Which of the two a listener answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// `/metrics`.
    pub metrics: bool,
    /// `/healthz`: 200 while the scheduler's process is alive.
    pub health: bool,
}

impl Handle {
    /// Answers until it is dropped.
    pub async fn serve(&self, listener: TcpListener, pages: Pages) {
        let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        loop {
            let permit = Arc::clone(&room).acquire_owned().await;
            let socket = match listener.accept().await {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!(%error, "connection for metrics not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let handle = self.clone();
            connections.spawn(async move {
                let service = service_fn(|request| std::future::ready(handle.page(&request, pages)));
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
                if let Err(error) = server.serve_connection(TokioIo::new(socket), service).await {
                    tracing::debug!(%error, "connection for metrics ended badly");
                }
                drop(permit);
            });
            while connections.try_join_next().is_some() {}
        }
    }

    fn page(&self, request: &Request<Incoming>, pages: Pages) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (code, kind, text) = match request.uri().path() {
            "/metrics" if pages.metrics && is_read => {
                (StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", self.metrics())
            }
            "/healthz" if pages.health && is_read => (StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned()),
            _ => {
                (StatusCode::NOT_FOUND, "text/plain; charset=utf-8", "not found; try /metrics or /healthz\n".to_owned())
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = code;
        response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        Ok(response)
    }
}

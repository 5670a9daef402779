//! `/metrics` and `/healthz` over plain HTTP, for components that run by themselves.
//!
//! Invariant: few connections, short requests, nothing but what a component says of itself at once: watching it never slows
//! it down. A connection lasts for a bounded time, whatever its peer does, and the oldest makes room for a new one: nobody
//! keeps others from looking. Run beside the component by the binary.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pumice_metrics::Page;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 64;
/// Longest time for a request's head, and for a connection that asks nothing.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest life of a connection: an answer that is not taken by then is given up.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a component says of itself. Neither answer waits for anything.
pub trait Vitals: Clone + Send + Sync + 'static {
    /// What it has counted, in the text format of Prometheus.
    fn metrics(&self) -> String;

    /// Whether it does its work, or would if it led.
    fn is_well(&self) -> bool {
        true
    }
}

/// Which of the two a listener answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    /// `/metrics`.
    pub metrics: bool,
    /// `/healthz`: 200 while the component is well.
    pub health: bool,
}

/// Answers until it is dropped.
pub async fn serve(vitals: impl Vitals, listener: TcpListener, pages: Pages) {
    let mut connections = JoinSet::new();
    let mut oldest_first = VecDeque::new();
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                tracing::warn!(%error, "connection for metrics not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let vitals = vitals.clone();
        let connection = connections.spawn(async move {
            let service = service_fn(|request| std::future::ready(page(&vitals, &request, pages)));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
            let serving = server.serve_connection(TokioIo::new(socket), service);
            if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await {
                tracing::debug!(%error, "connection for metrics ended badly");
            }
        });
        while connections.try_join_next().is_some() {}
        oldest_first.retain(|connection: &AbortHandle| !connection.is_finished());
        oldest_first.push_back(connection);
        if oldest_first.len() > CONNECTIONS_MAX
            && let Some(oldest) = oldest_first.pop_front()
        {
            oldest.abort();
        }
    }
}

fn page(vitals: &impl Vitals, request: &Request<Incoming>, pages: Pages) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (code, kind, text) = match request.uri().path() {
        "/metrics" if pages.metrics && is_read => (StatusCode::OK, METRICS, metrics(vitals)),
        "/healthz" if pages.health && is_read => match vitals.is_well() {
            true => (StatusCode::OK, PLAIN, "ok".to_owned()),
            false => (StatusCode::SERVICE_UNAVAILABLE, PLAIN, "not ready yet\n".to_owned()),
        },
        _ => (StatusCode::NOT_FOUND, PLAIN, "not found; try /metrics or /healthz\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// What the component has counted, and what its process has.
fn metrics(vitals: &impl Vitals) -> String {
    let mut page = Page::default();
    page.log_lines_lost();
    vitals.metrics() + &page.into_text()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    #[derive(Clone)]
    struct Component(Arc<AtomicBool>);

    impl Vitals for Component {
        fn metrics(&self) -> String {
            "m 1\n".to_owned()
        }

        fn is_well(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn each_listener_answers_what_it_is_for() {
        let is_well = Arc::new(AtomicBool::new(true));
        let mut serving = JoinSet::new();
        let mut listen = async |pages| {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let port = listener.local_addr().expect("an address").port();
            serving.spawn(serve(Component(Arc::clone(&is_well)), listener, pages));
            port
        };
        let both = listen(Pages { metrics: true, health: true }).await;
        let health = listen(Pages { metrics: false, health: true }).await;
        let ask = async |port: u16, line: &str| {
            let mut socket = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
            let request = format!("{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
            socket.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            socket.read_to_string(&mut answer).await.expect("an answer");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            (head.split(' ').nth(1).expect("a code").to_owned(), body.to_owned())
        };
        let page = metrics(&Component(Arc::clone(&is_well)));
        assert!(page.starts_with("m 1\n") && page.contains("\npumice_log_lines_lost_total 0\n"), "{page}");
        let said = |code: &str, body: &str| (code.to_owned(), body.to_owned());
        let nothing = said("404", "not found; try /metrics or /healthz\n");
        assert_eq!(ask(both, "GET /metrics").await, said("200", &page));
        assert_eq!(ask(both, "GET /healthz").await, said("200", "ok"));
        assert_eq!(ask(both, "HEAD /metrics").await, said("200", ""));
        assert_eq!(ask(both, "POST /metrics").await, nothing);
        assert_eq!(ask(both, "GET /").await, nothing);
        assert_eq!(ask(health, "GET /metrics").await, nothing);
        is_well.store(false, Ordering::Relaxed);
        assert_eq!(ask(health, "GET /healthz").await, said("503", "not ready yet\n"));
    }

    #[tokio::test]
    async fn whoever_says_nothing_keeps_nobody_out() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let component = Component(Arc::new(AtomicBool::new(true)));
        let mut serving = JoinSet::new();
        serving.spawn(serve(component, listener, Pages { metrics: true, health: true }));
        let mut silent = Vec::new();
        for _ in 0..2 * CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.expect("a connection"));
        }
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        let request = "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        socket.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        let answered = tokio::time::timeout(HEADER_TIMEOUT / 2, socket.read_to_string(&mut answer)).await;
        answered.expect("at once").expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

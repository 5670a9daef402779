//! A client that has no more writes under way than the API server keeps up with.
//!
//! Invariant: of all writes through one paced client and its clones, at most a [`Window`]'s limit are under way; reads
//! and watches pass at once. A write that waits for room has not been sent, so dropping it undoes nothing. Each write that was
//! answered is counted, by what it was about and the answer's code.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Counts, Histogram, Page};
use crate::window::Window;

/// Milliseconds up to which one write falls into each class.
const BOUNDS_MS: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 5_000.0, 30_000.0];

/// The same client, its writes paced: many at once while the server answers, fewer when it is slow or asks to slow down.
/// Needs a tokio runtime. What its writes come to is told by the [`Pace`].
pub fn paced(client: Client) -> (Client, Pace) {
    let namespace = client.default_namespace().to_owned();
    let pace = Pace(Arc::new(Shared {
        window: Mutex::new(Window::default()),
        room: Notify::new(),
        answers: Counts::new(["verb", "resource", "code"]),
        times: Histogram::new(BOUNDS_MS),
    }));
    (Client::new(Paced { client, pace: pace.clone() }, namespace), pace)
}

/// The writes of a paced client; cheap to clone.
#[derive(Debug, Clone)]
pub struct Pace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    window: Mutex<Window>,
    /// Woken, one after another, while there is room.
    room: Notify,
    answers: Counts<3>,
    times: Histogram,
}

#[derive(Clone)]
struct Paced {
    client: Client,
    pace: Pace,
}

impl Pace {
    /// Writes what was counted, each name with `prefix` before it.
    pub fn write(&self, page: &mut Page, prefix: &str) {
        let shared = &*self.0;
        let help = "Writes that the API server has answered, by what was written and the code";
        page.counts(&format!("{prefix}_writes_total"), help, &shared.answers);
        let help = "From the sending of a write to its answer, in milliseconds";
        page.histogram(&format!("{prefix}_write_milliseconds"), help, &[], &shared.times);
        let (under_way, limit) = {
            let window = shared.window();
            (window.in_flight() as u64, window.limit() as u64)
        };
        page.gauge(&format!("{prefix}_calls"), "Writes under way", under_way);
        page.gauge(&format!("{prefix}_calls_limit"), "Most writes that may be under way at once", limit);
    }
}

impl Shared {
    fn window(&self) -> MutexGuard<'_, Window> {
        // A window is whole at every moment.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and takes it.
    async fn enter(&self) -> Passage<'_> {
        loop {
            if self.try_enter() {
                return Passage { pace: self, overloaded: false };
            }
            let woken = self.room.notified();
            tokio::pin!(woken);
            // Heard from here on; room that came before is seen by the second look.
            woken.as_mut().enable();
            if self.try_enter() {
                return Passage { pace: self, overloaded: false };
            }
            woken.await;
        }
    }

    fn try_enter(&self) -> bool {
        let mut window = self.window();
        if !window.has_room() {
            return false;
        }
        window.started();
        let more = window.has_room();
        drop(window);
        if more {
            // The window may have grown by several places, and whoever leaves wakes one.
            self.room.notify_one();
        }
        true
    }
}

/// A place in the window; left when dropped, be it answered or given up.
struct Passage<'p> {
    pace: &'p Shared,
    overloaded: bool,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let mut window = self.pace.window();
        window.answered(self.overloaded);
        let room = window.has_room();
        drop(window);
        if room {
            self.pace.room.notify_one();
        }
    }
}

/// Verb and resource of a write, as rights and kubectl name them: `patch` and `jobs.batch.volcano.sh/status`.
fn written<'r>(method: &Method, path: &'r str) -> (&'static str, String) {
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "other",
    };
    let mut parts = path.trim_matches('/').split('/');
    let group: Option<&'r str> = match parts.next() {
        Some("api") => Some(""),
        Some("apis") => parts.next(),
        _ => None,
    };
    let rest: Vec<&str> = parts.skip(1).collect();
    let rest = match rest[..] {
        ["namespaces", _, _, ..] => &rest[2..],
        _ => &rest[..],
    };
    let (Some(group), Some(resource)) = (group, rest.first()) else { return (verb, "other".to_owned()) };
    let dot = if group.is_empty() { "" } else { "." };
    let subresource = rest.get(2).map(|name| format!("/{name}")).unwrap_or_default();
    (verb, format!("{resource}{dot}{group}{subresource}"))
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether an answer means that the server has no time, as [`failure`](crate::failure) sorts it.
fn is_overloaded(answer: &Result<Response<Body>, kube::Error>) -> bool {
    match answer {
        Ok(response) => {
            let code = response.status();
            matches!(code, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) || code.is_server_error()
        }
        Err(_) => true,
    }
}

impl tower::Service<Request<Body>> for Paced {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, pace } = self.clone();
        Box::pin(async move {
            if is_read(request.method()) {
                return client.send(request).await;
            }
            let shared = &*pace.0;
            let (verb, resource) = written(request.method(), request.uri().path());
            let mut passage = shared.enter().await;
            let sent = Instant::now();
            let answer = client.send(request).await;
            passage.overloaded = is_overloaded(&answer);
            shared.times.observe(sent.elapsed());
            let code = answer.as_ref().ok().map(Response::status);
            shared.answers.add([verb, &resource, code.as_ref().map_or("none", StatusCode::as_str)]);
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;
    use tokio::task::JoinSet;

    use super::*;

    /// A server that answers when told to, and counts what is under way.
    #[derive(Clone)]
    struct Server {
        under_way: Arc<AtomicUsize>,
        most: Arc<AtomicUsize>,
        answered: Arc<AtomicUsize>,
        answers: Arc<Semaphore>,
        code: StatusCode,
    }

    impl Server {
        fn new(code: StatusCode) -> Self {
            let answers = Arc::new(Semaphore::new(0));
            Self { under_way: Arc::default(), most: Arc::default(), answered: Arc::default(), answers, code }
        }

        fn client(&self) -> Client {
            self.paced().0
        }

        fn paced(&self) -> (Client, Pace) {
            let server = self.clone();
            paced(crate::client_over(tower::service_fn(move |_: Request<Body>| {
                let server = server.clone();
                async move {
                    let now = server.under_way.fetch_add(1, Ordering::SeqCst) + 1;
                    server.most.fetch_max(now, Ordering::SeqCst);
                    server.answers.acquire().await.expect("never closed").forget();
                    server.under_way.fetch_sub(1, Ordering::SeqCst);
                    server.answered.fetch_add(1, Ordering::SeqCst);
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = server.code;
                    Ok::<_, Infallible>(response)
                }
            })))
        }

        async fn has(&self, under_way: usize) {
            reaches(&self.under_way, under_way).await;
        }
    }

    async fn reaches(count: &AtomicUsize, value: usize) {
        while count.load(Ordering::SeqCst) != value {
            tokio::task::yield_now().await;
        }
    }

    /// Makes so many calls of a method side by side.
    fn calls(client: &Client, method: &Method, count: usize) -> JoinSet<StatusCode> {
        let mut calls = JoinSet::new();
        for _ in 0..count {
            let client = client.clone();
            let request = Request::builder().method(method).uri("/api/v1/namespaces/a/pods").body(Body::empty());
            calls.spawn(async move { client.send(request.expect("a request")).await.expect("an answer").status() });
        }
        calls
    }

    #[tokio::test]
    async fn writes_wait_for_room_and_all_get_through() {
        let server = Server::new(StatusCode::CREATED);
        let writes = calls(&server.client(), &Method::POST, 1_000);
        server.has(32).await;
        server.answers.add_permits(1_000);
        assert_eq!(writes.join_all().await, [StatusCode::CREATED; 1_000]);
        assert!(server.most.load(Ordering::SeqCst) <= 512, "never more than the window's limit");
    }

    #[test]
    fn a_write_is_named_as_rights_name_it() {
        for (method, path, wanted) in [
            (Method::POST, "/api/v1/namespaces/a/pods", ("create", "pods")),
            (Method::POST, "/api/v1/namespaces/a/pods/p/binding", ("create", "pods/binding")),
            (Method::DELETE, "/api/v1/namespaces/a", ("delete", "namespaces")),
            (
                Method::PATCH,
                "/apis/batch.volcano.sh/v1alpha1/namespaces/a/jobs/j/status",
                ("patch", "jobs.batch.volcano.sh/status"),
            ),
            (Method::PUT, "/apis/scheduling.volcano.sh/v1beta1/queues/q", ("update", "queues.scheduling.volcano.sh")),
            (Method::POST, "/apis", ("create", "other")),
            (Method::POST, "/", ("create", "other")),
        ] {
            let (verb, resource) = written(&method, path);
            assert_eq!((verb, resource.as_str()), wanted, "{path}");
        }
    }

    #[tokio::test]
    async fn what_was_answered_is_counted_and_reads_are_not() {
        let server = Server::new(StatusCode::CREATED);
        let (client, pace) = server.paced();
        server.answers.add_permits(4);
        calls(&client, &Method::POST, 3).join_all().await;
        calls(&client, &Method::GET, 1).join_all().await;
        let mut page = Page::default();
        pace.write(&mut page, "x");
        let text = page.into_text();
        for line in [
            "x_writes_total{verb=\"create\",resource=\"pods\",code=\"201\"} 3\n",
            "x_write_milliseconds_count 3\n",
            "x_calls 0\n",
            "x_calls_limit 32\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[tokio::test]
    async fn reads_pass_a_full_window() {
        let server = Server::new(StatusCode::OK);
        let client = server.client();
        let writes = calls(&client, &Method::PATCH, 40);
        server.has(32).await;
        let read = calls(&client, &Method::GET, 1);
        server.has(33).await;
        server.answers.add_permits(41);
        assert_eq!(read.join_all().await, [StatusCode::OK]);
        writes.join_all().await;
    }

    #[tokio::test]
    async fn a_server_that_asks_to_slow_down_gets_fewer() {
        let server = Server::new(StatusCode::TOO_MANY_REQUESTS);
        let writes = calls(&server.client(), &Method::DELETE, 200);
        server.has(32).await;
        server.answers.add_permits(32);
        reaches(&server.answered, 32).await;
        // What was under way together halves the window once.
        server.has(16).await;
        server.most.store(0, Ordering::SeqCst);
        server.answers.add_permits(168);
        writes.join_all().await;
        assert!(server.most.load(Ordering::SeqCst) <= 16, "more than the halved window");
    }

    #[tokio::test]
    async fn a_call_that_is_given_up_leaves_its_place() {
        let server = Server::new(StatusCode::OK);
        let client = server.client();
        let mut first = calls(&client, &Method::POST, 32);
        server.has(32).await;
        let waiting = calls(&client, &Method::POST, 1);
        first.shutdown().await;
        server.answers.add_permits(1);
        assert_eq!(waiting.join_all().await, [StatusCode::OK]);
    }
}

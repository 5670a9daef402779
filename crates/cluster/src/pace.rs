//! A client that has no more writes under way than the API server keeps up with.
//!
//! Invariant: of all writes through one paced client and its clones, at most a [`Window`]'s limit are under way; reads
//! and watches pass at once. A write that waits for room has not been sent, so dropping it undoes nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::sync::Notify;

use crate::window::Window;

/// The same client, its writes paced: many at once while the server answers, fewer when it is slow or asks to slow down.
/// Needs a tokio runtime.
pub fn paced(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    Client::new(
        Paced { client, pace: Arc::new(Pace { window: Mutex::new(Window::default()), room: Notify::new() }) },
        namespace,
    )
}

struct Pace {
    window: Mutex<Window>,
    /// Woken, one after another, while there is room.
    room: Notify,
}

#[derive(Clone)]
struct Paced {
    client: Client,
    pace: Arc<Pace>,
}

impl Pace {
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
    pace: &'p Pace,
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
            let mut passage = pace.enter().await;
            let answer = client.send(request).await;
            passage.overloaded = is_overloaded(&answer);
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

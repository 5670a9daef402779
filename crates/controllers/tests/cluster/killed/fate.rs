//! When controllers are killed, and how.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _};
use http::{Method, Request, Response};
use kube::Client;
use pumice_apiserver::{Body, ClientService};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Calls that count towards a kill.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Counted {
    /// Every call, so that a kill may come while everything is being listed.
    Any,
    /// Every write.
    Writes,
    /// Writes of anything but pods: there are few of them, and most decide something.
    Rare,
}

/// When a life is killed: at one of the calls that are counted.
#[derive(Clone, Copy, Debug)]
struct Fate {
    counted: Counted,
    /// The call at which it comes, from 1.
    at: i64,
    /// Whether that call is carried out.
    arrives: bool,
}

/// The kills of a life.
pub struct Fates {
    seed: u64,
    left: usize,
}

impl Fates {
    pub fn none() -> Self {
        Self { seed: 1, left: 0 }
    }

    pub fn of(seed: u64, kills: usize) -> Self {
        Self { seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, left: kills }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) % below
    }

    fn next(&mut self) -> Option<Fate> {
        self.left = self.left.checked_sub(1)?;
        let (counted, among) = match self.draw(8) {
            0 => (Counted::Any, 12),
            1..4 => (Counted::Rare, 4),
            _ => (Counted::Writes, 200),
        };
        let at = i64::try_from(1 + self.draw(among)).unwrap();
        Some(Fate { counted, at, arrives: self.draw(2) == 0 })
    }
}

/// The API as long as the controllers live.
#[derive(Clone)]
struct Mortal {
    inner: ClientService,
    fate: Option<Fate>,
    left: Arc<AtomicI64>,
    dead: Arc<Notify>,
}

impl Mortal {
    fn counts(&self, request: &Request<kube::client::Body>) -> bool {
        let path = request.uri().path();
        let writes = request.method() != Method::GET && !path.contains("/events");
        match self.fate.map(|fate| fate.counted) {
            None => false,
            Some(Counted::Any) => true,
            Some(Counted::Writes) => writes,
            Some(Counted::Rare) => writes && !path.contains("/pods"),
        }
    }
}

impl Service<Request<kube::client::Body>> for Mortal {
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Request<kube::client::Body>>::poll_ready(&mut self.inner, context)
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let counts = self.counts(&request);
        let left = self.left.fetch_sub(i64::from(counts), Ordering::SeqCst) - i64::from(counts);
        if left > 0 {
            return self.inner.call(request).boxed();
        }
        let dead = Arc::clone(&self.dead);
        let arrives = counts && left == 0 && self.fate.is_some_and(|fate| fate.arrives);
        let last = arrives.then(|| self.inner.call(request));
        async move {
            if let Some(last) = last {
                drop(last.await);
            }
            dead.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

/// Controllers that are started again whenever they were killed.
pub struct Controllers {
    stop: oneshot::Sender<()>,
    task: JoinHandle<usize>,
}

impl Controllers {
    #[allow(clippy::disallowed_methods, reason = "the test supervises the controllers itself")]
    pub fn start(service: ClientService, mut fates: Fates) -> Self {
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut kills = 0;
            loop {
                let fate = fates.next();
                let dead = Arc::new(Notify::new());
                let left = Arc::new(AtomicI64::new(fate.map_or(i64::MAX, |fate| fate.at)));
                let mortal = Mortal { inner: service.clone(), fate, left, dead: Arc::clone(&dead) };
                let controllers = pumice_controllers::Options::new(Client::new(mortal, "default")).build();
                let running = tokio::spawn(controllers.run(CancellationToken::new()));
                let ends = tokio::select! {
                    () = dead.notified() => false,
                    _ = &mut stopped => true,
                };
                running.abort();
                assert!(
                    running.await.is_err_and(|error| error.is_cancelled()),
                    "the controllers stopped by themselves"
                );
                if ends {
                    return kills;
                }
                kills += 1;
            }
        });
        Self { stop, task }
    }

    /// Stops them; tells how often they were killed.
    pub async fn stop(self) -> usize {
        self.stop.send(()).unwrap();
        self.task.await.unwrap()
    }
}

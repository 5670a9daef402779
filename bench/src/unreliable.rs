//! A way to the API server on which binds are slow, overtake one another, fail, and get lost on the way there or back.
//!
//! Invariant: which call meets which fault follows from the seed and the order of the calls; all but binds goes through
//! as it is.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use pumice_apiserver::ClientService;
use tower::{BoxError, Service};

/// Longest delay of most binds.
const DELAY_MAX_MS: u64 = 20;
/// Delay of one bind in a hundred.
const DELAY_LONG: Duration = Duration::from_secs(1);

/// How many binds met what.
#[derive(Debug, Default)]
pub struct Met {
    calls: AtomicU64,
    /// Refused by the server, or so it seems, before anything was done.
    pub refused: AtomicU64,
    /// Lost before they reached the server.
    pub lost: AtomicU64,
    /// Made, but the answer was lost.
    pub unanswered: AtomicU64,
}

/// The service of a client whose binds meet faults.
#[derive(Clone)]
pub struct Unreliable {
    inner: ClientService,
    seed: u64,
    met: Arc<Met>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Refused,
    Lost,
    Unanswered,
}

impl Unreliable {
    /// Faults that follow from `seed`, counted in `met`.
    pub fn new(inner: ClientService, seed: u64, met: Arc<Met>) -> Self {
        Self { inner, seed, met }
    }

    fn draw(&self) -> (Duration, Option<Fault>) {
        let drawn = mixed(self.seed.wrapping_add(self.met.calls.fetch_add(1, Ordering::Relaxed)));
        let delay = match drawn >> 32 & 127 {
            0 => DELAY_LONG,
            _ => Duration::from_millis((drawn >> 40) % (DELAY_MAX_MS + 1)),
        };
        let fault = match drawn % 100 {
            0 => Some((Fault::Refused, &self.met.refused)),
            1 => Some((Fault::Lost, &self.met.lost)),
            2 => Some((Fault::Unanswered, &self.met.unanswered)),
            _ => None,
        };
        let fault = fault.map(|(fault, count)| {
            count.fetch_add(1, Ordering::Relaxed);
            fault
        });
        (delay, fault)
    }
}

/// A number that looks drawn: the finaliser of splitmix64 (Steele, Lea, Flood 2014).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

impl<B> Service<Request<B>> for Unreliable
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Answer, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut inner = self.inner.clone();
        let binds = request.method() == Method::POST && request.uri().path().ends_with("/binding");
        let (delay, fault) = if binds { self.draw() } else { (Duration::ZERO, None) };
        Box::pin(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            match fault {
                Some(Fault::Refused) => Ok(overloaded()),
                Some(Fault::Lost) => Err("connection reset".into()),
                Some(Fault::Unanswered) => {
                    let _: Result<_, Infallible> = inner.call(request).await;
                    Err("connection reset".into())
                }
                None => {
                    let answer: Result<Response<_>, Infallible> = inner.call(request).await;
                    Ok(answer?.map(|body| body.map_err(Into::into).boxed_unsync()))
                }
            }
        })
    }
}

fn overloaded() -> Answer {
    const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too busy","reason":"ServiceUnavailable","code":503}"#;
    let mut answer = Response::new(Full::new(Bytes::from_static(STATUS.as_bytes())).map_err(Into::into).boxed_unsync());
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    answer
}

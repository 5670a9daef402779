//! The bare load generator: calls of the API, so many in flight, and nothing else.
//!
//! Invariant: bodies are made beforehand and answers are not parsed, so that what is measured is the server and the
//! connection. Works over any client: through a socket, or straight to a server in this process.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use pumice_cluster::Client;
use serde_json::Value;
use tokio::task::JoinSet;

/// A request that is sent again and again.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    path: String,
    kind: &'static str,
    body: Vec<u8>,
}

impl Call {
    /// A POST of `object`.
    pub fn create(path: impl Into<String>, object: &Value) -> Call {
        Call {
            method: Method::POST,
            path: path.into(),
            kind: "application/json",
            body: object.to_string().into_bytes(),
        }
    }

    /// A `PATCH` with a merge patch.
    pub fn patch(path: impl Into<String>, patch: &Value) -> Call {
        let kind = "application/merge-patch+json";
        Call { method: Method::PATCH, path: path.into(), kind, body: patch.to_string().into_bytes() }
    }

    /// A `GET` without a body.
    pub fn get(path: impl Into<String>) -> Call {
        Call { method: Method::GET, path: path.into(), kind: "application/json", body: Vec::new() }
    }

    /// Removes an object at once.
    pub fn delete(path: &str) -> Call {
        let path = format!("{path}?gracePeriodSeconds=0");
        Call { method: Method::DELETE, path, kind: "application/json", body: Vec::new() }
    }

    async fn make(self, client: &Client) -> Result<StatusCode, String> {
        let request = Request::builder().method(self.method).uri(&self.path).header(header::CONTENT_TYPE, self.kind);
        let request = request.body(self.body.into()).map_err(|error| error.to_string())?;
        let response = client.send(request).await.map_err(|error| error.to_string())?;
        let code = response.status();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        if code.is_success() {
            return Ok(code);
        }
        Err(format!("{} {code}: {}", self.path, String::from_utf8_lossy(&body)))
    }
}

/// What came of a load.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// From the first call to the last answer.
    pub wall: Duration,
    /// How long each call took.
    pub times: Vec<Duration>,
}

impl Outcome {
    /// Calls per second, over the whole run.
    #[allow(clippy::cast_precision_loss)]
    pub fn rate(&self) -> f64 {
        self.times.len() as f64 / self.wall.as_secs_f64()
    }
}

/// Makes all calls, `in_flight` at a time, in order of their start. Every call must succeed.
///
/// # Errors
/// With the first call that failed, and what the server said; the rest is not made.
#[allow(clippy::disallowed_methods)] // a benchmark's own clock
pub async fn run(client: &Client, in_flight: usize, calls: Vec<Call>) -> anyhow::Result<Outcome> {
    let count = calls.len();
    let waiting = Arc::new(Mutex::new(calls.into_iter()));
    let begin = Instant::now();
    let mut workers = JoinSet::new();
    for _ in 0..in_flight.min(count) {
        let (client, waiting) = (client.clone(), Arc::clone(&waiting));
        workers.spawn(async move {
            let mut times = Vec::new();
            loop {
                let next = waiting.lock().map_err(|_| "another worker panicked".to_owned())?.next();
                let Some(call) = next else { return Ok::<_, String>(times) };
                let begin = Instant::now();
                call.make(&client).await?;
                times.push(begin.elapsed());
            }
        });
    }
    let mut times = Vec::with_capacity(count);
    while let Some(worker) = workers.join_next().await {
        times.extend(worker?.map_err(anyhow::Error::msg)?);
    }
    Ok(Outcome { wall: begin.elapsed(), times })
}

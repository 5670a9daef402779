//! What the node answers as the kubelet does: logs, what pods use, programs beside those that run, and connections to pods'
//! ports.
//!
//! Invariant: a request is a path and a query; what goes on after its answer has a place among the [`Sessions`].

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};

use super::exec;
use super::launch::Launcher;
use super::log_service::{self, NodeBody, PodIndex};
use super::port_forward;
use super::retained_logs::RetainedLogs;
use super::sessions::{Place, Sessions};
use super::usage::Usage;

/// Answers the kubelet's paths; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NodeService {
    pods: PodIndex,
    retained: Arc<RetainedLogs>,
    shim: Arc<Launcher>,
    sessions: Sessions,
    usage: Usage,
}

impl NodeService {
    pub(crate) fn new(pods: PodIndex, retained: Arc<RetainedLogs>, shim: Launcher, usage: Usage) -> Self {
        NodeService { pods, retained, shim: Arc::new(shim), sessions: Sessions::new(), usage }
    }

    /// Ends what goes on.
    pub(crate) async fn end(&self) {
        self.sessions.end().await;
    }

    /// Answers one request; what is wrong with it is said in the answer. Needs a runtime: a stream goes on in a task.
    pub(crate) fn answer(&self, request: Request<()>) -> Response<NodeBody> {
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let parts: Vec<&str> = path.split('/').collect();
        match parts.as_slice() {
            ["containerLogs", namespace, pod, container] => {
                log_service::serve(&self.pods, [namespace, pod, container], &request)
            }
            ["retainedLogs", namespace, owner] => log_service::retained(&self.retained, [namespace, owner]),
            ["retainedLogs", namespace, owner, uid, container, restart] => {
                log_service::serve_retained(&self.retained, [namespace, owner, uid, container], restart, &request)
            }
            ["exec", namespace, pod, container] => self.with_place(namespace, pod, |place| {
                exec::serve(&self.pods, &self.shim, place, [namespace, pod, container], request)
            }),
            ["portForward", namespace, pod] => self
                .with_place(namespace, pod, |place| port_forward::serve(&self.pods, place, [namespace, pod], request)),
            ["stats", "summary"] => self.usage.serve(),
            _ => text(StatusCode::NOT_FOUND, "the server could not find the requested resource"),
        }
    }

    fn with_place(
        &self,
        namespace: &str,
        pod: &str,
        serve: impl FnOnce(Place) -> Response<NodeBody>,
    ) -> Response<NodeBody> {
        match self.sessions.place(namespace, pod) {
            Ok(place) => serve(place),
            Err(full) => text(StatusCode::TOO_MANY_REQUESTS, &full.to_string()),
        }
    }
}

/// An answer in JSON.
pub(super) fn json(body: Vec<u8>) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(body))));
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// An answer of one line.
pub(super) fn text(code: StatusCode, said: &str) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(said.to_owned()))));
    *response.status_mut() = code;
    response
}

/// No body.
pub(super) fn empty() -> NodeBody {
    whole(Empty::new())
}

fn whole<B>(body: B) -> NodeBody
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
{
    body.map_err(|never| match never {}).boxed()
}

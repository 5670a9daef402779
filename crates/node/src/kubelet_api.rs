//! What the node answers as the kubelet does: logs, what pods use, programs beside those that run, the streams of those, and
//! connections to pods' ports.
//!
//! Invariant: a request is a path and a query; what goes on after its answer has a place among the [`Sessions`].

mod attach;
mod container_streams;
mod exec;
mod logs;
mod port_forward;
pub(crate) mod sessions;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};

use crate::launcher::Launcher;
use crate::logs::retained::{RetainedContainer, RetainedLogs};
use crate::pod_index::PodIndex;
use crate::usage::Usage;
use sessions::{SessionSlot, Sessions};

/// The body of an answer.
pub type NodeBody = BoxBody<Bytes, io::Error>;

/// Answers the kubelet's paths; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NodeService {
    pods: PodIndex,
    retained: Arc<RetainedLogs>,
    shim: Arc<Launcher>,
    sessions: Sessions,
    usage: Usage,
}

/// The container that a path names.
#[derive(Clone, Copy)]
struct ContainerPath<'a> {
    namespace: &'a str,
    pod: &'a str,
    container: &'a str,
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
                logs::serve(&self.pods, ContainerPath { namespace, pod, container }, &request)
            }
            ["retainedLogs", namespace, owner] => logs::retained(&self.retained, namespace, owner),
            ["retainedLogs", namespace, owner, uid, container, restart] => {
                let container = RetainedContainer { namespace, owner, uid, container };
                logs::serve_retained(&self.retained, container, restart, &request)
            }
            ["exec", namespace, pod, container] => self.with_slot(namespace, pod, |slot| {
                let path = ContainerPath { namespace, pod, container };
                exec::serve(&self.pods, &self.shim, slot, path, request)
            }),
            ["attach", namespace, pod, container] => self.with_slot(namespace, pod, |slot| {
                attach::serve(&self.pods, slot, ContainerPath { namespace, pod, container }, request)
            }),
            ["portForward", namespace, pod] => {
                self.with_slot(namespace, pod, |slot| port_forward::serve(&self.pods, slot, namespace, pod, request))
            }
            ["stats", "summary"] => json(self.usage.summary().to_string().into_bytes()),
            _ => text(StatusCode::NOT_FOUND, "the server could not find the requested resource"),
        }
    }

    fn with_slot(
        &self,
        namespace: &str,
        pod: &str,
        serve: impl FnOnce(SessionSlot) -> Response<NodeBody>,
    ) -> Response<NodeBody> {
        match self.sessions.reserve(namespace, pod) {
            Ok(slot) => serve(slot),
            Err(full) => text(StatusCode::TOO_MANY_REQUESTS, &full.to_string()),
        }
    }
}

/// An answer in JSON.
fn json(body: Vec<u8>) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(body))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer of one line.
fn text(code: StatusCode, said: &str) -> Response<NodeBody> {
    let mut response = Response::new(whole(Full::new(Bytes::from(said.to_owned()))));
    *response.status_mut() = code;
    response
}

/// The body of an answer after which the connection is another protocol's.
fn empty() -> NodeBody {
    whole(Empty::new())
}

fn whole<B>(body: B) -> NodeBody
where
    B: http_body::Body<Data = Bytes, Error = Infallible> + Send + Sync + 'static,
{
    body.map_err(|never| match never {}).boxed()
}

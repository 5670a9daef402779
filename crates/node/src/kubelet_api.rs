//! What the node answers as the kubelet does: logs, what pods use, programs beside those that run, and connections to pods'
//! ports.
//!
//! Invariant: a request is a path and a query; what goes on after its answer has a place among the [`Sessions`].

mod exec;
mod logs;
mod port_forward;
pub(crate) mod sessions;

use std::sync::Arc;

use http::{Request, Response, StatusCode};

use crate::answers::{NodeBody, text};
use crate::launcher::Launcher;
use crate::logs::retained::{RetainedContainer, RetainedLogs};
use crate::pod_index::PodIndex;
use crate::usage::Usage;
use sessions::{SessionSlot, Sessions};

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
            ["portForward", namespace, pod] => {
                self.with_slot(namespace, pod, |slot| port_forward::serve(&self.pods, slot, namespace, pod, request))
            }
            ["stats", "summary"] => self.usage.serve(),
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

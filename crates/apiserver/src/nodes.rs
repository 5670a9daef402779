//! The seam to the nodes: who carries a request to the agent of a pod's node.

pub(crate) mod remote;

use futures::future::BoxFuture;
use http::{Request, Response};

use crate::http::body::Body;

/// Why a node did not answer.
#[derive(Debug, thiserror::Error)]
pub enum NodeProxyError {
    /// No agent of that name is connected.
    #[error("node {node:?} is not connected")]
    NotConnected { node: String },
    /// The agent did not answer.
    #[error("node {node:?} did not answer: {cause}")]
    Call { node: String, cause: String },
}

/// Carries requests to nodes.
pub trait NodeProxy: Send + Sync + 'static {
    /// Sends `request` (a path of the kubelet's API, `/containerLogs/{namespace}/{pod}/{container}`) to `node`.
    ///
    /// `/exec/...` and `/portForward/...` carry a WebSocket's handshake, and the client's connection as a
    /// [`hyper::upgrade::OnUpgrade`] among the extensions: a node that answers 101 takes it.
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>>;
}

/// A cluster without agents.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNodes;

impl NodeProxy for NoNodes {
    fn call(&self, node: &str, _: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        let node = node.to_owned();
        Box::pin(async move { Err(NodeProxyError::NotConnected { node }) })
    }
}

//! API groups that another component answers, behind this server's authentication and rights.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};

use crate::http::body::Body;
use crate::http::request::Verb;

/// A resource that an aggregated group has, for discovery.
#[derive(Clone, Debug)]
pub struct AggregatedResource {
    /// Plural name in paths.
    pub name: String,
    /// Kind of its objects.
    pub kind: String,
    /// Whether it lives in namespaces.
    pub namespaced: bool,
    pub verbs: Vec<Verb>,
}

/// What a caller must have the right to, with the verb of the request and under any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AggregatedRight {
    /// API group; empty for the core.
    pub group: &'static str,
    /// Resource, in the plural.
    pub resource: &'static str,
    /// Subresource; empty for none.
    pub subresource: &'static str,
}

/// Answers the requests of an aggregated group. The caller's [`pumice_auth::Identity`] is in the request's extensions,
/// and may do what the request asks.
pub trait AggregatedService: Send + Sync + 'static {
    /// Answers one request; its path is the full one.
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>>;
}

impl<F> AggregatedService for F
where
    F: Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync + 'static,
{
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        self(request)
    }
}

/// A group and version that a service answers.
#[derive(Clone)]
pub struct AggregatedApi {
    /// API group; not one of the server's own.
    pub group: String,
    pub version: String,
    pub resources: Vec<AggregatedResource>,
    /// The right that its requests need, in their namespace, where that is another than the one to its own resources.
    pub right: Option<AggregatedRight>,
    pub service: Arc<dyn AggregatedService>,
}

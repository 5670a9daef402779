//! The Kubernetes API as one tower service.
//!
//! Build an [`ApiServer`] from a store and a policy; serve it over TLS with [`ApiServer::serve`], or hand
//! [`ApiServer::client_service`] to `kube::Client::new` and stay in the process. Every kind, built in or added by a
//! CustomResourceDefinition while it runs, goes through one pipeline and a registry of descriptors.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admission;
mod audit;
mod authn;
mod authz;
mod cel;
mod context;
mod handlers;
mod health;
mod http;
mod json_scan;
mod kinds;
mod nodes;
mod problems;
mod schemas;
mod server;
mod storage;
mod stored;
mod strategies;
mod webhooks;
mod workers;

pub use self::http::body::{Body, BodyError};
pub use self::http::connections::{
    ConnectionError, ConnectionLimits, Handler, serve_connections, serve_plaintext_connections,
};
pub use self::http::request::Verb;
pub use admission::{Admission, AdmissionRequest, AdmitAll, Admitted, Operation};
pub use audit::{AuditError, AuditLog, AuditOptions, AuditPolicy, AuditPolicyError};
pub use kinds::aggregated::{AggregatedApi, AggregatedResource, AggregatedRight, AggregatedService};
pub use kinds::compatibility::compatibility_table;
pub use nodes::remote::RemoteNodes;
pub use nodes::{NoNodes, NodeProxy, NodeProxyError};
pub use pumice_clock::{Clock, SystemClock};
pub use server::{ApiServer, BuildError, Builder, ClientService, WARN_ROOM_BYTES};
pub use stored::ObjectReader;
pub use strategies::pod::validate_pod_template;
pub use workers::event_expiry::EventLimits;

//! The Kubernetes API as one tower service.
//!
//! Build an [`ApiServer`] from a store and a policy; serve it over TLS with [`ApiServer::serve`], or hand
//! [`ApiServer::client_service`] to `kube::Client::new` and stay in the process. Every kind, built in or added by a
//! CustomResourceDefinition while it runs, goes through one pipeline and a registry of descriptors.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod accounts;
mod admission;
mod aggregate;
mod audit;
mod backup;
mod body;
mod bootstrap;
mod caller;
mod cel;
mod compatibility;
mod connections;
mod conversion;
mod cut;
mod decode;
mod discovery;
mod disruption;
mod documents;
mod endpoints;
mod expiry;
mod flow;
mod following;
mod gates;
mod gc;
mod health;
mod limit_ranges;
mod listener;
mod log_pause;
#[cfg(test)]
mod messages;
mod metrics;
mod metrics_page;
mod negotiate;
mod node_proxy;
mod observed;
mod openapi;
mod paging;
mod pick;
mod pipeline;
mod pod_resources;
mod pod_security;
mod query;
mod quota;
mod registry;
mod remote_nodes;
mod render;
mod request;
mod request_metrics;
mod retained_logs;
mod reviews;
mod rights;
mod rules;
mod security_fields;
mod selecting;
mod server;
mod strategy;
mod subresources;
mod tables;
mod verbs;
mod volumes;
mod websocket;

pub use admission::{Admission, AdmissionRequest, AdmitAll, Admitted, ObjectReader, Operation};
pub use aggregate::{AggregatedApi, AggregatedResource, AggregatedRight, AggregatedService};
pub use audit::{AuditError, AuditLog, AuditOptions, AuditPolicy, AuditPolicyError};
pub use body::{Body, BodyError};
pub use compatibility::compatibility_table;
pub use connections::{ConnectionError, ConnectionLimits, Handler, serve_connections, serve_plaintext_connections};
pub use expiry::EventLimits;
pub use node_proxy::{NoNodes, NodeProxy, NodeProxyError};
pub use pumice_clock::{Clock, SystemClock};
pub use remote_nodes::RemoteNodes;
pub use request::Verb;
pub use server::{ApiServer, BuildError, Builder, ClientService, WARN_ROOM_BYTES};
pub use strategy::pod::validate_pod_template;

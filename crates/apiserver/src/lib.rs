//! The Kubernetes API as one tower service.
//!
//! Build an [`ApiServer`] from a store and a policy; serve it over TLS with [`ApiServer::serve`], or hand
//! [`ApiServer::client_service`] to `kube::Client::new` and stay in the process. Every kind, built in or added by a
//! CustomResourceDefinition while it runs, goes through one pipeline and a registry of descriptors.

mod accounts;
mod admission;
mod aggregate;
mod body;
mod bootstrap;
mod caller;
mod clock;
mod compatibility;
mod connections;
mod cut;
mod decode;
mod discovery;
mod documents;
mod expiry;
mod gc;
mod listener;
mod messages;
mod metrics;
mod negotiate;
mod node_proxy;
mod openapi;
mod paging;
mod pick;
mod pipeline;
mod query;
mod registry;
mod render;
mod request;
mod reviews;
mod rights;
mod selecting;
mod server;
mod strategy;
mod subresources;
mod tables;
mod verbs;

pub use admission::{Admission, AdmissionRequest, AdmitAll, Admitted, ObjectReader, Operation};
pub use aggregate::{AggregatedApi, AggregatedResource, AggregatedService};
pub use body::{Body, BodyError};
pub use clock::{Clock, SystemClock};
pub use compatibility::compatibility_table;
pub use connections::{ConnectionError, serve_connections};
pub use node_proxy::{NoNodes, NodeProxy, NodeProxyError};
pub use request::Verb;
pub use server::{ApiServer, BuildError, Builder, ClientService};
pub use strategy::pod::validate_pod_template;

//! The Kubernetes API as one tower service.
//!
//! Build an [`ApiServer`] from a store and a policy; serve it over TLS with [`ApiServer::serve`], or hand
//! [`ApiServer::client_service`] to `kube::Client::new` and stay in the process. Every kind, built in or added by a
//! CustomResourceDefinition while it runs, goes through one pipeline and a registry of descriptors.
//!
//! A module uses only those below it:
//!
//! ```text
//! server       builds and starts everything; listeners, what every cluster has from the first start
//! handlers     pipeline -> verbs, subresources, discovery, reviews, logs, metrics, backup
//! login        what anybody may ask: how to log in, tokens for passwords, logouts
//! workers      garbage collection, event expiry, EndpointSlices, disruption budgets, volumes, quota status
//! context      what all requests share (State), and what is known of one (Call)
//! storage      the store and what follows from it: commits and deletions
//! admission    LimitRanges, in-process, dynamic (webhooks, policies), Pod Security, quotas
//! authn audit  who sends a request; who did what
//! kinds        descriptors, CRDs (schemas, rules, versions), tables, discovery, OpenAPI
//! strategies   what is special about each kind: defaults, rules, what may change
//! cel authz    expressions; roles and bindings
//! webhooks     the client of webhooks
//! http nodes   requests, answers, connections, flow control; the way to the nodes
//! schemas stored json_scan problems
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admission;
mod audit;
mod authn;
mod authz;
mod cel;
mod context;
mod ephemeral_containers;
mod handlers;
mod health;
mod http;
mod json_scan;
mod kinds;
mod login;
mod nodes;
mod problems;
mod schemas;
mod server;
mod storage;
mod stored;
mod strategies;
mod webhooks;
mod workers;

pub use pumice_clock::{Clock, SystemClock};

pub use self::http::body::{Body, BodyError};
pub use self::http::connections::{
    ConnectionError, ConnectionLimits, Handler, serve_connections, serve_plaintext_connections,
};
pub use self::http::request::Verb;
pub use admission::{
    Admission, AdmissionRequest, AdmitAll, Admitted, NamespaceTenant, NoTenants, Operation, Tenancy, TenantReader,
};
pub use audit::{AuditError, AuditLog, AuditOptions, AuditPolicy, AuditPolicyError};
pub use authn::logins::{LoginOptions, OidcClient, PasswordCheck, PasswordCheckError};
pub use kinds::aggregated::{AggregatedApi, AggregatedResource, AggregatedRight, AggregatedService};
pub use kinds::compatibility::compatibility_table;
pub use nodes::remote::RemoteNodes;
pub use nodes::{NoNodes, NodeProxy, NodeProxyError};
pub use server::{ApiServer, BuildError, Builder, ClientService, Exposure, WARN_ROOM_BYTES};
pub use stored::ObjectReader;
pub use strategies::pod::validate_pod_template;
pub use workers::event_expiry::{EventLimits, LIFE_HOURS as EVENT_LIFE_HOURS};

//! Kubernetes' rules over JSON objects.
//!
//! Owns what the API does to an object of any kind, held as `serde_json::Value`: metadata, names,
//! selectors, patches, the structural schema, printer columns and tables, profiles of Pod Security, and
//! the `Status` that a refusal becomes. Invariant: pure functions; every walk is bounded in depth and work; messages
//! are upstream's. The API server, admission and the components' shells call it.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod apply;
pub mod field;
pub mod meta;
pub mod names;
pub mod patch;
pub mod path;
pub mod pod_security;
pub mod protobuf;
mod quote;
pub mod schema;
pub mod selector;
pub mod status;
pub mod table;

pub use field::{FieldError, FieldErrorKind};
pub use status::{GroupKind, GroupResource, Status, StatusReason};

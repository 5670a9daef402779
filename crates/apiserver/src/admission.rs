//! Admission: what changes and refuses objects before they are stored.
//!
//! In the order of a write: what LimitRanges fill in, what other crates of this process say ([`in_process`]), the webhooks
//! and policies that people configured ([`dynamic`]), LimitRanges' bounds, Pod Security, and quotas last.

pub(crate) mod dynamic;
mod in_process;
pub(crate) mod limit_ranges;
pub(crate) mod pod_resources;
pub(crate) mod pod_security;
pub(crate) mod quota;
pub(crate) mod security_fields;

pub use in_process::{Admission, AdmissionRequest, AdmitAll, Admitted, ObjectReader, Operation};

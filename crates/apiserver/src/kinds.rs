//! Kinds: descriptors of the built-in ones and of those that CustomResourceDefinitions add, and what is derived from
//! them: tables, versions, discovery, OpenAPI.

pub(crate) mod aggregated;
pub(crate) mod builtin;
pub(crate) mod compatibility;
pub(crate) mod conversion;
pub(crate) mod crd;
pub(crate) mod descriptor;
pub(crate) mod discovery;
#[cfg(test)]
mod messages;
mod openapi;
pub(crate) mod registry;
pub(crate) mod tables;

pub(crate) use descriptor::{Descriptor, Review};

/// The Kubernetes version whose API this is, with our mark.
pub(crate) const GIT_VERSION: &str = "v1.36.0+pumice";
/// The store's name of the resource that holds definitions.
pub(crate) const DEFINITIONS: &str = "apiextensions.k8s.io/customresourcedefinitions";

//! What has to be the same on our API server and on a real Kubernetes.
//!
//! [`cases`] and [`operators`] are written against [`Clients`](pumice_testkit::Clients) alone and run on both: on `pumice up`
//! by `make test`, on kube-apiserver with our components as processes by `make test-realkube`. Pods last as their annotations
//! say, because its nodes are simulated.

pub mod cases;
pub mod compatibility;
pub mod operators;
pub mod operators_themselves;
pub mod tenant_attempts;
pub mod tenant_ways;

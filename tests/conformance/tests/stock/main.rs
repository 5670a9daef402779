//! Black-box tests of the API server: through its socket, over TLS, with clients that others wrote.
//!
//! What is asserted is what a real kube-apiserver answers, unless a comment says that we differ on purpose.

mod cluster;
mod kube_rs;
mod kubectl;
mod python;
mod socket;
mod wire;

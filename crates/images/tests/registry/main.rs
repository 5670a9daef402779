//! Pulling from registries that are slow, broken, odd or bad.
//!
//! The registry is the test's own: its answers are spoiled by rule, and it remembers what it was sent. One test uses Debian's
//! `docker-registry`. Waits are for states; only a registry that is silent for ever is waited for by time.

#![allow(clippy::unwrap_used, reason = "the harness of a test fails by panicking")]
#![allow(clippy::indexing_slicing, reason = "the harness of a test fails by panicking")]

mod access;
mod debian;
mod documents;
mod faults;
mod image;
mod interrupted;
mod machine;
mod messages;
mod owners;
mod pushing;
mod redirects;
mod server;
mod tls;

//! Authority, TLS and rights seen from outside.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod authority;
mod handshake;
mod local_peer;
mod rights;
mod roles;

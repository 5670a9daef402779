//! Black-box tests: requests into the service, answers out, in the process and over TLS.

mod client;
mod collector;
mod crud;
mod definitions;
mod discovery;
mod harness;
mod input;
mod kubectl;
mod metrics;
mod paging;
mod pods;
mod protobuf;
mod reviews;
mod rights;
mod streams;
mod tokens;
mod watch;

//! Black-box tests: requests into the service, answers out, in the process and over TLS.

mod client;
mod collector;
mod crud;
mod definitions;
mod discovery;
mod disruption;
mod endpoints;
mod harness;
mod input;
mod kubectl;
mod limits;
mod metrics;
mod operations;
mod paging;
mod pods;
mod policies;
mod protobuf;
mod reviews;
mod rights;
mod streams;
mod tokens;
mod validations;
mod volumes;
mod watch;
mod watch_sockets;
mod webhooks;

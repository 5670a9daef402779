//! Reflectors and writers over `kube::Client`.
//!
//! This crate is the one place where a Kubernetes API is on one side and plain values are on the
//! other: components get ordered [`Change`]s from [`watch`], and write through the functions of
//! [`write`]. It holds no state of its own, so that a component's view is always its own index. What components say of
//! themselves, [`metrics`] and health, is formed and [served](mod@serve) here too.

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod burst;
pub mod connect;
pub mod events;
mod follow;
pub mod install;
pub mod lease;
pub mod pace;
mod partly_read;
pub mod resume;
pub mod serve;
pub mod timers;
pub mod watch;
pub mod window;
pub mod write;

pub use burst::Burst;
pub use connect::client_over;
pub use events::EventRecorder;
pub use follow::WatchScope;
pub use install::install_definitions;
/// A client of a Kubernetes API, for those who only hand it on.
pub use kube::Client;
pub use lease::{Elector, LeaseOptions};
pub use pace::{Pace, paced};
pub use pumice_metrics as metrics;
pub use resume::{WatchEvent, watch_from};
pub use serve::{Pages, Vitals, serve};
pub use timers::{Timers, until};
pub use watch::{Change, watch, watch_all, watch_optional, watch_where_served};
pub use window::Window;
pub use write::{Failure, PodRef, failure, words};

//! A fleet as a platform: its job sets are jobs, the jobs in them are the pods of those.
//!
//! Everything else in this crate speaks to a platform through a `kube::Client`. For a fleet that client's requests are
//! answered in this process: [`kubernetes_api`] turns each into calls of Armada's API and their answers into the objects that a
//! platform would have. Invariant: nothing is pretended. What a fleet has no answer for is refused with one sentence that says what
//! to do instead, and counts and states are what the server told.

use std::path::{Path, PathBuf};

mod calls;
mod job_set_watch;
mod job_view;
mod kubernetes_api;
mod objects;
mod queues;
mod refusal;
mod submission;
mod volcano_job;

pub use calls::FleetError;
pub use queues::table as queue_table;
pub use refusal::NOT_HERE;

/// The queue of jobs that name none, where the context names none either.
pub const DEFAULT_QUEUE: &str = "default";

/// Where a fleet is, and who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// The server's address, such as `https://fleet.example.com:50051`.
    pub url: String,
    /// A private key, its certificate and that of the server's authority, in PEM.
    pub identity: PathBuf,
    /// The queue of jobs that name none.
    pub queue: Option<String>,
}

impl Fleet {
    /// A client whose requests are answered by the fleet. Must run inside a Tokio runtime. Nothing is sent.
    ///
    /// # Errors
    /// An address that is none, or a file that is no identity.
    pub fn client(&self) -> Result<kube::Client, FleetError> {
        let calls = calls::Calls::open(self)?;
        let queue = self.queue.clone().unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        Ok(kubernetes_api::client(calls, queue))
    }
}

/// Whether an address and a file can be used together; nothing is sent.
///
/// # Errors
/// Why not.
pub fn check(url: &str, identity: &Path) -> Result<(), FleetError> {
    calls::check(url, identity)
}

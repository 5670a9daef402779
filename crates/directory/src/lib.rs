//! Tenants from LDAP, Active Directory and the machine's users: reads each Directory now and then, and writes the Tenants that
//! follow.
//!
//! Invariant: what becomes of a Tenant is decided by `machines`; Tenants, and the status of Directories, are all that is written,
//! and nothing is deleted. A reading that fails or is not whole changes nothing but the status, which says why. Without a
//! Directory nothing is watched but Directories. Run by `pumice up` and by `pumice controllers run`.
//!
//! ```text
//!   Directory ──> reading (LDAP, getent) ──> machines::directory ──> plan ──> calls ──> Tenants
//!   Tenants ───────────────────────────────────────^                  └──> status, Events
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod ldap;
mod reading;
mod refusals;
mod report;
mod run;
mod system;
mod tenants;
mod write;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use pumice_api::names;
use pumice_cluster::EventRecorder;
use pumice_machines::tenant::Forbidden;
use tokio_util::sync::CancellationToken;

pub use ldap::LdapReadError;
pub use reading::ReadError;
pub use system::SystemReadError;

/// Name under which Events are recorded.
pub const COMPONENT: &str = "pumice-directory";

/// Which API is written to, and what may be read.
pub struct Options {
    /// The API, with the rights of `system:pumice:controllers`.
    pub client: Client,
    /// Where the Secrets with passwords are.
    pub namespace: String,
    /// Whether the machine's users are those of this process's machine, so that they may be read.
    pub reads_machine: bool,
    /// What no tenant of this machine may be, beside what none may be anywhere.
    pub forbidden: Forbidden,
}

/// Directories, ready to be read.
pub struct Directories {
    options: Options,
}

/// Why directories are no longer read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch ended, which it never does by itself.
    #[error("the watches of the directories ended")]
    WatchEnded,
}

impl Options {
    /// Directories whose passwords are in the namespace of the components; of LDAP alone.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespace: names::NAMESPACE_SYSTEM.to_owned(),
            reads_machine: false,
            forbidden: Forbidden::default(),
        }
    }

    /// Nothing runs yet.
    pub fn build(self) -> Directories {
        Directories { options: self }
    }
}

impl Directories {
    /// Runs until `shutdown`. Calls in flight are dropped then: each is safe to repeat at the next start.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let (recorder, writer) = EventRecorder::new(self.options.client.clone(), COMPONENT);
            let reading = run::Loop::new(self.options, recorder).run();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => Ok(()),
                result = reading => result,
                () = writer.map(drop) => Err(Error::WatchEnded),
            }
        })
    }
}

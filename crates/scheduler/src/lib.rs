//! The scheduler component: watches feed the engine, its plans are carried out, its reasons are answered.
//!
//! Invariant: one task owns the World; calls run beside it and report back. A decision counts in the World from the
//! moment it is made, so a slow API server can't make it decide twice. Run by `pumice up` and on clusters.
//!
//! ```text
//!   watches ──> intake ──> deltas ──> World ──cycle──> plan ──> writer (binds, statuses; concurrent)
//!                                       ^                          │
//!                                       └───────── answers ────────┘
//! ```

use std::path::PathBuf;

use kube::Client;
use pumice_cluster::EventRecorder;
use pumice_engine::{Config, ConfigError};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

mod ask;
mod clock;
mod feed;
mod intake;
mod patches;
mod reload;
mod run;
mod start;
mod translate;
mod why;
mod window;
mod writer;

pub use ask::{Handle, Waiting};
pub use why::{GROUP as WHY_GROUP, VERSION as WHY_VERSION, answer as answer_why};

/// Name under which the scheduler records Events.
pub const COMPONENT: &str = "pumice-scheduler";

/// Questions that may wait for an answer.
const ASKS_MAX: usize = 256;

/// What the scheduler needs.
pub struct Options {
    /// The API, with the rights of `system:pumice:scheduler`.
    pub client: Client,
    /// The scheduler names answered to; see `pumice_api::names::SCHEDULERS_UP`.
    pub scheduler_names: Vec<String>,
    /// Where Volcano's configuration file is.
    pub config: ConfigSource,
    /// Queue of groups that name none.
    pub default_queue: String,
}

/// Where the configuration comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ConfigSource {
    /// The built-in default: actions enqueue, allocate, backfill; plugins priority, gang, predicates, nodeorder.
    #[default]
    BuiltIn,
    /// This text, in Volcano's format.
    Text(String),
    /// This file, read again when it changes.
    File(PathBuf),
}

/// The scheduler, ready to run.
pub struct Scheduler {
    client: Client,
    scheduler_names: Vec<String>,
    source: ConfigSource,
    config: Config,
    asks: mpsc::Receiver<ask::Ask>,
}

/// Why the scheduler could not be built, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration file could not be read.
    #[error("scheduler configuration {path} could not be read; check that it exists and may be read")]
    ReadConfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The configuration is refused.
    #[error("scheduler configuration refused")]
    ParseConfig(#[source] ConfigError),
    /// A watch ended, which it never does by itself.
    #[error("the watches of the scheduler ended")]
    WatchEnded,
}

impl Options {
    /// The names that `pumice up` answers to, and the built-in configuration.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            scheduler_names: pumice_api::names::SCHEDULERS_UP.iter().map(|name| (*name).to_owned()).collect(),
            config: ConfigSource::BuiltIn,
            default_queue: pumice_api::names::DEFAULT_QUEUE.to_owned(),
        }
    }

    /// Builds the scheduler; nothing runs yet. Warnings about the configuration are logged.
    ///
    /// # Errors
    /// When the configuration can't be read or is refused.
    pub fn build(self) -> Result<(Scheduler, Handle), Error> {
        let mut config = reload::load(&self.config)?;
        config.default_queue = self.default_queue;
        let (handle, asks) = Handle::new(ASKS_MAX);
        let scheduler =
            Scheduler { client: self.client, scheduler_names: self.scheduler_names, source: self.config, config, asks };
        Ok((scheduler, handle))
    }
}

impl Scheduler {
    /// Runs until `shutdown`. Calls in flight are dropped then: the next start reads from the objects what came of them.
    ///
    /// # Errors
    /// When the watches end.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let (recorder, events) = EventRecorder::new(self.client.clone(), COMPONENT);
        let queues = start::queues(self.client.clone(), self.config.default_queue.clone());
        let scheduling = run::Loop::new(self, recorder);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = Box::pin(scheduling.run()) => result,
            () = async { tokio::join!(events, queues); } => Ok(()),
        }
    }
}

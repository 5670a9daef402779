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
use pumice_api::names;
use pumice_cluster::EventRecorder;
use pumice_engine::plugin::Registry;
use pumice_engine::{Config, ConfigError, World};
use tokio_util::sync::CancellationToken;

mod ask;
pub mod check;
mod clock;
mod extender;
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
pub use why::{GROUP as WHY_GROUP, VERSION as WHY_VERSION, not_ready};

/// Name under which the scheduler records Events.
pub const COMPONENT: &str = "pumice-scheduler";

/// What the scheduler needs.
pub struct Options {
    /// The API, with the rights of `system:pumice:scheduler`.
    pub client: Client,
    /// The scheduler names answered to; see `pumice_api::names::SCHEDULERS_UP`.
    pub scheduler_names: Vec<String>,
    /// Volcano's configuration file, read again when it changes. Without one: actions enqueue, allocate, backfill;
    /// plugins priority, gang, predicates, nodeorder.
    pub config: Option<PathBuf>,
    /// The plugins that the configuration may name: begin with [`plugins`] and add your own.
    pub plugins: Registry,
}

/// The plugins that come with the scheduler: the engine's, and `extender`, which asks an HTTP server.
pub fn plugins() -> Registry {
    let mut plugins = Registry::default();
    extender::register(&mut plugins);
    plugins
}

/// The scheduler, ready to run.
pub struct Scheduler {
    client: Client,
    scheduler_names: Vec<String>,
    config: Option<PathBuf>,
    plugins: Registry,
    world: ask::Shared,
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
            scheduler_names: names::SCHEDULERS_UP.iter().map(|name| (*name).to_owned()).collect(),
            config: None,
            plugins: plugins(),
        }
    }

    /// Builds the scheduler; nothing runs yet. Warnings about the configuration are logged.
    ///
    /// # Errors
    /// When the configuration can't be read or is refused.
    pub fn build(self) -> Result<Scheduler, Error> {
        let load = |path| reload::load(path, &self.plugins);
        let config = self.config.as_deref().map_or_else(|| Ok(Config::default()), load)?;
        Ok(Scheduler {
            client: self.client,
            scheduler_names: self.scheduler_names,
            config: self.config,
            world: ask::Shared::new(World::with_plugins(config, self.plugins.clone())),
            plugins: self.plugins,
        })
    }
}

impl Scheduler {
    /// Answers questions from now on, also after the scheduler has stopped.
    pub fn handle(&self) -> Handle {
        Handle::new(self.world.clone())
    }

    /// Runs until `shutdown`. Calls in flight are dropped then: the next start reads from the objects what came of them.
    ///
    /// # Errors
    /// When the watches end.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let (recorder, events) = EventRecorder::new(self.client.clone(), COMPONENT);
        let queues = start::queues(self.client.clone());
        let scheduling = run::Loop::new(self, recorder);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = Box::pin(scheduling.run()) => result,
            () = async { tokio::join!(events, queues); } => Ok(()),
        }
    }
}

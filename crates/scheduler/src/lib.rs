//! The scheduler component: watches feed the engine, its plans are carried out, its reasons are answered.
//!
//! Invariant: one task owns the World; calls run beside it and report back. A decision counts in the World from the
//! moment it is made, so a slow API server can't make it decide twice. Run by `pumice up` and on clusters.
//!
//! ```text
//!   watches ──> watch_to_deltas ──> World ──cycle──> plan ──> writer (binds, statuses; concurrent)
//!                                     ^                         │
//!                                     └──────── answers ────────┘
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

use std::path::PathBuf;

use futures::future::BoxFuture;
use kube::Client;
use pumice_api::names;
pub use pumice_cluster::LeaseOptions;
use pumice_cluster::{Elector, EventRecorder};
pub use pumice_engine::Sharding;
use pumice_engine::plugin::Registry;
use pumice_engine::{Config, ConfigError, World};
use pumice_recording::Flags;
use pumice_translate as translate;
use tokio_util::sync::CancellationToken;

mod ask;
mod autoscalers;
mod extender;
mod feed;
mod metrics;
mod patches;
mod prebind;
mod quarantine;
pub mod recorder;
mod reload;
mod run;
mod runtime_history;
mod start;
mod unread;
mod usage;
mod watch_to_deltas;
mod why;
mod writer;

pub use ask::{Handle, Waiting};
pub use runtime_history::{AskRuns, PastRuns};
pub use watch_to_deltas::{WatchedChange, WatchedObjects};
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
    /// The queue of groups that name none.
    pub default_queue: String,
    /// Labels as key and value: only nodes with any of them are used; none = all nodes.
    pub node_selector: Vec<(String, String)>,
    /// Only nodes of this zone are used, and only pods placed that name it in their node selector.
    pub zone: Option<String>,
    /// Binds under way to one node at a time, members of one gang not counted; 0 = no limit. A file that says
    /// `maxBindingPerNode` itself goes first.
    pub max_binding_per_node: u32,
    /// The NodeShard to keep to, where nodes are shared out among several schedulers.
    pub sharding: Option<Sharding>,
    /// Whether nodes are added for pods that wait: by what nodes and the API server say where nothing is said. A file that
    /// says so itself goes first.
    pub autoscaling: Option<bool>,
    /// Where there is neither a volume nor a storage class the nodes meet claims by themselves, as in `pumice up`.
    pub nodes_meet_claims: bool,
    /// Schedule only while this Lease is held.
    pub lease: Option<LeaseOptions>,
    /// Record what decisions follow from, and the decisions, to run them again.
    pub record: Option<recorder::RecordOptions>,
    /// Who knows how long jobs ran before; asked when it begins, and never waited for.
    pub past_runs: Option<AskRuns>,
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
    ours: watch_to_deltas::Ours,
    config: Config,
    reload: reload::Reload,
    plugins: Registry,
    lease: Option<LeaseOptions>,
    metrics: metrics::Metrics,
    recorder: Option<recorder::Recorder>,
    past_runs: Option<AskRuns>,
    world: ask::Shared,
}

/// Why the scheduler could not be built, or stopped by itself.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration file could not be read.
    #[error("scheduler configuration {path} could not be read; check that it exists and may be read")]
    ReadConfig {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The configuration is refused.
    #[error("scheduler configuration refused")]
    ParseConfig(#[source] ConfigError),
    /// Nothing can be recorded.
    #[error("the recording could not be begun")]
    Record(#[source] recorder::RecordError),
    /// A watch ended, which it never does by itself.
    #[error("the watches of the scheduler ended")]
    WatchEnded,
    /// Another instance schedules now, or may.
    #[error("the lease {name} could not be renewed in time: another instance may schedule now")]
    LeaseLost { name: String },
}

impl Options {
    /// As in `pumice up`: the names answered to, the built-in configuration, nodes that meet claims.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            scheduler_names: names::SCHEDULERS_UP.iter().map(|name| (*name).to_owned()).collect(),
            config: None,
            plugins: plugins(),
            default_queue: names::DEFAULT_QUEUE.to_owned(),
            node_selector: Vec::new(),
            zone: None,
            max_binding_per_node: 0,
            sharding: None,
            autoscaling: None,
            nodes_meet_claims: true,
            lease: None,
            record: None,
            past_runs: None,
        }
    }

    /// Builds the scheduler; nothing runs yet. Warnings about the configuration are logged.
    ///
    /// # Errors
    /// When the configuration can't be read or is refused, or nothing can be recorded where it is to be.
    pub fn build(self) -> Result<Scheduler, Error> {
        let flags = Flags {
            default_queue: self.default_queue,
            max_binding_per_node: self.max_binding_per_node,
            shard: self.sharding.map(|sharding| (sharding.name, sharding.hard)),
            autoscaling: self.autoscaling,
            nodes_meet_claims: self.nodes_meet_claims,
        };
        let settings = reload::Settings { flags, plugins: self.plugins.clone() };
        let (config, text) = match &self.config {
            Some(path) => settings.load(path).map(|(config, text)| (config, Some(text)))?,
            None => (settings.flags.complete(Config::default()), None),
        };
        let metrics = metrics::Metrics::default();
        let recorder =
            self.record.map(|options| recorder::Recorder::open(options, self.plugins.clone(), metrics.clone()));
        Ok(Scheduler {
            client: self.client,
            ours: watch_to_deltas::Ours { names: self.scheduler_names, nodes: self.node_selector, zone: self.zone },
            world: ask::Shared::new(World::with_plugins(config.clone(), self.plugins.clone())),
            config,
            recorder: recorder.transpose().map_err(Error::Record)?,
            reload: reload::Reload::new(self.config, settings, text),
            plugins: self.plugins,
            lease: self.lease,
            past_runs: self.past_runs,
            metrics,
        })
    }
}

impl Scheduler {
    /// Answers questions from now on, also after the scheduler has stopped.
    pub fn handle(&self) -> Handle {
        Handle::new(self.world.clone(), self.metrics.clone())
    }

    /// Runs until `shutdown`. Calls in flight are dropped then: the next start reads from the objects what came of them.
    /// With a Lease: waits until it is held, and gives it back at the end.
    ///
    /// # Errors
    /// When the watches end, or the Lease is lost.
    pub fn run(mut self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let Some(options) = self.lease.take() else {
                self.metrics.leads(true);
                return Box::pin(self.schedule(shutdown)).await;
            };
            let (name, metrics) = (options.name.clone(), self.metrics.clone());
            let mut elector = Elector::new(self.client.clone(), options, pumice_clock::now);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = Box::pin(elector.acquire()) => {}
            }
            tracing::info!(lease = name, "this instance schedules");
            metrics.leads(true);
            let result = tokio::select! {
                biased;
                result = Box::pin(self.schedule(shutdown)) => result,
                () = Box::pin(elector.hold()) => Err(Error::LeaseLost { name }),
            };
            metrics.leads(false);
            if result.is_ok() {
                Box::pin(elector.release()).await;
            }
            result
        })
    }

    async fn schedule(mut self, shutdown: CancellationToken) -> Result<(), Error> {
        let (recorder, events) = EventRecorder::new(self.client.clone(), COMPONENT);
        let queues = start::queues(self.client.clone());
        let recording = self.recorder.take().map(|recorder| recorder.start(self.metrics.clone()));
        let (record, written) = recording.transpose().map_err(Error::Record)?.unzip();
        let scheduling = run::Loop::new(self, recorder, record.unwrap_or_default());
        // The loop and its sender are gone behind this, so that the recorder ends.
        let result = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = Box::pin(scheduling.run()) => result,
            () = async { tokio::join!(events, queues); } => Ok(()),
        };
        if let Some(written) = written {
            // It takes a moment; a disk that hangs must not hold up the end.
            let _ = tokio::time::timeout(recorder::WRITTEN_WITHIN, written).await;
        }
        result
    }
}

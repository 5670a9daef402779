//! The controllers: Jobs, Queues, PodGroups, JobFlows, CronJobs, HyperNodes, NodeShards and Tenants, the removal of finished work, and on
//! a platform of our own Kubernetes' own workloads, carried out against a Kubernetes API.
//!
//! Invariant: everything is decided by `machines` from an index of what exists; the shell only feeds the index, carries plans
//! out and feeds the answers back. Jobs and Queues have one task that owns all their state (`run`), each other controller has
//! one of its own (`small_loop`); calls run beside them and nothing polls. Run by `pumice up` and by `pumice controllers run`.
//!
//! ```text
//!   watches ──> index ──> dirty jobs, queues ──> machines::step ──> plan ──> calls (concurrent)
//!                 ^                                                             │
//!                 └──────────── answers, as if the watch had told ──────────────┘
//! ```

// These panic where a disk is full or a pipe is closed.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod backoff;
mod cache;
mod commands;
mod cron_jobs;
mod deletion;
mod enabled;
mod feed;
mod hyper_nodes;
mod index;
mod job;
mod job_flows;
mod keys;
mod metrics;
mod node_table;
mod object_events;
mod pod_groups;
mod profiles;
mod queue;
mod retention;
mod run;
mod settings;
mod sharding;
mod slim;
mod small_loop;
mod tenants;
mod ticket;
mod workloads;

use futures::FutureExt as _;
use futures::future::{BoxFuture, select_all};
use kube::Client;
use pumice_api::names;
use pumice_api::retention::Retention;
use pumice_cluster::{EventRecorder, Pace};
use tokio_util::sync::CancellationToken;

use crate::enabled::Part;
use crate::metrics::Metrics;

pub use enabled::{Enabled, EnabledError};
pub use metrics::Handle;
pub use pumice_machines::retention::Kind as FinishedKind;
pub use pumice_machines::sharding::Sharding;
pub use pumice_machines::tenant::{Forbidden, POWERFUL_GROUPS};
pub use retention::TakenIn;
pub use settings::SettingsLocation;

/// Name under which the controllers record Events.
pub const COMPONENT: &str = "pumice-controllers";
/// Namespace of Volcano's installation.
const NAMESPACE: &str = "volcano-system";

/// What the controllers need.
pub struct Options {
    /// The API, with the rights of `system:pumice:controllers`.
    pub client: Client,
    /// Which of them run.
    pub enabled: Enabled,
    /// Names of the schedulers whose pods get PodGroups.
    pub scheduler_names: Vec<String>,
    /// Where it stands which HyperNodes are discovered.
    pub network_settings: SettingsLocation,
    /// Where it stands how nodes are shared out among schedulers.
    pub sharding_settings: SettingsLocation,
    /// How they are where nothing stands there.
    pub sharding: Sharding,
    /// How long finished work stays where its namespace does not say; none = nothing is removed, whatever namespaces say.
    pub retention: Option<Retention>,
    /// What no tenant may be on this machine, beside what none may be anywhere.
    pub forbidden_tenants: Forbidden,
    /// Nothing leaves before this says that the history has taken it in.
    pub taken_in: Option<TakenIn>,
}

/// The controllers, ready to run.
pub struct Controllers {
    options: Options,
    /// All writes of all controllers share one window of calls.
    pace: Pace,
    metrics: Metrics,
}

/// Why the controllers stopped by themselves.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch ended, which it never does by itself.
    #[error("the watches of the controllers ended")]
    WatchEnded,
}

impl Options {
    /// All controllers but sharding, with their settings where Volcano's installation puts them.
    pub fn new(client: Client) -> Self {
        Self {
            client,
            enabled: Enabled::default(),
            scheduler_names: names::SCHEDULERS_CLUSTER.iter().map(|name| (*name).to_owned()).collect(),
            network_settings: Self::network_settings(NAMESPACE, "volcano"),
            sharding_settings: Self::sharding_settings(NAMESPACE, "volcano-sharding-configmap"),
            sharding: Sharding::default(),
            retention: None,
            forbidden_tenants: Forbidden::default(),
            taken_in: None,
        }
    }

    /// Where an installation of this name in this namespace says which HyperNodes are discovered.
    pub fn network_settings(namespace: &str, release: &str) -> SettingsLocation {
        SettingsLocation::new(namespace, &format!("{release}-controller-configmap"), "volcano-controller.conf")
    }

    /// Where a ConfigMap says how nodes are shared out.
    pub fn sharding_settings(namespace: &str, name: &str) -> SettingsLocation {
        SettingsLocation::new(namespace, name, "sharding.yaml")
    }

    /// Builds the controllers; nothing runs yet.
    pub fn build(self) -> Controllers {
        let (client, pace) = pumice_cluster::paced(self.client.clone());
        Controllers { options: Options { client, ..self }, pace, metrics: Metrics::default() }
    }
}

impl Controllers {
    /// Tells what they do, also while they run.
    pub fn handle(&self) -> Handle {
        Handle::new(self.metrics.clone(), self.pace.clone())
    }

    /// Runs until `shutdown`. Calls in flight are dropped then: each is safe to repeat at the next start.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let (recorder, writer) = EventRecorder::new(self.options.client.clone(), COMPONENT);
            let mut all = self.parts(&recorder);
            all.push(writer.map(Ok).boxed());
            tokio::select! {
                biased;
                () = shutdown.cancelled() => Ok(()),
                (result, ..) = select_all(all) => result,
            }
        })
    }

    /// The controllers that are on, each with a loop of its own.
    fn parts(self, recorder: &EventRecorder) -> Vec<BoxFuture<'static, Result<(), Error>>> {
        let Options { client, enabled, scheduler_names, network_settings, sharding_settings, sharding, .. } =
            self.options;
        let (retention, taken_in) = (self.options.retention, self.options.taken_in);
        let forbidden = self.options.forbidden_tenants;
        let with = || (client.clone(), recorder.clone());
        let metrics = || self.metrics.clone();
        let mut parts = Vec::new();
        if enabled.has(Part::Jobs) {
            let (client, recorder) = with();
            parts.push(run::Loop::new(client, recorder, metrics()).run().boxed());
        }
        if enabled.has(Part::JobFlows) {
            let (client, recorder) = with();
            let flows = job_flows::JobFlows::new(client.clone(), recorder, metrics());
            parts.push(small_loop::run(client, flows, metrics()).boxed());
        }
        if enabled.has(Part::CronJobs) {
            let (client, recorder) = with();
            let crons = cron_jobs::OfVolcano::new(client.clone(), recorder);
            parts.push(small_loop::run(client, crons, metrics()).boxed());
        }
        if enabled.has(Part::PodGroups) {
            let (client, recorder) = with();
            let pod_groups = pod_groups::PodGroups::new(client.clone(), recorder, scheduler_names);
            parts.push(small_loop::run(client, pod_groups, metrics()).boxed());
        }
        if enabled.has(Part::HyperNodes) {
            let (client, recorder) = with();
            let hyper_nodes = hyper_nodes::HyperNodes::new(client.clone(), recorder, network_settings);
            parts.push(small_loop::run(client, hyper_nodes, metrics()).boxed());
        }
        if enabled.has(Part::Sharding) {
            let (client, recorder) = with();
            let shards = sharding::Shards::new(client.clone(), recorder, sharding_settings, sharding);
            parts.push(small_loop::run(client, shards, metrics()).boxed());
        }
        if enabled.has(Part::Tenants) {
            let (client, recorder) = with();
            let is_own_cluster = enabled.has(Part::Workloads);
            let tenants = tenants::Tenants::new(client.clone(), recorder, forbidden, is_own_cluster);
            parts.push(small_loop::run(client, tenants, metrics()).boxed());
        }
        if let Some(retention) = retention
            && enabled.has(Part::Retention)
        {
            let is_own_cluster = enabled.has(Part::Workloads);
            let removals = retention::Removals::new(client.clone(), metrics(), retention, is_own_cluster, taken_in);
            parts.push(small_loop::run(client.clone(), removals, metrics()).boxed());
        }
        if enabled.has(Part::Workloads) {
            let (client, recorder) = with();
            let crons = cron_jobs::Native::new(client.clone(), recorder.clone());
            parts.push(small_loop::run(client.clone(), crons, metrics()).boxed());
            let workloads = workloads::Workloads::new(client.clone(), recorder);
            parts.push(small_loop::run(client, workloads, metrics()).boxed());
        }
        parts
    }
}

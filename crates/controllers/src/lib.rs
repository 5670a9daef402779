//! The controllers: Jobs, Queues, JobFlows and CronJobs, carried out against a Kubernetes API.
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

mod backoff;
mod clock;
mod commands;
mod cron_jobs;
mod discovery;
mod feed;
mod index;
mod job;
mod job_flows;
mod keys;
mod made_jobs;
mod queue;
mod run;
mod shelf;
mod slim;
mod small_loop;
mod timers;

use kube::Client;
use pumice_cluster::EventRecorder;
use tokio_util::sync::CancellationToken;

/// Name under which the controllers record Events.
pub const COMPONENT: &str = "pumice-controllers";

/// What the controllers need.
pub struct Options {
    /// The API, with the rights of `system:pumice:controllers`.
    pub client: Client,
}

/// The controllers, ready to run.
pub struct Controllers {
    /// All writes of all controllers share one window of calls.
    client: Client,
}

/// Why the controllers stopped by themselves.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A watch ended, which it never does by itself.
    #[error("the watches of the controllers ended")]
    WatchEnded,
}

impl Options {
    /// Builds the controllers; nothing runs yet.
    pub fn build(self) -> Controllers {
        Controllers { client: pumice_cluster::paced(self.client) }
    }
}

impl Controllers {
    /// Runs until `shutdown`. Calls in flight are dropped then: each is safe to repeat at the next start.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), Error> {
        let (recorder, writer) = EventRecorder::new(self.client.clone(), COMPONENT);
        let job_flows = job_flows::JobFlows::new(self.client.clone(), recorder.clone());
        let job_flows = small_loop::run(self.client.clone(), job_flows);
        let cron_jobs = cron_jobs::CronJobs::new(self.client.clone(), recorder.clone());
        let cron_jobs = small_loop::run(self.client.clone(), cron_jobs);
        let controllers = run::Loop::new(self.client, recorder);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(()),
            result = Box::pin(controllers.run()) => result,
            result = Box::pin(job_flows) => result,
            result = Box::pin(cron_jobs) => result,
            () = writer => Ok(()),
        }
    }
}

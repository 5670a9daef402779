//! Armada's services over the fleet's log: what people and their tools call.
//!
//! [`Api`] is all of them; a listener puts it into the generated servers, and an [`Arc`] of [`Who`] into the extensions of
//! every request. Invariant: nothing is done for a request without one. What is answered is written; what the services know
//! they read from the log, so that any server answers any request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use pumice_clock as clock;
use pumice_fleet_model::submission::Rules;
use pumice_ledger::{PriorityClasses, RetryPolicies, TimeMs};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::database::Database;

mod calls;
mod cluster_calls;
mod convert;
mod error;
mod events;
mod follow;
mod identity;
mod job_sets;
mod job_states;
mod jobs;
mod limits;
mod policies;
mod queue_calls;
mod queues;
mod refusals;
mod scope_calls;
mod spec;
mod spec_names;
mod submit_calls;
#[cfg(test)]
mod tests;

pub(crate) use cluster_calls::{LOG_BYTES_MAX, PodLog, cordon_labels, home};
pub use convert::shape_of;
pub use convert::{Refusal, Request, submission};
pub use error::Error;
pub use events::{Context, MessageId, Needs, messages};
pub use identity::{EVERYONE, Permission, Who};
pub use job_states::{job_details, job_state, run_details};
pub use limits::{ID_BYTES_MAX, IDS_MAX, ITEMS_MAX, QUERY_IDS_MAX, QUEUES_MAX, REASON_BYTES_MAX, TEXT_BYTES_MAX};
pub use queues::{from_wire as queue_from_wire, to_wire as queue_to_wire};
pub use spec::canonical;
pub use spec::{JobSpec, JobTold};

/// Where time and chance come from.
pub struct Sources {
    pub now: Box<dyn Fn() -> TimeMs + Send + Sync>,
    /// Random bits, new ones at each call, such as nobody else draws.
    pub random: Box<dyn Fn() -> u128 + Send + Sync>,
}

impl Sources {
    /// This machine's clock and its generator.
    pub fn system() -> Self {
        Self { now: Box::new(|| TimeMs(clock::now_ms())), random: Box::new(rand::random) }
    }
}

/// The services; cheap to clone.
pub struct Api {
    shared: Arc<Shared>,
    /// Those of the configuration.
    policies: Arc<RetryPolicies>,
    /// The fleet's priority classes, where they are known.
    classes: Option<Arc<PriorityClasses>>,
    /// Who knows which executors there are, if somebody does.
    executors: Option<AskExecutors>,
}

/// Asks which executors there are, and whether each is gone; no answer where this server does not lead.
type AskExecutors = Arc<dyn Fn() -> BoxFuture<'static, Option<BTreeMap<String, bool>>> + Send + Sync>;

struct Shared {
    log: Arc<Database>,
    rules: Arc<Rules>,
    sources: Sources,
    stopping: CancellationToken,
    queues: Mutex<Option<queues::Known>>,
    /// Lists of job sets that are read at once.
    lists: Semaphore,
    spec_names: Mutex<spec_names::SpecNames>,
}

impl Clone for Api {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            policies: self.policies.clone(),
            classes: self.classes.clone(),
            executors: self.executors.clone(),
        }
    }
}

impl Api {
    /// Services over a log. Streams that watch end with `stopping`.
    pub fn new(log: Arc<Database>, rules: Rules, sources: Sources, stopping: CancellationToken) -> Self {
        let (rules, queues, lists) = (Arc::new(rules), Mutex::new(None), Semaphore::new(1));
        let spec_names = Mutex::default();
        let shared = Shared { log, rules, sources, stopping, queues, lists, spec_names };
        Self { shared: Arc::new(shared), policies: Arc::default(), classes: None, executors: None }
    }

    /// Beside those that requests set there are these retry policies.
    pub fn with_policies(self, policies: Arc<RetryPolicies>) -> Self {
        Self { policies, ..self }
    }

    /// These are the fleet's priority classes: who asks for something of others is told so.
    pub fn with_classes(self, classes: PriorityClasses) -> Self {
        Self { classes: Some(Arc::new(classes)), ..self }
    }

    /// `executors` says which executors there are, as of [`AskExecutors`].
    pub fn asking(
        self,
        executors: impl Fn() -> BoxFuture<'static, Option<BTreeMap<String, bool>>> + Send + Sync + 'static,
    ) -> Self {
        Self { executors: Some(Arc::new(executors)), ..self }
    }

    pub(crate) fn log(&self) -> &Database {
        &self.shared.log
    }

    /// The log's head, as far as it is known here.
    pub(crate) fn head(&self) -> crate::database::Seq {
        *self.log().head().borrow()
    }

    /// Priority classes that jobs may have.
    pub(crate) fn classes(&self) -> impl Iterator<Item = &String> {
        self.shared.rules.allowed_priority_class_names.iter()
    }

    fn now(&self) -> TimeMs {
        (self.shared.sources.now)()
    }

    fn random(&self) -> u128 {
        (self.shared.sources.random)()
    }

    fn known_queues(&self) -> std::sync::MutexGuard<'_, Option<queues::Known>> {
        // What is in it is replaced as a whole.
        self.shared.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

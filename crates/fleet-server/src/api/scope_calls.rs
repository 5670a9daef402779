//! What operators do to executors, and to all jobs of a queue, an executor or a node.
//!
//! Only whoever may do it to anybody's jobs may do it, as with Armada: the verbs of a queue are not enough. Empty lists restrict
//! nothing.

use pumice_ledger::{Entry, Event, Phase, Scope, Verb};
use pumice_wire::api::{
    ExecutorCancelRequest, ExecutorDeleteRequest, ExecutorPreemptRequest, ExecutorSettingsDeleteRequest,
    ExecutorSettingsUpsertRequest, JobState, NodeCancelRequest, NodePreemptRequest, QueueCancelRequest,
    QueuePreemptRequest,
};
use pumice_wire::wellknown::Empty;

use super::limits::{self, QUEUES_MAX, REASON_BYTES_MAX};
use super::{Api, Error, Permission, Who};
use crate::database::Expect;
use crate::sessions::is_executor_name;

/// Names of priority classes or pools in a request.
const NAMES_MAX: usize = 1_000;

impl Api {
    pub(super) async fn set_executor(&self, who: &Who, request: ExecutorSettingsUpsertRequest) -> Result<Empty, Error> {
        let ExecutorSettingsUpsertRequest { name: executor, cordoned, cordon_reason: reason } = request;
        who.need(Permission::UpdateExecutorSettings, "change executors")?;
        executor_name("name", &executor)?;
        limits::text("cordonReason", &reason, REASON_BYTES_MAX)?;
        if cordoned && reason.is_empty() {
            return Err(Error::Missing { field: "cordonReason" });
        }
        self.write(who, Event::ExecutorSet { executor, cordoned, reason }).await
    }

    pub(super) async fn unset_executor(
        &self,
        who: &Who,
        request: ExecutorSettingsDeleteRequest,
    ) -> Result<Empty, Error> {
        who.need(Permission::UpdateExecutorSettings, "change executors")?;
        executor_name("name", &request.name)?;
        self.write(who, Event::ExecutorUnset { executor: request.name }).await
    }

    pub(super) async fn forget_executor(&self, who: &Who, request: ExecutorDeleteRequest) -> Result<Empty, Error> {
        who.need(Permission::UpdateExecutorSettings, "change executors")?;
        executor_name("name", &request.name)?;
        if self.known(&request.name).await? == Life::Heard {
            return Err(Error::Lives(request.name));
        }
        self.write(who, Event::ExecutorForgotten { executor: request.name }).await
    }

    pub(super) async fn cancel_executor(&self, who: &Who, request: ExecutorCancelRequest) -> Result<Empty, Error> {
        let ExecutorCancelRequest { name: cluster, queues, priority_classes, pools } = request;
        executor_name("name", &cluster)?;
        let scope = Scope { cluster, queues, priority_classes, pools, ..Scope::default() };
        self.cancel_scope(who, scope, "CancelOnExecutor").await
    }

    pub(super) async fn preempt_executor(&self, who: &Who, request: ExecutorPreemptRequest) -> Result<Empty, Error> {
        let ExecutorPreemptRequest { name: cluster, queues, priority_classes, pools } = request;
        executor_name("name", &cluster)?;
        let scope = Scope { cluster, queues, priority_classes, pools, ..Scope::default() };
        self.preempt_scope(who, scope, "PreemptOnExecutor").await
    }

    pub(super) async fn cancel_node(&self, who: &Who, request: NodeCancelRequest) -> Result<Empty, Error> {
        let NodeCancelRequest { name: node, executor: cluster, queues, priority_classes } = request;
        limits::name("name", &node)?;
        executor_name("executor", &cluster)?;
        let scope = Scope { cluster, node, queues, priority_classes, ..Scope::default() };
        self.cancel_scope(who, scope, "CancelOnNode").await
    }

    pub(super) async fn preempt_node(&self, who: &Who, request: NodePreemptRequest) -> Result<Empty, Error> {
        let NodePreemptRequest { name: node, executor: cluster, queues, priority_classes } = request;
        limits::name("name", &node)?;
        executor_name("executor", &cluster)?;
        let scope = Scope { cluster, node, queues, priority_classes, ..Scope::default() };
        self.preempt_scope(who, scope, "PreemptOnNode").await
    }

    pub(super) async fn cancel_queue(&self, who: &Who, request: QueueCancelRequest) -> Result<Empty, Error> {
        let QueueCancelRequest { name, priority_classes, job_states, pools } = request;
        limits::name("name", &name)?;
        let phases = phases(&job_states)?;
        let scope = Scope { queues: vec![name], priority_classes, pools, phases, ..Scope::default() };
        self.cancel_scope(who, scope, "CancelOnQueue").await
    }

    pub(super) async fn preempt_queue(&self, who: &Who, request: QueuePreemptRequest) -> Result<Empty, Error> {
        let QueuePreemptRequest { name, priority_classes, pools } = request;
        limits::name("name", &name)?;
        let scope = Scope { queues: vec![name], priority_classes, pools, ..Scope::default() };
        self.preempt_scope(who, scope, "PreemptOnQueue").await
    }

    async fn cancel_scope(&self, who: &Who, scope: Scope, call: &str) -> Result<Empty, Error> {
        who.need(Permission::CancelAnyJobs, "cancel anybody's jobs")?;
        self.meant(Verb::Cancel, &scope.priority_classes)?;
        self.ask_scope(who, scope, |scope| Event::ScopeCancelAsked { scope, reason: format!("cancelled by {call}") })
            .await
    }

    async fn preempt_scope(&self, who: &Who, scope: Scope, call: &str) -> Result<Empty, Error> {
        who.need(Permission::PreemptAnyJobs, "preempt anybody's jobs")?;
        self.meant(Verb::Preempt, &scope.priority_classes)?;
        self.ask_scope(who, scope, |scope| Event::ScopePreemptAsked { scope, reason: format!("preempted by {call}") })
            .await
    }

    async fn ask_scope(&self, who: &Who, scope: Scope, event: impl FnOnce(Scope) -> Event) -> Result<Empty, Error> {
        for (field, names, max) in [
            ("queues", &scope.queues, QUEUES_MAX),
            ("priorityClasses", &scope.priority_classes, NAMES_MAX),
            ("pools", &scope.pools, NAMES_MAX),
        ] {
            limits::count(field, names.len(), max)?;
            names.iter().try_for_each(|name| limits::name(field, name))?;
        }
        // A name that is wrong would do nothing, and nobody would know.
        for queue in &scope.queues {
            self.queue_lately(queue).await?;
        }
        // Whoever had runs is known on every server.
        if !scope.cluster.is_empty() && !self.log().has_runs(&scope.cluster).await? {
            self.known(&scope.cluster).await?;
        }
        self.write(who, event(scope)).await
    }

    /// How an executor does, as far as anybody can be asked.
    ///
    /// # Errors
    /// Where there is none, or only the server that leads can say.
    async fn known(&self, executor: &str) -> Result<Life, Error> {
        let Some(ask) = &self.executors else { return Ok(Life::Untold) };
        let known = ask().await.ok_or_else(|| Error::NotLeading(executor.to_owned()))?;
        match known.get(executor) {
            Some(true) => Ok(Life::Gone),
            Some(false) => Ok(Life::Heard),
            None => Err(Error::NoExecutor { known: known.into_keys().collect(), name: executor.to_owned() }),
        }
    }

    async fn write(&self, who: &Who, event: Event) -> Result<Empty, Error> {
        let mut entry = Entry::new(self.now(), "", "");
        entry.user.clone_from(&who.name);
        entry.events.push(event);
        self.log().request(entry, Expect::Any).await?;
        Ok(Empty {})
    }
}

/// How an executor does.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    /// It was heard lately.
    Heard,
    /// Nothing was heard of it lately.
    Gone,
    /// Nobody can be asked.
    Untold,
}

/// Refuses a name that no executor has.
fn executor_name(field: &'static str, name: &str) -> Result<(), Error> {
    limits::name(field, name)?;
    if is_executor_name(name) {
        return Ok(());
    }
    let problem = "it is no name of an executor: those have letters, digits, `-`, `_` and `.`".to_owned();
    Err(Error::Field { field: field.to_owned(), problem })
}

/// Where jobs in these states stand.
fn phases(states: &[i32]) -> Result<Vec<Phase>, Error> {
    const KNOWN: [(JobState, &[Phase]); 4] = [
        (JobState::Queued, &[Phase::Queued, Phase::Leaving]),
        (JobState::Leased, &[Phase::Leased]),
        (JobState::Pending, &[Phase::Pending]),
        (JobState::Running, &[Phase::Running]),
    ];
    if !states.iter().all(|state| KNOWN.iter().any(|(known, _)| i32::from(*known) == *state)) {
        let problem = "only QUEUED, LEASED, PENDING and RUNNING can be cancelled".to_owned();
        return Err(Error::Field { field: "jobStates".to_owned(), problem });
    }
    let meant = KNOWN.iter().filter(|(known, _)| states.contains(&i32::from(*known)));
    Ok(meant.flat_map(|(_, phases)| phases.iter().copied()).collect())
}

#[cfg(test)]
mod tests;

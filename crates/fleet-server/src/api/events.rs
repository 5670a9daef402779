//! Events of the log, as Armada's API tells of them.
//!
//! Invariant: how many messages an event gives depends on nothing but the event, so that a message's id, which counts them
//! within their entry, names the same message for ever. Pure: what else is told of runs and specifications is in [`Context`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use pumice_fleet_model::names as pod;
use pumice_ledger::{Cause, ContainerEnd, Digest, Entry, Event, Failure, JobId, PodRef, Preemption, RunId};
use pumice_wire::api::{self, EventMessage, event_message::Events};
use pumice_wire::kubernetes::ResourceRequirements;

use super::job_states::{addresses, time};
use super::spec::{JobSpec, JobTold};
use crate::database::{RunRow, Seq};

/// Where a message stands: its entry, and its place within it from zero. Nothing to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    pub seq: Seq,
    /// The message's place within it.
    pub index: u32,
}

impl MessageId {
    /// The message that a request goes on after; none for the first. An id of Armada's names a place in another log, so that
    /// all is told from the start: who moved here misses nothing.
    ///
    /// # Errors
    /// A text that is no id.
    pub fn to_go_on_after(text: &str) -> Result<Option<Self>, super::Error> {
        if text.is_empty() || is_armadas(text) { Ok(None) } else { text.parse().map(Some) }
    }
}

/// Whether a text is an id of Armada's: `time:sequence:place:last`, or that of its store, `time-sequence`, as before.
fn is_armadas(text: &str) -> bool {
    let is_number = |part: &str| part.parse::<i64>().is_ok();
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [of_store] => of_store.split_once('-').is_some_and(|(time, seq)| is_number(time) && is_number(seq)),
        [first @ .., last] if (3..=4).contains(&parts.len()) => {
            let is_last = is_number(last) || last.parse::<bool>().is_ok();
            first.iter().all(|part| is_number(part)) && is_last
        }
        _ => false,
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.index)
    }
}

impl FromStr for MessageId {
    type Err = super::Error;

    fn from_str(text: &str) -> Result<Self, super::Error> {
        let parse = |text: &str| -> Option<MessageId> {
            let (seq, index) = text.split_once(':')?;
            let seq = seq.parse().ok().filter(|seq| *seq > 0)?;
            Some(MessageId { seq: Seq(seq), index: index.parse().ok()? })
        };
        parse(text).ok_or_else(|| super::Error::Field {
            field: "fromMessageId".to_owned(),
            problem: "it is no message's id: give that of a message you got, or none".to_owned(),
        })
    }
}

/// What is told besides of the events.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub runs: BTreeMap<RunId, RunRow>,
    /// The last run of each job.
    pub last_runs: BTreeMap<JobId, RunRow>,
    pub specs: BTreeMap<Digest, Arc<JobSpec>>,
}

/// What has to be in a [`Context`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    pub runs: BTreeSet<RunId>,
    /// Jobs whose last run is told.
    pub last_runs: BTreeSet<JobId>,
    pub specs: BTreeSet<Digest>,
}

impl Needs {
    /// Adds what an event needs.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Submitted(submitted) => drop(self.specs.insert(submitted.spec)),
            Event::Failed { job, .. } => drop(self.last_runs.insert(*job)),
            Event::Pending { run, .. }
            | Event::Running { run, .. }
            | Event::Ingress { run, .. }
            | Event::Returned { run, .. }
            | Event::RunFailed { run, retried: true, .. }
            | Event::RunPreempted { run, .. }
            | Event::Succeeded { run } => drop(self.runs.insert(*run)),
            _ => {}
        }
    }
}

/// The messages of an event of an entry.
pub fn messages(entry: &Entry, event: &Event, context: &Context) -> Vec<EventMessage> {
    let teller = Teller { entry, context };
    let told = match event {
        Event::Submitted(submitted) => teller.submitted(submitted),
        Event::CancelAsked { jobs, reason, .. } => jobs.iter().map(|job| teller.cancelling(*job, reason)).collect(),
        Event::PreemptAsked { jobs, reason } => jobs.iter().map(|job| teller.preempting(*job, reason)).collect(),
        Event::Reprioritised { jobs, priority } => {
            let asked = |job: &JobId| {
                [teller.reprioritizing(*job, *priority), teller.reprioritized(*job, *priority, &entry.user)]
            };
            jobs.iter().flat_map(asked).collect()
        }
        Event::SetReprioritised { jobs, priority, requestor } => {
            jobs.iter().map(|job| teller.reprioritized(*job, *priority, requestor)).collect()
        }
        Event::Leased { run, at, pool, .. } => vec![teller.leased(*run, &at.cluster, pool)],
        Event::Pending { run, pod } => vec![teller.pending(*run, pod)],
        Event::Running { run, pod, node } => vec![teller.running(*run, pod, node)],
        Event::Ingress { run, addresses } => vec![teller.ingress(*run, addresses)],
        Event::Returned { run, reason, attempted } => vec![teller.returned(*run, reason.clone(), *attempted)],
        Event::RunFailed { run, failure, retried, .. } => {
            let mut told = Vec::new();
            if failure.is_of_silence() {
                told.push(teller.lost(run.job));
            }
            // Where it is not tried again the failure of the job follows.
            if *retried {
                told.push(teller.failed(run.job, context.runs.get(run), failure, true));
            }
            told
        }
        // Armada's clients take `preempted` for the job's end, and this one waits again.
        Event::RunPreempted { run, preemption, requeued: true } => {
            vec![teller.returned(*run, preempted_text(preemption), true)]
        }
        Event::RunPreempted { run, preemption, requeued: false } => teller.preempted(*run, preemption),
        Event::RunLost { run } => vec![teller.lost(run.job)],
        Event::Succeeded { run } => vec![teller.succeeded(*run)],
        Event::Failed { job, failure } => vec![teller.failed(*job, context.last_runs.get(job), failure, false)],
        Event::Rejected { job, reason } => {
            let failure = Failure { message: reason.clone(), cause: Cause::Rejected, ..Failure::default() };
            vec![teller.failed(*job, None, &failure, false)]
        }
        Event::Cancelled { job, requestor, reason } => vec![teller.cancelled(*job, requestor, reason)],
        Event::QueueSet(_)
        | Event::QueueRemoved
        | Event::RunGone { .. }
        | Event::CarriedOut { .. }
        // They are of no job set; what follows from them is told job by job.
        | Event::ScopeCancelAsked { .. }
        | Event::ScopePreemptAsked { .. }
        | Event::ExecutorSet { .. }
        | Event::RetryPolicySet(_)
        | Event::RetryPolicyRemoved { .. }
        | Event::ExecutorUnset { .. }
        | Event::ExecutorForgotten { .. } => Vec::new(),
    };
    told.into_iter().map(|events| EventMessage { events: Some(events) }).collect()
}

/// A message with the fields that all of them have.
macro_rules! tell {
    ($teller:expr, $variant:ident, $message:ident, $job:expr, { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        Events::$variant(api::$message {
            job_id: $job.to_string(),
            job_set_id: $teller.entry.job_set.clone(),
            queue: $teller.entry.queue.clone(),
            created: Some(time($teller.entry.at)),
            $($field $(: $value)?,)*
            ..api::$message::default()
        })
    };
    ($teller:expr, $variant:ident, $message:ident, $job:expr) => {
        Events::$variant(api::$message {
            job_id: $job.to_string(),
            job_set_id: $teller.entry.job_set.clone(),
            queue: $teller.entry.queue.clone(),
            created: Some(time($teller.entry.at)),
        })
    };
}

/// Where a run is, as far as it is known.
#[derive(Default)]
struct Whereabouts {
    cluster: String,
    node: String,
    pool: String,
    pod: PodRef,
    pod_number: i32,
}

impl Whereabouts {
    fn of(row: Option<&RunRow>) -> Whereabouts {
        row.map_or_else(Whereabouts::default, |row| Whereabouts {
            cluster: row.at.cluster.clone(),
            node: row.at.node.clone(),
            pool: row.pool.clone(),
            pod: row.pod.clone().unwrap_or_default(),
            pod_number: pod_number(row.run),
        })
    }
}

/// The number of a run's pod, as messages have it.
fn pod_number(run: RunId) -> i32 {
    i32::try_from(pod::pod_number(run)).unwrap_or(i32::MAX)
}

struct Teller<'e> {
    entry: &'e Entry,
    context: &'e Context,
}

#[allow(clippy::needless_update, reason = "some messages have only the fields that are told")]
impl Teller<'_> {
    fn run(&self, run: RunId) -> Whereabouts {
        Whereabouts::of(self.context.runs.get(&run))
    }

    fn submitted(&self, submitted: &pumice_ledger::Submitted) -> Vec<Events> {
        let told = JobTold {
            job: submitted.job,
            queue: &self.entry.queue,
            job_set: &self.entry.job_set,
            priority: submitted.priority,
            submitted: self.entry.at,
        };
        let job = self.context.specs.get(&submitted.spec).map(|spec| {
            let mut job = spec.job(told);
            job.scheduling_resource_requirements = self.requirements(submitted.shape);
            job
        });
        vec![
            tell!(self, Submitted, JobSubmittedEvent, submitted.job, { job }),
            tell!(self, Queued, JobQueuedEvent, submitted.job),
        ]
    }

    fn requirements(&self, shape: Digest) -> Option<ResourceRequirements> {
        let requests = &self.entry.shapes.get(&shape)?.requests;
        let amount = |(name, amount): (&String, &i64)| (name.clone(), pumice_translate::wire_amount(name, *amount));
        let requests: BTreeMap<String, String> = requests.iter().map(amount).collect();
        ResourceRequirements::from_json(&serde_json::json!({ "requests": requests, "limits": requests })).ok()
    }

    fn cancelling(&self, job: JobId, reason: &str) -> Events {
        let (requestor, reason) = (self.entry.user.clone(), reason.to_owned());
        tell!(self, Cancelling, JobCancellingEvent, job, { requestor, reason })
    }

    fn preempting(&self, job: JobId, reason: &str) -> Events {
        let (requestor, reason) = (self.entry.user.clone(), reason.to_owned());
        tell!(self, Preempting, JobPreemptingEvent, job, { requestor, reason })
    }

    fn reprioritizing(&self, job: JobId, priority: u32) -> Events {
        let (new_priority, requestor) = (f64::from(priority), self.entry.user.clone());
        tell!(self, Reprioritizing, JobReprioritizingEvent, job, { new_priority, requestor })
    }

    /// It takes effect as it is asked for.
    fn reprioritized(&self, job: JobId, priority: u32, requestor: &str) -> Events {
        let (new_priority, requestor) = (f64::from(priority), requestor.to_owned());
        tell!(self, Reprioritized, JobReprioritizedEvent, job, { new_priority, requestor })
    }

    fn leased(&self, run: RunId, cluster: &str, pool: &str) -> Events {
        let (cluster_id, pool) = (cluster.to_owned(), pool.to_owned());
        tell!(self, Leased, JobLeasedEvent, run.job, { cluster_id, pool })
    }

    fn pending(&self, run: RunId, pod: &PodRef) -> Events {
        let Whereabouts { cluster, pool, .. } = self.run(run);
        let PodRef { namespace, name, uid } = pod.clone();
        tell!(self, Pending, JobPendingEvent, run.job, {
            cluster_id: cluster, kubernetes_id: uid, pod_number: pod_number(run), pod_name: name,
            pod_namespace: namespace, pool,
        })
    }

    fn running(&self, run: RunId, pod: &PodRef, node: &str) -> Events {
        let Whereabouts { cluster, pool, .. } = self.run(run);
        let PodRef { namespace, name, uid } = pod.clone();
        tell!(self, Running, JobRunningEvent, run.job, {
            cluster_id: cluster, kubernetes_id: uid, node_name: node.to_owned(), pod_number: pod_number(run),
            pod_name: name, pod_namespace: namespace, pool,
        })
    }

    fn ingress(&self, run: RunId, by_port: &BTreeMap<u32, String>) -> Events {
        let Whereabouts { cluster, node, pod, .. } = self.run(run);
        tell!(self, IngressInfo, JobIngressInfoEvent, run.job, {
            cluster_id: cluster, kubernetes_id: pod.uid, node_name: node, pod_number: pod_number(run),
            ingress_addresses: addresses(by_port), pod_name: pod.name, pod_namespace: pod.namespace,
        })
    }

    fn returned(&self, run: RunId, reason: String, run_attempted: bool) -> Events {
        let Whereabouts { cluster, pod, .. } = self.run(run);
        tell!(self, LeaseReturned, JobLeaseReturnedEvent, run.job, {
            cluster_id: cluster, reason, kubernetes_id: pod.uid, pod_number: pod_number(run), run_attempted,
        })
    }

    fn lost(&self, job: JobId) -> Events {
        tell!(self, LeaseExpired, JobLeaseExpiredEvent, job)
    }

    #[allow(deprecated, reason = "older clients read the exit codes there")]
    fn failed(&self, job: JobId, run: Option<&RunRow>, failure: &Failure, retryable: bool) -> Events {
        let Whereabouts { cluster, node, pod, pod_number, .. } = Whereabouts::of(run);
        let containers = &failure.containers;
        tell!(self, Failed, JobFailedEvent, job, {
            cluster_id: cluster,
            reason: failure.message.clone(),
            exit_codes: containers.iter().map(|end| (end.name.clone(), end.exit_code)).collect(),
            kubernetes_id: pod.uid,
            node_name: node,
            pod_number,
            container_statuses: containers.iter().map(container).collect(),
            cause: cause(failure.cause).into(),
            pod_name: pod.name,
            pod_namespace: pod.namespace,
            failure_category: failure.category.clone(),
            failure_subcategory: failure.subcategory.clone(),
            retryable,
        })
    }

    fn succeeded(&self, run: RunId) -> Events {
        let Whereabouts { cluster, node, pod, .. } = self.run(run);
        tell!(self, Succeeded, JobSucceededEvent, run.job, {
            cluster_id: cluster, kubernetes_id: pod.uid, node_name: node, pod_number: pod_number(run),
            pod_name: pod.name, pod_namespace: pod.namespace,
        })
    }

    /// A failure follows, as Armada's clients expect it.
    fn preempted(&self, run: RunId, preemption: &Preemption) -> Vec<Events> {
        let cluster_id = self.run(run).cluster;
        let preempting_job_id = preemption.beneficiary.map(|job| job.to_string()).unwrap_or_default();
        let failure = Failure { message: preempted_text(preemption), ..Failure::default() };
        vec![
            tell!(self, Preempted, JobPreemptedEvent, run.job, {
                cluster_id,
                run_id: run.to_string(),
                reason: preemption.reason.clone(),
                preempting_job_id,
                requestor: preemption.requestor.clone(),
            }),
            self.failed(run.job, self.context.runs.get(&run), &failure, false),
        ]
    }

    fn cancelled(&self, job: JobId, requestor: &str, reason: &str) -> Events {
        let (requestor, reason) = (requestor.to_owned(), reason.to_owned());
        tell!(self, Cancelled, JobCancelledEvent, job, { requestor, reason })
    }
}

/// Why a run had to make room, as it is told where a failure is. Who asks for it need not say why.
pub(super) fn preempted_text(preemption: &Preemption) -> String {
    match preemption {
        Preemption { reason, requestor, .. } if reason.is_empty() => format!("preempted by {requestor}"),
        Preemption { reason, .. } => format!("preempted: {reason}"),
    }
}

fn cause(cause: Cause) -> api::Cause {
    match cause {
        Cause::Error => api::Cause::Error,
        Cause::Evicted => api::Cause::Evicted,
        Cause::Oom => api::Cause::Oom,
        Cause::DeadlineExceeded => api::Cause::DeadlineExceeded,
        Cause::Rejected => api::Cause::Rejected,
    }
}

fn container(end: &ContainerEnd) -> api::ContainerStatus {
    let cause = if end.reason == "OOMKilled" { api::Cause::Oom } else { api::Cause::Error };
    api::ContainerStatus {
        name: end.name.clone(),
        exit_code: end.exit_code,
        message: end.message.clone(),
        reason: end.reason.clone(),
        cause: cause.into(),
    }
}

#[cfg(test)]
mod tests;

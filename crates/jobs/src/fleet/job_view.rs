//! What became of the jobs of a job set, by the set's events.
//!
//! Invariant: pure. A server tells the same messages in the same order for ever, so how many were read is a version: who has
//! seen one needs only what changed since.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pumice_api::names::{TASK_INDEX, TASK_SPEC};
use pumice_wire::api::event_message::Events;
use pumice_wire::api::{EventMessage, Job, JobFailedEvent};
use pumice_wire::wellknown::Timestamp as OnWire;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stage {
    /// It waits for a node, or for its pod to start.
    #[default]
    Waiting,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

/// A container that ended badly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEnd {
    pub name: String,
    pub exit_code: i32,
    /// A word, such as `OOMKilled`.
    pub reason: String,
    /// A sentence; may be empty.
    pub message: String,
}

/// One job of the set.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobView {
    /// The task, where `jobctl` made the job.
    pub task: Option<String>,
    /// Its index in the task.
    pub index: Option<u32>,
    /// Where its pods are made.
    pub namespace: String,
    /// Its first container.
    pub container: String,
    pub stage: Stage,
    pub attempts: u32,
    /// The cluster of the last one.
    pub cluster: String,
    pub node: String,
    pub pod: String,
    /// When the job was submitted.
    pub submitted: Option<Timestamp>,
    /// When the last run began.
    pub started: Option<Timestamp>,
    /// When the job ended.
    pub finished: Option<Timestamp>,
    /// Why it failed, or went back to its queue.
    pub message: String,
    /// The containers of the run that failed.
    pub containers: Vec<ContainerEnd>,
    /// The version at which it changed last.
    pub changed: u64,
}

/// How many jobs are where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobCounts {
    pub waiting: u64,
    pub running: u64,
    pub succeeded: u64,
    pub failed: u64,
    /// Ended by somebody.
    pub cancelled: u64,
}

impl JobCounts {
    /// How many jobs there are in any state.
    pub fn all(&self) -> u64 {
        self.waiting + self.running + self.succeeded + self.failed + self.cancelled
    }

    /// Those that have not ended.
    pub fn active(&self) -> u64 {
        self.waiting + self.running
    }
}

/// The jobs of a set, as far as its events were read.
#[derive(Debug, Clone, Default)]
pub struct JobSetView {
    /// Messages read: the version.
    pub read: u64,
    /// The last one; empty before the first.
    pub last: String,
    /// When it was written.
    pub at: Option<Timestamp>,
    /// The jobs by id, which is the order in which they were submitted.
    pub jobs: BTreeMap<String, JobView>,
}

impl JobSetView {
    /// Takes note of a message.
    pub fn take(&mut self, id: String, message: Option<EventMessage>) {
        self.read += 1;
        self.last = id;
        if let Some(events) = message.and_then(|message| message.events) {
            self.note(events);
        }
    }

    /// How many jobs are where.
    pub fn counts(&self) -> JobCounts {
        let mut counts = JobCounts::default();
        for job in self.jobs.values() {
            *match job.stage {
                Stage::Waiting => &mut counts.waiting,
                Stage::Running => &mut counts.running,
                Stage::Succeeded => &mut counts.succeeded,
                Stage::Failed => &mut counts.failed,
                Stage::Cancelled => &mut counts.cancelled,
            } += 1;
        }
        counts
    }

    /// The job that failed or was cancelled first and says why.
    pub fn first_end(&self) -> Option<&JobView> {
        let ended = self.jobs.values().filter(|job| matches!(job.stage, Stage::Failed | Stage::Cancelled));
        ended.filter(|job| !job.message.is_empty()).min_by_key(|job| job.finished)
    }

    fn note(&mut self, events: Events) {
        match events {
            Events::Submitted(event) => {
                let at = self.at(event.created);
                let job = self.job(event.job_id);
                job.submitted = at;
                if let Some(view) = event.job {
                    job.introduce(&view);
                }
            }
            Events::Leased(event) => {
                self.at(event.created);
                let job = self.job(event.job_id);
                job.attempts += 1;
                job.cluster = event.cluster_id;
                (job.node, job.pod) = (String::new(), String::new());
            }
            Events::Pending(event) => {
                self.at(event.created);
                let job = self.job(event.job_id);
                (job.cluster, job.pod) = (event.cluster_id, event.pod_name);
            }
            Events::Running(event) => {
                let at = self.at(event.created);
                let job = self.job(event.job_id);
                (job.cluster, job.node, job.pod) = (event.cluster_id, event.node_name, event.pod_name);
                job.started = at;
                job.message.clear();
                job.stage = Stage::Running;
            }
            Events::LeaseReturned(event) => {
                self.at(event.created);
                self.job(event.job_id).wait_again(event.reason);
            }
            Events::LeaseExpired(event) => {
                self.at(event.created);
                self.job(event.job_id).wait_again("its cluster was not heard of for too long".to_owned());
            }
            Events::Failed(event) => {
                let at = self.at(event.created);
                let job = self.job(event.job_id.clone());
                job.containers = containers(&event);
                if event.retryable {
                    return job.wait_again(event.reason);
                }
                job.end(Stage::Failed, at);
                job.message = event.reason;
                for (known, view) in [(&mut job.node, event.node_name), (&mut job.pod, event.pod_name)] {
                    if !view.is_empty() {
                        *known = view;
                    }
                }
            }
            Events::Succeeded(event) => {
                let at = self.at(event.created);
                let job = self.job(event.job_id);
                job.end(Stage::Succeeded, at);
                job.node = event.node_name;
            }
            Events::Cancelled(event) => {
                let at = self.at(event.created);
                let job = self.job(event.job_id);
                job.end(Stage::Cancelled, at);
                job.message = format!("cancelled by {}", event.requestor);
            }
            // These change nothing that is told here, or another follows.
            Events::Queued(_)
            | Events::Reprioritized(_)
            | Events::Reprioritizing(_)
            | Events::Cancelling(_)
            | Events::Preempting(_)
            | Events::Preempted(_)
            | Events::Utilisation(_)
            | Events::IngressInfo(_) => {}
        }
    }

    fn at(&mut self, at: Option<OnWire>) -> Option<Timestamp> {
        let at = at.and_then(|at| Timestamp::try_from(at).ok());
        self.at = at.or(self.at);
        at
    }

    fn job(&mut self, id: String) -> &mut JobView {
        let job = self.jobs.entry(id).or_default();
        job.changed = self.read;
        job
    }
}

impl JobView {
    fn introduce(&mut self, job: &Job) {
        self.namespace.clone_from(&job.namespace);
        self.task = job.annotations.get(TASK_SPEC).cloned();
        self.index = job.annotations.get(TASK_INDEX).and_then(|index| index.parse().ok());
        let spec = job.pod_specs.first().and_then(|spec| spec.to_json().ok());
        let name = spec.as_ref().and_then(|spec| spec.pointer("/containers/0/name")?.as_str());
        self.container = name.unwrap_or_default().to_owned();
    }

    fn wait_again(&mut self, message: String) {
        self.stage = Stage::Waiting;
        self.started = None;
        self.message = message;
    }

    fn end(&mut self, stage: Stage, at: Option<Timestamp>) {
        self.stage = stage;
        self.finished = at;
        self.message.clear();
    }
}

fn containers(event: &JobFailedEvent) -> Vec<ContainerEnd> {
    let ends = event.container_statuses.iter().map(|end| ContainerEnd {
        name: end.name.clone(),
        exit_code: end.exit_code,
        reason: end.reason.clone(),
        message: end.message.clone(),
    });
    ends.collect()
}

#[cfg(test)]
mod tests {
    use pumice_wire::api;

    use super::*;

    fn view(events: Vec<Events>) -> JobSetView {
        let mut view = JobSetView::default();
        for (number, events) in events.into_iter().enumerate() {
            view.take(format!("{number}:0"), Some(EventMessage { events: Some(events) }));
        }
        view
    }

    fn submitted(id: &str, index: &str) -> Events {
        let annotations =
            [(TASK_SPEC, "main"), (TASK_INDEX, index)].map(|(key, text)| (key.to_owned(), text.to_owned()));
        let job = Job { namespace: "n".to_owned(), annotations: annotations.into(), ..Job::default() };
        let created = Some(OnWire { seconds: 100, nanos: 0 });
        Events::Submitted(api::JobSubmittedEvent {
            job_id: id.to_owned(),
            job: Some(job),
            created,
            ..Default::default()
        })
    }

    macro_rules! event {
        ($kind:ident, $message:ident, $id:literal $(, $field:ident: $value:expr)*) => {
            Events::$kind(api::$message { job_id: $id.to_owned(), $($field: $value,)* ..Default::default() })
        };
    }

    #[test]
    fn a_set_is_told_by_its_events() {
        let end = api::ContainerStatus { name: "main".to_owned(), exit_code: 3, ..Default::default() };
        let view = view(vec![
            submitted("a", "0"),
            submitted("b", "1"),
            submitted("c", "2"),
            submitted("d", "3"),
            event!(Leased, JobLeasedEvent, "a", cluster_id: "east".to_owned()),
            event!(Running, JobRunningEvent, "a", node_name: "n1".to_owned(), pod_name: "armada-a-0".to_owned()),
            event!(Leased, JobLeasedEvent, "b"),
            event!(Failed, JobFailedEvent, "b", retryable: true, reason: "again".to_owned()),
            event!(Leased, JobLeasedEvent, "b"),
            event!(Running, JobRunningEvent, "b"),
            event!(Failed, JobFailedEvent, "b", reason: "it failed".to_owned(), container_statuses: vec![end]),
            event!(Cancelled, JobCancelledEvent, "c", requestor: "ada".to_owned()),
            event!(Succeeded, JobSucceededEvent, "d"),
        ]);
        assert_eq!((view.read, view.last.as_str()), (13, "12:0"));
        assert_eq!(view.counts(), JobCounts { running: 1, failed: 1, cancelled: 1, succeeded: 1, waiting: 0 });
        let [a, b, c, _] = ["a", "b", "c", "d"].map(|id| &view.jobs[id]);
        assert_eq!((a.stage, a.node.as_str(), a.index, a.changed), (Stage::Running, "n1", Some(0), 6));
        assert_eq!((b.attempts, b.message.as_str(), b.containers[0].exit_code), (2, "it failed", 3));
        assert_eq!(c.message, "cancelled by ada");
        assert_eq!(view.first_end().map(|job| job.message.as_str()), Some("it failed"));
    }

    #[test]
    fn a_job_that_goes_back_to_its_queue_waits_and_says_why() {
        let view = view(vec![
            submitted("a", "0"),
            event!(Running, JobRunningEvent, "a"),
            event!(LeaseReturned, JobLeaseReturnedEvent, "a", reason: "preempted: for others".to_owned()),
        ]);
        let job = &view.jobs["a"];
        assert_eq!((job.stage, job.message.as_str(), job.started), (Stage::Waiting, "preempted: for others", None));
    }
}

//! What is written to the log. The names of fields are the format: a log of an earlier release is read for ever.
//!
//! *Requests* may be written by any server: what people ask for. All others are *decisions*, which only the leader writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Preemption};
use crate::ids::{Digest, JobId, NodeRef, PodRef, RunId, TimeMs};
use crate::job::{Away, Phase};
use crate::memory::Growth;
use crate::queue::Queue;
use crate::retries::RetryPolicy;
use crate::shape::Shape;
use crate::volcano_job::NodePods;

/// One row of the log: what one request, or one decision, said of one job set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    pub at: TimeMs,
    /// The queue; empty where the entry is about none alone.
    pub queue: String,
    /// The job set; empty where the entry is about the queue itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job_set: String,
    /// Who asked; empty for decisions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Shapes that jobs get here, by their digest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<Digest, Shape>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

impl Entry {
    /// An entry without events.
    pub fn new(at: TimeMs, queue: &str, job_set: &str) -> Self {
        Self {
            at,
            queue: queue.to_owned(),
            job_set: job_set.to_owned(),
            user: String::new(),
            shapes: BTreeMap::new(),
            events: Vec::new(),
        }
    }
}

/// What is set of an executor, and of its cluster with it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecutorSettings {
    /// Nothing new starts there.
    pub cordoned: bool,
    pub cordon_reason: String,
    pub set_by: String,
    pub set_at: TimeMs,
}

/// Jobs that start together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gang {
    /// Its name, unique in its queue and job set.
    pub id: String,
    /// How many jobs it has.
    pub cardinality: u32,
    /// The label that all of its nodes share; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uniformity: String,
}

/// A job as it enters the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    pub job: JobId,
    /// The digest of its specification, which the database keeps.
    pub spec: Digest,
    /// The digest of its shape.
    pub shape: Digest,
    /// Its place in the queue: lower goes first.
    #[serde(default)]
    pub priority: u32,
    /// The gang it is a member of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<Gang>,
    /// A returned lease is not tried again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_fast: bool,
}

/// Which jobs of a set are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Filter {
    /// All that have not ended.
    #[default]
    Active,
    /// Those without a run.
    Queued,
    /// Those with a run, leased or further.
    Running,
}

/// Jobs by where they stand, of all queues and job sets. What is empty restricts nothing; all that is not has to fit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    /// The cluster in which their runs are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The node on which their runs are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priority_classes: Vec<String>,
    /// The pools in which their runs are; a job without a run is in none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<Phase>,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Event {
    // Requests.
    /// A queue as it is from now on.
    QueueSet(Box<Queue>),
    /// A queue is gone; it had no job that has not ended.
    QueueRemoved,
    /// A job enters its queue.
    Submitted(Submitted),
    /// Jobs are to end.
    CancelAsked {
        /// Which; none means those of the set that `filter` takes.
        jobs: Vec<JobId>,
        /// Which of the set.
        #[serde(default)]
        filter: Filter,
        #[serde(default)]
        reason: String,
    },
    /// Jobs get another place in their queue. Takes effect as it is folded.
    Reprioritised {
        /// Which; none means all of the set.
        jobs: Vec<JobId>,
        priority: u32,
    },
    /// Runs are to make room, where their class allows it.
    PreemptAsked {
        jobs: Vec<JobId>,
        #[serde(default)]
        reason: String,
    },
    /// Jobs are to end, whatever set they are of.
    ScopeCancelAsked {
        scope: Scope,
        #[serde(default)]
        reason: String,
    },
    /// Runs are to make room, whatever set their jobs are of.
    ScopePreemptAsked {
        scope: Scope,
        #[serde(default)]
        reason: String,
    },
    /// A retry policy as it is from now on.
    RetryPolicySet(Box<RetryPolicy>),
    /// A retry policy is gone.
    RetryPolicyRemoved { policy: String },
    /// An executor's settings as they are from now on; who set them stands in the entry.
    ExecutorSet {
        executor: String,
        /// Nothing new starts there.
        cordoned: bool,
        #[serde(default)]
        reason: String,
    },
    /// Nothing is set of an executor any more.
    ExecutorUnset { executor: String },

    /// An executor is gone for good: what was told to stop there has stopped. One that lives is not gone. What is set of it
    /// stays.
    ExecutorForgotten { executor: String },

    // Decisions.
    /// What was asked of many jobs of the entry's set, or of a scope, is carried out for these: the next part of the first
    /// such request that is not carried out to its end.
    CarriedOut {
        /// When it was asked.
        #[serde(rename = "asked")]
        requested: TimeMs,
        /// Which of them it meant.
        jobs: Vec<JobId>,
        /// It is carried out up to this job.
        through: JobId,
    },
    /// Jobs have the place that was asked for all of their set.
    SetReprioritised { jobs: Vec<JobId>, priority: u32, requestor: String },
    /// A job gets a node.
    Leased {
        run: RunId,
        at: NodeRef,
        /// The pool that the node is counted in.
        pool: String,
        /// How it is away from home, where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        away: Option<Away>,
        /// Where its pods have room, where it is a Volcano job; `at` names no node then.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        places: Vec<NodePods>,
    },
    /// The run's pod is made.
    Pending { run: RunId, pod: PodRef },
    Running {
        run: RunId,
        pod: PodRef,
        /// The node, as the cluster tells.
        node: String,
    },
    /// Where the pod's ports are reached.
    Ingress {
        run: RunId,
        /// Addresses by port.
        addresses: BTreeMap<u32, String>,
    },
    /// The run could not be started there, or was given back.
    Returned {
        run: RunId,
        reason: String,
        /// It was tried: that node is avoided from now on, and the attempt counts.
        attempted: bool,
    },
    /// The run failed. Whether the job does stands in what follows.
    RunFailed {
        run: RunId,
        failure: Failure,
        retried: bool,
        /// It follows on another node.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        avoid: bool,
        /// It follows with more memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grows: Option<Growth>,
    },
    /// The run has to make room.
    RunPreempted {
        run: RunId,
        /// Why, and for whom.
        preemption: Preemption,
        /// The job waits again; else it ends with this.
        requeued: bool,
    },
    /// Nothing was heard of the run's cluster for as long as its queue allows, or, where the run was stopped before, the fleet:
    /// it is given up, and its job waits again unless that has ended.
    RunLost { run: RunId },
    /// A run that was stopped has left its node.
    RunGone { run: RunId },
    /// The job ended well.
    Succeeded {
        /// Its last run.
        run: RunId,
    },
    /// The job ended badly.
    Failed { job: JobId, failure: Failure },
    /// The job can never run.
    Rejected { job: JobId, reason: String },
    /// The job ended because somebody asked for it.
    Cancelled { job: JobId, requestor: String, reason: String },
}

impl Event {
    /// Only the leader may write it.
    pub fn is_decision(&self) -> bool {
        !matches!(
            self,
            Event::QueueSet(_)
                | Event::QueueRemoved
                | Event::Submitted(_)
                | Event::CancelAsked { .. }
                | Event::Reprioritised { .. }
                | Event::PreemptAsked { .. }
                | Event::ScopeCancelAsked { .. }
                | Event::ScopePreemptAsked { .. }
                | Event::RetryPolicySet(_)
                | Event::RetryPolicyRemoved { .. }
                | Event::ExecutorSet { .. }
                | Event::ExecutorUnset { .. }
                | Event::ExecutorForgotten { .. }
        )
    }

    /// What it sets of an executor, in the entry that it is in.
    pub fn settings(&self, entry: &Entry) -> Option<ExecutorSettings> {
        let Event::ExecutorSet { cordoned, reason, .. } = self else { return None };
        Some(ExecutorSettings {
            cordoned: *cordoned,
            cordon_reason: reason.clone(),
            set_by: entry.user.clone(),
            set_at: entry.at,
        })
    }

    /// The job that ends with it.
    pub fn ends(&self) -> Option<JobId> {
        match self {
            Event::Succeeded { run } => Some(run.job),
            Event::Failed { job, .. } | Event::Rejected { job, .. } | Event::Cancelled { job, .. } => Some(*job),
            Event::RunPreempted { run, requeued: false, .. } => Some(run.job),
            _ => None,
        }
    }
}

//! What a step wants done.
//!
//! Invariant: stages run one after another, the effects of one stage in any order or at once; a stage that fails stops the
//! plan, and the next step starts from what exists then. Every effect is safe to repeat. Carried out by the job controller.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use pumice_api::batch::JobStatus;
use pumice_api::scheduling::PodGroup;
use serde_json::Value;

use crate::job::restart::Mark;
use crate::plugins::ssh::SecretPlan;
use crate::profile::Lesson;

/// The changes a step wants, and when to look again even if nothing happens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Effects in the order in which they must happen.
    pub stages: Vec<Vec<Effect>>,
    /// When a delayed policy or the time to live is due.
    pub wake_at: Option<Timestamp>,
    /// The Command was not looked at, because something unfinished goes first: give it to the next step again.
    pub command_waits: bool,
}

/// A pod or group that exists, with the uid it must still have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Existing {
    pub name: String,
    /// Its uid; the effect must not touch a successor of the same name.
    pub uid: String,
}

/// What is new in a status that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusChange {
    /// Counts, or that a job has a status: it may be held back and merged with the next write.
    Counts,
    Decision,
    /// The job entered another phase.
    Phase,
}

/// One change of a plan, which may be carried out twice: names are fixed, and pods are deleted by their uid.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Mark a pod as about to be deleted by us.
    MarkPod {
        pod: Existing,
        /// The restart that wants it gone.
        mark: Mark,
    },
    /// Delete a pod with its own grace.
    DeletePod(Existing),
    /// Create a pod. A pod of that name and of this job is as good; of another owner, wait until it is gone.
    CreatePod(Box<Pod>),
    /// Create the job's group; there already is as good.
    CreateGroup(Box<PodGroup>),
    /// Merge `patch` into the group's `spec`.
    UpdateGroup {
        name: String,
        /// A JSON merge patch.
        patch: Value,
    },
    DeleteGroup(Existing),
    /// Create a claim; there already is as good.
    CreateClaim(Box<PersistentVolumeClaim>),
    /// Make a plugin's object be as given.
    Ensure {
        id: ObjectId,
        /// The job's generation; remembered as [`JobView::applied`](crate::job::JobView::applied) when done.
        generation: i64,
        /// What it must be.
        object: Ensured,
    },
    /// Delete a plugin's object if this job controls it; absent is as good.
    DeleteObject(ObjectId),
    /// Set or remove an annotation of the job, if it is as the step saw it. Always in a stage of its own.
    Annotate {
        key: &'static str,
        /// Its value; `None` removes it.
        value: Option<String>,
    },
    /// Replace the job's status.
    WriteStatus {
        /// The whole new status.
        status: Box<JobStatus>,
        /// What it is for.
        change: StatusChange,
    },
    /// Record a Kubernetes Event on the job.
    Record {
        severity: Severity,
        /// CamelCase word.
        reason: &'static str,
        /// A sentence for people.
        message: String,
    },
    /// Remember what a run of the job taught, for the next one.
    Learn(Box<Lesson>),
    /// Delete the job itself, in the foreground: its time to live is over.
    DeleteJob,
}

/// An object of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub enum Ensured {
    /// The hosts file of the svc plugin.
    ConfigMap(Box<ConfigMap>),
    /// The headless Service of the svc plugin.
    Service(Box<Service>),
    /// The traffic rule of the svc plugin.
    NetworkPolicy(Box<NetworkPolicy>),
    /// The keys of the ssh plugin; the shell adds a key pair if the plan has none.
    SshSecret(Box<SecretPlan>),
}

/// Kind of a plugin's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// `v1` ConfigMap.
    ConfigMap,
    /// `v1` Secret.
    Secret,
    /// `v1` Service.
    Service,
    /// `networking.k8s.io/v1` NetworkPolicy.
    NetworkPolicy,
}

/// A plugin's object in the job's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    pub kind: ObjectKind,
    pub name: String,
}

/// Severity of a recorded Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Part of normal life.
    Normal,
    Warning,
}

impl Effect {
    /// An Event on the job of severity Normal.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Self::Record { severity: Severity::Normal, reason, message }
    }

    /// An Event on the job of severity Warning.
    pub fn warning(reason: &'static str, message: String) -> Self {
        Self::Record { severity: Severity::Warning, reason, message }
    }

    /// Whether the effect only tells something.
    pub fn is_record(&self) -> bool {
        matches!(self, Self::Record { .. })
    }
}

impl Plan {
    /// A plan of one stage.
    pub fn only(stage: Vec<Effect>) -> Self {
        Self::stages(vec![stage])
    }

    /// A plan of several stages; empty ones are dropped.
    pub fn stages(stages: Vec<Vec<Effect>>) -> Self {
        Self { stages: stages.into_iter().filter(|stage| !stage.is_empty()).collect(), ..Self::default() }
    }

    /// Whether nothing is to be changed; Events don't count.
    pub fn is_settled(&self) -> bool {
        self.stages.iter().flatten().all(Effect::is_record)
    }

    pub(super) fn prepend_records(&mut self, records: Vec<Effect>) {
        if records.is_empty() {
            return;
        }
        match self.stages.first_mut() {
            Some(first) => {
                first.splice(0..0, records);
            }
            None => self.stages.push(records),
        }
    }
}

//! What is shown of jobs and their runs.

use std::borrow::Cow;
use std::sync::Arc;

use pumice_engine::PodUid;
use pumice_ledger::{JobId, RunId, RunPhase};

use super::shape_cache::ParsedShape;
use crate::names;
use crate::volcano_jobs::Members;

/// Namespace and name of a gang's group.
pub(crate) type GangKey = (Arc<str>, String);

/// A run as the pool knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExposedRun {
    pub run: RunId,
    /// Whose turn it is; 0 where its job is gone.
    pub priority: u32,
    /// The gang it is in.
    pub gang: Option<Arc<GangKey>>,
    /// How far it is, and what it holds, where it holds room; else it waits.
    pub holds: Option<(RunPhase, Claim)>,
    /// Its pods, where it is a Volcano job.
    pub members: Option<Arc<Members>>,
}

/// What is shown of a job.
#[derive(Debug)]
pub(crate) enum ExposedJob {
    /// A single job of one pod, with this priority, whose first run waits. Most are such: no more is kept of them.
    Waits(u32),
    Runs(Box<[ExposedRun]>),
}

impl ExposedJob {
    /// The runs, of the job of that id.
    pub(crate) fn runs(&self, id: JobId) -> Cow<'_, [ExposedRun]> {
        match self {
            Self::Waits(priority) => Cow::Owned(vec![ExposedRun::first(id, *priority)]),
            Self::Runs(runs) => Cow::Borrowed(runs),
        }
    }
}

/// What a run holds, or wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub queue: Arc<str>,
    pub shape: Arc<ParsedShape>,
}

impl ExposedRun {
    /// The first run of a single job of one pod, while it waits.
    pub(crate) fn first(job: JobId, priority: u32) -> Self {
        Self { run: RunId { job, attempt: 1 }, priority, gang: None, holds: None, members: None }
    }

    /// What the engine calls its task, or those of all of its pods.
    pub(crate) fn uids(&self) -> Vec<PodUid> {
        match &self.members {
            None => vec![names::uid(self.priority, self.run)],
            Some(members) => {
                members.pods.iter().map(|member| names::pod_uid(self.priority, self.run, member.pod)).collect()
            }
        }
    }
}

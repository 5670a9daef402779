//! What is shown of jobs and their runs, and their shapes as a pool's engine is told of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use pumice_engine::{PodTemplate, PodUid, Resources, Shared};
use pumice_ledger::{JobId, RunId, RunPhase, Shape, VolcanoTask};

use crate::constraints::Constraints;
use crate::plugins::limits;
use crate::volcano_jobs::Members;
use crate::{market, names};

/// A gang's group, as the engine is told of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GangKey {
    /// The name of its queue.
    pub namespace: Arc<str>,
    pub name: String,
}

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

/// A shape as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedShape {
    pub template: Shared<PodTemplate>,
    pub class: Arc<str>,
    /// What it takes of resources that are on no node.
    pub floating: Resources,
    /// Its pods by part, where it is a Volcano job; `template` only asks for what they take together then.
    pub parts: Vec<Shared<PodTemplate>>,
}

impl ParsedShape {
    /// A shape's template; one that can't be read asks for its amounts and nothing else.
    pub(crate) fn read(shape: &Shape, constraints: &Constraints, is_market: bool) -> Self {
        let (mut template, floating) = template(shape, &constraints.floating);
        limits::mark(&mut template, &shape.priority_class, &floating);
        market::mark(&mut template, if is_market { shape.price_band } else { None });
        let parts = shape.volcano_job.iter().flat_map(|whole| &whole.parts).map(|part| {
            let VolcanoTask { requests, template, .. } = part.clone();
            let (priority_class, price_band) = (shape.priority_class.clone(), shape.price_band);
            let shape = Shape { priority_class, requests, template, volcano_job: None, price_band, retries: None };
            Self::read(&shape, constraints, is_market).template
        });
        let parts = parts.collect();
        Self { template: template.into(), class: shape.priority_class.as_str().into(), floating, parts }
    }
}

/// A shape's template, and what it asks for of resources that are on no node.
pub(crate) fn template(shape: &Shape, floating: &BTreeMap<String, BTreeMap<String, i64>>) -> (PodTemplate, Resources) {
    let read = serde_json::from_value::<Option<PodTemplate>>(shape.template.clone());
    let mut template = read.ok().flatten().unwrap_or_default();
    let (of_none, requests) = shape.requests.clone().into_iter().partition(|(name, _)| floating.contains_key(name));
    template.requests = requests;
    (template, of_none)
}

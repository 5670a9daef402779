//! Jobs of a flow that are made again when they have failed.
//!
//! Invariant: how often a Job has failed is in the flow's status, in the phases that it went through, and is written there before
//! the Job is deleted. A course that is too long to be remembered whole counts as used up. Only Failed counts: what a person or a
//! policy terminated stays.

use pumice_api::batch::JobPhase;
use pumice_api::flow::{Flow, JobFlow, JobOfFlow};
use pumice_api::names;

use super::status::HISTORY_MAX;

/// Most retries of one Job.
const RETRIES_MAX: usize = 10;

/// How often the Job of `flow` is made again. The field counts before the annotation.
fn allowed(job_flow: &JobFlow, flow: &Flow) -> usize {
    let text = job_flow.metadata.annotations.as_ref().and_then(|all| all.get(names::FLOW_RETRIES));
    let annotated = || text.and_then(|text| read(text).find(|(name, _)| *name == flow.name)?.1);
    let said = flow.retries.map(|retries| usize::try_from(retries).unwrap_or(0)).or_else(annotated);
    said.unwrap_or(0).min(RETRIES_MAX)
}

/// The names that the annotation says, each with its number if it can be read.
pub fn read(text: &str) -> impl Iterator<Item = (&str, Option<usize>)> {
    text.split(',').map(|entry| {
        let (name, number) = entry.split_once('=').unwrap_or((entry, ""));
        (name.trim(), number.trim().parse().ok().filter(|number| *number <= RETRIES_MAX))
    })
}

/// Whether a Job that went through this has failed and is to be made again.
pub(super) fn is_due(job_flow: &JobFlow, flow: &Flow, of_flow: &JobOfFlow) -> bool {
    let histories = &of_flow.running_histories;
    let failures = histories.iter().filter(|history| history.state == Some(JobPhase::Failed)).count();
    let is_whole = histories.len() < HISTORY_MAX;
    of_flow.state == Some(JobPhase::Failed) && is_whole && failures <= allowed(job_flow, flow)
}

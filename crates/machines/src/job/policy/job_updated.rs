//! The event JobUpdated: the spec has changed since the job was last acted upon.
//!
//! Invariant: the generation that was acted upon is in the status, so acting and noting it are one write. It is there only for
//! jobs that have a rule for the event. Called by `policy::events`, and wherever a status is drafted.

use jiff::Timestamp;
use pumice_api::batch::{Job, JobStatus};
use pumice_api::bus::Event;

use crate::job::policy::events::Signal;

/// Key in `status.controlledResources`: `<generation>`, or `<generation>@<second>` since when a later one waits for a policy.
const KEY: &str = "generation";

/// The generation that was acted upon, and since when a later one waits for a policy.
struct Noted {
    generation: i64,
    since: Option<Timestamp>,
}

fn noted(status: &JobStatus) -> Option<Noted> {
    let text = status.controlled_resources.get(KEY)?;
    let (generation, second) = text.split_once('@').map_or((text.as_str(), None), |(left, right)| (left, Some(right)));
    let since = second.and_then(|second| Timestamp::from_second(second.parse().ok()?).ok());
    Some(Noted { generation: generation.parse().ok()?, since })
}

/// Whether a rule names the event. `*` does not mean it: Volcano never raises it, and scaling would restart jobs.
fn is_wanted(job: &Job) -> bool {
    let mut rules = job.spec.policies.iter();
    rules.any(|rule| rule.event.iter().chain(&rule.events).any(|event| *event == Event::JobUpdated))
}

pub(in crate::job) fn signal(job: &Job, now: Timestamp) -> Option<Signal> {
    if !is_wanted(job) {
        return None;
    }
    let noted = noted(&job.status)?;
    let newer = job.metadata.generation? > noted.generation;
    let at = Some(noted.since.unwrap_or(now));
    newer.then_some(Signal { event: Event::JobUpdated, at, task: None, index: None, exit_codes: Vec::new() })
}

/// Notes that the spec as it is now was acted upon.
pub(in crate::job) fn acted(job: &Job, next: &mut JobStatus) {
    if let Some(generation) = job.metadata.generation
        && is_wanted(job)
    {
        next.controlled_resources.insert(KEY.to_owned(), generation.to_string());
    }
}

/// Notes that nothing was acted upon: the first generation as it is, and of a later one since when it waits.
pub(in crate::job) fn waits(job: &Job, next: &mut JobStatus, now: Timestamp) {
    let Some(generation) = job.metadata.generation else { return };
    if !is_wanted(job) {
        return;
    }
    let value = match noted(&job.status) {
        Some(noted) if generation > noted.generation => {
            format!("{}@{}", noted.generation, noted.since.unwrap_or(now).as_second())
        }
        Some(noted) => noted.generation.to_string(),
        None => generation.to_string(),
    };
    next.controlled_resources.insert(KEY.to_owned(), value);
}

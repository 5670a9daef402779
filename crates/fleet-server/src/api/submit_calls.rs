//! What one may do to jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use prost::Message as _;
use pumice_fleet_model::submission::SubmitError;
use pumice_ledger::{Entry, Event, Filter, JobId, Verb};
use pumice_wire::api::{
    CancellationResult, JobCancelRequest, JobPreemptRequest, JobReprioritizeRequest, JobReprioritizeResponse,
    JobSetCancelRequest, JobState, JobSubmitRequest, JobSubmitRequestItem, JobSubmitResponse, JobSubmitResponseItem,
    PreemptionResult,
};
use pumice_wire::wellknown::Empty;

use super::convert::{Refusal, Request, submission};
use super::limits::{self, IDS_MAX, ITEMS_MAX, REASON_BYTES_MAX};
use super::{Api, Error, Who};
use crate::database::Expect;

/// Bytes of a job's labels and annotations: Kubernetes takes no more annotations.
const METADATA_BYTES_MAX: usize = 262_144;
/// Requests of that many bytes are checked where they are: handing them to another thread would take as long.
const AT_ONCE_BYTES_MAX: usize = 4_096;

impl Api {
    pub(super) async fn submit(&self, who: &Who, message: JobSubmitRequest) -> Result<JobSubmitResponse, Error> {
        if message.queue.is_empty() {
            return Err(Refusal::from(SubmitError::Queue).into());
        }
        limits::name("queue", &message.queue)?;
        limits::count("jobRequestItems", message.job_request_items.len(), ITEMS_MAX)?;
        who.need_verb(&self.queue_lately(&message.queue).await?, Verb::Submit)?;
        message.job_request_items.iter().enumerate().try_for_each(|(index, item)| metadata(index, item))?;
        let request = Request { user: who.name.clone(), at: self.now(), random: self.random() };
        let rules = self.shared.rules.clone();
        let mut written = if message.encoded_len() <= AT_ONCE_BYTES_MAX {
            submission(message, &rules, &request)?
        } else {
            // Thousands of jobs take longer than a task may hold its thread.
            let checked = tokio::task::spawn_blocking(move || submission(message, &rules, &request)).await;
            checked.map_err(|_| Error::Broken)??
        };
        // It is as good as new where somebody has panicked with it: a name may be forgotten.
        self.shared.spec_names.lock().unwrap_or_else(PoisonError::into_inner).give(&mut written);
        let answer = self.log().submit(vec![written]).await?.pop();
        let jobs = answer.map(|answer| answer.jobs).unwrap_or_default();
        let item = |job: JobId| JobSubmitResponseItem { job_id: job.to_string(), error: String::new() };
        Ok(JobSubmitResponse { job_response_items: jobs.into_iter().map(item).collect() })
    }

    pub(super) async fn cancel(&self, who: &Who, request: JobCancelRequest) -> Result<CancellationResult, Error> {
        let JobCancelRequest { job_id, job_set_id, queue, mut job_ids, reason } = request;
        if !job_id.is_empty() && !job_ids.contains(&job_id) {
            job_ids.insert(0, job_id);
        }
        limits::text("reason", &reason, REASON_BYTES_MAX)?;
        let event = |jobs| Event::CancelAsked { jobs, filter: Filter::Active, reason };
        let results = self.ask(who, Verb::Cancel, &queue, &job_set_id, &job_ids, event).await?;
        job_ids.retain(|id| results.get(id).is_some_and(String::is_empty));
        Ok(CancellationResult { cancelled_ids: job_ids })
    }

    pub(super) async fn cancel_set(&self, who: &Who, request: JobSetCancelRequest) -> Result<Empty, Error> {
        let JobSetCancelRequest { job_set_id, queue, filter, reason } = request;
        limits::text("reason", &reason, REASON_BYTES_MAX)?;
        let filter = self::filter(&filter.unwrap_or_default().states)?;
        let event = |jobs| Event::CancelAsked { jobs, filter, reason };
        self.ask(who, Verb::Cancel, &queue, &job_set_id, &[], event).await?;
        Ok(Empty {})
    }

    pub(super) async fn reprioritize(
        &self,
        who: &Who,
        request: JobReprioritizeRequest,
    ) -> Result<JobReprioritizeResponse, Error> {
        let JobReprioritizeRequest { job_ids, job_set_id, queue, new_priority } = request;
        let priority = priority(new_priority)?;
        let event = |jobs| Event::Reprioritised { jobs, priority };
        let mut results = self.ask(who, Verb::Reprioritize, &queue, &job_set_id, &job_ids, event).await?;
        if job_ids.is_empty() {
            // Who asks for a whole set names no job, and Armada's client takes an answer without a line for a failure.
            results.insert(format!("all jobs in job set {job_set_id}"), String::new());
        }
        Ok(JobReprioritizeResponse { reprioritization_results: results })
    }

    pub(super) async fn preempt(&self, who: &Who, request: JobPreemptRequest) -> Result<PreemptionResult, Error> {
        let JobPreemptRequest { queue, job_set_id, job_ids, reason } = request;
        if job_ids.is_empty() {
            return Err(Error::Missing { field: "jobIds" });
        }
        limits::text("reason", &reason, REASON_BYTES_MAX)?;
        let event = |jobs| Event::PreemptAsked { jobs, reason };
        let results = self.ask(who, Verb::Preempt, &queue, &job_set_id, &job_ids, event).await?;
        Ok(PreemptionResult { preemption_results: results })
    }

    /// Writes what is asked of a job set's jobs: of those that `ids` names, or of all where it names none. Says of each id why
    /// nothing is asked of it, or nothing: one that is unknown, or has ended, refuses nothing of the others.
    async fn ask(
        &self,
        who: &Who,
        verb: Verb,
        queue: &str,
        job_set: &str,
        ids: &[String],
        event: impl FnOnce(Vec<JobId>) -> Event,
    ) -> Result<BTreeMap<String, String>, Error> {
        limits::count("jobIds", ids.len(), IDS_MAX)?;
        let mut named = Named::of(ids)?;
        limits::name("queue", queue)?;
        limits::job_set("jobSetId", job_set)?;
        who.need_verb(&self.queue_lately(queue).await?, verb)?;
        if !ids.is_empty() {
            let mut rows = self.log().jobs(&named.jobs).await?;
            rows.retain(|row| row.queue == queue && row.job_set == job_set);
            let hindered = self.hindered(verb, &rows).await?;
            named.keep(&rows.iter().map(|row| row.job).collect(), &hindered);
            // To name none would be to ask it of all.
            if named.jobs.is_empty() {
                return Ok(named.results);
            }
        } else if verb == Verb::Reprioritize && !self.log().has_jobs(queue, job_set).await? {
            // The answer says that it is done. Who cancels what is not there has what was wanted.
            return Err(Error::NoJobSet { queue: queue.to_owned(), job_set: job_set.to_owned() });
        }
        let mut entry = Entry::new(self.now(), queue, job_set);
        entry.user.clone_from(&who.name);
        entry.events.push(event(named.jobs));
        self.log().request(entry, Expect::Any).await?;
        Ok(named.results)
    }
}

/// Jobs that a request names.
struct Named {
    /// Those of which something is asked.
    jobs: Vec<JobId>,
    /// What is wrong with each id; nothing where nothing is.
    results: BTreeMap<String, String>,
}

impl Named {
    /// # Errors
    /// Where none of them is an id: a request of nobody is a mistake.
    fn of(ids: &[String]) -> Result<Named, Error> {
        let (mut jobs, mut results, mut wrong) = (Vec::with_capacity(ids.len()), BTreeMap::new(), None);
        for id in ids {
            let problem = match id.parse() {
                Ok(job) => {
                    jobs.push(job);
                    String::new()
                }
                Err(source) => {
                    let source: pumice_ledger::IdError = source;
                    let problem = source.to_string();
                    wrong = wrong.or(Some(source));
                    problem
                }
            };
            results.insert(id.clone(), problem);
        }
        match wrong {
            Some(source) if jobs.is_empty() => Err(Error::Id { field: "jobIds", source }),
            _ => Ok(Named { jobs, results }),
        }
    }

    /// Leaves out those that are not there, and those of which it can't be asked.
    fn keep(&mut self, there: &BTreeSet<JobId>, hindered: &BTreeMap<JobId, String>) {
        self.jobs.retain(|job| there.contains(job) && !hindered.contains_key(job));
        for (id, problem) in &mut self.results {
            let Ok(job) = id.parse::<JobId>() else { continue };
            if !there.contains(&job) {
                "there is no such job in this job set".clone_into(problem);
            } else if let Some(why) = hindered.get(&job) {
                problem.clone_from(why);
            }
        }
    }
}

fn metadata(index: usize, item: &JobSubmitRequestItem) -> Result<(), Error> {
    let bytes: usize = item.labels.iter().chain(&item.annotations).map(|(key, text)| key.len() + text.len()).sum();
    if bytes <= METADATA_BYTES_MAX {
        return Ok(());
    }
    let problem = format!("labels and annotations have {bytes} bytes: have at most {METADATA_BYTES_MAX}");
    Err(Error::Field { field: format!("jobRequestItems[{index}].annotations"), problem })
}

/// The nearest place in a queue that there is.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
fn priority(asked: f64) -> Result<u32, Error> {
    if asked.is_nan() {
        return Err(Error::Field { field: "newPriority".to_owned(), problem: "it is not a number".to_owned() });
    }
    Ok(asked.round().clamp(0.0, f64::from(u32::MAX)) as u32)
}

/// Jobs in these states. Whether a pod runs or not yet is not known well enough to tell such jobs apart.
fn filter(states: &[i32]) -> Result<Filter, Error> {
    let has = |state: JobState| states.contains(&i32::from(state));
    let (queued, pending, running) = (has(JobState::Queued), has(JobState::Pending), has(JobState::Running));
    let known = [JobState::Queued, JobState::Pending, JobState::Running].map(i32::from);
    match (queued, pending, running) {
        _ if states.iter().any(|state| !known.contains(state)) => {
            Err("only QUEUED, PENDING and RUNNING can be cancelled")
        }
        (false, false, false) | (true, true, true) => Ok(Filter::Active),
        (true, false, false) => Ok(Filter::Queued),
        (false, true, true) => Ok(Filter::Running),
        _ => Err("PENDING and RUNNING go together: give both, or neither"),
    }
    .map_err(|problem| Error::Field { field: "filter.states".to_owned(), problem: problem.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_filters_where_jobs_can_be_told_apart() {
        for (states, expected) in [
            (vec![], Some(Filter::Active)),
            (vec![JobState::Queued], Some(Filter::Queued)),
            (vec![JobState::Running, JobState::Pending], Some(Filter::Running)),
            (vec![JobState::Running, JobState::Pending, JobState::Queued], Some(Filter::Active)),
            (vec![JobState::Running], None),
            (vec![JobState::Queued, JobState::Pending], None),
            (vec![JobState::Queued, JobState::Failed], None),
        ] {
            let given: Vec<i32> = states.iter().map(|state| i32::from(*state)).collect();
            assert_eq!(filter(&given).ok(), expected, "{states:?}");
        }
    }

    #[test]
    fn priorities_are_rounded_into_what_there_is() {
        for (asked, expected) in
            [(0.0, 0), (1.5, 2), (-3.0, 0), (1e300, u32::MAX), (f64::INFINITY, u32::MAX), (f64::NEG_INFINITY, 0)]
        {
            assert_eq!(priority(asked).expect("a number"), expected);
        }
        assert!(priority(f64::NAN).is_err());
    }
}

//! Which job sets there are, and how far each is: what Armada's API has no call for.
//!
//! Invariant: a set is told of to those who may watch its queue and to nobody else. Lists wait for each other, since one
//! reads every job that it counts.

use std::collections::BTreeMap;

use jiff::Timestamp;
use pumice_ledger::{JobId, TimeMs, Verb};
use pumice_wire::job_sets::job_sets_server::JobSets;
use pumice_wire::job_sets::{JobSet, JobsInState as OnWire, ListRequest, ListResponse};
use pumice_wire::wellknown::Timestamp as OnWireTime;
use tonic::{Request, Response, Status, async_trait};

use super::job_states::{job_state, time};
use super::limits;
use super::{Api, Error, Who};
use crate::database::{JobsInState, SetName};

/// Sets are listed from then on where nobody says more.
const LATELY_MS: i64 = 7 * 24 * 3_600_000;
/// Sets of one answer.
const SETS_MAX: usize = 1_000;
/// Sets that are looked through for those of queues that the caller may watch.
const LOOKED_THROUGH_MAX: u32 = 20_000;

#[async_trait]
impl JobSets for Api {
    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let who = Who::of(&request)?;
        Ok(Response::new(self.job_sets(&who, request.into_inner()).await?))
    }
}

impl Api {
    async fn job_sets(&self, who: &Who, request: ListRequest) -> Result<ListResponse, Error> {
        let ListRequest { queue, job_set, since } = request;
        limits::text("queue", &queue, limits::ID_BYTES_MAX)?;
        limits::text("jobSet", &job_set, limits::JOB_SET_BYTES_MAX)?;
        let queues = self.queues().await?;
        let wanted = queues.values().filter(|one| queue.is_empty() || one.name == queue);
        let watched: Vec<&str> =
            wanted.filter(|one| who.need_verb(one, Verb::Watch).is_ok()).map(|one| one.name.as_str()).collect();
        let user = who.name.clone();
        if watched.is_empty() {
            return Ok(ListResponse { user, ..ListResponse::default() });
        }
        let _turn = self.shared.lists.acquire().await.map_err(|_| Error::Stopping)?;
        let (sets, more) = if job_set.is_empty() {
            let recent = self.log().recent_sets(self.first_id(since)?, LOOKED_THROUGH_MAX).await?;
            let all = recent.len() == LOOKED_THROUGH_MAX as usize;
            let mut sets: Vec<_> =
                recent.into_iter().filter(|set| watched.binary_search(&set.queue.as_str()).is_ok()).collect();
            let more = all || sets.len() > SETS_MAX;
            sets.truncate(SETS_MAX);
            (sets, more)
        } else {
            let set = |queue: &str| SetName { queue: queue.to_owned(), job_set: job_set.clone() };
            (watched.into_iter().map(set).collect(), false)
        };
        Ok(ListResponse { job_sets: messages(self.log().job_counts(&sets).await?), user, more })
    }

    /// The smallest id of a job that was submitted then, or lately.
    fn first_id(&self, since: Option<OnWireTime>) -> Result<JobId, Error> {
        let since = since.map(Timestamp::try_from).transpose().map_err(|_| Error::Field {
            field: "since".to_owned(),
            problem: "it is no time: give one of the years up to 9999".to_owned(),
        })?;
        let since = since.map_or_else(|| self.now().0.saturating_sub(LATELY_MS), |since| since.as_millisecond());
        Ok(JobId::new(TimeMs(since.max(0)), 0))
    }
}

/// Sets with their states, newest first.
fn messages(rows: Vec<JobsInState>) -> Vec<JobSet> {
    let mut sets: BTreeMap<SetName, (JobId, Vec<OnWire>)> = BTreeMap::new();
    for row in rows {
        let (first, states) =
            sets.entry(SetName { queue: row.queue, job_set: row.job_set }).or_insert((row.first, Vec::new()));
        *first = row.first.min(*first);
        let state = i32::from(job_state(row.state));
        let last_transition = Some(time(row.last_transition));
        // One that has to leave its node first counts among those that wait.
        match states.iter_mut().find(|known| known.state == state) {
            Some(known) => {
                known.jobs += row.jobs;
                let row_first = row.first.to_string();
                known.first_job_id = row_first.min(std::mem::take(&mut known.first_job_id));
            }
            None => states.push(OnWire { state, jobs: row.jobs, first_job_id: row.first.to_string(), last_transition }),
        }
    }
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_key(|(_, (first, _))| std::cmp::Reverse(*first));
    sets.into_iter().map(|(SetName { queue, job_set }, (_, states))| JobSet { queue, job_set, states }).collect()
}

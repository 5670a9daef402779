//! Questions about jobs and runs. Whoever is known may ask how jobs stand, as with Armada; what is in their specifications only who
//! may watch their queue.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ledger::{Digest, JobId, RunId, Verb};
use pumice_wire::api::{
    ActiveQueues, GetActiveQueuesRequest, GetActiveQueuesResponse, JobDetailsRequest, JobDetailsResponse,
    JobErrorsRequest, JobErrorsResponse, JobRunDetailsRequest, JobRunDetailsResponse, JobState, JobStatusRequest,
    JobStatusResponse, JobStatusUsingExternalJobUriRequest,
};

use super::events::preempted_text;
use super::job_states::{job_details, job_state, job_told, run_details};
use super::limits::{self, QUERY_IDS_MAX};
use super::{Api, Error, Who};
use crate::database::{self, JobRow};

impl Api {
    /// The state of each job; UNKNOWN where there is none of the id.
    pub(super) async fn status(&self, _: &Who, request: JobStatusRequest) -> Result<JobStatusResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
        // What is no id at all is as unknown.
        let unknown = request.job_ids.into_iter().map(|id| (id, i32::from(JobState::Unknown)));
        let mut job_states: BTreeMap<String, i32> = unknown.collect();
        job_states.extend(states(&rows));
        Ok(JobStatusResponse { job_states })
    }

    pub(super) async fn status_by_uri(
        &self,
        _: &Who,
        request: JobStatusUsingExternalJobUriRequest,
    ) -> Result<JobStatusResponse, Error> {
        let JobStatusUsingExternalJobUriRequest { queue, jobset, external_job_uri } = request;
        limits::name("queue", &queue)?;
        limits::job_set("jobset", &jobset)?;
        limits::name("externalJobUri", &external_job_uri)?;
        let rows = self.log().jobs_by_uri(&queue, &jobset, &external_job_uri).await?;
        Ok(JobStatusResponse { job_states: states(&rows).collect() })
    }

    /// Refuses to whom jobs of a queue are not to be shown.
    pub(crate) async fn need_reading(&self, who: &Who, queue: &str) -> Result<(), Error> {
        if who.may_read_all() {
            return Ok(());
        }
        who.need_verb(&self.queue_lately(queue).await?, Verb::Watch)
    }

    /// The same of a job's queue. Of a job that there is not nothing is shown anyway.
    pub(crate) async fn need_reading_of(&self, who: &Who, job: JobId) -> Result<(), Error> {
        if who.may_read_all() {
            return Ok(());
        }
        match self.log().jobs(&[job]).await?.into_iter().next() {
            Some(row) => self.need_reading(who, &row.queue).await,
            None => Ok(()),
        }
    }

    pub(super) async fn details(&self, who: &Who, request: JobDetailsRequest) -> Result<JobDetailsResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
        if request.expand_job_spec {
            for queue in rows.iter().map(|row| row.queue.as_str()).collect::<BTreeSet<_>>() {
                self.need_reading(who, queue).await?;
            }
        }
        let mut digests: BTreeSet<Digest> = BTreeSet::new();
        if request.expand_job_spec {
            digests.extend(rows.iter().map(|row| row.spec));
        }
        let specs = self.specs(&Vec::from_iter(digests)).await?;
        let mut runs: BTreeMap<JobId, Vec<_>> = BTreeMap::new();
        if request.expand_job_run && !rows.is_empty() {
            let jobs: Vec<JobId> = rows.iter().map(|row| row.job).collect();
            for run in self.log().runs_of(&jobs).await? {
                runs.entry(run.run.job).or_default().push(run_details(&run));
            }
        }
        let details = rows.iter().map(|row| {
            let mut details = job_details(row);
            details.job_spec = specs.get(&row.spec).map(|spec| spec.job(job_told(row)));
            details.job_runs = runs.remove(&row.job).unwrap_or_default();
            (row.job.to_string(), details)
        });
        Ok(JobDetailsResponse { job_details: details.collect() })
    }

    /// Why jobs failed, or had to make room for good; others are left out.
    pub(super) async fn errors(&self, _: &Who, request: JobErrorsRequest) -> Result<JobErrorsResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
        let is_preempted = |row: &JobRow| row.state == database::JobState::Preempted && row.error.is_none();
        let preempted: Vec<JobId> = rows.iter().filter(|row| is_preempted(row)).map(|row| row.job).collect();
        let runs = if preempted.is_empty() { Vec::new() } else { self.log().runs_of(&preempted).await? };
        // They come in the order of their attempts, and the last one is that with which the job ended.
        let of_runs =
            runs.into_iter().filter_map(|run| Some((run.run.job.to_string(), preempted_text(&run.preempted?))));
        let of_jobs = rows.into_iter().filter_map(|row| Some((row.job.to_string(), row.error?.message)));
        Ok(JobErrorsResponse { job_errors: of_runs.chain(of_jobs).collect() })
    }

    pub(super) async fn run_details(
        &self,
        _: &Who,
        request: JobRunDetailsRequest,
    ) -> Result<JobRunDetailsResponse, Error> {
        let ids: Vec<RunId> = limits::ids("runIds", &request.run_ids, QUERY_IDS_MAX)?;
        let rows = if ids.is_empty() { Vec::new() } else { self.log().runs(&ids).await? };
        let details = rows.iter().map(|row| (row.run.to_string(), run_details(row)));
        Ok(JobRunDetailsResponse { job_run_details: details.collect() })
    }

    /// Queues with jobs that have a node, as with Armada: one that only waits is in no pool.
    pub(super) async fn active_queues(
        &self,
        _: &Who,
        _: GetActiveQueuesRequest,
    ) -> Result<GetActiveQueuesResponse, Error> {
        let active = self.log().active_queues().await?.into_iter();
        let active_queues_by_pool = active.map(|(pool, queues)| (pool, ActiveQueues { queues })).collect();
        Ok(GetActiveQueuesResponse { active_queues_by_pool })
    }

    async fn rows(&self, ids: &[String]) -> Result<Vec<JobRow>, Error> {
        let ids: Vec<JobId> = limits::ids("jobIds", ids, QUERY_IDS_MAX)?;
        Ok(if ids.is_empty() { Vec::new() } else { self.log().jobs(&ids).await? })
    }
}

fn states(rows: &[JobRow]) -> impl Iterator<Item = (String, i32)> {
    rows.iter().map(|row| (row.job.to_string(), job_state(row.state).into()))
}

//! Questions about jobs and runs. Whoever is known may ask, as with Armada.

use std::collections::{BTreeMap, BTreeSet};

use pumice_ledger::{Digest, JobId, RunId};
use pumice_wire::api::{
    ActiveQueues, GetActiveQueuesRequest, GetActiveQueuesResponse, JobDetailsRequest, JobDetailsResponse,
    JobErrorsRequest, JobErrorsResponse, JobRunDetailsRequest, JobRunDetailsResponse, JobState, JobStatusRequest,
    JobStatusResponse, JobStatusUsingExternalJobUriRequest,
};

use super::limits::{self, QUERY_IDS_MAX};
use super::states::{job_details, job_state, run_details, told};
use super::{Api, Error, Who};
use crate::database::JobRow;

impl Api {
    /// The state of each job; UNKNOWN where there is none of the id.
    pub(super) async fn status(&self, _: &Who, request: JobStatusRequest) -> Result<JobStatusResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
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
        limits::name("jobset", &jobset)?;
        limits::name("externalJobUri", &external_job_uri)?;
        let rows = self.log().jobs_by_uri(&queue, &jobset, &external_job_uri).await?;
        Ok(JobStatusResponse { job_states: states(&rows).collect() })
    }

    pub(super) async fn details(&self, _: &Who, request: JobDetailsRequest) -> Result<JobDetailsResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
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
            details.job_spec = specs.get(&row.spec).map(|spec| spec.job(told(row)));
            details.job_runs = runs.remove(&row.job).unwrap_or_default();
            (row.job.to_string(), details)
        });
        Ok(JobDetailsResponse { job_details: details.collect() })
    }

    /// Why jobs failed; those that did not are left out.
    pub(super) async fn errors(&self, _: &Who, request: JobErrorsRequest) -> Result<JobErrorsResponse, Error> {
        let rows = self.rows(&request.job_ids).await?;
        let errors = rows.into_iter().filter_map(|row| Some((row.job.to_string(), row.error?.message)));
        Ok(JobErrorsResponse { job_errors: errors.collect() })
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

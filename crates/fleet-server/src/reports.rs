//! Armada's reports: why a job waits, what a queue waits for, and what the last rounds did, in prose.
//!
//! Invariant: only the leader knows; another server says so, and the caller asks elsewhere. Asking changes nothing.

use pumice_wire::schedulerobjects::scheduler_reporting_server::SchedulerReporting;
use pumice_wire::schedulerobjects::{
    JobReport, JobReportRequest, QueueReport, QueueReportRequest, SchedulingReport, SchedulingReportRequest,
    scheduling_report_request::Filter,
};
use tokio::sync::{mpsc, oneshot};
use tonic::{Request, Response, Status};

use crate::api::{Api, ID_BYTES_MAX, Who};
use crate::leader::{Input, Question};

/// Answers Armada's calls for scheduling reports with what the leader says.
#[derive(Clone)]
pub struct Reports {
    api: Api,
    inputs: mpsc::Sender<Input>,
}

impl Reports {
    /// Reports of a leader, for those whom the services let read them.
    pub fn new(api: Api, inputs: mpsc::Sender<Input>) -> Self {
        Self { api, inputs }
    }

    /// The leader's answer to who may read it.
    async fn ask<T>(&self, request: &Request<T>, question: Question) -> Result<String, Status> {
        let who = Who::of(request)?;
        match &question {
            Question::Job(job) => self.api.need_reading_of(&who, *job).await?,
            Question::Queue(queue) => self.api.need_reading(&who, queue).await?,
            Question::Rounds => {}
        }
        let away = || Status::unavailable("this server does not lead; try again, or another one");
        let (answer, told) = oneshot::channel();
        self.inputs.send(Input::Ask { question, answer }).await.map_err(|_| away())?;
        told.await.map_err(|_| away())?.map_err(Status::not_found)
    }
}

fn job(id: &str) -> Result<Question, Status> {
    let id = id.get(..id.len().min(ID_BYTES_MAX)).unwrap_or_default();
    let job = id.parse().map_err(|error| Status::invalid_argument(format!("jobId: {error}")))?;
    Ok(Question::Job(job))
}

#[tonic::async_trait]
impl SchedulerReporting for Reports {
    async fn get_scheduling_report(
        &self,
        request: Request<SchedulingReportRequest>,
    ) -> Result<Response<SchedulingReport>, Status> {
        let question = match &request.get_ref().filter {
            None => Question::Rounds,
            Some(Filter::MostRecentForQueue(of)) => Question::Queue(of.queue_name.clone()),
            Some(Filter::MostRecentForJob(of)) => job(&of.job_id)?,
        };
        let report = self.ask(&request, question).await?;
        Ok(Response::new(SchedulingReport { report }))
    }

    async fn get_queue_report(&self, request: Request<QueueReportRequest>) -> Result<Response<QueueReport>, Status> {
        let question = Question::Queue(request.get_ref().queue_name.clone());
        let report = self.ask(&request, question).await?;
        Ok(Response::new(QueueReport { report }))
    }

    async fn get_job_report(&self, request: Request<JobReportRequest>) -> Result<Response<JobReport>, Status> {
        let question = job(&request.get_ref().job_id)?;
        let report = self.ask(&request, question).await?;
        Ok(Response::new(JobReport { report }))
    }
}

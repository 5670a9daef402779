//! Calls over plain HTTP.
//!
//! A request with a path of [`rest`] becomes the message that gRPC would have brought, and what the call says becomes JSON,
//! as grpc-gateway has it. Invariant: nobody's message is read, and no call is made of a message that is not whole.

use std::error::Error as _;
use std::sync::Arc;

use pumice_wire::api::event_server::Event;
use pumice_wire::api::executor_server::Executor;
use pumice_wire::api::jobs_server::Jobs;
use pumice_wire::api::node_server::Node;
use pumice_wire::api::retry_policy_service_server::RetryPolicyService;
use pumice_wire::api::submit_server::Submit;
use pumice_wire::binoculars::binoculars_server::Binoculars as _;
use pumice_wire::rest::{self, Matched};
use pumice_wire::schedulerobjects::scheduler_reporting_server::SchedulerReporting;
use tonic::body::Body;

mod error;
mod fields;
mod reply;
mod request;
#[cfg(test)]
mod tests;

use error::Error;
use reply::{single, stream};
use request::RestRequest;

use crate::api::{self, Api, Who};
use crate::binoculars::Binoculars;
use crate::reports::Reports;

const REPORTING: &str = "schedulerobjects.SchedulerReporting";
const POLICIES: &str = "api.RetryPolicyService";
/// Methods of HTTP under which there are calls.
const METHODS: [&str; 4] = ["DELETE", "GET", "POST", "PUT"];

/// Answers a request over plain HTTP, also one that no call is for: in JSON, with the status of grpc-gateway.
///
/// `who` is whoever the listener knows to make it. The answer of a call that streams begins before there is a message and
/// ends with the call's stream. To drop the future is to hang up: what a call has written stays written.
pub(super) async fn answer(
    api: &Api,
    reports: &Reports,
    binoculars: &Binoculars,
    who: Option<Arc<Who>>,
    request: http::Request<Body>,
) -> http::Response<Body> {
    let (request, body) = request.into_parts();
    let Matched { route, fields } = match find(request.method.as_str(), request.uri.path()) {
        Ok(matched) => matched,
        Err(error) => return reply::refused(&error),
    };
    let answer = match who {
        Some(who) => {
            let metadata = request::metadata(&request.headers);
            let request_ = RestRequest { route, fields, query: request.uri.query(), metadata, body, who };
            call(api, reports, binoculars, request_).await
        }
        None => Err(Error::Call(api::Error::Nobody.into())),
    };
    answer.unwrap_or_else(|error| {
        if error.is_ours() {
            tracing::error!(?route, %error, cause = ?error.source(), "a request over HTTP failed");
        }
        reply::refused(&error)
    })
}

/// The answer to a request of which it can't be told who makes it.
pub(super) fn refused(status: tonic::Status) -> http::Response<Body> {
    reply::refused(&Error::Call(status))
}

/// The call under a method and path.
fn find(method: &str, path: &str) -> Result<Matched, Error> {
    let others = || METHODS.iter().any(|method| rest::route(method, path).is_some());
    rest::route(method, path).ok_or_else(|| if others() { Error::Method } else { Error::Path })
}

/// Makes the call. Its message is read where the call is known, so that nothing is read for one that is not served.
async fn call(
    api: &Api,
    reports: &Reports,
    binoculars: &Binoculars,
    request_: RestRequest<'_>,
) -> Result<http::Response<Body>, Error> {
    match (request_.route.service, request_.route.call) {
        ("api.Submit", "SubmitJobs") => single(api.submit_jobs(request_.read().await?).await),
        ("api.Submit", "CancelJobs") => single(api.cancel_jobs(request_.read().await?).await),
        ("api.Submit", "CancelJobSet") => single(api.cancel_job_set(request_.read().await?).await),
        ("api.Submit", "ReprioritizeJobs") => single(api.reprioritize_jobs(request_.read().await?).await),
        ("api.Submit", "PreemptJobs") => single(api.preempt_jobs(request_.read().await?).await),
        ("api.Submit", "CreateQueue") => single(api.create_queue(request_.read().await?).await),
        ("api.Submit", "UpdateQueue") => single(api.update_queue(request_.read().await?).await),
        ("api.Submit", "DeleteQueue") => single(api.delete_queue(request_.read().await?).await),
        ("api.Submit", "GetQueue") => single(api.get_queue(request_.read().await?).await),
        ("api.Submit", "CreateQueues") => single(api.create_queues(request_.read().await?).await),
        ("api.Submit", "UpdateQueues") => single(api.update_queues(request_.read().await?).await),
        ("api.Submit", "GetQueues") => stream(api.get_queues(request_.read().await?).await),
        ("api.Event", "GetJobSetEvents") => stream(api.get_job_set_events(request_.read().await?).await),
        ("api.Jobs", "GetJobStatus") => single(api.get_job_status(request_.read().await?).await),
        ("api.Jobs", "GetJobStatusUsingExternalJobUri") => {
            single(api.get_job_status_using_external_job_uri(request_.read().await?).await)
        }
        ("api.Jobs", "GetJobDetails") => single(api.get_job_details(request_.read().await?).await),
        ("api.Jobs", "GetJobErrors") => single(api.get_job_errors(request_.read().await?).await),
        ("api.Jobs", "GetJobRunDetails") => single(api.get_job_run_details(request_.read().await?).await),
        ("api.Jobs", "GetActiveQueues") => single(api.get_active_queues(request_.read().await?).await),
        ("api.Executor", "UpsertExecutorSettings") => {
            single(api.upsert_executor_settings(request_.read().await?).await)
        }
        ("api.Executor", "DeleteExecutorSettings") => {
            single(api.delete_executor_settings(request_.read().await?).await)
        }
        ("api.Executor", "PreemptOnExecutor") => single(api.preempt_on_executor(request_.read().await?).await),
        ("api.Executor", "CancelOnExecutor") => single(api.cancel_on_executor(request_.read().await?).await),
        ("api.Executor", "DeleteExecutor") => single(api.delete_executor(request_.read().await?).await),
        ("api.Node", "PreemptOnNode") => single(api.preempt_on_node(request_.read().await?).await),
        ("api.Node", "CancelOnNode") => single(api.cancel_on_node(request_.read().await?).await),
        (POLICIES, "CreateRetryPolicy") => single(api.create_retry_policy(request_.read().await?).await),
        (POLICIES, "UpdateRetryPolicy") => single(api.update_retry_policy(request_.read().await?).await),
        (POLICIES, "DeleteRetryPolicy") => single(api.delete_retry_policy(request_.read().await?).await),
        (POLICIES, "GetRetryPolicy") => single(api.get_retry_policy(request_.read().await?).await),
        (POLICIES, "GetRetryPolicies") => single(api.get_retry_policies(request_.read().await?).await),
        (REPORTING, "GetSchedulingReport") => single(reports.get_scheduling_report(request_.read().await?).await),
        (REPORTING, "GetQueueReport") => single(reports.get_queue_report(request_.read().await?).await),
        (REPORTING, "GetJobReport") => single(reports.get_job_report(request_.read().await?).await),
        ("binoculars.Binoculars", "Logs") => single(binoculars.logs(request_.read().await?).await),
        ("binoculars.Binoculars", "Cordon") => single(binoculars.cordon(request_.read().await?).await),
        (service, call) => Err(Error::NotServed { service, call }),
    }
}

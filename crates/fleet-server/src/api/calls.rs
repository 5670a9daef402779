//! The generated services' calls, each of which is one of [`Api`]'s.

use pumice_wire::api::health_check_response::ServingStatus;
use pumice_wire::api::{
    self, BatchQueueCreateResponse, BatchQueueUpdateResponse, CancellationResult, HealthCheckResponse, event_server,
    executor_server, jobs_server, node_server, queue_service_server, retry_policy_service_server, submit_server,
};
use pumice_wire::wellknown::Empty;
use tonic::{Request, Response, Status, async_trait};

use super::follow::Messages;
use super::queue_calls::Queues;
use super::{Api, Who};

type Answer<T> = Result<Response<T>, Status>;

/// One of [`Api`]'s, for whoever the listener says.
macro_rules! call {
    ($api:ident, $request:ident, $call:ident) => {{
        let who = Who::of(&$request)?;
        Ok(Response::new($api.$call(&who, $request.into_inner()).await?))
    }};
}

impl Api {
    /// A probe need not say who it is.
    fn health(&self) -> HealthCheckResponse {
        let stopping = self.shared.stopping.is_cancelled();
        let status = if stopping { ServingStatus::NotServing } else { ServingStatus::Serving };
        HealthCheckResponse { status: status.into() }
    }
}

#[async_trait]
impl submit_server::Submit for Api {
    type GetQueuesStream = Queues;

    async fn submit_jobs(&self, request: Request<api::JobSubmitRequest>) -> Answer<api::JobSubmitResponse> {
        call!(self, request, submit)
    }

    async fn cancel_jobs(&self, request: Request<api::JobCancelRequest>) -> Answer<CancellationResult> {
        call!(self, request, cancel)
    }

    async fn cancel_job_set(&self, request: Request<api::JobSetCancelRequest>) -> Answer<Empty> {
        call!(self, request, cancel_set)
    }

    async fn reprioritize_jobs(
        &self,
        request: Request<api::JobReprioritizeRequest>,
    ) -> Answer<api::JobReprioritizeResponse> {
        call!(self, request, reprioritize)
    }

    async fn preempt_jobs(&self, request: Request<api::JobPreemptRequest>) -> Answer<api::PreemptionResult> {
        call!(self, request, preempt)
    }

    async fn create_queue(&self, request: Request<api::Queue>) -> Answer<Empty> {
        call!(self, request, create)
    }

    async fn create_queues(&self, request: Request<api::QueueList>) -> Answer<BatchQueueCreateResponse> {
        call!(self, request, create_all)
    }

    async fn update_queue(&self, request: Request<api::Queue>) -> Answer<Empty> {
        call!(self, request, update)
    }

    async fn update_queues(&self, request: Request<api::QueueList>) -> Answer<BatchQueueUpdateResponse> {
        call!(self, request, update_all)
    }

    async fn delete_queue(&self, request: Request<api::QueueDeleteRequest>) -> Answer<Empty> {
        call!(self, request, delete)
    }

    async fn get_queue(&self, request: Request<api::QueueGetRequest>) -> Answer<api::Queue> {
        call!(self, request, get)
    }

    async fn get_queues(&self, request: Request<api::StreamingQueueGetRequest>) -> Answer<Queues> {
        call!(self, request, get_all)
    }

    async fn health(&self, _: Request<Empty>) -> Answer<HealthCheckResponse> {
        Ok(Response::new(self.health()))
    }
}

#[async_trait]
impl queue_service_server::QueueService for Api {
    type GetQueuesStream = Queues;

    async fn create_queue(&self, request: Request<api::Queue>) -> Answer<Empty> {
        call!(self, request, create)
    }

    async fn create_queues(&self, request: Request<api::QueueList>) -> Answer<BatchQueueCreateResponse> {
        call!(self, request, create_all)
    }

    async fn update_queue(&self, request: Request<api::Queue>) -> Answer<Empty> {
        call!(self, request, update)
    }

    async fn update_queues(&self, request: Request<api::QueueList>) -> Answer<BatchQueueUpdateResponse> {
        call!(self, request, update_all)
    }

    async fn delete_queue(&self, request: Request<api::QueueDeleteRequest>) -> Answer<Empty> {
        call!(self, request, delete)
    }

    async fn get_queue(&self, request: Request<api::QueueGetRequest>) -> Answer<api::Queue> {
        call!(self, request, get)
    }

    async fn get_queues(&self, request: Request<api::StreamingQueueGetRequest>) -> Answer<Queues> {
        call!(self, request, get_all)
    }

    async fn cordon_queue(&self, request: Request<api::QueueCordonRequest>) -> Answer<Empty> {
        call!(self, request, cordon)
    }

    async fn uncordon_queue(&self, request: Request<api::QueueUncordonRequest>) -> Answer<Empty> {
        call!(self, request, uncordon)
    }

    async fn preempt_on_queue(&self, request: Request<api::QueuePreemptRequest>) -> Answer<Empty> {
        call!(self, request, preempt_queue)
    }

    async fn cancel_on_queue(&self, request: Request<api::QueueCancelRequest>) -> Answer<Empty> {
        call!(self, request, cancel_queue)
    }
}

#[async_trait]
impl retry_policy_service_server::RetryPolicyService for Api {
    async fn create_retry_policy(&self, request: Request<api::RetryPolicy>) -> Answer<Empty> {
        call!(self, request, create_policy)
    }

    async fn update_retry_policy(&self, request: Request<api::RetryPolicy>) -> Answer<Empty> {
        call!(self, request, update_policy)
    }

    async fn delete_retry_policy(&self, request: Request<api::RetryPolicyDeleteRequest>) -> Answer<Empty> {
        call!(self, request, delete_policy)
    }

    async fn get_retry_policy(&self, request: Request<api::RetryPolicyGetRequest>) -> Answer<api::RetryPolicy> {
        call!(self, request, get_policy)
    }

    async fn get_retry_policies(&self, request: Request<api::RetryPolicyListRequest>) -> Answer<api::RetryPolicyList> {
        call!(self, request, get_policies)
    }
}

#[async_trait]
impl event_server::Event for Api {
    type GetJobSetEventsStream = Messages;
    type WatchStream = Messages;

    async fn get_job_set_events(&self, request: Request<api::JobSetRequest>) -> Answer<Messages> {
        call!(self, request, job_set_events)
    }

    async fn watch(&self, request: Request<api::WatchRequest>) -> Answer<Messages> {
        let who = Who::of(&request)?;
        let api::WatchRequest { queue, job_set_id, from_id } = request.into_inner();
        let request =
            api::JobSetRequest { id: job_set_id, watch: true, from_message_id: from_id, queue, error_if_missing: true };
        Ok(Response::new(self.job_set_events(&who, request).await?))
    }

    async fn health(&self, _: Request<Empty>) -> Answer<HealthCheckResponse> {
        Ok(Response::new(self.health()))
    }
}

#[async_trait]
impl jobs_server::Jobs for Api {
    async fn get_job_status(&self, request: Request<api::JobStatusRequest>) -> Answer<api::JobStatusResponse> {
        call!(self, request, status)
    }

    async fn get_job_status_using_external_job_uri(
        &self,
        request: Request<api::JobStatusUsingExternalJobUriRequest>,
    ) -> Answer<api::JobStatusResponse> {
        call!(self, request, status_by_uri)
    }

    async fn get_job_details(&self, request: Request<api::JobDetailsRequest>) -> Answer<api::JobDetailsResponse> {
        call!(self, request, details)
    }

    async fn get_job_errors(&self, request: Request<api::JobErrorsRequest>) -> Answer<api::JobErrorsResponse> {
        call!(self, request, errors)
    }

    async fn get_job_run_details(
        &self,
        request: Request<api::JobRunDetailsRequest>,
    ) -> Answer<api::JobRunDetailsResponse> {
        call!(self, request, run_details)
    }

    async fn get_active_queues(
        &self,
        request: Request<api::GetActiveQueuesRequest>,
    ) -> Answer<api::GetActiveQueuesResponse> {
        call!(self, request, active_queues)
    }
}

#[async_trait]
impl executor_server::Executor for Api {
    async fn upsert_executor_settings(&self, request: Request<api::ExecutorSettingsUpsertRequest>) -> Answer<Empty> {
        call!(self, request, set_executor)
    }

    async fn delete_executor_settings(&self, request: Request<api::ExecutorSettingsDeleteRequest>) -> Answer<Empty> {
        call!(self, request, unset_executor)
    }

    async fn preempt_on_executor(&self, request: Request<api::ExecutorPreemptRequest>) -> Answer<Empty> {
        call!(self, request, preempt_executor)
    }

    async fn cancel_on_executor(&self, request: Request<api::ExecutorCancelRequest>) -> Answer<Empty> {
        call!(self, request, cancel_executor)
    }

    async fn delete_executor(&self, request: Request<api::ExecutorDeleteRequest>) -> Answer<Empty> {
        call!(self, request, forget_executor)
    }
}

#[async_trait]
impl node_server::Node for Api {
    async fn preempt_on_node(&self, request: Request<api::NodePreemptRequest>) -> Answer<Empty> {
        call!(self, request, preempt_node)
    }

    async fn cancel_on_node(&self, request: Request<api::NodeCancelRequest>) -> Answer<Empty> {
        call!(self, request, cancel_node)
    }
}

//! The server under test, as one of its clients sees it.

use std::sync::Arc;
use std::time::Duration;

use pumice_wire::api::event_client::EventClient;
use pumice_wire::api::jobs_client::JobsClient;
use pumice_wire::api::node_client::NodeClient;
use pumice_wire::api::queue_service_client::QueueServiceClient;
use pumice_wire::api::submit_client::SubmitClient;
use pumice_wire::client::{ANSWER_BYTES_MAX, connect, endpoint};
use rustls::ClientConfig;
use thiserror::Error;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use super::failure::Failure;

/// How long one answer may take. Submissions of thousands of jobs take seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// A server; cheap to clone, all clones share a connection.
#[derive(Debug, Clone)]
pub struct Server {
    channel: Channel,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The address is none that an identity can be shown to.
    #[error("{0:?} is no address of a server; try https://127.0.0.1:50051")]
    Address(String),
    #[error("cannot reach the server at {address}")]
    Connect {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
}

impl Server {
    /// Connects to the address, such as `https://127.0.0.1:50051`; `tls` says who asks.
    ///
    /// # Errors
    /// An address that is none, or where nobody answers whom `tls` trusts.
    pub async fn connect(address: &str, tls: &Arc<ClientConfig>) -> Result<Self, ConnectError> {
        let endpoint = endpoint(address, true).ok_or_else(|| ConnectError::Address(address.to_owned()))?;
        match connect(endpoint, Some(tls)).await {
            Ok(channel) => Ok(Self { channel }),
            Err(source) => Err(ConnectError::Connect { address: address.to_owned(), source }),
        }
    }

    /// A server at the other end of what is open already.
    #[cfg(test)]
    pub(super) fn over(channel: Channel) -> Self {
        Self { channel }
    }

    pub(super) fn submit(&self) -> SubmitClient<Channel> {
        SubmitClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(super) fn queues(&self) -> QueueServiceClient<Channel> {
        QueueServiceClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(super) fn events(&self) -> EventClient<Channel> {
        EventClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(super) fn jobs(&self) -> JobsClient<Channel> {
        JobsClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(super) fn nodes(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }
}

/// The answer to a call.
pub(super) async fn answer<T>(
    call: &'static str,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    match timeout(ANSWER_LIMIT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(Failure::refused(call, status)),
        Err(_) => Err(Failure::Unanswered { call, seconds: ANSWER_LIMIT.as_secs() }),
    }
}

//! The calls that are made of a fleet's server.
//!
//! Invariant: each has a limit of time, and no answer is larger than it may be. The connection is opened by the first call, and
//! again by one after it was lost; nothing is sent twice unasked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pumice_wire::api::event_client::EventClient;
use pumice_wire::api::jobs_client::JobsClient;
use pumice_wire::api::queue_service_client::QueueServiceClient;
use pumice_wire::api::submit_client::SubmitClient;
use pumice_wire::api::{self, EventStreamMessage, JobDetails};
use pumice_wire::binoculars::binoculars_client::BinocularsClient;
use pumice_wire::binoculars::{LogLine, LogRequest, LogResponse};
use pumice_wire::client::{self, ANSWER_BYTES_MAX, Credentials, CredentialsError, connect_lazily};
use pumice_wire::job_sets::job_sets_client::JobSetsClient;
use pumice_wire::job_sets::{ListRequest, ListResponse};
use pumice_wire::schedulerobjects::scheduler_reporting_client::SchedulerReportingClient;
use pumice_wire::schedulerobjects::{JobReportRequest, QueueReportRequest};
use pumice_wire::{LOG_ENDED, LOG_MORE, LOG_POD};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

use super::Fleet;
use super::refusal::Refusal;

/// How long one answer may take. Submissions of thousands of jobs take seconds.
const ANSWER_LIMIT: Duration = Duration::from_secs(25);
/// Jobs that are asked for at once.
const DETAILS_MAX: usize = 500;
/// Queues that are read: a longer list is no list of queues.
const QUEUES_MAX: usize = 100_000;
/// A longer file is no identity.
const IDENTITY_BYTES_MAX: u64 = 1 << 20;

/// Why a fleet can't be asked. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The address is none that an identity can be shown to.
    #[error("{0:?} is no address of a fleet's server; try https://127.0.0.1:50051")]
    Address(String),
    /// The identity can't be read.
    #[error("cannot read the identity {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is no identity.
    #[error("{} is no identity; pumice fleet identity --user NAME prints one", path.display())]
    Identity {
        path: PathBuf,
        #[source]
        source: CredentialsError,
    },
}

/// A fleet's server; cheap to clone, all clones share a connection.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    channel: Channel,
}

fn endpoint(url: &str) -> Result<Endpoint, FleetError> {
    client::endpoint(url, true)
        .filter(|endpoint| endpoint.uri().host().is_some_and(|host| !host.is_empty()))
        .ok_or_else(|| FleetError::Address(url.to_owned()))
}

fn credentials(path: &Path) -> Result<Credentials, FleetError> {
    let failed = |source| FleetError::Read { path: path.to_owned(), source };
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > IDENTITY_BYTES_MAX {
        return Err(failed(std::io::Error::other(format!("it is longer than {IDENTITY_BYTES_MAX} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    Credentials::read(&text).map_err(|source| FleetError::Identity { path: path.to_owned(), source })
}

pub(super) fn check(url: &str, identity: &Path) -> Result<(), FleetError> {
    endpoint(url)?;
    credentials(identity)?;
    Ok(())
}

/// A generated client with the limits of this side.
macro_rules! limited {
    ($client:ident, $calls:expr) => {
        $client::new($calls.channel.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX)
    };
}

impl Calls {
    pub(super) fn open(fleet: &Fleet) -> Result<Self, FleetError> {
        let endpoint = endpoint(&fleet.url)?;
        let credentials = credentials(&fleet.identity)?;
        Ok(Calls { channel: connect_lazily(endpoint, &credentials.tls) })
    }

    pub(super) async fn job_sets(&self, request: ListRequest) -> Result<ListResponse, Refusal> {
        let answer = answer(limited!(JobSetsClient, self).list(request)).await;
        answer.map_err(|refusal| match refusal.code {
            405 => Refusal::not_here(
                "this server does not list job sets: jobctl needs a fleet of pumice, and Armada's own tools work with it",
            ),
            _ => refusal,
        })
    }

    pub(super) async fn submit(&self, request: api::JobSubmitRequest) -> Result<api::JobSubmitResponse, Refusal> {
        answer(limited!(SubmitClient, self).submit_jobs(request)).await
    }

    pub(super) async fn cancel_set(&self, queue: &str, job_set: &str, reason: &str) -> Result<(), Refusal> {
        let request = api::JobSetCancelRequest {
            job_set_id: job_set.to_owned(),
            queue: queue.to_owned(),
            filter: None,
            reason: reason.to_owned(),
        };
        answer(limited!(SubmitClient, self).cancel_job_set(request)).await.map(|_| ())
    }

    /// Jobs with their specifications, by id; those that are not there are left out.
    pub(super) async fn jobs(&self, ids: &[String]) -> Result<BTreeMap<String, JobDetails>, Refusal> {
        let mut found = BTreeMap::new();
        for ids in ids.chunks(DETAILS_MAX) {
            let request =
                api::JobDetailsRequest { job_ids: ids.to_vec(), expand_job_spec: true, expand_job_run: false };
            found.extend(answer(limited!(JobsClient, self).get_job_details(request)).await?.job_details);
        }
        Ok(found)
    }

    /// The events of a job set after a message; with `watch` also those to come.
    pub(super) async fn events(
        &self,
        queue: &str,
        job_set: &str,
        after: &str,
        watch: bool,
    ) -> Result<Streaming<EventStreamMessage>, Refusal> {
        let request = api::JobSetRequest {
            id: job_set.to_owned(),
            watch,
            from_message_id: after.to_owned(),
            queue: queue.to_owned(),
            error_if_missing: false,
        };
        answer(limited!(EventClient, self).get_job_set_events(request)).await
    }

    /// Why a job waits, in prose.
    pub(super) async fn job_report(&self, job_id: &str) -> Result<String, Refusal> {
        let request = JobReportRequest { job_id: job_id.to_owned() };
        Ok(answer(limited!(SchedulerReportingClient, self).get_job_report(request)).await?.report)
    }

    /// What a queue waits for, in prose.
    pub(super) async fn queue_report(&self, queue: &str) -> Result<String, Refusal> {
        let request = QueueReportRequest { queue_name: queue.to_owned(), verbosity: 0 };
        Ok(answer(limited!(SchedulerReportingClient, self).get_queue_report(request)).await?.report)
    }

    pub(super) async fn queue(&self, name: &str) -> Result<api::Queue, Refusal> {
        answer(limited!(QueueServiceClient, self).get_queue(api::QueueGetRequest { name: name.to_owned() })).await
    }

    pub(super) async fn queues(&self) -> Result<Vec<api::Queue>, Refusal> {
        use api::streaming_queue_message::Event;

        let request = api::StreamingQueueGetRequest { num: 0 };
        let mut stream = answer(limited!(QueueServiceClient, self).get_queues(request)).await?;
        let mut queues = Vec::new();
        while let Some(message) = next(&mut stream).await? {
            match message.event {
                Some(Event::Queue(queue)) if queues.len() < QUEUES_MAX => queues.push(queue),
                Some(Event::Queue(_)) => return Err(Refusal::invalid("the server has more queues than can be read")),
                Some(Event::End(_)) | None => break,
            }
        }
        Ok(queues)
    }

    /// A part of what a job's pod has written; of the one with this number, where one is given, and of no other.
    pub(super) async fn log(&self, request: LogRequest, exactly: Option<i32>) -> Result<LogPart, Refusal> {
        let mut request = Request::new(request);
        if let Some(number) = exactly {
            request.metadata_mut().insert(LOG_POD, number.into());
        }
        let mut client = limited!(BinocularsClient, self);
        let part = async { client.logs(request).await.map(|response| Response::new(LogPart::of(response))) };
        answer(part).await
    }
}

/// A part of a log.
#[derive(Debug, Default)]
pub(super) struct LogPart {
    pub(super) lines: Vec<LogLine>,
    /// There is more, from the time of the last line on.
    pub(super) more: bool,
    /// The container has ended: nothing more will be written.
    pub(super) ended: bool,
    /// The number of the pod whose log it is, where the server says so.
    pub(super) pod: Option<i32>,
}

impl LogPart {
    fn of(response: Response<LogResponse>) -> Self {
        let said = |name: &str| response.metadata().get(name).and_then(|said| said.to_str().ok());
        let (more, ended) = (said(LOG_MORE).is_some(), said(LOG_ENDED).is_some());
        let pod = said(LOG_POD).and_then(|number| number.parse().ok());
        Self { more, ended, pod, lines: response.into_inner().log }
    }
}

/// The next message of a stream that ends by itself.
pub(super) async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, Refusal> {
    match tokio::time::timeout(ANSWER_LIMIT, stream.message()).await {
        Ok(message) => Ok(message?),
        Err(_) => Err(late()),
    }
}

async fn answer<T>(answer: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Refusal> {
    match tokio::time::timeout(ANSWER_LIMIT, answer).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(status.into()),
        Err(_) => Err(late()),
    }
}

fn late() -> Refusal {
    Status::new(Code::DeadlineExceeded, format!("nothing came in {} s", ANSWER_LIMIT.as_secs())).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_need_a_host_and_encryption() {
        assert!(endpoint("https://fleet.example.com:50051").is_ok());
        for bad in ["", "fleet.example.com:50051", "http://127.0.0.1:50051", "https://", "https:// x", "nonsense"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_is_no_identity_says_how_to_get_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ada.pem");
        assert!(matches!(credentials(&path), Err(FleetError::Read { .. })));
        std::fs::write(&path, "hello").unwrap();
        assert!(credentials(&path).unwrap_err().to_string().ends_with("pumice fleet identity --user NAME prints one"));
    }
}

//! The events of a job set, from its first on, over as many streams as it takes.

use std::time::Duration;

use futures::{Stream, stream};
use pumice_wire::api::{EventMessage, EventStreamMessage, JobSetRequest};
use tokio::time::sleep;
use tonic::{Code, Status, Streaming};

use super::failure::Failure;
use super::server::Server;

const CALL: &str = "GetJobSetEvents";
/// Time between two streams.
const AGAIN: Duration = Duration::from_secs(1);
/// Streams in a row that broke before an event came.
const BROKEN_MAX: u32 = 6;

struct Watch {
    server: Server,
    request: JobSetRequest,
    open: Option<Streaming<EventStreamMessage>>,
    broken: u32,
}

/// The events of a job set, which need not be there yet. Ends with a failure only.
pub(super) fn watch(
    server: &Server,
    queue: &str,
    job_set: &str,
) -> impl Stream<Item = Result<EventMessage, Failure>> + use<> {
    let (queue, id) = (queue.to_owned(), job_set.to_owned());
    let request = JobSetRequest { id, watch: true, queue, ..JobSetRequest::default() };
    let watch = Watch { server: server.clone(), request, open: None, broken: 0 };
    stream::try_unfold(watch, |mut watch| async move {
        let message = watch.next().await?;
        Ok(Some((message, watch)))
    })
}

impl Watch {
    async fn next(&mut self) -> Result<EventMessage, Failure> {
        loop {
            match self.read().await {
                Ok(Some(EventStreamMessage { id, message })) => {
                    self.request.from_message_id = id;
                    self.broken = 0;
                    if let Some(message) = message {
                        return Ok(message);
                    }
                }
                Ok(None) => self.again(Status::unavailable("the stream ended")).await?,
                Err(status) => self.again(status).await?,
            }
        }
    }

    async fn read(&mut self) -> Result<Option<EventStreamMessage>, Status> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let opened = self.server.events().get_job_set_events(self.request.clone()).await?;
                self.open.insert(opened.into_inner())
            }
        };
        open.message().await
    }

    async fn again(&mut self, status: Status) -> Result<(), Failure> {
        self.open = None;
        self.broken += 1;
        // Whoever goes on elsewhere gets the events that he missed; what is refused once is refused again.
        let is_passing = matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled);
        if !is_passing || self.broken >= BROKEN_MAX {
            return Err(Failure::refused(CALL, status));
        }
        sleep(AGAIN).await;
        Ok(())
    }
}

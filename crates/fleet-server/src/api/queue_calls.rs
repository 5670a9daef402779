//! What one may do to queues.

use futures::stream::{self, BoxStream, StreamExt};
use pumice_ledger::{Entry, Event, Queue};
use pumice_wire::api::{
    self, BatchQueueCreateResponse, BatchQueueUpdateResponse, EndMarker, QueueCordonRequest, QueueCreateResponse,
    QueueDeleteRequest, QueueGetRequest, QueueList, QueueUncordonRequest, QueueUpdateResponse,
    StreamingQueueGetRequest, StreamingQueueMessage, streaming_queue_message,
};
use pumice_wire::wellknown::Empty;
use tonic::Status;

use super::limits::{self, QUEUES_MAX};
use super::{Api, Error, Permission, Who, queues};
use crate::database::Expect;

/// Queues, then the mark of the end.
pub(super) type Queues = BoxStream<'static, Result<StreamingQueueMessage, Status>>;

impl Api {
    pub(super) async fn create(&self, who: &Who, queue: api::Queue) -> Result<Empty, Error> {
        who.need(Permission::CreateQueue, "create queues")?;
        self.create_one(who, queue).await?;
        Ok(Empty {})
    }

    pub(super) async fn create_all(&self, who: &Who, list: QueueList) -> Result<BatchQueueCreateResponse, Error> {
        who.need(Permission::CreateQueue, "create queues")?;
        limits::count("queues", list.queues.len(), QUEUES_MAX)?;
        let mut failed_queues = Vec::new();
        for queue in list.queues {
            if let Err(error) = self.create_one(who, queue.clone()).await {
                failed_queues.push(QueueCreateResponse { queue: Some(queue), error: error.to_string() });
            }
        }
        Ok(BatchQueueCreateResponse { failed_queues })
    }

    pub(super) async fn update(&self, who: &Who, queue: api::Queue) -> Result<Empty, Error> {
        who.need(Permission::CreateQueue, "change queues")?;
        self.update_one(who, queue).await?;
        Ok(Empty {})
    }

    pub(super) async fn update_all(&self, who: &Who, list: QueueList) -> Result<BatchQueueUpdateResponse, Error> {
        who.need(Permission::CreateQueue, "change queues")?;
        limits::count("queues", list.queues.len(), QUEUES_MAX)?;
        let mut failed_queues = Vec::new();
        for queue in list.queues {
            if let Err(error) = self.update_one(who, queue.clone()).await {
                failed_queues.push(QueueUpdateResponse { queue: Some(queue), error: error.to_string() });
            }
        }
        Ok(BatchQueueUpdateResponse { failed_queues })
    }

    pub(super) async fn delete(&self, who: &Who, request: QueueDeleteRequest) -> Result<Empty, Error> {
        who.need(Permission::DeleteQueue, "delete queues")?;
        limits::name("name", &request.name)?;
        self.write_queue(who, &request.name, Event::QueueRemoved, Expect::QueuePresent { policies: Vec::new() })
            .await?;
        Ok(Empty {})
    }

    pub(super) async fn get(&self, _: &Who, request: QueueGetRequest) -> Result<api::Queue, Error> {
        limits::name("name", &request.name)?;
        Ok(queues::to_wire(&self.queue(&request.name).await?))
    }

    /// At most as many as were asked for; zero means all.
    pub(super) async fn get_all(&self, _: &Who, request: StreamingQueueGetRequest) -> Result<Queues, Error> {
        let all = self.queues().await?;
        let max = if request.num == 0 { usize::MAX } else { usize::try_from(request.num).unwrap_or(usize::MAX) };
        let queues: Vec<api::Queue> = all.values().take(max).map(queues::to_wire).collect();
        let events = queues.into_iter().map(streaming_queue_message::Event::Queue);
        let events = events.chain([streaming_queue_message::Event::End(EndMarker {})]);
        Ok(stream::iter(events.map(|event| Ok(StreamingQueueMessage { event: Some(event) }))).boxed())
    }

    pub(super) async fn cordon(&self, who: &Who, request: QueueCordonRequest) -> Result<Empty, Error> {
        self.set_cordoned(who, &request.name, true).await
    }

    pub(super) async fn uncordon(&self, who: &Who, request: QueueUncordonRequest) -> Result<Empty, Error> {
        self.set_cordoned(who, &request.name, false).await
    }

    async fn create_one(&self, who: &Who, queue: api::Queue) -> Result<(), Error> {
        let mut queue = queues::from_wire(queue)?;
        if queue.user_owners.is_empty() {
            queue.user_owners.push(who.name.clone());
        }
        let policies = self.policies_beside(&queue.retry_policies);
        self.set_queue(who, queue, Expect::QueueAbsent { policies }).await
    }

    async fn update_one(&self, who: &Who, queue: api::Queue) -> Result<(), Error> {
        let queue = queues::from_wire(queue)?;
        let policies = self.policies_beside(&queue.retry_policies);
        self.set_queue(who, queue, Expect::QueuePresent { policies }).await
    }

    async fn set_cordoned(&self, who: &Who, name: &str, cordoned: bool) -> Result<Empty, Error> {
        who.need(Permission::CordonQueue, "cordon queues")?;
        limits::name("name", name)?;
        let queue = self.queue(name).await?;
        if queue.cordoned != cordoned {
            let expect = Expect::QueuePresent { policies: Vec::new() };
            self.set_queue(who, Queue { cordoned, ..queue }, expect).await?;
        }
        Ok(Empty {})
    }

    async fn set_queue(&self, who: &Who, queue: Queue, expect: Expect) -> Result<(), Error> {
        let name = queue.name.clone();
        self.write_queue(who, &name, Event::QueueSet(Box::new(queue)), expect).await
    }

    async fn write_queue(&self, who: &Who, name: &str, event: Event, expect: Expect) -> Result<(), Error> {
        let mut entry = Entry::new(self.now(), name, "");
        entry.user.clone_from(&who.name);
        entry.events.push(event);
        let written = self.log().request(entry, expect).await;
        // It may be written even where this failed.
        self.forget_queues();
        written?;
        Ok(())
    }
}

//! Streams of a job set's events.
//!
//! Invariant: a stream gives every message after the one it was asked to go on from, once and in the order of the log. It
//! reads a page at a time and holds no more than that; between pages it waits for the log's head to move.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use pumice_ledger::{Digest, Entry, Event, Verb};
use pumice_wire::api::{EventStreamMessage, JobSetRequest};
use tokio::sync::watch;
use tonic::Status;

use super::events::{Context, MessageId, Needs, messages};
use super::spec::JobSpec;
use super::{Api, Error, Who, limits};
use crate::database::{self, Seq};

/// Entries read at once.
const PAGE: u32 = 100;
/// Messages told at once, but for what the last event has more.
const MESSAGES_MAX: usize = 256;
/// After the head has moved, before entries are read: what is written meanwhile comes with them.
const GATHER: Duration = Duration::from_millis(50);

/// Messages of a job set.
pub(super) type Messages = BoxStream<'static, Result<EventStreamMessage, Status>>;

/// An event that is told next.
struct Picked {
    seq: Seq,
    entry: Arc<Entry>,
    /// Which of the entry's events it is.
    event: usize,
}

impl Api {
    pub(super) async fn job_set_events(&self, who: &Who, request: JobSetRequest) -> Result<Messages, Error> {
        let JobSetRequest { id: job_set, queue, watch, from_message_id, error_if_missing } = request;
        limits::name("queue", &queue)?;
        limits::job_set("id", &job_set)?;
        who.need_verb(&self.queue_lately(&queue).await?, Verb::Watch)?;
        let from = MessageId::to_go_on_after(&from_message_id)?;
        if error_if_missing && self.log().events(&queue, &job_set, Seq(0), 1).await?.is_empty() {
            return Err(Error::NoJobSet { queue, job_set });
        }
        let head = self.log().head();
        let until = (!watch).then(|| *head.borrow());
        let follower = Follower {
            api: self.clone(),
            // The entry of the last message may have more.
            after: Seq(from.map_or(0, |from| from.seq.0.saturating_sub(1))),
            queue,
            job_set,
            from,
            until,
            head,
            pending: VecDeque::new(),
            next: MessageId { seq: Seq(0), index: 0 },
            specs: BTreeMap::new(),
        };
        let chunks = stream::try_unfold(follower, |follower| async { follower.step().await.map_err(Status::from) });
        Ok(chunks.map_ok(|chunk| stream::iter(chunk.into_iter().map(Ok))).try_flatten().boxed())
    }

    /// Specifications by digest, read from the database and parsed; those that are not there are left out.
    pub(super) async fn specs(&self, digests: &[Digest]) -> Result<BTreeMap<Digest, Arc<JobSpec>>, Error> {
        if digests.is_empty() {
            return Ok(BTreeMap::new());
        }
        let read = |(digest, bytes): (Digest, Vec<u8>)| match JobSpec::read(&bytes) {
            Ok(spec) => Ok((digest, Arc::new(spec))),
            Err(_) => Err(Error::Database(database::Error::Unreadable { table: "specs" })),
        };
        self.log().specs(digests).await?.into_iter().map(read).collect()
    }
}

/// An entry, of which some events were told.
struct Pending {
    seq: Seq,
    entry: Arc<Entry>,
    sent: usize,
}

/// A stream between two messages.
struct Follower {
    api: Api,
    queue: String,
    job_set: String,
    from: Option<MessageId>,
    /// The last entry, where it does not stay for later ones.
    until: Option<Seq>,
    after: Seq,
    head: watch::Receiver<Seq>,
    pending: VecDeque<Pending>,
    next: MessageId,
    specs: BTreeMap<Digest, Arc<JobSpec>>,
}

impl Follower {
    /// The next messages; nothing at the end.
    async fn step(mut self) -> Result<Option<(Vec<EventStreamMessage>, Self)>, Error> {
        loop {
            if self.pending.is_empty() && !self.read().await? {
                return Ok(None);
            }
            let sent = self.tell().await?;
            if !sent.is_empty() {
                return Ok(Some((sent, self)));
            }
        }
    }

    /// Waits for entries; false at the end.
    async fn read(&mut self) -> Result<bool, Error> {
        loop {
            if self.api.shared.stopping.is_cancelled() {
                return Err(Error::Stopping);
            }
            // What is written from here on wakes it.
            self.head.mark_unchanged();
            let mut entries = self.api.log().events(&self.queue, &self.job_set, self.after, PAGE).await?;
            entries.retain(|(seq, _)| self.until.is_none_or(|until| *seq <= until));
            if let Some((last, _)) = entries.last() {
                self.after = *last;
                let pending = |(seq, entry)| Pending { seq, entry: Arc::new(entry), sent: 0 };
                self.pending.extend(entries.into_iter().map(pending));
                return Ok(true);
            }
            if self.until.is_some() {
                return Ok(false);
            }
            self.wait().await?;
        }
    }

    async fn wait(&mut self) -> Result<(), Error> {
        let moved = async {
            let moved = self.head.changed().await;
            tokio::time::sleep(GATHER).await;
            moved
        };
        tokio::select! {
            () = self.api.shared.stopping.cancelled() => Err(Error::Stopping),
            moved = moved => moved.map_err(|_| Error::Stopping),
        }
    }

    /// Tells some of what is pending.
    async fn tell(&mut self) -> Result<Vec<EventStreamMessage>, Error> {
        let picked = self.pick();
        let mut needs = Needs::default();
        for Picked { entry, event, .. } in &picked {
            needs.add(&entry.events[*event]);
        }
        let context = self.context(needs).await?;
        let mut sent = Vec::with_capacity(picked.len());
        for Picked { seq, entry, event } in picked {
            if self.next.seq != seq {
                self.next = MessageId { seq, index: 0 };
            }
            for message in messages(&entry, &entry.events[event], &context) {
                let id = self.next;
                self.next.index += 1;
                if self.from.is_none_or(|from| id > from) {
                    sent.push(EventStreamMessage { id: id.to_string(), message: Some(message) });
                }
            }
        }
        self.specs = context.specs;
        Ok(sent)
    }

    /// Takes the next events off `pending`: about as many as give the messages of one answer.
    fn pick(&mut self) -> Vec<Picked> {
        let (mut picked, mut weight) = (Vec::new(), 0);
        while let Some(pending) = self.pending.front_mut()
            && weight < MESSAGES_MAX
        {
            if let Some(event) = pending.entry.events.get(pending.sent) {
                weight += self::weight(event);
                picked.push(Picked { seq: pending.seq, entry: pending.entry.clone(), event: pending.sent });
                pending.sent += 1;
            } else {
                self.pending.pop_front();
            }
        }
        picked
    }

    async fn context(&mut self, needs: Needs) -> Result<Context, Error> {
        let mut context = Context { specs: std::mem::take(&mut self.specs), ..Context::default() };
        context.specs.retain(|digest, _| needs.specs.contains(digest));
        let missing: Vec<Digest> =
            needs.specs.into_iter().filter(|digest| !context.specs.contains_key(digest)).collect();
        context.specs.extend(self.api.specs(&missing).await?);
        if !needs.runs.is_empty() {
            let runs: Vec<_> = needs.runs.into_iter().collect();
            context.runs = self.api.log().runs(&runs).await?.into_iter().map(|row| (row.run, row)).collect();
        }
        if !needs.last_runs.is_empty() {
            let jobs: Vec<_> = needs.last_runs.into_iter().collect();
            // They come in the order of their attempts.
            let runs = self.api.log().runs_of(&jobs).await?.into_iter();
            context.last_runs = runs.map(|row| (row.run.job, row)).collect();
        }
        Ok(context)
    }
}

/// About how many messages an event gives.
fn weight(event: &Event) -> usize {
    match event {
        Event::CancelAsked { jobs, .. }
        | Event::PreemptAsked { jobs, .. }
        | Event::Reprioritised { jobs, .. }
        | Event::SetReprioritised { jobs, .. } => jobs.len().max(1),
        _ => 1,
    }
}

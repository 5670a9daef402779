//! News of a job set, as lines of a watch.
//!
//! Invariant: a watch first tells what has changed since the version it was asked to go on from, then what comes, each time the
//! newest state; it ends before its client takes it for dead. What was read is remembered, so that the next watch goes on there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream;
use pumice_wire::api::EventStreamMessage;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};
use tonic::Streaming;

use super::job_view::JobSetView;
use super::kubernetes_api::{KubernetesApi, Lines};
use super::objects::{self, Known};
use super::refusal::Refusal;

/// How long a watch stays open.
const OPEN_FOR: Duration = Duration::from_secs(280);
/// Messages are gathered for so long before they are told: thousands come at once.
const GATHER: Duration = Duration::from_millis(100);

/// Messages after which a story is remembered at the earliest.
const REMEMBER_EVERY: u64 = 200;

/// What is told of the story from a version on.
type Changes = Box<dyn Fn(&Known, &JobSetView, u64) -> Vec<Value> + Send>;

struct Watch {
    front: Arc<KubernetesApi>,
    known: Arc<Known>,
    view: Arc<JobSetView>,
    changes: Changes,
    /// The version that was told.
    sent: u64,
    /// The version that is remembered: doing so copies it.
    remembered: u64,
    events: Option<Streaming<EventStreamMessage>>,
    until: Instant,
}

/// News of the job.
pub(super) fn job(front: Arc<KubernetesApi>, known: Arc<Known>, view: Arc<JobSetView>, after: u64) -> Lines {
    let changes = |known: &Known, view: &JobSetView, _: u64| {
        vec![json!({"type": "MODIFIED", "object": objects::job_of_view(known, view)})]
    };
    lines(front, known, view, after, Box::new(changes))
}

/// News of those of its pods that are wanted.
pub(super) fn pods(
    front: Arc<KubernetesApi>,
    known: Arc<Known>,
    view: Arc<JobSetView>,
    after: u64,
    wanted: impl Fn(&Value) -> bool + Send + 'static,
) -> Lines {
    let changes = move |known: &Known, view: &JobSetView, after: u64| {
        let changed = view.jobs.iter().filter(|(_, sent)| sent.changed > after);
        let events = changed.filter_map(|(id, sent)| {
            let pod = objects::pod(&known.name, id, sent);
            // One that is wanted no more would have to be known to have been so; none of our selectors loses pods.
            let kind = if objects::is_there(sent) { "MODIFIED" } else { "DELETED" };
            wanted(&pod).then(|| json!({"type": kind, "object": pod}))
        });
        let mut events: Vec<Value> = events.collect();
        // The last one says how far this goes.
        events.sort_by_key(|event| {
            event["object"]["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok())
        });
        events
    };
    lines(front, known, view, after, Box::new(changes))
}

fn lines(front: Arc<KubernetesApi>, known: Arc<Known>, view: Arc<JobSetView>, after: u64, changes: Changes) -> Lines {
    let until = Instant::now() + OPEN_FOR;
    let remembered = view.read;
    let watch = Watch { front, known, view, changes, sent: after, remembered, events: None, until };
    stream::try_unfold(watch, Watch::step).boxed()
}

impl Watch {
    /// The next lines; nothing when it has been open for long enough.
    async fn step(mut self) -> Result<Option<(Bytes, Self)>, Refusal> {
        loop {
            if self.sent < self.view.read {
                let events = (self.changes)(&self.known, &self.view, self.sent);
                self.sent = self.view.read;
                if !events.is_empty() {
                    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
                    return Ok(Some((Bytes::from(lines), self)));
                }
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for messages and takes note of them; false when none came in time.
    async fn read(&mut self) -> Result<bool, Refusal> {
        let events = match &mut self.events {
            Some(events) => events,
            none => {
                let opened =
                    self.front.calls.events(&self.known.queue, &self.known.name, &self.view.last, true).await?;
                none.insert(opened)
            }
        };
        let view = Arc::make_mut(&mut self.view);
        let (before, mut until) = (view.read, self.until);
        let ended = loop {
            match timeout_at(until, events.message()).await {
                Err(_) => break None,
                Ok(Ok(Some(event))) => view.take(event.id, event.message),
                Ok(Ok(None)) => break Some(Ok(())),
                Ok(Err(status)) => break Some(Err(Refusal::from(status))),
            }
            if until == self.until {
                until = self.until.min(Instant::now() + GATHER);
            }
        };
        let read = self.view.read;
        if read > self.remembered && (ended.is_some() || read >= self.remembered + self.remembered / 4 + REMEMBER_EVERY)
        {
            self.remembered = read;
            self.front.remember(&self.known, &self.view);
        }
        ended.unwrap_or(Ok(()))?;
        Ok(read > before)
    }
}

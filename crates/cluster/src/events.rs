//! Kubernetes Events, written off the path of whoever records them.
//!
//! Invariant: recording never waits and never fails a caller; when the bounded queue is full the
//! event is dropped and counted in the log. Repeated events are one with a count.

mod correlator;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::timers::until;
use correlator::{Correlator, Due};

/// How many events may wait to be written.
const QUEUE_MAX: usize = 1024;
/// Longest message kept, in bytes, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Whether an event tells of normal life or of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    /// Part of normal life.
    Normal,
    Warning,
}

/// One thing to tell about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    /// The object it is about.
    pub about: ObjectReference,
    pub severity: Severity,
    /// A CamelCase word that programs match on.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    pub at: Timestamp,
}

/// Hands occurrences to the writer task; cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Occurrence>,
    dropped: Arc<AtomicU64>,
}

impl EventRecorder {
    /// A recorder and the task that writes for `component`; the caller owns and polls the task.
    pub fn new(client: Client, component: &str) -> (EventRecorder, impl Future<Output = ()> + Send + use<>) {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let recorder = EventRecorder { queue, dropped: Arc::new(AtomicU64::new(0)) };
        (recorder, write_all(client, component.to_owned(), waiting))
    }

    /// Records an occurrence without waiting.
    pub fn record(&self, occurrence: Occurrence) {
        if self.queue.try_send(occurrence).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // A line for each would be one more flood.
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "events dropped: too many are waiting to be written");
            }
        }
    }

    /// Whether few events wait: one more would be written soon.
    pub fn has_room(&self) -> bool {
        self.queue.capacity() > QUEUE_MAX / 2
    }
}

async fn write_all(client: Client, component: String, mut waiting: mpsc::Receiver<Occurrence>) {
    let (mut batch, mut correlator) = (Vec::new(), Correlator::default());
    loop {
        let pause = until(correlator.next());
        tokio::select! {
            received = waiting.recv_many(&mut batch, QUEUE_MAX) => {
                if received == 0 {
                    return;
                }
                let now = Instant::now();
                batch.drain(..).for_each(|occurrence| correlator.take(occurrence, now));
            }
            () = pause => {}
        }
        let now = Instant::now();
        while let Some(due) = correlator.take_due(now) {
            let id = due.id;
            match write(&client, &component, due).await {
                Ok(name) => correlator.written(id, name),
                Err((reason, error)) => tracing::debug!(reason, error = %error, "event not written"),
            }
        }
    }
}

/// Writes an event, into the one that is there where there is one; gives its name.
async fn write(client: &Client, component: &str, due: Due) -> Result<Option<String>, (String, kube::Error)> {
    let Due { occurrence, count, name, .. } = due;
    let event = event(component, &occurrence, count);
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    if let Some(name) = name {
        let news = json!({"count": event.count, "lastTimestamp": event.last_timestamp, "message": event.message});
        match events.patch(&name, &PatchParams::default(), &Patch::Merge(&news)).await {
            Ok(_) => return Ok(Some(name)),
            // It has outlived its time: told anew.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err((occurrence.reason, error)),
        }
    }
    let made = events.create(&PostParams::default(), &event).await;
    made.map(|made| made.metadata.name).map_err(|error| (occurrence.reason, error))
}

fn event(component: &str, occurrence: &Occurrence, count: i32) -> Event {
    let mut message = occurrence.message.clone();
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    let name = occurrence.about.name.as_deref().unwrap_or("unknown");
    Event {
        metadata: ObjectMeta {
            // The API server makes the name unique; Kubernetes' own recorder uses a clock instead.
            generate_name: Some(format!("{name}.")),
            namespace: Some(occurrence.about.namespace.clone().unwrap_or_else(|| "default".into())),
            ..Default::default()
        },
        involved_object: occurrence.about.clone(),
        reason: Some(occurrence.reason.clone()),
        message: Some(message),
        type_: Some(match occurrence.severity {
            Severity::Normal => "Normal".into(),
            Severity::Warning => "Warning".into(),
        }),
        source: Some(EventSource { component: Some(component.to_owned()), host: None }),
        first_timestamp: Some(Time(occurrence.at)),
        last_timestamp: Some(Time(occurrence.at)),
        count: Some(count),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn occurrence(name: &str, message: &str, second: i64) -> Occurrence {
        Occurrence {
            about: ObjectReference { name: Some(name.into()), ..Default::default() },
            severity: Severity::Warning,
            reason: "FailedCreate".into(),
            message: message.into(),
            at: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let long = "é".repeat(MESSAGE_BYTES_MAX);
        let event = event("test", &occurrence("a", &long, 1), 1);
        let message = event.message.unwrap();
        assert_eq!(message.len(), MESSAGE_BYTES_MAX);
        assert!(message.chars().all(|c| c == 'é'));
    }
}

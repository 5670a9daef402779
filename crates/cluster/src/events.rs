//! Kubernetes Events, written off the path of whoever records them.
//!
//! Invariant: recording never waits and never fails a caller; when the bounded queue is full the
//! event is dropped and counted in the log. Repeated events are merged into a count while they wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

/// How many events may wait to be written.
const QUEUE_MAX: usize = 1024;
/// Longest message kept, in bytes, as in Kubernetes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Whether an event tells of normal life or of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Part of normal life.
    Normal,
    /// Somebody should look.
    Warning,
}

/// One thing to tell about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Occurrence {
    /// The object it is about.
    pub about: ObjectReference,
    /// Normal or warning.
    pub severity: Severity,
    /// A CamelCase word that programs match on.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When it happened.
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
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, QUEUE_MAX).await > 0 {
        for (occurrence, count) in merged(batch.drain(..)) {
            let event = event(&component, &occurrence, count);
            let namespace = occurrence.about.namespace.as_deref().unwrap_or("default");
            let events: Api<Event> = Api::namespaced(client.clone(), namespace);
            if let Err(error) = events.create(&PostParams::default(), &event).await {
                tracing::debug!(reason = occurrence.reason, error = %error, "event not written");
            }
        }
    }
}

/// Repetitions of an occurrence become one with a count; the latest time wins.
fn merged(batch: impl Iterator<Item = Occurrence>) -> Vec<(Occurrence, i32)> {
    let mut out: Vec<(Occurrence, i32)> = Vec::new();
    // By what tells most of them apart; the rest is compared.
    let mut places: HashMap<(Option<String>, Option<String>), Vec<usize>> = HashMap::new();
    for next in batch {
        let same = places.entry((next.about.uid.clone(), next.about.name.clone())).or_default();
        let found = same.iter().copied().find(|place| {
            let seen = &out[*place].0;
            seen.about == next.about && seen.reason == next.reason && seen.message == next.message
        });
        match found {
            Some(place) => {
                let (seen, count) = &mut out[place];
                seen.at = next.at;
                *count = count.saturating_add(1);
            }
            None => {
                same.push(out.len());
                out.push((next, 1));
            }
        }
    }
    out
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

    fn occurrence(name: &str, message: &str, second: i64) -> Occurrence {
        Occurrence {
            about: ObjectReference { name: Some(name.into()), ..Default::default() },
            severity: Severity::Warning,
            reason: "FailedCreate".into(),
            message: message.into(),
            at: Timestamp::from_second(second).unwrap(),
        }
    }

    #[test]
    fn the_same_occurrence_is_counted_not_repeated() {
        let out = merged([occurrence("a", "m", 1), occurrence("b", "m", 2), occurrence("a", "m", 3)].into_iter());
        let seen: Vec<_> = out.iter().map(|(o, n)| (o.about.name.as_deref().unwrap(), o.at.as_second(), *n)).collect();
        assert_eq!(seen, [("a", 3, 2), ("b", 2, 1)]);
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

//! What the platform wrote down about a job: its events, and those of one of its pods.
//!
//! Invariant: oldest first. Called by the live view, by `explain` and the Python extension.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde::Serialize;

use crate::error::Error;
use crate::job::JobRef;
use crate::platform::call::{self, CallError};
use crate::platform::connection::Connection;

/// An Event of Kubernetes about a job or one of its pods, with repetitions counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobEvent {
    /// When it happened last.
    pub at: Option<Timestamp>,
    /// `Normal` or `Warning`.
    pub kind: String,
    /// What, in a word.
    pub reason: String,
    /// What, in a sentence.
    pub message: String,
    /// How often it happened.
    pub count: i32,
}

impl JobEvent {
    fn of(event: &Event) -> Self {
        let series = event.series.as_ref();
        let last_seen = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|at| at.0);
        let observed = series.and_then(|series| series.last_observed_time.as_ref()).or(event.event_time.as_ref());
        JobEvent {
            at: last_seen.or(observed.map(|at| at.0)),
            kind: event.type_.clone().unwrap_or_else(|| "Normal".to_owned()),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            count: event.count.or(series.and_then(|series| series.count)).unwrap_or(1),
        }
    }
}

/// The events of a job, or of one of its pods.
pub async fn fetch(connection: &Connection, job: &JobRef, pod: Option<&str>) -> Result<Vec<JobEvent>, Error> {
    let (kind, name) = pod.map_or(("Job", job.name.as_str()), |pod| ("Pod", pod));
    list(connection, &job.namespace, &format!("involvedObject.kind={kind},involvedObject.name={name}")).await
}

/// Which events of an object are wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The namespace of the object.
    pub namespace: &'a str,
    /// The kind of the object.
    pub kind: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The reason of the events.
    pub reason: &'a str,
}

/// The events of one reason about an object.
pub async fn of_reason(connection: &Connection, wanted: Wanted<'_>) -> Result<Vec<JobEvent>, Error> {
    let Wanted { namespace, kind, name, reason } = wanted;
    let selector = format!("involvedObject.kind={kind},involvedObject.name={name},reason={reason}");
    list(connection, namespace, &selector).await
}

async fn list(connection: &Connection, namespace: &str, selector: &str) -> Result<Vec<JobEvent>, Error> {
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let query = format!("&fieldSelector={}", call::query_value(selector));
    let (items, _) = call::list(connection, &path, &query, "list events").await?;
    let read = |item| {
        serde_json::from_value::<Event>(item)
            .map(|event| JobEvent::of(&event))
            .map_err(|error| CallError::unreadable("read an event", connection.url(), error).into())
    };
    let mut events = items.into_iter().map(read).collect::<Result<Vec<_>, Error>>()?;
    events.sort_by_key(|event| event.at);
    Ok(events)
}

//! Following objects by watch, through outages, without ever polling.
//!
//! Invariant: a follower first gives a snapshot and then every change in order; after an outage it
//! goes on from the last revision it saw, or gives a new snapshot if the server forgot that far. The
//! streams own their state: dropping a pending `next` loses nothing. Called by `logs`, `cancel`,
//! and `jobctl`'s `run` and `wait`.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use http::Request;
use kube::core::WatchEvent;
use pumice_api::batch::Job;
use pumice_units::Backoff;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::Error;
use crate::job::{JobRef, jobs_path};
use crate::json::text_at;
use crate::platform::call::{self, CallError, FailureClass};
use crate::platform::connection::Connection;

/// How long the server is asked to keep one watch open, seconds.
const WATCH_SECONDS: u64 = 290;
/// Silence beyond the above after which the connection counts as dead.
const WATCH_GRACE: Duration = Duration::from_secs(20);
/// A watch that the server closes sooner than this counts as a failure.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// The pauses between two tries to reach a server that does not answer.
pub(crate) const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };
/// After this long without an answer a follower gives up.
pub const OUTAGE_MAX: Duration = Duration::from_secs(30 * 60);

/// What is followed: a collection and selectors on it.
#[derive(Debug, Clone)]
pub struct Collection {
    pub path: String,
    /// A label selector, may be empty.
    pub labels: String,
    /// A field selector, may be empty.
    pub fields: String,
}

impl Collection {
    /// The selectors as the tail of a query.
    pub(crate) fn query(&self) -> String {
        let mut query = String::new();
        for (key, value) in [("labelSelector", &self.labels), ("fieldSelector", &self.fields)] {
            if !value.is_empty() {
                query.push_str(&format!("&{key}={}", call::query_value(value)));
            }
        }
        query
    }
}

/// News of a collection.
#[derive(Debug)]
pub enum Update<T> {
    /// All there is; what was known before and isn't here is gone.
    Snapshot(Vec<T>),
    /// A new or changed object.
    Changed(T),
    /// An object's last state.
    Gone(T),
    /// The server does not answer; the follower keeps trying.
    Lost(String),
    Back,
}

impl<T> Update<T> {
    /// The same update of what the objects mean.
    pub fn map<U>(self, meaning: impl Fn(T) -> U) -> Update<U> {
        match self {
            Update::Snapshot(items) => Update::Snapshot(items.into_iter().map(meaning).collect()),
            Update::Changed(item) => Update::Changed(meaning(item)),
            Update::Gone(item) => Update::Gone(meaning(item)),
            Update::Lost(detail) => Update::Lost(detail),
            Update::Back => Update::Back,
        }
    }
}

type Events = BoxStream<'static, Result<WatchEvent<Value>, kube::Error>>;

struct Reading {
    revision: String,
    events: Events,
    opened: tokio::time::Instant,
}

enum Stage {
    List,
    Watch { revision: String },
    Read(Reading),
    Ended,
}

struct Follower<T> {
    connection: Connection,
    collection: Collection,
    stage: Stage,
    failures: u32,
    lost_since: Option<tokio::time::Instant>,
    outage_reported: bool,
    item: std::marker::PhantomData<fn() -> T>,
}

/// Follows a collection. The stream ends only with an error: a refusal, or no answer for
/// [`OUTAGE_MAX`].
pub fn follow<T>(connection: Connection, collection: Collection) -> BoxStream<'static, Result<Update<T>, CallError>>
where
    T: DeserializeOwned + Send + 'static,
{
    let follower = Follower::<T> {
        connection,
        collection,
        stage: Stage::List,
        failures: 0,
        lost_since: None,
        outage_reported: false,
        item: std::marker::PhantomData,
    };
    stream::unfold(follower, |mut follower| async move {
        let update = follower.step().await?;
        Some((update, follower))
    })
    .boxed()
}

impl<T: DeserializeOwned> Follower<T> {
    /// The next update; `None` after an error.
    async fn step(&mut self) -> Option<Result<Update<T>, CallError>> {
        loop {
            let outcome = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::List => self.list().await,
                Stage::Watch { revision } => self.open(revision).await,
                Stage::Read(reading) => self.read(reading).await,
                Stage::Ended => return None,
            };
            match outcome {
                Ok(Some(update)) => return Some(Ok(update)),
                Ok(None) => {}
                Err(error) => match self.pause(error).await {
                    Ok(Some(update)) => return Some(Ok(update)),
                    Ok(None) => {}
                    Err(error) => {
                        self.stage = Stage::Ended;
                        return Some(Err(error));
                    }
                },
            }
        }
    }

    async fn list(&mut self) -> Result<Option<Update<T>>, CallError> {
        self.stage = Stage::List;
        let (items, revision) =
            call::list(&self.connection, &self.collection.path, &self.collection.query(), "list").await?;
        let items = items.into_iter().map(|item| self.typed(item)).collect::<Result<_, _>>()?;
        self.lost_since = None;
        self.stage = Stage::Watch { revision };
        // A snapshot says by itself that the server is back.
        self.outage_reported = false;
        Ok(Some(Update::Snapshot(items)))
    }

    async fn open(&mut self, revision: String) -> Result<Option<Update<T>>, CallError> {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={}{}",
            self.collection.path,
            call::query_value(&revision),
            self.collection.query(),
        );
        self.stage = Stage::Watch { revision: revision.clone() };
        let url = self.connection.url().to_owned();
        let request = Request::get(&path).body(Vec::new()).map_err(|e| CallError::unreadable("watch", &url, e))?;
        let opened = self.connection.client().request_events::<Value>(request);
        let events = tokio::time::timeout(call::CALL_TIMEOUT, opened)
            .await
            .map_err(|_| CallError::timed_out("watch", &url, call::CALL_TIMEOUT))?
            .map_err(|error| CallError::new("watch", &url, &error))?;
        let opened = tokio::time::Instant::now();
        self.stage = Stage::Read(Reading { revision, events: events.boxed(), opened });
        self.lost_since = None;
        Ok(std::mem::take(&mut self.outage_reported).then_some(Update::Back))
    }

    async fn read(&mut self, mut reading: Reading) -> Result<Option<Update<T>>, CallError> {
        let url = self.connection.url().to_owned();
        self.stage = Stage::Watch { revision: reading.revision.clone() };
        let silence = Duration::from_secs(WATCH_SECONDS) + WATCH_GRACE;
        let event = match tokio::time::timeout(silence, reading.events.next()).await {
            Err(_) => return Err(CallError::timed_out("watch", &url, silence)),
            Ok(None) if reading.opened.elapsed() < WATCH_MIN => {
                return Err(CallError::unreachable("watch", &url, "the watch was closed at once"));
            }
            Ok(None) => {
                self.failures = 0;
                return Ok(None);
            }
            Ok(Some(event)) => event.map_err(|error| CallError::new("watch", &url, &error))?,
        };
        let (update, object): (fn(T) -> Update<T>, Value) = match event {
            WatchEvent::Error(status) => return Err(CallError::new("watch", &url, &kube::Error::Api(status))),
            WatchEvent::Bookmark(bookmark) => {
                reading.revision = bookmark.metadata.resource_version;
                self.stage = Stage::Read(reading);
                return Ok(None);
            }
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (Update::Changed, object),
            WatchEvent::Deleted(object) => (Update::Gone, object),
        };
        self.failures = 0;
        reading.revision = text_at(&object, "/metadata/resourceVersion").to_owned();
        let typed = self.typed(object)?;
        self.stage = Stage::Read(reading);
        Ok(Some(update(typed)))
    }

    fn typed(&self, object: Value) -> Result<T, CallError> {
        serde_json::from_value(object)
            .map_err(|error| CallError::unreadable("read an object", self.connection.url(), error))
    }

    /// Judges a failure: an expired watch lists again, an outage is waited out, the rest ends it.
    async fn pause(&mut self, error: CallError) -> Result<Option<Update<T>>, CallError> {
        match error.class() {
            FailureClass::Expired => {
                self.stage = Stage::List;
                Ok(None)
            }
            FailureClass::Unreachable => {
                let now = tokio::time::Instant::now();
                if now - *self.lost_since.get_or_insert(now) > OUTAGE_MAX {
                    return Err(error);
                }
                let wait = BACKOFF.pause(self.failures);
                self.failures = self.failures.saturating_add(1);
                // One short gap is how a watch ends; only a second failure is news.
                if self.failures == 2 && !std::mem::replace(&mut self.outage_reported, true) {
                    return Ok(Some(Update::Lost(error.cause.to_string())));
                }
                tokio::time::sleep(wait).await;
                if self.failures > 1
                    && let Ok(connection) = self.connection.reopen().await
                {
                    self.connection = connection;
                }
                Ok(None)
            }
            _ => Err(error),
        }
    }
}

/// News of one job.
#[derive(Debug)]
pub enum JobUpdate {
    Now(Box<Job>),
    Gone,
    /// The server does not answer; the follower keeps trying.
    Lost(String),
    Back,
}

/// Follows one job, and only that one: another of the same name, made later, counts as a deletion.
pub struct JobWatch {
    job: JobRef,
    uid: Option<String>,
    update: BoxStream<'static, Result<Update<Job>, CallError>>,
}

impl JobWatch {
    /// Starts to follow. Nothing is sent before the first [`JobWatch::next`].
    pub fn new(connection: Connection, job: JobRef) -> Self {
        let collection = Collection {
            path: jobs_path(Some(&job.namespace)),
            labels: String::new(),
            fields: format!("metadata.name={}", job.name),
        };
        JobWatch { job, uid: None, update: follow(connection, collection) }
    }

    /// The next update; [`crate::job::JobError::NoJob`] if it never existed. Cancellation safe.
    pub async fn next(&mut self) -> Result<JobUpdate, Error> {
        loop {
            // The stream ends only after an error, which was returned before.
            let update = self.update.next().await.ok_or_else(|| self.job.missing())??;
            match update {
                Update::Snapshot(mut jobs) => match (jobs.pop(), &self.uid) {
                    (Some(job), _) => return Ok(self.accept(job)),
                    (None, Some(_)) => return Ok(JobUpdate::Gone),
                    (None, None) => return Err(self.job.missing().into()),
                },
                Update::Changed(job) => return Ok(self.accept(job)),
                Update::Gone(job) if job.metadata.uid == self.uid => return Ok(JobUpdate::Gone),
                Update::Gone(_) => {}
                Update::Lost(detail) => return Ok(JobUpdate::Lost(detail)),
                Update::Back => return Ok(JobUpdate::Back),
            }
        }
    }

    fn accept(&mut self, job: Job) -> JobUpdate {
        let uid = job.metadata.uid.clone().unwrap_or_default();
        match &self.uid {
            Some(known) if *known != uid => JobUpdate::Gone,
            _ => {
                self.uid = Some(uid);
                JobUpdate::Now(Box::new(job))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        let pauses: Vec<u128> = (0..9).map(|n| BACKOFF.pause(n).as_millis()).collect();
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(BACKOFF.pause(u32::MAX), BACKOFF.longest);
    }

    #[test]
    fn selectors_are_escaped() {
        let collection =
            Collection { path: "/p".into(), labels: "volcano.sh/job-name=x".into(), fields: String::new() };
        assert_eq!(collection.query(), "&labelSelector=volcano.sh%2Fjob-name%3Dx");
    }
}

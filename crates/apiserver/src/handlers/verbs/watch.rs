//! watch: a stream of changes as lines of JSON, or as messages of a WebSocket where the client asks for one.
//!
//! Invariant: the stream starts from one snapshot and misses nothing after it; an object that enters or leaves the
//! selection is told as ADDED or DELETED; a client that falls behind gets an ERROR event with 410 and the end.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, stream};
use http::StatusCode;
use pumice_objects::status::{Status, StatusReason};
use pumice_store::{EventKind, Object, Watch, WatchError, WatchEvent};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::read;
use crate::context::Call;
use crate::context::State;
use crate::handlers::selectors::Matcher;
use crate::handlers::view::View;
use crate::http::body::Body;
use crate::http::flow::WatchSeat;
use crate::http::negotiate::Shape;
use crate::http::query::{ReadOptions, RevisionMatch, RevisionWish};
use crate::http::respond::{Answer, json as json_response};
use crate::kinds::conversion;
use crate::kinds::tables;
use crate::stored::parse;

mod socket;

/// A watch without a wish ends after this long; clients start anew.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(45 * 60);
/// Longest watch that a client may wish for.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Size at which a frame is sent though more events are ready.
const FRAME_BYTES: usize = 64 * 1024;
/// Objects of which a watch knows whether they are selected.
const KNOWN_MAX: usize = 1024;
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(crate) fn watch(call: &Call) -> Answer {
    let view = View::of(call)?;
    let mut options = ReadOptions::parse(&call.query)?;
    let mut matcher = Matcher::new(&call.descriptor, &options)?;
    if !call.request.name.is_empty() {
        let selector = format!("metadata.name={}", call.request.name);
        options.fields = pumice_objects::selector::FieldSelector::parse(&selector)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        matcher = Matcher::new(&call.descriptor, &options)?;
    }
    check(&options)?;
    let seat = call.state.flow.watch(&call.identity)?;
    let start = start(call, &options, &matcher)?;
    let period = call.state.bookmark_every;
    let mut bookmarks = tokio::time::interval_at(Instant::now() + period, period);
    bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let timeout = options.timeout_seconds.map_or(TIMEOUT_DEFAULT, Duration::from_secs).min(TIMEOUT_MAX);
    let deadline = Instant::now() + timeout;
    let feed = Feed {
        state: Arc::clone(&call.state),
        view,
        selection: Selection { matcher, known: HashMap::new() },
        initial: start.initial.into(),
        initial_end: (options.initial_events == Some(true) && options.bookmarks).then_some(start.revision),
        watch: start.watch,
        bookmarks: options.bookmarks.then_some(bookmarks),
        registered: call.descriptor.openapi.is_some().then(|| Registered::new(call)),
        deadline,
        closing: call.listener.closing.clone(),
        ended: false,
        _seat: seat,
    };
    match socket::requested_upgrade(call) {
        Some(upgrade) => socket::answer(call, upgrade, feed.into_stream(), deadline),
        None => Ok(json_response(StatusCode::OK, Body::stream(feed.into_stream()))),
    }
}

/// The rules of `sendInitialEvents` and `resourceVersionMatch`.
fn check(options: &ReadOptions) -> Result<(), Status> {
    let forbidden = |text: &str| {
        Err(Status::new(StatusReason::Invalid, format!("ListOptions.meta.k8s.io \"\" is invalid: {text}")))
    };
    match (options.initial_events, options.revision_match) {
        (None, Some(_)) => forbidden(
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
             provided",
        ),
        (Some(_), None) => forbidden(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (Some(_), Some(RevisionMatch::Exact)) => forbidden(
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        _ => Ok(()),
    }
}

struct Start {
    initial: Vec<Arc<Object>>,
    revision: u64,
    watch: Result<Watch, WatchError>,
}

/// The snapshot to send first, and the watch that goes on from it.
fn start(call: &Call, options: &ReadOptions, matcher: &Matcher) -> Result<Start, Status> {
    let (store, resource, namespace) = (call.store(), &call.descriptor.storage, call.namespace());
    if let RevisionWish::At(wanted) = options.revision {
        read::not_ahead(wanted, store.revision())?;
    }
    let snapshot = match (options.initial_events, options.revision) {
        (Some(wanted), _) => wanted,
        (None, RevisionWish::Latest | RevisionWish::Any) => true,
        (None, RevisionWish::At(_)) => false,
    };
    if snapshot {
        let listing = store.list(resource, namespace);
        let watch = store.watch(resource, namespace, Some(listing.revision));
        return Ok(Start { initial: select(listing.items, matcher), revision: listing.revision, watch });
    }
    let from = match options.revision {
        RevisionWish::At(revision) => Some(revision),
        _ => None,
    };
    Ok(Start { initial: Vec::new(), revision: 0, watch: store.watch(resource, namespace, from) })
}

/// The objects that a selector names.
fn select(items: Vec<Arc<Object>>, matcher: &Matcher) -> Vec<Arc<Object>> {
    if matcher.is_everything() {
        return items;
    }
    items.into_iter().filter(|object| matcher.matches(object)).collect()
}

/// Everything a running watch holds.
struct Feed {
    state: Arc<State>,
    view: View,
    selection: Selection,
    initial: VecDeque<Arc<Object>>,
    /// The revision for the bookmark that ends the initial events, until it is sent.
    initial_end: Option<u64>,
    watch: Result<Watch, WatchError>,
    bookmarks: Option<Interval>,
    /// Of a custom resource: tells when its definition goes.
    registered: Option<Registered>,
    deadline: Instant,
    closing: CancellationToken,
    ended: bool,
    _seat: Option<WatchSeat>,
}

impl Feed {
    fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut feed| async move {
            let frame = feed.next_frame().await?;
            Some((frame, feed))
        })
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut frame = BytesMut::new();
        let mut batch = EventBatch::default();
        while batch.bytes < FRAME_BYTES {
            let Some(object) = self.initial.pop_front() else { break };
            batch.push("ADDED", object, None);
        }
        if let Err(status) = self.write(&mut frame, batch).await {
            return self.fail(frame, &status);
        }
        if !self.initial.is_empty() {
            return Some(frame.freeze());
        }
        if let Some(revision) = self.initial_end.take() {
            line(&mut frame, "BOOKMARK", &self.bookmark(revision, true));
        }
        if !frame.is_empty() {
            return Some(frame.freeze());
        }
        self.live_frame().await
    }

    /// Waits for something to send. `None` ends the stream.
    async fn live_frame(&mut self) -> Option<Bytes> {
        loop {
            let (mut frame, mut batch) = (BytesMut::new(), EventBatch::default());
            let watch = match &mut self.watch {
                Ok(watch) => watch,
                Err(error) => {
                    let error = error.clone();
                    return self.end(frame, &error);
                }
            };
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline) => {
                    self.ended = true;
                    return self.periodic_bookmark();
                }
                next = watch.next() => match next {
                    Ok(event) => self.put(&mut batch, event),
                    Err(error) => return self.end(frame, &error),
                },
                () = unregistered(&mut self.registered) => self.ended = true,
                () = tick(&mut self.bookmarks) => return self.periodic_bookmark(),
            }
            let drained = self.drain(&mut batch);
            if let Err(status) = self.write(&mut frame, batch).await {
                return self.fail(frame, &status);
            }
            if let Err(error) = drained {
                return self.end(frame, &error);
            }
            if !frame.is_empty() {
                return Some(frame.freeze());
            }
            if self.ended {
                return None;
            }
        }
    }

    /// Takes what is ready without waiting.
    fn drain(&mut self, batch: &mut EventBatch) -> Result<(), WatchError> {
        while batch.bytes < FRAME_BYTES {
            let Ok(watch) = &mut self.watch else { return Ok(()) };
            let Some(event) = watch.try_next()? else { return Ok(()) };
            self.put(batch, event);
        }
        Ok(())
    }

    fn put(&mut self, batch: &mut EventBatch, event: WatchEvent) {
        let before = event.previous.as_ref().is_some_and(|object| self.selection.had(object));
        let after = event.kind != EventKind::Deleted && self.selection.has(&event.object);
        match (before, after) {
            (false, true) => batch.push("ADDED", event.object, None),
            (true, true) => batch.push("MODIFIED", event.object, None),
            (true, false) if event.kind == EventKind::Deleted => batch.push("DELETED", event.object, None),
            (true, false) => {
                // The client knows the state that matched; it gets that one, at the revision at which it left.
                let Some(previous) = event.previous else { return };
                batch.push("DELETED", previous, Some(event.object.revision));
            }
            (false, false) => {}
        }
    }

    /// Writes events in the version that is watched.
    async fn write(&self, frame: &mut BytesMut, batch: EventBatch) -> Result<(), Status> {
        let EventBatch { changes, objects, .. } = batch;
        let objects = conversion::served(&self.state.storage.webhooks, &self.view.descriptor, objects).await?;
        for (Change { kind, left }, object) in changes.into_iter().zip(objects) {
            match left {
                None => line(frame, kind, &self.view.bytes(&object)),
                Some(revision) => {
                    let mut left = parse(&object);
                    left["metadata"]["resourceVersion"] = json!(revision.to_string());
                    line(frame, kind, self.view.value(left).to_string().as_bytes());
                }
            }
        }
        Ok(())
    }

    fn periodic_bookmark(&mut self) -> Option<Bytes> {
        self.bookmarks.as_ref()?;
        let revision = match &mut self.watch {
            Ok(watch) => watch.progress().ok()?,
            Err(_) => return None,
        };
        let mut frame = BytesMut::new();
        line(&mut frame, "BOOKMARK", &self.bookmark(revision, false));
        Some(frame.freeze())
    }

    fn bookmark(&self, revision: u64, initial_end: bool) -> Vec<u8> {
        let descriptor = &self.view.descriptor;
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": Value::Null });
        if initial_end {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let object = match self.view.shape {
            Shape::Whole => {
                json!({ "kind": descriptor.kind, "apiVersion": descriptor.api_version(), "metadata": metadata })
            }
            Shape::Partial => tables::partial(&json!({ "metadata": metadata })),
            Shape::Table => json!({
                "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                "columnDefinitions": [], "rows": [],
            }),
        };
        object.to_string().into_bytes()
    }

    /// Sends what is left and the reason for the end.
    fn end(&mut self, frame: BytesMut, error: &WatchError) -> Option<Bytes> {
        if *error != WatchError::Closed {
            return self.fail(frame, &read::watch_status(error));
        }
        self.ended = true;
        Some(frame.freeze()).filter(|frame| !frame.is_empty())
    }

    fn fail(&mut self, mut frame: BytesMut, status: &Status) -> Option<Bytes> {
        self.ended = true;
        line(&mut frame, "ERROR", status.to_json().to_string().as_bytes());
        Some(frame.freeze())
    }
}

/// What a watch selects.
struct Selection {
    matcher: Matcher,
    /// Whether it selects objects that were told of lately, by their revision: each is asked about again when the next state of
    /// it comes.
    known: HashMap<u64, bool>,
}

impl Selection {
    /// Whether it selects an object as it is now.
    fn has(&mut self, object: &Object) -> bool {
        if self.matcher.is_everything() {
            return true;
        }
        if self.known.len() == KNOWN_MAX {
            self.known.clear();
        }
        let is_selected = self.matcher.matches(object);
        self.known.insert(object.revision, is_selected);
        is_selected
    }

    /// Whether it selected an object as it was before it changed.
    fn had(&mut self, object: &Object) -> bool {
        self.known.remove(&object.revision).unwrap_or_else(|| self.matcher.matches(object))
    }
}

/// Events that are to be written, in their order.
#[derive(Default)]
struct EventBatch {
    changes: Vec<Change>,
    /// What each is about.
    objects: Vec<Arc<Object>>,
    bytes: usize,
}

/// What happened to an object.
struct Change {
    kind: &'static str,
    /// The revision at which it left the selection, if it did and still exists.
    left: Option<u64>,
}

impl EventBatch {
    fn push(&mut self, kind: &'static str, object: Arc<Object>, left: Option<u64>) {
        self.bytes += object.body.len();
        self.changes.push(Change { kind, left });
        self.objects.push(object);
    }
}

/// Looks whether a custom resource is still served.
struct Registered {
    state: Arc<State>,
    group: String,
    version: String,
    plural: String,
    changes: tokio::sync::watch::Receiver<u64>,
}

impl Registered {
    fn new(call: &Call) -> Self {
        let mut changes = call.state.storage.registry.changes();
        // The definition may have gone since the request was routed.
        changes.mark_changed();
        Self {
            state: Arc::clone(&call.state),
            group: call.descriptor.group.clone(),
            version: call.descriptor.version.clone(),
            plural: call.descriptor.plural.clone(),
            changes,
        }
    }

    fn served(&self) -> bool {
        let registry = self.state.storage.registry.load(&self.state.storage.store);
        registry.find(&self.group, &self.version, &self.plural).is_some()
    }
}

/// Returns when the resource is no longer served: its objects are gone, and clients must hear of it.
async fn unregistered(registered: &mut Option<Registered>) {
    let Some(registered) = registered else { return std::future::pending().await };
    while registered.changes.changed().await.is_ok() {
        if !registered.served() {
            return;
        }
    }
    std::future::pending().await
}

async fn tick(bookmarks: &mut Option<Interval>) {
    match bookmarks {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

fn line(frame: &mut BytesMut, kind: &str, object: &[u8]) {
    frame.reserve(object.len() + 40);
    frame.put_slice(b"{\"type\":\"");
    frame.put_slice(kind.as_bytes());
    frame.put_slice(b"\",\"object\":");
    frame.put_slice(object);
    frame.put_slice(b"}\n");
}

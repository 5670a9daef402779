//! The loop that lists a collection and then watches it, of whatever kind.
//!
//! Invariant: what is told, folded in order, gives what the API server held a moment ago; where the server no longer knows
//! the version that was reached, all is listed anew. The loop is compiled once: what depends on the type of the objects is
//! behind [`Objects`]. Used by [`crate::watch`] and [`crate::resume`].

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use futures::{AsyncBufRead, AsyncBufReadExt as _};
use http::header::{ACCEPT_ENCODING, HeaderValue};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, Status};
use pumice_units::Backoff;
use serde::Deserialize;
use serde::de::Error as _;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

/// Which objects to watch; empty means all.
#[derive(Debug, Clone, Default)]
pub struct WatchScope {
    /// Label selector as in a query string.
    pub labels: Option<String>,
    /// Field selector as in a query string.
    pub fields: Option<String>,
}

impl WatchScope {
    /// Only objects whose fields match, such as `spec.nodeName=n1`.
    pub fn fields(selector: impl Into<String>) -> Self {
        WatchScope { labels: None, fields: Some(selector.into()) }
    }

    /// Only objects whose labels match, such as `volcano.sh/job-name`.
    pub fn labels(selector: impl Into<String>) -> Self {
        WatchScope { labels: Some(selector.into()), fields: None }
    }
}

/// First pause after a failure; doubles up to the longest. As client-go's reflectors.
const PAUSE_FIRST: Duration = Duration::from_millis(800);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Without a failure for so long, the next one is the first again.
const PAUSE_FORGOTTEN: Duration = Duration::from_secs(120);
/// A watch that the server ended sooner than this, and that told nothing new, is not opened again at once. One that got further is: a
/// server without the time to write ends the watches of whoever falls behind, and who then pauses falls behind for good.
const WATCH_SHORT: Duration = Duration::from_secs(1);
/// For how long the server is asked to watch: kube's and client-go's own.
const WATCH_SECONDS: u32 = 290;
/// A watch that says nothing for so long is dead: the server would have ended it.
const WATCH_SILENT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// Longest line of a watch, in bytes: far more than the largest object that a server stores.
const LINE_MAX: usize = 64 << 20;
/// HTTP's "Gone": the version is too old to go on from.
const GONE: u16 = 410;

/// What depends on the type: reads JSON, and keeps the objects.
pub(crate) trait Objects: Send {
    /// Reads a page of a list.
    fn read_page(&mut self, text: &str) -> serde_json::Result<PageEnd>;
    /// Reads one object, and returns its version.
    fn read_one(&mut self, text: &str) -> serde_json::Result<String>;
}

/// What a list says of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PageEnd {
    resource_version: String,
    /// Where the next page begins; empty after the last one.
    #[serde(rename = "continue")]
    next: String,
}

/// What happened; objects are in [`Objects`].
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// A list begins; one that did not end counts for nothing.
    ListBegins,
    /// A page was read.
    Listed,
    /// That were all; the watch goes on from this version.
    ListEnds { version: String },
    /// One object was read, which was created or changed.
    Applied,
    /// One object was read, which is gone.
    Deleted,
    /// Nothing else happened up to this version.
    Quiet { version: String },
    /// The kind can't be listed: it is not there, or not for us.
    Missing,
}

/// What is followed, and how far it got.
pub(crate) struct Follower {
    collection: Collection,
    stage: Stage,
    pauses: Pauses,
    /// To wait before the next request.
    pause: Option<Duration>,
}

/// Where the objects are.
pub(crate) struct Collection {
    pub client: Client,
    pub path: String,
    /// Whether only the metadata of objects is asked for.
    pub metadata_only: bool,
    pub scope: WatchScope,
    /// Objects asked for at once.
    pub page: u32,
    /// Name of the type, for logs.
    pub kind: &'static str,
}

enum Stage {
    List,
    Page { next: String },
    ListDone { version: String },
    Watch { version: String },
    Events(Watch),
}

/// A watch that is open.
struct Watch {
    lines: Lines,
    since: Instant,
    /// Up to which version it has told.
    version: String,
    /// Whether that is further than where it began.
    got_on: bool,
}

impl Follower {
    /// Goes on from `version`; without one it begins with a list.
    pub fn new(collection: Collection, version: Option<String>) -> Self {
        let stage = match version.filter(|version| !version.is_empty()) {
            Some(version) => Stage::Watch { version },
            None => Stage::List,
        };
        Self { collection, stage, pauses: Pauses::default(), pause: None }
    }

    /// The next thing that happens. Failures are logged and tried again, ever slower.
    pub async fn next(&mut self, objects: &mut dyn Objects) -> Step {
        loop {
            if let Some(pause) = self.pause.take() {
                sleep(pause).await;
            }
            let stage = std::mem::replace(&mut self.stage, Stage::List);
            let (step, stage) = match stage {
                Stage::List => (Some(Step::ListBegins), Stage::Page { next: String::new() }),
                Stage::Page { next } => self.page(next, objects).await,
                Stage::ListDone { version } => {
                    (Some(Step::ListEnds { version: version.clone() }), Stage::Watch { version })
                }
                Stage::Watch { version } => (None, self.open(version).await),
                Stage::Events(watch) => self.event(watch, objects).await,
            };
            self.stage = stage;
            if let Some(step) = step {
                return step;
            }
        }
    }

    async fn page(&mut self, next: String, objects: &mut dyn Objects) -> (Option<Step>, Stage) {
        let text = match self.collection.list(&next) {
            Ok(request) => self.collection.client.request_text(request).await,
            Err(error) => Err(error),
        };
        let end = text.and_then(|text| objects.read_page(&text).map_err(kube::Error::SerdeError));
        match end {
            Ok(end) if !end.next.is_empty() => (Some(Step::Listed), Stage::Page { next: end.next }),
            Ok(end) if !end.resource_version.is_empty() => {
                (Some(Step::Listed), Stage::ListDone { version: end.resource_version })
            }
            Ok(_) => {
                tracing::warn!(kind = self.collection.kind, "a list has no version, will be tried again");
                self.pause = Some(self.pauses.next(Instant::now()));
                (None, Stage::List)
            }
            // A token that is too old, too, means another list.
            Err(error) => {
                let is_missing = matches!(&error, kube::Error::Api(status) if matches!(status.code, 403 | 404));
                self.failed(&error);
                (is_missing.then_some(Step::Missing), Stage::List)
            }
        }
    }

    async fn open(&mut self, version: String) -> Stage {
        let stream = match self.collection.watch(&version) {
            Ok(request) => self.collection.client.request_stream(request).await,
            Err(error) => Err(error),
        };
        match stream {
            Ok(reader) => {
                let lines = Lines { reader: Box::pin(reader), line: Vec::new() };
                Stage::Events(Watch { lines, since: Instant::now(), version, got_on: false })
            }
            Err(error) => self.failed_at(&error, version),
        }
    }

    async fn event(&mut self, mut watch: Watch, objects: &mut dyn Objects) -> (Option<Step>, Stage) {
        let line = match timeout(WATCH_SILENT, watch.lines.next()).await {
            Ok(Ok(Some(line))) => line,
            // The server ends each watch after some minutes; one that ends each at once is not to be overrun.
            Ok(Ok(None)) | Err(_) => {
                if watch.since.elapsed() < WATCH_SHORT && !watch.got_on {
                    self.pause = Some(self.pauses.next(Instant::now()));
                }
                return (None, Stage::Watch { version: watch.version });
            }
            Ok(Err(error)) => return (None, self.failed_at(&kube::Error::ReadEvents(error), watch.version)),
        };
        let (step, reached) = match read_event(line, objects) {
            Ok(Event::Applied { version }) => (Some(Step::Applied), version),
            Ok(Event::Deleted { version }) => (Some(Step::Deleted), version),
            Ok(Event::Bookmark { version }) => (Some(Step::Quiet { version: version.clone() }), version),
            Ok(Event::Error(status)) => return (None, self.failed_at(&kube::Error::Api(status), watch.version)),
            // The object can't be read now or later: what comes after it can.
            Err(error) => {
                tracing::warn!(kind = self.collection.kind, %error, "an object of a watch can't be read and is left out");
                (None, String::new())
            }
        };
        if !reached.is_empty() && reached != watch.version {
            watch.version = reached;
            watch.got_on = true;
        }
        (step, Stage::Events(watch))
    }

    /// How to go on after a failure at this version.
    fn failed_at(&mut self, error: &kube::Error, version: String) -> Stage {
        self.failed(error);
        match error {
            // A version that is gone; or a kind that is: the list says which of its objects are there.
            kube::Error::Api(status) if matches!(status.code, GONE | 403 | 404) => Stage::List,
            _ => Stage::Watch { version },
        }
    }

    fn failed(&mut self, error: &kube::Error) {
        let kind = self.collection.kind;
        match error {
            kube::Error::Api(status) if matches!(status.code, 403 | 404) => {
                tracing::debug!(kind, %error, "this kind can't be listed, will be tried again");
            }
            kube::Error::Api(status) if status.code == GONE => {
                tracing::info!(kind, "the server no longer knows where this watch was: all is listed");
            }
            _ => tracing::warn!(kind, %error, "watch failed, will be tried again"),
        }
        let pause = self.pauses.next(Instant::now());
        // What was missed may soon be gone. Who is told so again and again pauses.
        let is_at_once = self.pauses.failures == 1 && matches!(error, kube::Error::Api(status) if status.code == GONE);
        self.pause = if is_at_once { None } else { Some(pause) };
    }
}

impl Collection {
    fn list(&self, next: &str) -> kube::Result<http::Request<Vec<u8>>> {
        let params = ListParams {
            label_selector: self.scope.labels.clone(),
            field_selector: self.scope.fields.clone(),
            limit: Some(self.page),
            continue_token: Some(next.to_owned()).filter(|next| !next.is_empty()),
            ..ListParams::default()
        };
        let request = Request::new(&self.path);
        let request = if self.metadata_only { request.list_metadata(&params) } else { request.list(&params) };
        request.map_err(kube::Error::BuildRequest)
    }

    fn watch(&self, version: &str) -> kube::Result<http::Request<Vec<u8>>> {
        let params = WatchParams {
            label_selector: self.scope.labels.clone(),
            field_selector: self.scope.fields.clone(),
            timeout: Some(WATCH_SECONDS),
            ..WatchParams::default()
        };
        let request = Request::new(&self.path);
        let request = match self.metadata_only {
            true => request.watch_metadata(&params, version),
            false => request.watch(&params, version),
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        // A compressed stream tells nothing until a block is full.
        request.headers_mut().entry(ACCEPT_ENCODING).or_insert(HeaderValue::from_static("identity"));
        Ok(request)
    }
}

/// The lines of an answer.
struct Lines {
    reader: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
}

impl Lines {
    /// The next whole line without its end; nothing at the end of the answer, where half a line counts for nothing.
    async fn next(&mut self) -> std::io::Result<Option<&str>> {
        self.line.clear();
        loop {
            let read = self.reader.fill_buf().await?;
            if read.is_empty() {
                return Ok(None);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            self.line.extend_from_slice(&read[..end.unwrap_or(read.len())]);
            let used = end.map_or(read.len(), |end| end + 1);
            self.reader.as_mut().consume(used);
            if self.line.len() > LINE_MAX {
                return Err(std::io::Error::other(format!("a line of a watch is longer than {LINE_MAX} bytes")));
            }
            if end.is_some() {
                let line = std::str::from_utf8(&self.line);
                return line.map(Some).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error));
            }
        }
    }
}

enum Event {
    Applied { version: String },
    Deleted { version: String },
    Bookmark { version: String },
    Error(Box<Status>),
}

/// Reads a line of a watch.
fn read_event(line: &str, objects: &mut dyn Objects) -> serde_json::Result<Event> {
    let rewritten;
    let (kind, object) = match split(line) {
        Some(parts) => parts,
        // An order or a spacing that no API server uses.
        None => {
            #[derive(Deserialize)]
            struct Line {
                r#type: String,
                object: Value,
            }
            let line: Line = serde_json::from_str(line)?;
            rewritten = (line.r#type, line.object.to_string());
            (rewritten.0.as_str(), rewritten.1.as_str())
        }
    };
    Ok(match kind {
        "ADDED" | "MODIFIED" => Event::Applied { version: objects.read_one(object)? },
        "DELETED" => Event::Deleted { version: objects.read_one(object)? },
        "BOOKMARK" => Event::Bookmark { version: version_of(object)? },
        "ERROR" => Event::Error(Box::new(serde_json::from_str(object)?)),
        other => {
            let message = format!("a watch tells of {other:?}, which is none of its events");
            return Err(serde_json::Error::custom(message));
        }
    })
}

/// A line as API servers write it, as the event's type and its object's text.
fn split(line: &str) -> Option<(&str, &str)> {
    let (kind, rest) = line.strip_prefix(r#"{"type":""#)?.split_once('"')?;
    let object = rest.strip_prefix(r#","object":"#)?.trim_end().strip_suffix('}')?;
    Some((kind, object))
}

fn version_of(object: &str) -> serde_json::Result<String> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: PageEnd,
    }
    serde_json::from_str(object).map(|bookmark: Bookmark| bookmark.metadata.resource_version)
}

/// Pauses that grow with each failure, and start over once failures are long ago.
struct Pauses {
    backoff: Backoff,
    failures: u32,
    last: Option<Instant>,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { backoff: Backoff { first: PAUSE_FIRST, longest: PAUSE_MAX }, failures: 0, last: None }
    }
}

impl Pauses {
    /// The pause after a failure at `now`: at most twice as long by chance, so that many who failed together don't come
    /// back together.
    fn next(&mut self, now: Instant) -> Duration {
        if self.last.is_some_and(|last| now.duration_since(last) > PAUSE_FORGOTTEN) {
            self.failures = 0;
        }
        self.last = Some(now);
        let pause = self.backoff.pause(self.failures);
        self.failures += 1;
        let chance = (RandomState::new().hash_one(self.failures) % 1024) as u32;
        pause + pause * chance / 1024
    }
}

#[cfg(test)]
mod tests;

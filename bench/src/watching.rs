//! Watches of the load generator: when pods were bound, and which writes there were.
//!
//! Invariant: of an event only what is asked for is parsed, so that watching takes little from what is measured.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Context;
use futures::TryStreamExt;
use http_body_util::BodyExt;
use pumice_cluster::Client;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Binds that wait to be looked at.
const QUEUE_MAX: usize = 1 << 16;
/// Resources whose writes are counted.
const COUNTED: [(&str, &str); 6] = [
    ("pods", "/api/v1/pods"),
    ("jobs", "/apis/batch.volcano.sh/v1alpha1/jobs"),
    ("podgroups", "/apis/scheduling.volcano.sh/v1beta1/podgroups"),
    ("queues", "/apis/scheduling.volcano.sh/v1beta1/queues"),
    ("events", "/api/v1/events"),
    ("nodes", "/api/v1/nodes"),
];

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: &'a str,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Default, Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow, default)]
    spec: Spec<'a>,
    #[serde(borrow, default)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(default)]
    name: &'a str,
    #[serde(default)]
    resource_version: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(default)]
    node_name: &'a str,
}

#[derive(Default, Deserialize)]
struct Status<'a> {
    #[serde(default)]
    phase: &'a str,
    #[serde(default)]
    reason: &'a str,
}

/// A pod that has got its node.
#[derive(Debug, Clone)]
pub struct Bound {
    /// When the watch told.
    pub at: Instant,
    /// The revision of its creation, if the watch saw it.
    pub created_revision: u64,
    /// The revision of its bind.
    pub revision: u64,
}

/// Events of pods from a revision on. A server that ends a watch, because it is old or because its reader was slow, is asked
/// to go on where it was.
struct PodWatch {
    client: Client,
    lines: Lines,
    /// Of the last event.
    revision: String,
}

impl PodWatch {
    async fn start(client: &Client, revision: u64) -> anyhow::Result<PodWatch> {
        let revision = revision.to_string();
        let lines = Self::open(client, &revision).await?;
        Ok(PodWatch { client: client.clone(), lines, revision })
    }

    async fn open(client: &Client, revision: &str) -> anyhow::Result<Lines> {
        Lines::open(client, &format!("/api/v1/pods?watch=1&resourceVersion={revision}")).await
    }

    /// Hands the next events to `take`, at least one.
    async fn next(&mut self, mut take: impl FnMut(&str, &Object<'_>)) -> anyhow::Result<()> {
        let chunk = loop {
            match self.lines.next().await? {
                Some(chunk) => break chunk,
                None => self.lines = Self::open(&self.client, &self.revision).await?,
            }
        };
        for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(Line { kind, object }) = serde_json::from_slice::<Line<'_>>(line) else { continue };
            anyhow::ensure!(kind != "ERROR", "the watch of pods broke: {}", String::from_utf8_lossy(line));
            object.metadata.resource_version.clone_into(&mut self.revision);
            take(kind, &object);
        }
        Ok(())
    }
}

/// Tells of pods as they are bound.
pub struct BoundWatch {
    bound: mpsc::Receiver<anyhow::Result<Bound>>,
    _task: JoinSet<()>,
}

impl BoundWatch {
    /// Watches pods that are bound after `revision`.
    ///
    /// # Errors
    /// When the watch does not begin.
    pub async fn start(client: &Client, revision: u64) -> anyhow::Result<BoundWatch> {
        let (sender, bound) = mpsc::channel(QUEUE_MAX);
        let mut watch = PodWatch::start(client, revision).await?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut created: BTreeMap<String, u64> = BTreeMap::new();
            let mut seen = HashSet::new();
            loop {
                let mut bound = Vec::new();
                let read = watch.next(|_, object| {
                    let name = object.metadata.name;
                    let revision = object.metadata.resource_version.parse().unwrap_or(0);
                    if object.spec.node_name.is_empty() {
                        created.entry(name.to_owned()).or_insert(revision);
                    } else if seen.insert(name.to_owned()) {
                        let created_revision = created.remove(name).unwrap_or(0);
                        bound.push(Ok(Bound { at: now(), created_revision, revision }));
                    }
                });
                let failed = read.await.err();
                for one in bound.into_iter().chain(failed.map(Err)) {
                    let broken = one.is_err();
                    if sender.send(one).await.is_err() || broken {
                        return;
                    }
                }
            }
        });
        Ok(BoundWatch { bound, _task: task })
    }

    /// The next `count` pods that are bound.
    ///
    /// # Errors
    /// When it takes longer than `limit`; says how many there were. When the watch breaks.
    pub async fn take(&mut self, count: usize, limit: Duration) -> anyhow::Result<Vec<Bound>> {
        let deadline = tokio::time::Instant::now() + limit;
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let next = tokio::time::timeout_at(deadline, self.bound.recv()).await;
            let next = next.with_context(|| format!("{} of {count} pods were bound within {limit:?}", all.len()))?;
            all.push(next.context("the watch of pods ended")??);
        }
        Ok(all)
    }
}

/// A pod that has ended.
#[derive(Debug, Clone)]
pub struct Ended {
    pub name: String,
    /// `Succeeded`; `Failed` otherwise.
    pub succeeded: bool,
    pub reason: String,
}

/// Tells of pods as they end.
pub struct EndWatch {
    watch: PodWatch,
    ended: HashSet<String>,
}

impl EndWatch {
    /// Watches pods that end after `revision`.
    ///
    /// # Errors
    /// When the watch does not begin.
    pub async fn start(client: &Client, revision: u64) -> anyhow::Result<EndWatch> {
        Ok(EndWatch { watch: PodWatch::start(client, revision).await?, ended: HashSet::new() })
    }

    /// The next ones, at least one, each once. A pod that was told of must be deleted, or it is remembered for good.
    ///
    /// # Errors
    /// When none ends within `limit`, or the watch breaks.
    pub async fn next(&mut self, limit: Duration) -> anyhow::Result<Vec<Ended>> {
        let mut ended = Vec::new();
        let deadline = tokio::time::Instant::now() + limit;
        while ended.is_empty() {
            let read = self.watch.next(|kind, object| {
                let name = object.metadata.name;
                let succeeded = object.status.phase == "Succeeded";
                if kind == "DELETED" {
                    self.ended.remove(name);
                } else if (succeeded || object.status.phase == "Failed") && self.ended.insert(name.to_owned()) {
                    ended.push(Ended { name: name.to_owned(), succeeded, reason: object.status.reason.to_owned() });
                }
            });
            let read = tokio::time::timeout_at(deadline, read).await;
            read.with_context(|| format!("no pod ended within {limit:?}"))??;
        }
        Ok(ended)
    }
}

/// Whole lines of a watch.
struct Lines {
    body: futures::stream::BoxStream<'static, anyhow::Result<Vec<u8>>>,
    rest: Vec<u8>,
}

impl Lines {
    async fn open(client: &Client, path: &str) -> anyhow::Result<Lines> {
        let response = client.send(http::Request::get(path).body(Vec::new().into())?).await?;
        anyhow::ensure!(response.status().is_success(), "GET {path}: {}", response.status());
        let frames = response.into_body().into_data_stream();
        let body = frames.map_ok(|bytes| bytes.to_vec()).map_err(|error| anyhow::anyhow!("{error}"));
        Ok(Lines { body: Box::pin(body), rest: Vec::new() })
    }

    /// All whole lines that have come; `None` at the end.
    async fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        while let Some(chunk) = self.body.try_next().await? {
            self.rest.extend_from_slice(&chunk);
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                let after = self.rest.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.rest, after)));
            }
        }
        Ok(None)
    }
}

/// Writes of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Writes {
    pub created: usize,
    pub changed: usize,
    pub deleted: usize,
}

/// The writes after revision `from`, up to `until`, by resource: told anew by the server's window of history, so that
/// counting takes nothing from what was measured. A resource whose window is over is left out.
///
/// # Errors
/// When the server does not answer.
pub async fn writes(client: &Client, from: u64, until: u64) -> anyhow::Result<BTreeMap<&'static str, Writes>> {
    let mut found = BTreeMap::new();
    for (resource, path) in COUNTED {
        let path = format!("{path}?watch=1&resourceVersion={from}&timeoutSeconds=2");
        let Ok(mut lines) = Lines::open(client, &path).await else { continue };
        let mut writes = Writes::default();
        let mut expired = false;
        while let Some(chunk) = lines.next().await? {
            for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let Ok(Line { kind, object }) = serde_json::from_slice::<Line<'_>>(line) else { continue };
                let revision: u64 = object.metadata.resource_version.parse().unwrap_or(0);
                match kind {
                    "ERROR" => expired = true,
                    _ if revision > until => {}
                    "ADDED" => writes.created += 1,
                    "MODIFIED" => writes.changed += 1,
                    "DELETED" => writes.deleted += 1,
                    _ => {}
                }
            }
        }
        if !expired {
            found.insert(resource, writes);
        }
    }
    Ok(found)
}

#[allow(clippy::disallowed_methods)] // a benchmark's own clock
fn now() -> Instant {
    Instant::now()
}

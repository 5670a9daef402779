//! A watch that goes on where an earlier one, perhaps of another process, has stopped.
//!
//! Invariant: folding what is told from the given version on gives what the API server held a moment ago. Where the server no
//! longer knows a version, everything is listed, and the list is told as such. Unlike [`crate::watch`] it keeps no
//! list in memory: pages are told as they come. Called by who keeps what it saw.

use std::time::Duration;

use futures::stream::{self, BoxStream, Stream, StreamExt};
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Objects asked for at once.
const PAGE: u32 = 1_000;
/// First pause after a failure; doubles up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// HTTP's "Gone": the version is too old to go on from.
const GONE: u16 = 410;

/// What a resumed watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Told<K> {
    /// A list begins; one that began before and did not end counts for nothing.
    ListBegins,
    /// Some of the objects of the list.
    Listed(Vec<K>),
    /// That were all: what was not told in this list is gone. The watch goes on from this version.
    ListEnds {
        /// Version of the list.
        version: String,
    },
    /// This object was created or changed.
    Applied(K),
    /// This object is gone; the value is its last state.
    Deleted(K),
    /// Nothing else happened up to this version.
    Quiet {
        /// The version.
        version: String,
    },
}

/// Watches `api` from `version` on, or begins with a list where there is none. Never ends; failures are logged and tried
/// again, ever slower. Cancel safe: dropping the stream ends the watch.
pub fn watch_from<K>(api: Api<K>, version: Option<String>) -> impl Stream<Item = Told<K>> + Send
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    let first = version.filter(|version| !version.is_empty()).map_or(Stage::List, Stage::Watch);
    stream::unfold((Follower { api, pause: PAUSE_FIRST }, first), |(mut follower, mut stage)| async move {
        loop {
            let (told, next) = follower.step(stage).await;
            stage = next;
            if let Some(told) = told {
                return Some((told, (follower, stage)));
            }
        }
    })
}

/// Where the watch stands.
enum Stage<K> {
    List,
    Page { next: String },
    ListDone { version: String },
    Watch(String),
    Events { stream: BoxStream<'static, kube::Result<WatchEvent<K>>>, version: String },
}

struct Follower<K> {
    api: Api<K>,
    pause: Duration,
}

impl<K> Follower<K>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
{
    async fn step(&mut self, stage: Stage<K>) -> (Option<Told<K>>, Stage<K>) {
        match stage {
            Stage::List => (Some(Told::ListBegins), Stage::Page { next: String::new() }),
            Stage::Page { next } => self.page(next).await,
            Stage::ListDone { version } => (Some(Told::ListEnds { version: version.clone() }), Stage::Watch(version)),
            Stage::Watch(version) => {
                let params = WatchParams { bookmarks: true, ..WatchParams::default() };
                match self.api.watch(&params, &version).await {
                    Ok(stream) => (None, Stage::Events { stream: stream.boxed(), version }),
                    Err(error) => (None, self.failed(&error, Stage::Watch(version)).await),
                }
            }
            Stage::Events { mut stream, version } => {
                let event = stream.next().await;
                self.event(event, stream, version).await
            }
        }
    }

    async fn page(&mut self, next: String) -> (Option<Told<K>>, Stage<K>) {
        let mut params = ListParams::default().limit(PAGE);
        if !next.is_empty() {
            params = params.continue_token(&next);
        }
        match self.api.list(&params).await {
            Ok(list) => {
                self.pause = PAUSE_FIRST;
                let version = list.metadata.resource_version.unwrap_or_default();
                let stage = match list.metadata.continue_ {
                    Some(next) if !next.is_empty() => Stage::Page { next },
                    _ => Stage::ListDone { version },
                };
                (Some(Told::Listed(list.items)), stage)
            }
            // A token that is too old, too, means another list.
            Err(error) => (None, self.failed(&error, Stage::List).await),
        }
    }

    async fn event(
        &mut self,
        event: Option<kube::Result<WatchEvent<K>>>,
        stream: BoxStream<'static, kube::Result<WatchEvent<K>>>,
        version: String,
    ) -> (Option<Told<K>>, Stage<K>) {
        let version_of = |object: &K| object.resource_version().unwrap_or_default();
        match event {
            // The server ends each watch after some minutes; one that ends each at once is not to be overrun.
            None => {
                tokio::time::sleep(PAUSE_FIRST).await;
                (None, Stage::Watch(version))
            }
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) => {
                self.pause = PAUSE_FIRST;
                let version = version_of(&object);
                (Some(Told::Applied(object)), Stage::Events { stream, version })
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                let version = version_of(&object);
                (Some(Told::Deleted(object)), Stage::Events { stream, version })
            }
            Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                let version = bookmark.metadata.resource_version;
                (Some(Told::Quiet { version: version.clone() }), Stage::Events { stream, version })
            }
            Some(Ok(WatchEvent::Error(status))) => {
                (None, self.failed(&kube::Error::Api(status), Stage::Watch(version)).await)
            }
            Some(Err(error)) => (None, self.failed(&error, Stage::Watch(version)).await),
        }
    }

    /// Pauses, and says how to go on.
    async fn failed(&mut self, error: &kube::Error, again: Stage<K>) -> Stage<K> {
        let code = match error {
            kube::Error::Api(status) => status.code,
            _ => 0,
        };
        let kind = std::any::type_name::<K>();
        if code == GONE {
            tracing::info!(kind, "the server no longer knows where this watch was: all is listed");
            return Stage::List;
        }
        match code {
            // A kind that is not served, or not for us.
            403 | 404 => tracing::debug!(kind, %error, "this kind can't be watched, will be tried again"),
            _ => tracing::warn!(kind, %error, "watch failed, will be tried again"),
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        again
    }
}

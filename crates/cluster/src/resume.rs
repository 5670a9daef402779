//! A watch that goes on where an earlier one, perhaps of another process, has stopped.
//!
//! Invariant: folding what is told from the given version on gives what the API server held a moment ago. Where the server no
//! longer knows a version, everything is listed, and the list is told as such. Unlike [`crate::watch`] it keeps no
//! list in memory: pages are told as they come. Called by who keeps what it saw.

use futures::stream::{self, Stream};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::follow::{Step, WatchScope};
use crate::watch::{Read, follow};

/// Objects asked for at once.
const PAGE: u32 = 1_000;

/// What a resumed watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum WatchEvent<K> {
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
    Quiet { version: String },
}

/// Watches `api` from `version` on, or begins with a list where there is none. Never ends; failures are logged and tried
/// again, ever slower. Cancel safe: dropping the stream ends the watch.
pub fn watch_from<K>(api: Api<K>, version: Option<String>) -> impl Stream<Item = WatchEvent<K>> + Send
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let follower = follow(api, WatchScope::default(), PAGE, version);
    stream::unfold((follower, Read(Vec::new())), |(mut follower, mut read)| async move {
        loop {
            let step = follower.next(&mut read).await;
            if let Some(event) = event(step, &mut read.0) {
                return Some((event, (follower, read)));
            }
        }
    })
}

fn event<K>(step: Step, read: &mut Vec<K>) -> Option<WatchEvent<K>> {
    Some(match step {
        Step::ListBegins => WatchEvent::ListBegins,
        Step::Listed => WatchEvent::Listed(std::mem::take(read)),
        Step::ListEnds { version } => WatchEvent::ListEnds { version },
        Step::Applied => WatchEvent::Applied(read.pop()?),
        Step::Deleted => WatchEvent::Deleted(read.pop()?),
        Step::Quiet { version } => WatchEvent::Quiet { version },
        Step::Missing => return None,
    })
}

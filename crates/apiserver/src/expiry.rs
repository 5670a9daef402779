//! Events go after an hour, as upstream, so that the store does not fill with news.
//!
//! Invariant: only Events are touched, and none younger than [`EVENT_LIFE`] unless there are more than [`EVENTS_MAX`].
//! One task per server.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use pumice_objects::meta::parse_time;
use pumice_store::{Change, Expect, Object};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::render::{draft, parse};
use crate::server::State;

/// How long an event stays after it was last seen.
const EVENT_LIFE: SignedDuration = SignedDuration::from_hours(1);
/// Most events that stay; the oldest go first.
const EVENTS_MAX: usize = 50_000;
/// How often old events are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Deletes at a time.
const DELETES_MAX: usize = 64;
const EVENTS: &str = "events";

/// Runs until `stop`.
pub(crate) async fn run(state: Arc<State>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => sweep(&state, EVENTS_MAX).await,
        }
    }
}

async fn sweep(state: &State, events_max: usize) {
    let oldest = state.clock.now().checked_sub(EVENT_LIFE).unwrap_or(Timestamp::MIN);
    let mut events: Vec<(Timestamp, Arc<Object>)> =
        state.store.list(EVENTS, None).items.into_iter().map(|object| (last_seen(&parse(&object)), object)).collect();
    events.sort_by_key(|(seen, _)| *seen);
    let surplus = events.len().saturating_sub(events_max);
    let gone = events.into_iter().enumerate().filter(|(index, (seen, _))| *index < surplus || *seen < oldest);
    stream::iter(gone)
        .for_each_concurrent(DELETES_MAX, |(_, (_, object))| async move {
            let change = Change::Delete {
                key: object.key.clone(),
                draft: draft(&parse(&object)),
                expect: Expect::Revision(object.revision),
            };
            // An event that was seen again meanwhile stays; anything else comes back with the next sweep.
            if let Err(error) = state.store.apply(change).await {
                tracing::debug!(%error, "an old event stays for now");
            }
        })
        .await;
}

/// When an event was last told; the beginning of time for one that does not say.
fn last_seen(event: &Value) -> Timestamp {
    [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ]
    .into_iter()
    .filter_map(|time| parse_time(time.as_str()?))
    .max()
    .unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pumice_auth::Policy;
    use pumice_store::{Key, Options, Store};
    use serde_json::json;

    use super::*;
    use crate::{ApiServer, Clock};

    struct Fixed(Timestamp);

    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            self.0
        }
    }

    #[tokio::test]
    async fn old_and_surplus_events_go() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("time");
        let store = Store::in_memory(Options::default()).expect("store");
        for (name, seen) in [("old", "10:59:00"), ("a", "11:30:00"), ("b", "11:40:00"), ("c", "11:50:00")] {
            let event = json!({"metadata": {"name": name}, "lastTimestamp": format!("2026-01-01T{seen}Z")});
            let key = Key::new(EVENTS, "default", name);
            store.apply(Change::Put { key, draft: draft(&event), expect: Expect::Absent }).await.expect("put");
        }
        let server = ApiServer::builder(store.clone(), Policy::default()).clock(Arc::new(Fixed(now))).build().await;
        let server = server.expect("build");
        sweep(&server.state, 2).await;
        let left: Vec<String> =
            store.list(EVENTS, None).items.iter().map(|object| object.key.name.to_string()).collect();
        assert_eq!(left, ["b", "c"]);
    }
}

//! Events go after a time, as upstream, and the oldest where there are too many, so that the store does not fill with news.
//!
//! Invariant: only Events are touched, and none younger than [`EventLimits::life`] unless there are more than
//! [`EventLimits::count_max`]. Then the namespaces that have the most lose their oldest, down to a number that is the same for
//! all, so that a flood in one costs no other any. One task per server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use pumice_objects::meta::parse_time;
use pumice_store::{Change, Expect, Object};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::storage::Storage;
use crate::stored::{draft, parse};

/// Hours for which Events stay after they were last seen, unless said otherwise; as upstream.
pub const LIFE_HOURS: u64 = 1;
/// Most Events of all namespaces together, unless said otherwise.
const COUNT_MAX: usize = 50_000;
/// How often old events are looked for; more often where they live shorter.
const SWEEP_EVERY_MAX: Duration = Duration::from_secs(60);
const SWEEP_EVERY_MIN: Duration = Duration::from_secs(1);
/// Deletes at a time.
const DELETES_MAX: usize = 64;
const EVENTS: &str = "events";

/// How long Events stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLimits {
    /// After they were last seen.
    pub life: Duration,
    /// Most of them, of all namespaces together.
    pub count_max: usize,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self { life: Duration::from_secs(LIFE_HOURS * 3_600), count_max: COUNT_MAX }
    }
}

/// Looks for Events to delete every minute, or more often where they live shorter, until `stop`.
pub(crate) async fn run(storage: Arc<Storage>, limits: EventLimits, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(limits.life.clamp(SWEEP_EVERY_MIN, SWEEP_EVERY_MAX));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => sweep(&storage, limits).await,
        }
    }
}

async fn sweep(storage: &Storage, limits: EventLimits) {
    let life = SignedDuration::try_from(limits.life).unwrap_or(SignedDuration::MAX);
    let oldest = storage.clock.now().checked_sub(life).unwrap_or(Timestamp::MIN);
    let mut by_namespace: BTreeMap<Arc<str>, Vec<(Timestamp, Arc<Object>)>> = BTreeMap::new();
    let mut gone = Vec::new();
    for object in storage.store.list(EVENTS, None).items {
        let seen = last_seen(&parse(&object));
        if seen < oldest {
            gone.push(object);
        } else {
            by_namespace.entry(Arc::clone(&object.key.namespace)).or_default().push((seen, object));
        }
    }
    let share = fair_share(by_namespace.values().map(Vec::len).collect(), limits.count_max);
    for mut events in by_namespace.into_values().filter(|events| events.len() > share) {
        events.sort_by_key(|(seen, _)| *seen);
        let surplus = events.len() - share;
        gone.extend(events.into_iter().take(surplus).map(|(_, object)| object));
    }
    stream::iter(gone)
        .for_each_concurrent(DELETES_MAX, |object| async move {
            let change = Change::Delete {
                key: object.key.clone(),
                draft: draft(&parse(&object)),
                expect: Expect::Revision(object.revision),
            };
            // An event that was seen again meanwhile stays; anything else comes back with the next sweep.
            if let Err(error) = storage.store.apply(change).await {
                tracing::debug!(%error, "an old event stays for now");
            }
        })
        .await;
}

/// The number that each of those who have more is cut down to, so that all together have at most `total_max`.
fn fair_share(mut counts: Vec<usize>, total_max: usize) -> usize {
    counts.sort_unstable();
    let (mut room, mut sharing) = (total_max, counts.len());
    for count in counts {
        let even = room / sharing;
        if count > even {
            return even;
        }
        (room, sharing) = (room - count, sharing - 1);
    }
    usize::MAX
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
        sweep(&server.state.storage, EventLimits { count_max: 2, ..EventLimits::default() }).await;
        let left: Vec<String> =
            store.list(EVENTS, None).items.iter().map(|object| object.key.name.to_string()).collect();
        assert_eq!(left, ["b", "c"]);
    }

    #[tokio::test]
    async fn a_flood_in_one_namespace_costs_no_other_its_events() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("time");
        let store = Store::in_memory(Options::default()).expect("store");
        let events = (0..30).map(|minute| ("flood", 29 + minute)).chain([("quiet", 1), ("quiet", 2), ("other", 3)]);
        for (namespace, minute) in events {
            let event = json!({"metadata": {"name": "e"}, "lastTimestamp": format!("2026-01-01T11:{minute:02}:00Z")});
            let key = Key::new(EVENTS, namespace, format!("e{minute:02}").as_str());
            store.apply(Change::Put { key, draft: draft(&event), expect: Expect::Absent }).await.expect("put");
        }
        let server = ApiServer::builder(store.clone(), Policy::default()).clock(Arc::new(Fixed(now))).build().await;
        let server = server.expect("build");
        sweep(&server.state.storage, EventLimits { count_max: 8, ..EventLimits::default() }).await;
        let left: Vec<String> =
            store.list(EVENTS, None).items.iter().map(|object| object.key.name.to_string()).collect();
        assert_eq!(left, ["e54", "e55", "e56", "e57", "e58", "e03", "e01", "e02"]);
    }

    #[test]
    fn those_who_have_the_most_give() {
        for (counts, total_max, share) in [
            (vec![], 0, usize::MAX),
            (vec![5], 5, usize::MAX),
            (vec![5], 4, 4),
            (vec![1, 9, 9], 11, 5),
            (vec![1, 2, 3], 6, usize::MAX),
            (vec![1, 2, 30], 6, 3),
            (vec![4, 4], 0, 0),
        ] {
            assert_eq!(fair_share(counts.clone(), total_max), share, "{counts:?} {total_max}");
        }
    }
}

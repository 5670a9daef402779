//! All watches as one stream of entries, and samples of what pods use.
//!
//! Invariant: nothing is kept of an object but its rows and, of a pod that runs, its name. Sending waits while the channel is
//! full, which stops the watches and nothing else. Run beside the writer.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::{BoxStream, SelectAll, StreamExt};
use http::Request;
use k8s_openapi::api::batch::v1 as kubernetes;
use kube::{Api, Client, Resource, ResourceExt};
use pumice_api::batch::Job;
use pumice_api::scheduling::PodGroup;
use pumice_clock as clock;
use pumice_cluster::{WatchEvent, watch_from};
use pumice_units::Quantity;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::facts::{Facts, Fate, Seen, SeenPod};
use crate::pending::{Cursor, Entry, Watched};
use crate::rows::{Row, Table};

/// Time between two samples of what pods use.
const SAMPLE_EVERY: Duration = Duration::from_secs(30);
/// Of all time at most one part in so many goes into sampling.
const SAMPLE_SHARE: u32 = 20;
/// Longest time of one sample.
const SAMPLE_MAX: Duration = Duration::from_secs(20);

/// Where the writer is told.
pub(crate) type Sender = mpsc::Sender<Entry>;

/// Uids of running pods, by namespace and name.
pub(crate) type Running = HashMap<(String, String), String>;

/// A watch that makes entries; knows the number of its list.
struct Teller {
    watched: Watched,
    seen: i64,
}

impl Teller {
    fn entry<K: Facts + ResourceExt>(&mut self, told: WatchEvent<K>) -> Entry {
        let mut rows = Vec::new();
        let seen = Seen(self.seen);
        match told {
            WatchEvent::ListBegins => {
                self.seen += 1;
                Entry::ListBegins { watched: self.watched, seen: self.seen }
            }
            WatchEvent::Listed(objects) => {
                objects.iter().for_each(|object| object.rows(Fate::There, seen, &mut rows));
                Entry::Listed(rows)
            }
            WatchEvent::ListEnds { version } => Entry::ListEnds { watched: self.watched, seen: self.seen, version },
            WatchEvent::Applied(object) => {
                object.rows(Fate::There, seen, &mut rows);
                let version = object.resource_version().unwrap_or_default();
                Entry::Changed { watched: self.watched, version, rows }
            }
            WatchEvent::Deleted(object) => {
                object.rows(Fate::Gone(clock::now()), seen, &mut rows);
                let version = object.resource_version().unwrap_or_default();
                Entry::Changed { watched: self.watched, version, rows }
            }
            WatchEvent::Quiet { version } => Entry::Changed { watched: self.watched, version, rows },
        }
    }
}

/// Whether a pod runs, as a change says.
struct RunState {
    namespace: String,
    name: String,
    /// None: it does not run.
    uid: Option<String>,
}

/// What came of a watch: an entry, and which pods began or ceased to run.
struct WatchUpdate {
    entry: Entry,
    running: Vec<RunState>,
}

/// Watches until it is dropped, or until nobody listens.
pub(crate) async fn watch(client: Client, cursors: BTreeMap<Watched, Cursor>, mut running: Running, sender: Sender) {
    let mut updates: SelectAll<BoxStream<'static, WatchUpdate>> = SelectAll::new();
    let of = |watched| cursors.get(&watched).cloned().unwrap_or_default();
    updates.push(stream::<Job>(&client, Watched::Jobs, of(Watched::Jobs), |_| vec![]));
    updates.push(stream::<kubernetes::Job>(&client, Watched::KubernetesJobs, of(Watched::KubernetesJobs), |_| vec![]));
    updates.push(stream::<PodGroup>(&client, Watched::Groups, of(Watched::Groups), |_| vec![]));
    updates.push(stream::<SeenPod>(&client, Watched::Pods, of(Watched::Pods), running_pods));
    let mut next_sample = Instant::now() + SAMPLE_EVERY;
    let mut sampling: Option<BoxFuture<'static, Vec<Row>>> = None;
    loop {
        let entry = tokio::select! {
            told = updates.next() => {
                let Some(told) = told else { return };
                for RunState { namespace, name, uid } in told.running {
                    match uid {
                        Some(uid) => drop(running.insert((namespace, name), uid)),
                        None => drop(running.remove(&(namespace, name))),
                    }
                }
                told.entry
            }
            () = tokio::time::sleep_until(next_sample), if sampling.is_none() => {
                next_sample = Instant::now() + SAMPLE_EVERY;
                sampling = Some(sampled(client.clone(), running.clone()).boxed());
                Entry::Well
            }
            Some(rows) = OptionFuture::from(sampling.as_mut()) => {
                sampling = None;
                let took = SAMPLE_EVERY.saturating_sub(next_sample.saturating_duration_since(Instant::now()));
                next_sample = next_sample.max(Instant::now() + took * SAMPLE_SHARE);
                Entry::Used(rows)
            }
        };
        if sender.send(entry).await.is_err() {
            return;
        }
    }
}

fn stream<K>(
    client: &Client,
    watched: Watched,
    cursor: Cursor,
    running: fn(&WatchEvent<K>) -> Vec<RunState>,
) -> BoxStream<'static, WatchUpdate>
where
    K: Facts + Resource<DynamicType = ()> + serde::de::DeserializeOwned + Send + 'static,
{
    let mut teller = Teller { watched, seen: cursor.seen };
    let version = Some(cursor.version).filter(|version| !version.is_empty());
    watch_from(Api::<K>::all(client.clone()), version)
        .map(move |told| WatchUpdate { running: running(&told), entry: teller.entry(told) })
        .boxed()
}

fn running_pods(told: &WatchEvent<SeenPod>) -> Vec<RunState> {
    let state = |pod: &SeenPod, runs: bool| RunState {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: if runs { Some(pod.uid().unwrap_or_default()) } else { None },
    };
    match told {
        WatchEvent::Listed(pods) => pods.iter().map(|pod| state(pod, pod.runs())).collect(),
        WatchEvent::Applied(pod) => vec![state(pod, pod.runs())],
        WatchEvent::Deleted(pod) => vec![state(pod, false)],
        _ => Vec::new(),
    }
}

/// A list of `metrics.k8s.io`, as far as it is read.
#[derive(Debug, Deserialize)]
struct Measured {
    items: Vec<MeasuredPod>,
}

#[derive(Debug, Deserialize)]
struct MeasuredPod {
    metadata: MeasuredName,
    timestamp: Option<jiff::Timestamp>,
    #[serde(default)]
    containers: Vec<MeasuredContainer>,
}

#[derive(Debug, Deserialize)]
struct MeasuredName {
    #[serde(default)]
    namespace: String,
    name: String,
}

#[derive(Debug, Deserialize)]
struct MeasuredContainer {
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// Asks what pods use. A cluster that does not measure gives nothing.
async fn sampled(client: Client, running: Running) -> Vec<Row> {
    if running.is_empty() {
        return Vec::new();
    }
    let Ok(request) = Request::get("/apis/metrics.k8s.io/v1beta1/pods").body(Vec::new()) else { return Vec::new() };
    match tokio::time::timeout(SAMPLE_MAX, client.request::<Measured>(request)).await {
        Ok(Ok(measured)) => used(&measured, &running, clock::now()),
        Ok(Err(error)) => {
            tracing::debug!(%error, "what pods use is not measured");
            Vec::new()
        }
        Err(_) => {
            tracing::warn!(limit = ?SAMPLE_MAX, "what pods use was not told in time");
            Vec::new()
        }
    }
}

fn used(measured: &Measured, running: &Running, now: jiff::Timestamp) -> Vec<Row> {
    let rows = measured.items.iter().filter_map(|pod| {
        let uid = running.get(&(pod.metadata.namespace.clone(), pod.metadata.name.clone()))?;
        let total = |name: &str, amount: fn(Quantity) -> i64| {
            let amounts = pod.containers.iter().filter_map(|container| container.usage.get(name)?.parse().ok());
            amounts.map(amount).fold(0, i64::saturating_add)
        };
        let (cpu, memory) = (total("cpu", Quantity::cpu_milli), total("memory", Quantity::value));
        // What was measured at the same time as before counts once.
        let at = pod.timestamp.unwrap_or(now).as_millisecond();
        Some(
            Row::new(Table::Used)
                .text("uid", uid)
                .int("sampled", at)
                .int("samples", 1)
                .int("cpu_milli_sum", cpu)
                .int("cpu_milli_max", cpu)
                .int("memory_bytes_sum", memory)
                .int("memory_bytes_max", memory),
        )
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rows::Cell;

    #[test]
    fn what_is_measured_of_a_running_pod_is_the_sum_over_its_containers() {
        let pod = |name: &str| {
            json!({"metadata": {"name": name, "namespace": "ns"}, "timestamp": "2026-01-01T00:00:00Z", "window": "20s",
                "containers": [{"name": "a", "usage": {"cpu": "250m", "memory": "1Mi"}},
                    {"name": "b", "usage": {"cpu": "1500000n", "memory": "1Ki"}}]})
        };
        let measured: Measured =
            serde_json::from_value(json!({"kind": "PodMetricsList", "items": [pod("p"), pod("gone")]})).unwrap();
        let running = Running::from([(("ns".to_owned(), "p".to_owned()), "u".to_owned())]);
        let rows = used(&measured, &running, jiff::Timestamp::UNIX_EPOCH);
        let numbers: Vec<Cell> = rows[0].cells[1..].to_vec();
        let (cpu, memory) = (252, (1 << 20) + (1 << 10));
        assert_eq!(numbers, [1_767_225_600_000, 1, cpu, cpu, memory, memory].map(|n| Cell::Int(Some(n))));
        assert_eq!((rows.len(), rows[0].key()), (1, &[Cell::text("u")][..]));
    }
}

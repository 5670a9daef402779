//! What pods use, as the cluster measures it (`metrics.k8s.io`): by queue and pool, for the server.
//!
//! Invariant: it is asked for in one call of bounded size and time, and a cluster that measures nothing is none the worse:
//! it is asked again later.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Request;
use http_body_util::{BodyExt as _, Limited};
use kube::Client;
use kube::client::Body;
use pumice_units::Quantity;
use pumice_wire::executor::{QueueUsage, Usage};
use serde::Deserialize;

/// Longest time for an answer.
const ASK_MAX: Duration = Duration::from_secs(20);
/// Largest answer: some hundred bytes for each of 100,000 pods.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The amounts of all pods that were measured at one time.
pub type Measured = Vec<PodUsage>;

/// What a pod uses.
#[derive(Debug)]
pub struct PodUsage {
    pub namespace: String,
    pub name: String,
    /// Cpu in milli-cores, memory in bytes.
    pub used: BTreeMap<String, i64>,
}

/// Why nothing is known of what pods use.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The cluster can't be asked.
    #[error("what pods use can't be asked for")]
    Ask(#[source] Box<kube::Error>),
    /// It does not answer in time.
    #[error("no answer within {ASK_MAX:?} to what pods use")]
    Timeout,
    /// It measures nothing, or does not tell.
    #[error("what pods use is not told: status {0}; the API metrics.k8s.io is wanted, and the right to list its pods")]
    Status(u16),
    /// The answer is too long, or broke off.
    #[error("the answer to what pods use broke off, or has more than {ANSWER_BYTES_MAX} bytes")]
    Body,
    /// The answer is none.
    #[error("the answer to what pods use can't be read")]
    Answer(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Named,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    #[serde(default)]
    namespace: String,
}

#[derive(Deserialize)]
struct Container {
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// Asks what pods use.
///
/// # Errors
/// Where the cluster does not say.
pub async fn measure(client: Client) -> Result<Measured, UsageError> {
    let asked = async {
        let path = "/apis/metrics.k8s.io/v1beta1/pods";
        let request = Request::get(path).body(Body::empty()).map_err(|_| UsageError::Body)?;
        let answer = client.send(request).await.map_err(|error| UsageError::Ask(Box::new(error)))?;
        if !answer.status().is_success() {
            return Err(UsageError::Status(answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        read(&body.map_err(|_| UsageError::Body)?.to_bytes())
    };
    tokio::time::timeout(ASK_MAX, asked).await.unwrap_or(Err(UsageError::Timeout))
}

fn read(answer: &[u8]) -> Result<Measured, UsageError> {
    let list: List = serde_json::from_slice(answer)?;
    let used = |item: Item| {
        let mut sum = BTreeMap::new();
        for (name, text) in item.containers.iter().flat_map(|container| &container.usage) {
            let amount = text.parse().map_or(0, |quantity: Quantity| match name.as_str() {
                "cpu" => quantity.cpu_milli(),
                _ => quantity.value(),
            });
            let sum: &mut i64 = sum.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount);
        }
        let Named { namespace, name } = item.metadata;
        PodUsage { namespace, name, used: sum }
    };
    Ok(list.items.into_iter().map(used).collect())
}

/// Takes together what is of one queue and pool; `owner` knows them of a pod by its namespace and name, and nothing of pods
/// that are not the fleet's.
pub fn by_queue<'o>(measured: Measured, owner: impl Fn(&str, &str) -> Option<(&'o str, &'o str)>) -> Usage {
    let mut sums: BTreeMap<(&str, &str), BTreeMap<String, i64>> = BTreeMap::new();
    for PodUsage { namespace, name, used } in measured {
        let Some(owner) = owner(&namespace, &name) else { continue };
        let sum = sums.entry(owner).or_default();
        for (name, amount) in used {
            let sum = sum.entry(name).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    let queues = sums.into_iter().map(|((queue, pool), used)| QueueUsage {
        queue: queue.to_owned(),
        pool: pool.to_owned(),
        used: used.into_iter().map(|(name, amount)| (name.clone(), written(&name, amount))).collect(),
    });
    Usage { queues: queues.collect() }
}

fn written(name: &str, amount: i64) -> String {
    if name == "cpu" { format!("{amount}m") } else { amount.to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_are_taken_together_and_strangers_left_out() {
        let pod = |name: &str, cpu: &str| {
            json!({ "metadata": { "name": name, "namespace": "n" }, "timestamp": "2026-01-01T00:00:00Z",
                "containers": [{ "name": "a", "usage": { "cpu": cpu, "memory": "1Mi" } },
                    { "name": "b", "usage": { "cpu": "1", "memory": "odd" } }] })
        };
        let items = json!([pod("one", "250m"), pod("other", "9"), pod("two", "1500000n")]);
        let measured = read(json!({ "items": items }).to_string().as_bytes()).unwrap();
        let usage =
            by_queue(measured, |namespace, name| (namespace == "n" && name != "other").then_some(("q", "default")));
        assert_eq!(usage.queues.len(), 1);
        let used = &usage.queues[0].used;
        assert_eq!((used["cpu"].as_str(), used["memory"].as_str()), ("2252m", "2097152"));
        assert!(read(b"{}").is_err());
    }
}

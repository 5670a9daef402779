//! The live use of machines, asked of Prometheus, of Kubernetes' custom metrics API, or of Elasticsearch.
//!
//! Invariant: an interval costs one or two questions, however many nodes there are; answers are bounded in size and time.
//! A source that does not answer is a warning: the engine forgets by itself what was measured too long ago. The questions
//! are Volcano's, but for all nodes at once. Owned by the loop.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::{Request, header};
use http_body_util::{BodyExt as _, Limited};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use pumice_engine::{MetricsKind, MetricsSource, NodeName, NodeUsage, TimeMs};
use serde::Deserialize;
use serde_json::json;
use tokio::time::MissedTickBehavior;

use pumice_clock as clock;

/// The use of nodes, by their names.
pub(crate) type Measured = Vec<(NodeName, NodeUsage)>;

/// Longest time for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer, in bytes: some hundred for each of 100,000 nodes.
const ANSWER_MAX: usize = 32 << 20;
/// Most nodes that Elasticsearch is asked about; more buckets it refuses by default.
const NODES_MAX: usize = 60_000;
/// Percent of a node's cpu in use over the last ten minutes.
const CPU_PERCENT: &str =
    "avg_over_time((100 - (avg by (instance) (rate(node_cpu_seconds_total{mode=\"idle\"}[5m])) * 100))[10m:30s])";
/// Percent of a node's memory in use over the last ten minutes.
const MEMORY_PERCENT: &str =
    "100 * avg_over_time((1 - node_memory_MemAvailable_bytes / node_memory_MemTotal_bytes)[10m:30s])";
/// Where Elasticsearch keeps what metricbeat tells.
const INDEX: &str = "metricbeat-*";

/// Why a source says nothing.
#[derive(Debug, thiserror::Error)]
enum UsageError {
    #[error("address {0:?} is no address of a server; try http://127.0.0.1:9090")]
    Address(String),
    #[error("the source can't be reached: {0}")]
    Client(#[source] Box<kube::Error>),
    #[error("no answer within {ASK_TIMEOUT:?}")]
    Timeout,
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("the answer broke off, or has more than {ANSWER_MAX} bytes: {0}")]
    Body(String),
    #[error("the answer can't be read: {0}")]
    Answer(#[from] serde_json::Error),
}

/// What is measured, every interval; nothing where no source is configured.
pub(crate) fn watch(client: &Client, source: Option<&MetricsSource>) -> BoxStream<'static, Measured> {
    let Some(source) = source else { return stream::pending().boxed() };
    let asker = match Asker::new(client, source) {
        Ok(asker) => asker,
        Err(error) => {
            tracing::warn!(%error, "the use of nodes is not measured; check metrics in the scheduler's configuration");
            return stream::pending().boxed();
        }
    };
    let interval = Duration::from_millis(u64::try_from(source.interval_ms).unwrap_or(0).max(1_000));
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let next = async |(asker, mut ticks): (Asker, tokio::time::Interval)| loop {
        ticks.tick().await;
        let answer = tokio::time::timeout(ASK_TIMEOUT, asker.ask()).await.unwrap_or(Err(UsageError::Timeout));
        match answer {
            Ok(measured) => return Some((measured, (asker, ticks))),
            Err(error) => tracing::warn!(%error, "the use of nodes could not be measured"),
        }
    };
    stream::unfold((asker, ticks), next).boxed()
}

enum Question {
    Prometheus,
    Adaptor,
    Elasticsearch { index: String },
}

struct Asker {
    client: Client,
    question: Question,
}

impl Asker {
    fn new(client: &Client, source: &MetricsSource) -> Result<Self, UsageError> {
        let other = |key: &str| source.others.get(key).filter(|text| !text.is_empty()).cloned();
        let (question, client) = match source.kind {
            // The custom metrics API is part of the cluster's own.
            MetricsKind::PrometheusAdaptor => (Question::Adaptor, client.clone()),
            MetricsKind::Prometheus => (Question::Prometheus, connect(source, None)?),
            MetricsKind::Elasticsearch => {
                let index = other("elasticsearch.index").unwrap_or_else(|| INDEX.to_owned());
                let user = other("elasticsearch.username").zip(other("elasticsearch.password"));
                (Question::Elasticsearch { index }, connect(source, user)?)
            }
        };
        Ok(Self { client, question })
    }

    async fn ask(&self) -> Result<Measured, UsageError> {
        match &self.question {
            Question::Prometheus => {
                let query = |text: &str| {
                    let text: String = form_urlencoded::byte_serialize(text.as_bytes()).collect();
                    self.send(Request::get(format!("/api/v1/query?query={text}")), Body::empty())
                };
                let (cpu, memory) = (query(CPU_PERCENT).await?, query(MEMORY_PERCENT).await?);
                Ok(joined(of_prometheus(&cpu)?, of_prometheus(&memory)?))
            }
            Question::Adaptor => {
                let metric = |name: &str| {
                    let path = format!("/apis/custom.metrics.k8s.io/v1beta1/nodes/*/{name}");
                    self.send(Request::get(path), Body::empty())
                };
                let (cpu, memory) = (metric("node_cpu_usage_avg").await?, metric("node_memory_usage_avg").await?);
                Ok(joined(of_adaptor(&cpu)?, of_adaptor(&memory)?))
            }
            Question::Elasticsearch { index } => {
                let request =
                    Request::post(format!("/{index}/_search")).header(header::CONTENT_TYPE, "application/json");
                let answer = self.send(request, elasticsearch_query().to_string().into_bytes().into()).await?;
                of_elasticsearch(&answer, clock::now())
            }
        }
    }

    async fn send(&self, request: http::request::Builder, body: Body) -> Result<Bytes, UsageError> {
        let request = request.body(body).map_err(|error| UsageError::Address(error.to_string()))?;
        let answer = self.client.send(request).await.map_err(|error| UsageError::Client(Box::new(error)))?;
        if !answer.status().is_success() {
            return Err(UsageError::Status(answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        Ok(body.map_err(|error| UsageError::Body(error.to_string()))?.to_bytes())
    }
}

/// A client of a server that is not the cluster's.
fn connect(source: &MetricsSource, user: Option<(String, String)>) -> Result<Client, UsageError> {
    let address = source.address.parse::<http::Uri>().ok().filter(|uri| uri.scheme().is_some() && uri.host().is_some());
    let mut config = kube::Config::new(address.ok_or_else(|| UsageError::Address(source.address.clone()))?);
    config.accept_invalid_certs = source.insecure;
    config.connect_timeout = Some(ASK_TIMEOUT);
    if let Some((name, password)) = user {
        config.auth_info.username = Some(name);
        config.auth_info.password = Some(password.into());
    }
    Client::try_from(config).map_err(|error| UsageError::Client(Box::new(error)))
}

/// Thousandths in use, and when that was measured, by node.
type PerMille = BTreeMap<NodeName, (i64, TimeMs)>;

/// Nodes of which both are known, as old as the older one.
fn joined(cpu: PerMille, memory: PerMille) -> Measured {
    let both = cpu.into_iter().filter_map(|(node, (cpu_per_mille, at))| {
        let (memory_per_mille, since) = *memory.get(&node)?;
        Some((node, NodeUsage { cpu_per_mille, memory_per_mille, at: at.min(since) }))
    });
    both.collect()
}

/// Rounded, between nothing and everything; nothing of what is no number.
fn per_mille(part: f64) -> Option<i64> {
    #[allow(clippy::cast_possible_truncation, reason = "at most 1000")]
    let thousandths = (part * 1000.0).round().clamp(0.0, 1000.0) as i64;
    part.is_finite().then_some(thousandths)
}

/// An exporter's address is its node's name, with or without a port.
fn node_of(instance: &str) -> &str {
    instance.split_once(':').map_or(instance, |(host, _)| host)
}

fn of_prometheus(answer: &[u8]) -> Result<PerMille, UsageError> {
    #[derive(Deserialize)]
    struct Answer {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        result: Vec<Sample>,
    }
    #[derive(Deserialize)]
    struct Sample {
        metric: BTreeMap<String, String>,
        value: (f64, String),
    }
    let answer: Answer = serde_json::from_slice(answer)?;
    let read = |sample: Sample| {
        let node = node_of(sample.metric.get("instance")?).into();
        let percent: f64 = sample.value.1.parse().ok()?;
        #[allow(clippy::cast_possible_truncation, reason = "saturates")]
        let at = TimeMs((sample.value.0 * 1000.0) as i64);
        Some((node, (per_mille(percent / 100.0)?, at)))
    };
    Ok(answer.data.result.into_iter().filter_map(read).collect())
}

fn of_adaptor(answer: &[u8]) -> Result<PerMille, UsageError> {
    #[derive(Deserialize)]
    struct Answer {
        items: Vec<Item>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Item {
        described_object: Described,
        timestamp: Timestamp,
        value: pumice_units::Quantity,
    }
    #[derive(Deserialize)]
    struct Described {
        name: NodeName,
    }
    let answer: Answer = serde_json::from_slice(answer)?;
    let read = |item: Item| {
        let at = TimeMs(item.timestamp.as_millisecond());
        (item.described_object.name, (item.value.cpu_milli().clamp(0, 1000), at))
    };
    Ok(answer.items.into_iter().map(read).collect())
}

fn elasticsearch_query() -> serde_json::Value {
    json!({
        "size": 0,
        "query": {"range": {"@timestamp": {"gte": "now-10m", "lt": "now"}}},
        "aggs": {"nodes": {
            "terms": {"field": "host.hostname", "size": NODES_MAX},
            "aggs": {
                "cpu": {"avg": {"field": "host.cpu.usage"}},
                "memory": {"avg": {"field": "system.memory.actual.used.pct"}},
            },
        }},
    })
}

fn of_elasticsearch(answer: &[u8], now: Timestamp) -> Result<Measured, UsageError> {
    #[derive(Deserialize)]
    struct Answer {
        aggregations: Aggregations,
    }
    #[derive(Deserialize)]
    struct Aggregations {
        nodes: Buckets,
    }
    #[derive(Deserialize)]
    struct Buckets {
        buckets: Vec<Bucket>,
    }
    #[derive(Deserialize)]
    struct Bucket {
        key: NodeName,
        cpu: Mean,
        memory: Mean,
    }
    #[derive(Deserialize)]
    struct Mean {
        value: Option<f64>,
    }
    let answer: Answer = serde_json::from_slice(answer)?;
    let read = |bucket: Bucket| {
        let usage = NodeUsage {
            cpu_per_mille: per_mille(bucket.cpu.value?)?,
            memory_per_mille: per_mille(bucket.memory.value?)?,
            at: TimeMs(now.as_millisecond()),
        };
        Some((bucket.key, usage))
    };
    Ok(answer.aggregations.nodes.buckets.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests;

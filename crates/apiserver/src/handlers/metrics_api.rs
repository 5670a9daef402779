//! `metrics.k8s.io/v1beta1`: what nodes and pods use, asked of the nodes when somebody asks.
//!
//! Invariant: nothing is kept and nothing guessed: what a node does not tell is not there. A node that does not answer in time is
//! left out. Semantics of <https://github.com/kubernetes/metrics>.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use pumice_clock::{Clock, wire_time};
use pumice_objects::status::{GroupResource, Status};
use pumice_store::Store;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::body::Body;
use crate::http::query::{Query, ReadOptions};
use crate::http::request::{self, ResourceRequest, Target, Verb};
use crate::http::respond;
use crate::kinds::aggregated::{AggregatedApi, AggregatedResource, AggregatedService};
use crate::nodes::NodeProxy;
use crate::stored::parse;

const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// Longest time for a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer of a node, in bytes: some hundred for each container.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Seconds over which a node says it has measured, where it does not say.
const WINDOW_SECONDS: u64 = 30;

/// The group, for a server with this store whose nodes are reached so.
pub(crate) fn api(store: Store, nodes: Arc<dyn NodeProxy>, clock: Arc<dyn Clock>) -> AggregatedApi {
    let resource = |name: &str, kind: &str, namespaced| AggregatedResource {
        name: name.to_owned(),
        kind: kind.to_owned(),
        namespaced,
        verbs: vec![Verb::Get, Verb::List],
    };
    AggregatedApi {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resources: vec![resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)],
        right: None,
        service: Arc::new(Metrics { source: Arc::new(Source { store, nodes, clock }) }),
    }
}

struct Metrics {
    source: Arc<Source>,
}

struct Source {
    store: Store,
    nodes: Arc<dyn NodeProxy>,
    clock: Arc<dyn Clock>,
}

impl AggregatedService for Metrics {
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let source = Arc::clone(&self.source);
        Box::pin(async move {
            match source.answer(request.method(), request.uri().path(), request.uri().query()).await {
                Ok(found) => respond::json(StatusCode::OK, found.to_string()),
                Err(status) => respond::refusal(&status),
            }
        })
    }
}

/// A node's summary, as far as it is of use here.
#[derive(Deserialize)]
struct Summary {
    #[serde(default)]
    node: Option<NodeStats>,
    #[serde(default)]
    pods: Vec<PodStats>,
}

#[derive(Deserialize)]
struct NodeStats {
    cpu: Cpu,
    memory: Memory,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStats {
    pod_ref: PodRef,
    #[serde(default)]
    containers: Vec<ContainerStats>,
}

#[derive(Deserialize)]
struct PodRef {
    name: String,
    namespace: String,
    uid: String,
}

#[derive(Deserialize)]
struct ContainerStats {
    name: String,
    cpu: Cpu,
    memory: Memory,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cpu {
    time: String,
    usage_nano_cores: u64,
    #[serde(default)]
    window_seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    working_set_bytes: u64,
}

/// What one node's agent has said.
struct NodeSummary {
    name: String,
    node: Value,
    summary: Summary,
}

/// What is asked for beside the kind.
struct Wanted<'a> {
    request: &'a ResourceRequest,
    options: ReadOptions,
}

impl Source {
    async fn answer(&self, method: &Method, path: &str, query: Option<&str>) -> Result<Value, Status> {
        let query = Query::parse(query.unwrap_or_default())?;
        let parsed = request::parse(method, path, query.flag("watch")?.unwrap_or(false));
        let target = parsed.map_err(|error| Status::bad_request(error.to_string()))?;
        let Target::Resource(request) = target else { return Err(Status::unknown_path()) };
        if !request.subresource.is_empty() {
            return Err(Status::unknown_path());
        }
        let resource = GroupResource { group: GROUP, resource: &request.resource };
        if !matches!(request.verb, Verb::Get | Verb::List) {
            return Err(Status::method_not_allowed(resource, request.verb.as_str()));
        }
        let wanted = Wanted { options: ReadOptions::parse(&query)?, request: &request };
        let (kind, found) = match (request.resource.as_str(), request.namespace.is_empty()) {
            ("nodes", true) => ("NodeMetricsList", self.node_metrics(&wanted).await),
            ("pods", everywhere) if !everywhere || request.name.is_empty() => {
                ("PodMetricsList", self.pod_metrics(&wanted).await)
            }
            _ => return Err(Status::unknown_path()),
        };
        if request.verb == Verb::List {
            let version = format!("{GROUP}/{VERSION}");
            return Ok(json!({"kind": kind, "apiVersion": version, "metadata": {}, "items": found}));
        }
        found.into_iter().next().ok_or_else(|| Status::not_found(resource, &request.name))
    }

    /// The summaries of all nodes that answer, or of those that pods of one name are on.
    async fn summaries(&self, only: Option<&str>) -> Vec<NodeSummary> {
        let nodes = self.store.list("nodes", None).items;
        let asked = nodes.iter().filter(|node| only.is_none_or(|name| name == &*node.key.name));
        let answers = join_all(asked.map(|node| async move {
            let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.summary(&node.key.name)).await;
            Some(NodeSummary { name: node.key.name.to_string(), node: parse(node), summary: answer.ok()?? })
        }));
        answers.await.into_iter().flatten().collect()
    }

    async fn summary(&self, node: &str) -> Option<Summary> {
        let request = Request::get("/stats/summary").body(Body::empty()).ok()?;
        let answer = self.nodes.call(node, request).await.ok()?;
        if answer.status() != StatusCode::OK {
            return None;
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
        let summary = serde_json::from_slice(&body.to_bytes());
        summary.inspect_err(|error| tracing::warn!(node, %error, "a node's summary can't be read")).ok()
    }

    async fn node_metrics(&self, wanted: &Wanted<'_>) -> Vec<Value> {
        let found = self.summaries(wanted.name()).await;
        let metrics = found.iter().filter(|one| wanted.matches(&one.node)).filter_map(|one| {
            let stats = one.summary.node.as_ref()?;
            let mut metrics = self.metrics("NodeMetrics", &one.name, &one.node, &stats.cpu);
            metrics["usage"] = usage(&stats.cpu, &stats.memory);
            Some(metrics)
        });
        metrics.collect()
    }

    async fn pod_metrics(&self, wanted: &Wanted<'_>) -> Vec<Value> {
        let request = wanted.request;
        let named = wanted.name().and_then(|name| self.store.find("pods", &request.namespace, name));
        let node = named.map(|pod| parse(&pod)["spec"]["nodeName"].as_str().unwrap_or_default().to_owned());
        let found = self.summaries(node.as_deref()).await;
        let pods = found.iter().flat_map(|one| &one.summary.pods).filter(|pod| {
            let of_namespace = request.namespace.is_empty() || request.namespace == pod.pod_ref.namespace;
            of_namespace && wanted.name().is_none_or(|name| name == pod.pod_ref.name)
        });
        let metrics = pods.filter_map(|stats| {
            let PodRef { name, namespace, uid } = &stats.pod_ref;
            let pod = parse(&*self.store.find("pods", namespace, name)?);
            if pod["metadata"]["uid"] != **uid || !wanted.matches(&pod) {
                return None;
            }
            let first = stats.containers.first()?;
            let mut metrics = self.metrics("PodMetrics", name, &pod, &first.cpu);
            metrics["metadata"]["namespace"] = json!(namespace);
            let containers = stats.containers.iter();
            metrics["containers"] = containers
                .map(|container| json!({"name": container.name, "usage": usage(&container.cpu, &container.memory)}))
                .collect();
            Some(metrics)
        });
        metrics.collect()
    }

    fn metrics(&self, kind: &str, name: &str, object: &Value, cpu: &Cpu) -> Value {
        let mut metadata = json!({"name": name, "creationTimestamp": wire_time(self.clock.now())});
        if object["metadata"]["labels"].is_object() {
            metadata["labels"] = object["metadata"]["labels"].clone();
        }
        let window = cpu.window_seconds.unwrap_or(WINDOW_SECONDS);
        json!({"kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": metadata, "timestamp": whole_seconds(&cpu.time),
            "window": format!("{window}s")})
    }
}

impl Wanted<'_> {
    /// The one that is asked for.
    fn name(&self) -> Option<&str> {
        let selected = self.options.fields.exact("metadata.name");
        Some(self.request.name.as_str()).filter(|name| !name.is_empty()).or(selected)
    }

    fn matches(&self, object: &Value) -> bool {
        self.options.labels.matches(|key| object["metadata"]["labels"][key].as_str())
    }
}

fn usage(cpu: &Cpu, memory: &Memory) -> Value {
    json!({"cpu": format!("{}n", cpu.usage_nano_cores), "memory": format!("{}Ki", memory.working_set_bytes.div_ceil(1024))})
}

/// Times of the API have no fractions.
fn whole_seconds(time: &str) -> String {
    time.parse().map_or_else(|_| time.to_owned(), wire_time)
}

//! `logs.pumice.sh/v1alpha1`: logs of a Job's pods that are gone, which their nodes retain for a time.
//!
//! `GET .../namespaces/NS/jobs/JOB` says what there is, `GET .../jobs/JOB/log?node=&uid=&container=&restart=` gives one with the
//! parameters of `pods/log`. Invariant: whoever may read the logs of a namespace's pods may read these, and nobody else; those
//! of a Job that is gone are given to nobody, whoever has its name now. A node that does not answer in time is left out and named.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use pumice_objects::status::{GroupResource, Status};
use pumice_store::Store;
use serde_json::{Value, json};

use crate::handlers::subresources::log;
use crate::handlers::subresources::on_node;
use crate::http::body::Body;
use crate::http::query::Query;
use crate::http::request::{self, ResourceRequest, Target, Verb};
use crate::http::respond::{self, Answer};
use crate::kinds::aggregated::{AggregatedApi, AggregatedResource, AggregatedRight, AggregatedService};
use crate::nodes::{NodeProxy, NodeProxyError};
use crate::stored::parse;

const GROUP: &str = "logs.pumice.sh";
const VERSION: &str = "v1alpha1";
/// Where Jobs are in the store.
const JOBS: &str = "batch.volcano.sh/jobs";
/// Nodes that are asked at the same time.
const NODES_AT_ONCE: usize = 32;
/// Longest time for a node's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer of a node, in bytes: some hundred for each pod.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Longest uid or name of a container.
const NAME_BYTES_MAX: usize = 253;

/// The group, for a server with this store whose nodes are reached so.
pub(crate) fn api(store: Store, nodes: Arc<dyn NodeProxy>) -> AggregatedApi {
    let jobs = AggregatedResource {
        name: "jobs".to_owned(),
        kind: "RetainedLogs".to_owned(),
        namespaced: true,
        verbs: vec![Verb::Get],
    };
    AggregatedApi {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        resources: vec![jobs],
        right: Some(AggregatedRight { group: "", resource: "pods", subresource: "log" }),
        service: Arc::new(RetainedLogs { source: Arc::new(Source { store, nodes }) }),
    }
}

struct RetainedLogs {
    source: Arc<Source>,
}

struct Source {
    store: Store,
    nodes: Arc<dyn NodeProxy>,
}

impl AggregatedService for RetainedLogs {
    fn call(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let source = Arc::clone(&self.source);
        Box::pin(async move {
            let (method, uri) = (request.method().clone(), request.uri().clone());
            // The body is not looked at.
            drop(request);
            source.answer(&method, &uri).await.unwrap_or_else(|status| respond::refusal(&status))
        })
    }
}

impl Source {
    async fn answer(&self, method: &Method, uri: &Uri) -> Answer {
        let query = Query::parse(uri.query().unwrap_or_default())?;
        let parsed = request::parse(method, uri.path(), false);
        let target = parsed.map_err(|error| Status::bad_request(error.to_string()))?;
        let Target::Resource(wanted) = target else { return Err(Status::unknown_path()) };
        let resource = GroupResource { group: GROUP, resource: &wanted.resource };
        if wanted.resource != "jobs" || wanted.namespace.is_empty() || wanted.name.is_empty() || !wanted.rest.is_empty()
        {
            return Err(Status::unknown_path());
        }
        if wanted.verb != Verb::Get {
            return Err(Status::method_not_allowed(resource, wanted.verb.as_str()));
        }
        let job = self.store.find(JOBS, &wanted.namespace, &wanted.name);
        let job = job.ok_or_else(|| Status::not_found(resource, &wanted.name))?;
        let uid = parse(&job)["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match wanted.subresource.as_str() {
            "" => Ok(respond::json(StatusCode::OK, self.list(&wanted, &uid).await.to_string())),
            "log" => self.log(&wanted, &uid, &query).await,
            _ => Err(Status::unknown_path()),
        }
    }

    /// What all nodes have of a Job's pods.
    async fn list(&self, wanted: &ResourceRequest, job: &str) -> Value {
        let nodes = self.store.list("nodes", None).items;
        let names: Vec<String> = nodes.iter().map(|node| node.key.name.to_string()).collect();
        let path = format!("/retainedLogs/{}/{job}", wanted.namespace);
        let asked = stream::iter(names).map(|node| {
            let path = &path;
            async move {
                let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.of_node(&node, path)).await;
                (node, answer.ok().flatten())
            }
        });
        let (mut pods, mut silent) = (Vec::new(), Vec::new());
        let mut answers = asked.buffered(NODES_AT_ONCE);
        while let Some((node, found)) = answers.next().await {
            let Some(found) = found else {
                silent.push(node);
                continue;
            };
            pods.extend(found.into_iter().map(|mut pod| {
                pod["node"] = json!(node);
                pod
            }));
        }
        pods.sort_by_cached_key(|pod| pod["removedAt"].as_str().unwrap_or_default().to_owned());
        json!({"kind": "RetainedLogs", "apiVersion": format!("{GROUP}/{VERSION}"),
            "metadata": {"name": wanted.name, "namespace": wanted.namespace}, "pods": pods, "silentNodes": silent})
    }

    async fn of_node(&self, node: &str, path: &str) -> Option<Vec<Value>> {
        let request = Request::get(path).body(Body::empty()).ok()?;
        let answer = match self.nodes.call(node, request).await {
            // A node without an agent, as a simulated one, has no logs.
            Err(NodeProxyError::NotConnected { .. }) => return Some(Vec::new()),
            answer => answer.ok()?,
        };
        if answer.status() != StatusCode::OK {
            return None;
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
        let found = serde_json::from_slice(&body.to_bytes());
        found.inspect_err(|error| tracing::warn!(node, %error, "a node's list of retained logs can't be read")).ok()
    }

    /// The log of one run.
    async fn log(&self, wanted: &ResourceRequest, job: &str, query: &Query) -> Answer {
        let [node, uid, container] = ["node", "uid", "container"].map(|name| named(query, name));
        let (node, uid, container) = (node?, uid?, container?);
        let restart = query.number("restart")?.unwrap_or(0);
        let mut path = format!("/retainedLogs/{}/{job}/{uid}/{container}/{restart}", wanted.namespace);
        path.push_str(&log::parameters(query)?);
        let request = Request::get(path)
            .body(Body::empty())
            .map_err(|error| Status::bad_request(format!("the log request can't be passed on: {error}")))?;
        let mut answer = on_node::ask(&*self.nodes, node, request, StatusCode::OK).await?;
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        Ok(answer)
    }
}

/// A parameter that becomes part of a path.
fn named<'q>(query: &'q Query, name: &'static str) -> Result<&'q str, Status> {
    let value = query.filled(name).ok_or_else(|| Status::bad_request(format!("{name} is missing")))?;
    let plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    if !plain || value.len() > NAME_BYTES_MAX || value.starts_with('.') {
        return Err(Status::bad_request(format!("{name} must be a name")));
    }
    Ok(value)
}

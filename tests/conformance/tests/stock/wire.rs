//! Plain requests over TLS, and short ways to look at the answers.

use http::{HeaderMap, Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::cluster::PATIENCE;

mod collector;
mod deletes;
mod lists;
mod refusals;
mod rights;
mod shapes;
mod watches;
mod writes;

pub const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const SECRETS: &str = "/api/v1/namespaces/default/secrets";
pub const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";
pub const QUEUES: &str = "/apis/scheduling.volcano.sh/v1beta1/queues";
pub const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Clone)]
pub struct Wire {
    pub client: kube::Client,
}

pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Value,
    pub text: String,
}

impl Wire {
    pub fn new(client: kube::Client) -> Self {
        Self { client }
    }

    pub async fn call(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.into())).expect("request");
        let (parts, body) = self.client.send(request).await.expect("answer").into_parts();
        let bytes = body.collect().await.expect("body").to_bytes();
        Answer {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &[], "").await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.call(Method::GET, path, &[("accept", accept)], "").await
    }

    pub async fn post(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::POST, path, &[("content-type", "application/json")], object.to_string()).await
    }

    pub async fn put(&self, path: &str, object: &Value) -> Answer {
        self.call(Method::PUT, path, &[("content-type", "application/json")], object.to_string()).await
    }

    pub async fn patch(&self, path: &str, kind: &str, patch: &str) -> Answer {
        let kind = format!("application/{kind}");
        self.call(Method::PATCH, path, &[("content-type", &kind)], patch).await
    }

    pub async fn merge(&self, path: &str, patch: &Value) -> Answer {
        self.patch(path, "merge-patch+json", &patch.to_string()).await
    }

    pub async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.call(Method::DELETE, path, &[("content-type", "application/json")], body).await
    }

    pub async fn watch(&self, path: &str) -> Lines {
        self.watch_as(path, "application/json").await
    }

    pub async fn watch_as(&self, path: &str, accept: &str) -> Lines {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).expect("request");
        let response = self.client.send(request).await.expect("answer");
        Lines { code: response.status().as_u16(), body: response.into_body(), rest: Vec::new() }
    }

    /// Asks until the answer suits.
    pub async fn until(&self, path: &str, suits: impl Fn(&Answer) -> bool) -> Answer {
        let asking = async {
            loop {
                let answer = self.get(path).await;
                if suits(&answer) {
                    return answer;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} never came to what was awaited"))
    }

    pub async fn until_gone(&self, path: &str) {
        self.until(path, |answer| answer.code == 404).await;
    }
}

impl Answer {
    #[track_caller]
    pub fn is(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}", self.text);
        self
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().expect("items");
        items.iter().map(|item| item["metadata"]["name"].as_str().expect("name")).collect()
    }

    pub fn revision(&self) -> &str {
        self.body["metadata"]["resourceVersion"].as_str().expect("resourceVersion")
    }

    pub fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|value| value.to_str().expect("text")).collect()
    }
}

/// The events of a watch.
pub struct Lines {
    pub code: u16,
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Value> {
        let reading = async {
            loop {
                if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = self.rest.drain(..=end).collect();
                    return Some(serde_json::from_slice(&line).expect("one event per line"));
                }
                let frame = self.body.frame().await?.expect("frame");
                self.rest.extend_from_slice(frame.data_ref().expect("data"));
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("no event came")
    }

    /// The next event that is no bookmark, as `TYPE name`.
    pub async fn brief(&mut self) -> String {
        loop {
            let event = self.next().await.expect("the watch ended");
            if event["type"] != "BOOKMARK" {
                return brief(&event);
            }
        }
    }

    pub async fn briefs(&mut self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            found.push(self.brief().await);
        }
        found
    }
}

pub fn brief(event: &Value) -> String {
    let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
    format!("{} {name}", event["type"].as_str().expect("type"))
}

pub fn map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]},
    })
}

pub fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "ready",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "nodeInfo": {"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.1", "osImage": "x",
                "containerRuntimeVersion": "process://1", "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": "amd64"},
        },
    })
}

pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
        "spec": {"minAvailable": 1, "schedulerName": "volcano", "queue": "default", "tasks": [{
            "name": "work", "replicas": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}},
        }]},
    })
}

pub fn queue(name: &str) -> Value {
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name},
        "spec": {"weight": 1, "reclaimable": true},
    })
}

/// An object that belongs to `owner`, as answered by the server.
pub fn owned_by(mut object: Value, owner: &Value, blocks: bool) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks, "controller": false,
    }]);
    object
}

//! Logs of pods that are gone, as `logs.pumice.sh`.

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use http::{Request, Response};
use pumice_apiserver::{ApiServer, Body, NodeProxy, NodeProxyError};
use pumice_auth::{Grant, Identity, Policy, Role, Rule, Scope, Subject, built_in};
use pumice_store::{Options, Store};
use serde_json::{Value, json};

use crate::definitions::DEFINITIONS;
use crate::harness::{Server, administrator};

const LOGS: &str = "/apis/logs.pumice.sh/v1alpha1/namespaces/default/jobs";
const JOBS: &str = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs";

/// `near` and `far` have logs; `silent` does not answer; `simulated` has no agent.
#[derive(Default)]
struct Nodes(Mutex<Vec<String>>);

impl NodeProxy for Nodes {
    fn call(&self, node: &str, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, NodeProxyError>> {
        let (node, asked) = (node.to_owned(), request.uri().to_string());
        self.0.lock().expect("lock").push(format!("{node} {asked}"));
        Box::pin(async move {
            let removed = if node == "near" { "2026-01-02T00:00:00Z" } else { "2026-01-01T00:00:00Z" };
            match (node.as_str(), asked.matches('/').count()) {
                ("simulated", _) => Err(NodeProxyError::NotConnected { node }),
                ("silent", _) => Err(NodeProxyError::Call { node, cause: "nothing within 10 s".to_owned() }),
                (_, 3) => Ok(Response::new(Body::from(json!([{"pod": node, "removedAt": removed}]).to_string()))),
                _ => Ok(Response::new(Body::from(format!("log of {asked}")))),
            }
        })
    }
}

fn reader(name: &str, resource: &str, names: &[&str]) -> Grant {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<String>>();
    let rule = Rule {
        verbs: owned(&["get"]),
        api_groups: owned(&["", "logs.pumice.sh"]),
        resources: owned(&[resource]),
        resource_names: owned(names),
        ..Rule::default()
    };
    let role = Arc::new(Role { name: format!("{name}-reads"), rules: vec![rule] });
    Grant { subject: Subject::User(name.to_owned()), role, scope: Scope::Namespace("default".to_owned()) }
}

fn job() -> Value {
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"minAvailable": 1, "tasks": [{"replicas": 1, "name": "t", "template": {
            "spec": {"containers": [{"name": "c", "image": "x"}]}}}]},
    })
}

/// A server with some nodes and a Job.
struct Setup {
    server: Server,
    nodes: Arc<Nodes>,
    /// The Job's.
    uid: String,
}

async fn setup() -> Setup {
    let nodes = Arc::new(Nodes::default());
    let store = Store::in_memory(Options::default()).expect("store");
    let grants = [reader("logger", "pods/log", &[]), reader("lister", "jobs", &[]), reader("one", "pods/log", &["x"])];
    let api = ApiServer::builder(store, Policy::new(built_in()).with(grants))
        .node_proxy(nodes.clone())
        .retained_logs()
        .build()
        .await
        .expect("build");
    let server = Server::of(api, administrator());
    for name in ["near", "far", "silent", "simulated"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        server.post("/api/v1/nodes", &node).await.is(201);
    }
    let mut definitions = pumice_api::crds::all().into_iter();
    let jobs = definitions.find(|one| one["metadata"]["name"] == "jobs.batch.volcano.sh").expect("Jobs");
    server.post(DEFINITIONS, &jobs).await.is(201);
    let made = server.post(JOBS, &job()).await.is(201);
    let uid = made.body["metadata"]["uid"].as_str().expect("uid").to_owned();
    Setup { server, nodes, uid }
}

#[tokio::test]
async fn nodes_are_asked_for_the_logs_of_a_job_that_is_there() {
    let Setup { server, nodes, uid } = setup().await;
    let found = server.get(&format!("{LOGS}/j")).await.is(200).body;
    assert_eq!(found["kind"], "RetainedLogs");
    let pods: Vec<_> = found["pods"].as_array().expect("pods").iter().map(|pod| pod["node"].clone()).collect();
    assert_eq!(pods, ["far", "near"], "the oldest first");
    assert_eq!(found["silentNodes"], json!(["silent"]));
    assert!(nodes.0.lock().expect("lock").contains(&format!("near /retainedLogs/default/{uid}")));

    let run = "log?node=near&uid=u-1&container=c&restart=2";
    let log = server.get(&format!("{LOGS}/j/{run}&tailLines=5&stream=Stderr")).await.is(200);
    assert_eq!(log.text, format!("log of /retainedLogs/default/{uid}/u-1/c/2?tailLines=5&stream=Stderr"));
    assert_eq!(log.headers["content-type"], "text/plain");
    for (path, code) in [
        (format!("{LOGS}/none"), 404),
        (format!("{LOGS}/none/{run}"), 404),
        (LOGS.to_owned(), 404),
        (format!("{LOGS}/j/other"), 404),
        (format!("{LOGS}/j/log?node=near&uid=u-1"), 400),
        (format!("{LOGS}/j/log?node=near&uid=..&container=c"), 400),
        (format!("{LOGS}/j/log?node=near&uid=a%2Fb&container=c"), 400),
        (format!("{LOGS}/j/{run}&stream=stderr"), 400),
        (format!("{LOGS}/j/log?node=silent&uid=u-1&container=c"), 503),
    ] {
        server.get(&path).await.is(code);
    }
}

#[tokio::test]
async fn who_may_read_the_logs_of_pods_may_read_these_and_nobody_else() {
    let Setup { server, .. } = setup().await;
    for (user, code) in [("logger", 200), ("lister", 403), ("one", 403), ("nobody", 403)] {
        let server = Server::of(server.api.clone(), Identity::new(user, Vec::<String>::new()));
        for path in ["j", "j/log?node=near&uid=u-1&container=c", "j?fieldSelector=metadata.name%3Dx"] {
            server.get(&format!("{LOGS}/{path}")).await.is(code);
        }
    }
}

#[tokio::test]
async fn a_job_that_takes_the_name_of_another_does_not_get_its_logs() {
    let Setup { server, nodes, uid } = setup().await;
    server.raw(http::Method::DELETE, &format!("{JOBS}/j"), &[], "").await.is(200);
    server.get(&format!("{LOGS}/j")).await.is(404);
    server.post(JOBS, &job()).await.is(201);
    server.get(&format!("{LOGS}/j")).await.is(200);
    assert!(nodes.0.lock().expect("lock").iter().all(|asked| !asked.contains(&uid)), "asked by the uid of the new one");
}

//! Deleting: grace, finalizers, preconditions, namespaces.

use serde_json::{Value, json};

use super::{CRDS, JOBS, MAPS, PODS, QUEUES, job, map, node, pod, queue};
use crate::cluster::Cluster;

async fn running(cluster: &Cluster, name: &str) {
    let mut object = pod(name);
    object["spec"]["nodeName"] = json!("n");
    cluster.wire.post(PODS, &object).await.is(201);
    cluster.wire.merge(&format!("{PODS}/{name}/status"), &json!({"status": {"phase": "Running"}})).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn bound_pods_get_their_grace() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post("/api/v1/nodes", &node("n")).await.is(201);
    running(&cluster, "p").await;
    let one = format!("{PODS}/p");
    let marked = wire.delete(&one, &Value::Null).await.is(200).body;
    assert_eq!((&marked["kind"], &marked["metadata"]["deletionGracePeriodSeconds"]), (&json!("Pod"), &json!(30)));
    let ends = marked["metadata"]["deletionTimestamp"].as_str().expect("time").to_owned();
    let again = wire.delete(&one, &Value::Null).await.is(200).body;
    assert_eq!(again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"], "nothing changed");
    let longer = wire.delete(&one, &json!({"gracePeriodSeconds": 300})).await.is(200).body;
    assert_eq!(longer["metadata"]["deletionTimestamp"], ends.as_str(), "grace never grows");
    let shorter = wire.delete(&one, &json!({"gracePeriodSeconds": 5})).await.is(200).body;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert!(shorter["metadata"]["deletionTimestamp"].as_str().expect("time") < ends.as_str());
    let revived = wire.merge(&one, &json!({"metadata": {"deletionTimestamp": null}})).await.is(200).body;
    assert!(revived["metadata"]["deletionTimestamp"].is_string(), "a deletion is not taken back");
    let gone = wire.delete(&one, &json!({"gracePeriodSeconds": 0})).await.is(200).body;
    assert_eq!(gone["kind"], "Pod");
    wire.get(&one).await.is(404);
    for (grace, wanted) in [(Some(7), 7), (None, 30)] {
        let name = format!("g{wanted}");
        let mut object = pod(&name);
        object["spec"]["nodeName"] = json!("n");
        if let Some(grace) = grace {
            object["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        }
        wire.post(PODS, &object).await.is(201);
        let marked = wire.delete(&format!("{PODS}/{name}"), &Value::Null).await.is(200).body;
        assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_hold_nothing_go_at_once() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post("/api/v1/nodes", &node("n")).await.is(201);
    wire.post(PODS, &pod("unbound")).await.is(201);
    running(&cluster, "done").await;
    wire.merge(&format!("{PODS}/done/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    for name in ["unbound", "done"] {
        wire.delete(&format!("{PODS}/{name}"), &Value::Null).await.is(200);
        wire.get(&format!("{PODS}/{name}")).await.is(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn finalizers_hold_and_let_go() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    for (collection, mut object) in [(MAPS, map("x")), (JOBS, job("x"))] {
        object["metadata"]["finalizers"] = json!(["a.b/one", "a.b/two"]);
        let one = format!("{collection}/x");
        let made = wire.post(collection, &object).await.is(201);
        let mut watch = wire.watch(&format!("{collection}?watch=1&resourceVersion={}", made.revision())).await;
        let marked = wire.delete(&one, &Value::Null).await.is(200).body;
        assert!(marked["metadata"]["deletionTimestamp"].is_string(), "{marked}");
        wire.post(collection, &object).await.is(409);
        wire.merge(&one, &json!({"metadata": {"finalizers": ["a.b/one"]}})).await.is(200);
        let grown = wire.merge(&one, &json!({"metadata": {"finalizers": ["a.b/one", "a.b/new"]}})).await;
        assert_eq!(grown.code, 422, "{}", grown.text);
        wire.merge(&one, &json!({"metadata": {"finalizers": null}})).await.is(200);
        wire.get(&one).await.is(404);
        assert_eq!(watch.briefs(3).await, ["MODIFIED x", "MODIFIED x", "DELETED x"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn preconditions_are_kept() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let made = wire.post(MAPS, &map("a")).await.is(201).body;
    let one = format!("{MAPS}/a");
    let old = made["metadata"]["resourceVersion"].clone();
    wire.merge(&one, &json!({"data": {"a": "2"}})).await.is(200);
    for condition in [json!({"uid": "other"}), json!({"resourceVersion": old})] {
        let refused = wire.delete(&one, &json!({"preconditions": condition})).await.is(409);
        assert_eq!(refused.body["reason"], "Conflict");
        assert!(refused.message().contains("Precondition failed: "), "{}", refused.message());
    }
    let gone = wire.delete(&one, &json!({"preconditions": {"uid": made["metadata"]["uid"]}})).await.is(200).body;
    let details = json!({"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]});
    let wanted = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details});
    assert_eq!(gone, wanted);
    wire.post(MAPS, &map("a")).await.is(201);
    // Upstream: 422.
    wire.delete(&one, &json!({"propagationPolicy": "Odd"})).await.is(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_deleted_by_selectors() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        wire.post(MAPS, &object).await.is(201);
    }
    let gone = wire
        .delete(&format!("{MAPS}?labelSelector=tier%3Dx&fieldSelector=metadata.name!%3Db"), &Value::Null)
        .await
        .is(200);
    assert_eq!((&gone.body["kind"], gone.names()), (&json!("ConfigMapList"), vec!["a"]));
    assert_eq!(wire.get(MAPS).await.names(), ["b", "c"]);
    wire.delete(MAPS, &Value::Null).await.is(200);
    assert_eq!(wire.get(MAPS).await.names(), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_takes_everything_with_it() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    wire.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.is(201);
    let inside = |path: &str| path.replace("/default/", "/team/");
    let maps = inside(MAPS);
    wire.post(&maps, &map("plain")).await.is(201);
    let mut held = map("held");
    held["metadata"]["finalizers"] = json!(["a.b/c"]);
    wire.post(&maps, &held).await.is(201);
    wire.post(&inside(JOBS), &job("j")).await.is(201);
    wire.post(&inside(PODS), &pod("p")).await.is(201);
    wire.post(MAPS, &map("outside")).await.is(201);
    let marked = wire.delete("/api/v1/namespaces/team", &Value::Null).await.is(200).body;
    assert_eq!((&marked["kind"], &marked["status"]["phase"]), (&json!("Namespace"), &json!("Terminating")));
    let refused = wire.post(&maps, &map("late")).await.is(403);
    assert_eq!(refused.body["reason"], "Forbidden");
    assert_eq!(refused.body["details"]["causes"][0]["reason"], "NamespaceTerminating", "{}", refused.text);
    for path in [format!("{maps}/plain"), inside(&format!("{JOBS}/j")), inside(&format!("{PODS}/p"))] {
        wire.until_gone(&path).await;
    }
    wire.get("/api/v1/namespaces/team").await.is(200);
    wire.merge(&format!("{maps}/held"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    wire.until_gone("/api/v1/namespaces/team").await;
    wire.get(&format!("{MAPS}/outside")).await.is(200);
    wire.post("/api/v1/namespaces", &json!({"metadata": {"name": "team"}})).await.is(201);
    assert_eq!(wire.get(&maps).await.is(200).names(), Vec::<&str>::new());
    for name in ["default", "kube-system"] {
        wire.delete(&format!("/api/v1/namespaces/{name}"), &Value::Null).await.is(403);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_waits_for_its_objects() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    let mut held = job("held");
    held["metadata"]["finalizers"] = json!(["a.b/c"]);
    wire.post(JOBS, &held).await.is(201);
    let definition = format!("{CRDS}/jobs.batch.volcano.sh");
    wire.delete(&definition, &Value::Null).await.is(200);
    wire.until(&format!("{JOBS}/held"), |answer| answer.body["metadata"]["deletionTimestamp"].is_string()).await;
    wire.get(&definition).await.is(200);
    wire.post(JOBS, &job("late")).await.is(405);
    wire.merge(&format!("{JOBS}/held"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    wire.until_gone(&definition).await;
    wire.get(JOBS).await.is(404);
}

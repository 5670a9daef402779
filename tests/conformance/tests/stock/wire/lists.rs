//! Reading collections: selectors, revisions, what is refused.

use serde_json::{Value, json};

use super::{MAPS, PODS, Wire, map, pod};
use crate::cluster::Cluster;

async fn labelled(wire: &Wire) {
    for (name, labels) in
        [("a", json!({"tier": "x"})), ("b", json!({"tier": "y", "env": "prod"})), ("c", json!({"env": "test"}))]
    {
        let mut object = map(name);
        object["metadata"]["labels"] = labels;
        wire.post(MAPS, &object).await.is(201);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_select_as_upstream() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    labelled(wire).await;
    for (selector, wanted) in [
        ("tier=x", "a"),
        ("tier%3D%3Dx", "a"),
        ("tier!=x", "b c"),
        ("tier", "a b"),
        ("!tier", "c"),
        ("env+in+(prod,test)", "b c"),
        ("env+notin+(prod)", "a c"),
        ("tier,env", "b"),
        ("env%20in%20(prod),tier=y", "b"),
        ("tier=", ""),
        ("", "a b c"),
    ] {
        let list = wire.get(&format!("{MAPS}?labelSelector={selector}")).await.is(200);
        assert_eq!(list.names().join(" "), wanted, "{selector}");
    }
    for selector in ["=x", "a+in+x", "a+in+(", "a=b=c", "a/b/c=d", "!a=b", "a,,b"] {
        let refused = wire.get(&format!("{MAPS}?labelSelector={selector}")).await.is(400);
        assert_eq!(refused.body["reason"], "BadRequest", "{selector}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_select_as_upstream() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "")] {
        let mut object = pod(name);
        if !node.is_empty() {
            object["spec"]["nodeName"] = json!(node);
        }
        wire.post(PODS, &object).await.is(201);
    }
    wire.merge(&format!("{PODS}/a/status"), &json!({"status": {"phase": "Running"}})).await.is(200);
    for (selector, wanted) in [
        ("spec.nodeName=n1", "a"),
        ("spec.nodeName=", "c"),
        ("spec.nodeName!=", "a b"),
        ("spec.nodeName!=n1", "b c"),
        ("status.phase=Pending", "b c"),
        ("status.phase!=Pending,spec.nodeName=n1", "a"),
        ("metadata.name=b", "b"),
        ("metadata.name=b,metadata.namespace=default", "b"),
        ("metadata.namespace=other", ""),
        ("spec.schedulerName=default-scheduler", "a b c"),
        ("spec.restartPolicy=Always,spec.serviceAccountName=default", "a b c"),
    ] {
        let list = wire.get(&format!("{PODS}?fieldSelector={selector}")).await.is(200);
        assert_eq!(list.names().join(" "), wanted, "{selector}");
    }
    for selector in ["spec.nothing=1", "spec.nodeName", "spec.nodeName+in+(a)"] {
        wire.get(&format!("{PODS}?fieldSelector={selector}")).await.is(400);
    }
    let refused = wire.get(&format!("{PODS}?fieldSelector=spec.nothing=1")).await;
    assert!(refused.message().contains("field label not supported: spec.nothing"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn revisions_of_lists_follow_the_table() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let old = wire.get(MAPS).await.is(200).revision().to_owned();
    wire.post(MAPS, &map("b")).await.is(201);
    let past = "99999999";
    for (query, code, wanted) in [
        (String::new(), 200, "a b"),
        ("resourceVersion=".into(), 200, "a b"),
        ("resourceVersion=0".into(), 200, "a b"),
        (format!("resourceVersion={old}"), 200, "a b"),
        (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan"), 200, "a b"),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), 200, "a"),
        ("resourceVersion=0&resourceVersionMatch=NotOlderThan".into(), 200, "a b"),
        (format!("resourceVersion={past}"), 504, ""),
        (format!("resourceVersion={past}&resourceVersionMatch=NotOlderThan"), 504, ""),
        (format!("resourceVersion={past}&resourceVersionMatch=Exact"), 504, ""),
        ("resourceVersion=abc".into(), 400, ""),
        ("resourceVersion=-1".into(), 400, ""),
        ("timeoutSeconds=abc".into(), 400, ""),
        // Upstream: 422.
        ("resourceVersionMatch=Exact".into(), 400, ""),
        ("resourceVersion=0&resourceVersionMatch=Exact".into(), 400, ""),
        (format!("resourceVersion={old}&resourceVersionMatch=Odd"), 400, ""),
        ("sendInitialEvents=true".into(), 400, ""),
    ] {
        let answer = wire.get(&format!("{MAPS}?{query}")).await;
        assert_eq!(answer.code, code, "{query}: {}", answer.text);
        if code == 200 {
            assert_eq!(answer.names().join(" "), wanted, "{query}");
        }
    }
    let late = wire.get(&format!("{MAPS}?resourceVersion={past}")).await.body;
    assert_eq!((&late["reason"], &late["code"]), (&json!("Timeout"), &json!(504)), "{late}");
    assert_eq!(late["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{late}");
    assert!(late["details"]["retryAfterSeconds"].is_number(), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_has_items_and_a_revision() {
    let cluster = Cluster::start().await;
    let list = cluster.wire.get(MAPS).await.is(200);
    assert_eq!((&list.body["kind"], &list.body["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!(list.body["items"], json!([]));
    assert!(list.revision().parse::<u64>().expect("number") > 0);
    let none = cluster.wire.get("/api/v1/namespaces/no-such/configmaps").await.is(200);
    assert_eq!(none.body["items"], Value::Array(Vec::new()));
    let empty = cluster.wire.get(&format!("{MAPS}?limit=1")).await.is(200);
    assert!(empty.body["metadata"]["continue"].as_str().unwrap_or_default().is_empty());
}

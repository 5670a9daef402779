//! Watches: snapshots, transitions, bookmarks, ends.

use serde_json::{Value, json};

use crate::harness::{MAPS, config_map, server};

#[tokio::test]
async fn a_watch_starts_with_what_is_there() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    for query in ["?watch=1", "?watch=true&resourceVersion=0"] {
        let mut events = server.watch(&format!("{MAPS}{query}")).await;
        assert_eq!(events.change().await, "ADDED a", "{query}");
    }
    let revision = server.get(MAPS).await.body["metadata"]["resourceVersion"].as_str().expect("revision").to_owned();
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    server.post(MAPS, &config_map("b")).await.is(201);
    server.merge(&format!("{MAPS}/b"), &json!({"data": {"x": "y"}})).await.is(200);
    server.delete(&format!("{MAPS}/b"), &Value::Null).await.is(200);
    for wanted in ["ADDED b", "MODIFIED b", "DELETED b"] {
        assert_eq!(events.change().await, wanted);
    }
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    let path =
        format!("{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true");
    for (accept, kind) in [
        ("application/json", "ConfigMap"),
        ("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "PartialObjectMetadata"),
        ("application/json;as=Table;g=meta.k8s.io;v=v1", "Table"),
    ] {
        let mut events = server.watch_as(&path, accept).await;
        let first = events.next().await.expect("event");
        assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!(kind)));
        let second = events.next().await.expect("event");
        assert_eq!(second["type"], "BOOKMARK");
        let metadata = &second["object"]["metadata"];
        assert_eq!(metadata["annotations"]["k8s.io/initial-events-end"], "true");
        assert!(metadata["resourceVersion"].as_str().expect("text").parse::<u64>().expect("number") > 0);
        let third = events.next().await.expect("a periodic bookmark");
        assert_eq!(third["type"], "BOOKMARK");
    }
}

#[tokio::test]
async fn parameters_that_make_no_sense_are_refused() {
    let server = server().await;
    for (query, code) in [
        ("resourceVersionMatch=NotOlderThan", 422),
        ("sendInitialEvents=true", 422),
        ("sendInitialEvents=true&resourceVersionMatch=Exact", 422),
        ("resourceVersion=999999", 504),
        ("resourceVersion=abc", 400),
        ("timeoutSeconds=-1", 400),
    ] {
        server.get(&format!("{MAPS}?watch=1&{query}")).await.is(code);
    }
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let server = server().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&labelSelector=tier%3Dx")).await;
    server.post(MAPS, &config_map("a")).await.is(201);
    for (labels, wanted) in [
        (json!({"tier": "x"}), "ADDED a"),
        (json!({"tier": "x", "more": "1"}), "MODIFIED a"),
        (json!({"tier": "y"}), "DELETED a"),
        (json!({"tier": "x"}), "ADDED a"),
    ] {
        server.merge(&format!("{MAPS}/a"), &json!({"metadata": {"labels": labels}})).await.is(200);
        assert_eq!(events.change().await, wanted);
    }
    let mut named = server.watch("/api/v1/configmaps?watch=1&fieldSelector=metadata.name%3Db").await;
    server.post(MAPS, &config_map("b")).await.is(201);
    assert_eq!(named.change().await, "ADDED b");
}

#[tokio::test]
async fn a_watch_ends_at_its_time() {
    let server = server().await;
    let mut events = server.watch(&format!("{MAPS}?watch=1&timeoutSeconds=0")).await;
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn a_watch_from_the_past_gets_410() {
    use std::sync::Arc;

    use pumice_apiserver::{AdmitAll, NoNodes};
    use pumice_store::{Options, Store};

    let options = Options { window_events_max: 4, ..Options::default() };
    let store = Store::in_memory(options).expect("store");
    let server = crate::harness::over(store, Arc::new(AdmitAll), Arc::new(NoNodes)).await;
    let first = server.post(MAPS, &config_map("a")).await.is(201).body;
    for value in 0..12 {
        server.merge(&format!("{MAPS}/a"), &json!({"data": {"v": value.to_string()}})).await.is(200);
    }
    let revision = first["metadata"]["resourceVersion"].as_str().expect("revision");
    let mut events = server.watch(&format!("{MAPS}?watch=1&resourceVersion={revision}")).await;
    let event = events.next().await.expect("event");
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&event["object"]["code"], &event["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert_eq!(events.next().await, None);
    server.get(&format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact")).await.is(410);
}

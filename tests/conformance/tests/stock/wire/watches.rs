//! Following changes: initial events, bookmarks, selectors, ends and 410.

use pumice_store::Options;
use serde_json::{Value, json};

use super::{Answer, CRDS, JOBS, Lines, MAPS, PODS, Wire, job, map, pod};
use crate::cluster::Cluster;

const STREAM: &str = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn change(wire: &Wire, name: &str, value: &str) -> String {
    wire.merge(&format!("{MAPS}/{name}"), &json!({"data": {"a": value}})).await.is(200).revision().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn initial_events_end_with_their_bookmark() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    for name in ["a", "b"] {
        wire.post(MAPS, &map(name)).await.is(201);
    }
    let current = wire.get(MAPS).await.revision().parse::<u64>().expect("number");
    for query in [STREAM.to_owned(), format!("{STREAM}&resourceVersion=0"), format!("{STREAM}&resourceVersion=1")] {
        let mut watch = wire.watch(&format!("{MAPS}?{query}")).await;
        assert_eq!(watch.briefs(2).await, ["ADDED a", "ADDED b"], "{query}");
        let mark = watch.next().await.expect("bookmark");
        assert_eq!(mark["type"], "BOOKMARK", "{query}");
        let object = &mark["object"];
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(object["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
        let revision = object["metadata"]["resourceVersion"].as_str().expect("text").parse::<u64>().expect("number");
        assert!(revision >= current, "{revision} {current}");
    }
    let mut empty = wire.watch(&format!("{JOBS}?{STREAM}")).await;
    let mark = empty.next().await.expect("bookmark");
    assert_eq!(mark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{mark}");
    assert_eq!(mark["object"]["kind"], "Job");
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_wishes_are_refused() {
    let cluster = Cluster::start().await;
    for query in [
        "watch=1&sendInitialEvents=true&allowWatchBookmarks=true",
        "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true",
        "watch=1&resourceVersionMatch=NotOlderThan",
        "watch=1&sendInitialEvents=false",
    ] {
        let answer = cluster.wire.get(&format!("{MAPS}?{query}")).await;
        assert_eq!((answer.code, &answer.body["reason"]), (422, &json!("Invalid")), "{query}: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_watch_begins_follows_the_table() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let first = change(wire, "a", "2").await;
    wire.post(MAPS, &map("b")).await.is(201);
    for (revision, wanted) in [
        ("".to_owned(), vec!["ADDED a", "ADDED b", "ADDED c"]),
        ("&resourceVersion=0".to_owned(), vec!["ADDED a", "ADDED b", "ADDED c"]),
        (format!("&resourceVersion={first}"), vec!["ADDED b", "ADDED c"]),
    ] {
        let mut watch = wire.watch(&format!("{MAPS}?watch=1{revision}")).await;
        wire.post(MAPS, &map("c")).await.is(201);
        let seen = watch.briefs(wanted.len()).await;
        assert_eq!(seen, wanted, "{revision}");
        wire.delete(&format!("{MAPS}/c"), &Value::Null).await.is(200);
        assert_eq!(watch.brief().await, "DELETED c");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_turn_changes_into_comings_and_goings() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(PODS, &pod("p")).await.is(201);
    let revision = wire.get(PODS).await.revision().to_owned();
    let mut labels = wire.watch(&format!("{PODS}?watch=1&labelSelector=a%3Db&resourceVersion={revision}")).await;
    let mut fields =
        wire.watch(&format!("{PODS}?watch=1&fieldSelector=status.phase!=Pending&resourceVersion={revision}")).await;
    let path = format!("{PODS}/p");
    for label in ["x", "b", "b", "c", "b"] {
        wire.merge(&path, &json!({"metadata": {"labels": {"a": label}, "annotations": {"n": label}}})).await.is(200);
        wire.merge(&path, &json!({"metadata": {"annotations": {"n": "0"}}})).await.is(200);
    }
    for phase in ["Running", "Pending", "Failed"] {
        wire.merge(&format!("{path}/status"), &json!({"status": {"phase": phase}})).await.is(200);
    }
    wire.delete(&path, &json!({"gracePeriodSeconds": 0})).await.is(200);
    let wanted = ["ADDED p", "MODIFIED p", "MODIFIED p", "MODIFIED p", "DELETED p", "ADDED p", "MODIFIED p"];
    assert_eq!(labels.briefs(7).await, wanted);
    assert_eq!(labels.briefs(4).await, ["MODIFIED p", "MODIFIED p", "MODIFIED p", "DELETED p"]);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let event = fields.next().await.expect("event");
        let phase = event["object"]["status"]["phase"].as_str().unwrap_or_default().to_owned();
        seen.push(format!("{} {phase}", event["type"].as_str().unwrap_or_default()));
    }
    // The third is the last state that matched: a client finds it in its own store by what it knows.
    assert_eq!(seen, ["ADDED Running", "DELETED Running", "ADDED Failed", "DELETED Failed"]);
}

// INV-2
#[tokio::test(flavor = "multi_thread")]
async fn revisions_of_a_watch_only_grow() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let mut watch = wire.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true")).await;
    let writers = (0..8).map(|number| {
        let wire = wire.clone();
        async move {
            let name = format!("m{number}");
            wire.post(MAPS, &map(&name)).await.is(201);
            change(&wire, &name, "2").await;
            wire.delete(&format!("{MAPS}/{name}"), &Value::Null).await.is(200);
        }
    });
    futures::future::join_all(writers).await;
    let (mut last, mut deleted) = (0, 0);
    while deleted < 8 {
        let event = watch.next().await.expect("event");
        let revision =
            event["object"]["metadata"]["resourceVersion"].as_str().expect("text").parse::<u64>().expect("number");
        let same = event["type"] == "BOOKMARK" && revision == last;
        assert!(revision > last || same, "{event} after {last}");
        last = revision;
        deleted += usize::from(event["type"] == "DELETED");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_is_expired() {
    let cluster = Cluster::over(Options { window_events_max: 4, ..Options::default() }).await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let old = wire.get(MAPS).await.revision().to_owned();
    for number in 0..10 {
        change(wire, "a", &format!("v{number}")).await;
    }
    let mut watch = wire.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    assert_eq!(watch.code, 200);
    let event = watch.next().await.expect("event");
    let status = &event["object"];
    assert_eq!(event["type"], "ERROR");
    assert_eq!((&status["kind"], &status["apiVersion"]), (&json!("Status"), &json!("v1")));
    assert_eq!(
        (&status["code"], &status["reason"], &status["status"]),
        (&json!(410), &json!("Expired"), &json!("Failure"))
    );
    assert!(status["message"].as_str().expect("text").contains("too old resource version"), "{status}");
    assert_eq!(watch.next().await, None, "the stream ends");
    let exact = wire.get(&format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact")).await.is(410);
    assert_eq!(exact.body["reason"], "Expired");
    // What an informer does next works.
    let list = wire.get(&format!("{MAPS}?resourceVersion=0")).await.is(200);
    let mut watch = wire.watch(&format!("{MAPS}?watch=1&resourceVersion={}", list.revision())).await;
    change(wire, "a", "last").await;
    assert_eq!(watch.brief().await, "MODIFIED a");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_future_revision_is_too_large() {
    let cluster = Cluster::start().await;
    for query in ["watch=1", STREAM] {
        let refused =
            cluster.wire.get(&format!("{MAPS}?{query}&resourceVersion=99999999&timeoutSeconds=1")).await.is(504);
        assert_eq!(refused.body["reason"], "Timeout", "{}", refused.text);
        assert!(refused.message().starts_with("Too large resource version"), "{}", refused.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_a_watch_and_bookmarks_fill_it() {
    let cluster = Cluster::start().await;
    let mut watch = cluster.wire.watch(&format!("{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=1")).await;
    let mut marks = 0;
    while let Some(event) = watch.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        assert!(event["object"]["metadata"].get("annotations").is_none());
        marks += 1;
    }
    assert!(marks > 0);
    let mut quiet = cluster.wire.watch(&format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(quiet.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_is_watched_by_its_name() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let mut watch = wire.watch(&format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da")).await;
    for name in ["b", "a", "c"] {
        wire.post(MAPS, &map(name)).await.is(201);
    }
    wire.delete(&format!("{MAPS}/a"), &Value::Null).await.is(200);
    assert_eq!(watch.briefs(2).await, ["ADDED a", "DELETED a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_event_carries_the_last_state_and_a_new_revision() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let made = wire.post(MAPS, &map("a")).await.is(201);
    let mut watch = wire.watch(&format!("{MAPS}?watch=1&resourceVersion={}", made.revision())).await;
    wire.delete(&format!("{MAPS}/a"), &Value::Null).await.is(200);
    let event = watch.next().await.expect("event");
    assert_eq!((&event["type"], &event["object"]["data"]), (&json!("DELETED"), &json!({"a": "1"})));
    let revision: u64 = event["object"]["metadata"]["resourceVersion"].as_str().expect("text").parse().expect("number");
    assert!(revision > made.revision().parse().expect("number"));
    assert_eq!(event["object"]["metadata"]["uid"], made.body["metadata"]["uid"]);
}

/// Definitions with one open object, `widgets.shop.io`.
fn widgets() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.shop.io"},
        "spec": {
            "group": "shop.io", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1},
                        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                }}}}}}],
        },
    })
}

const WIDGETS: &str = "/apis/shop.io/v1/namespaces/default/widgets";

fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "shop.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size, "odd": 1}})
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_come_and_go_while_others_are_watched() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let mut maps = wire.watch(&format!("{MAPS}?watch=1")).await;
    let mut definitions = wire.watch(&format!("{CRDS}?watch=1&fieldSelector=metadata.name%3Dwidgets.shop.io")).await;
    wire.get(WIDGETS).await.is(404);
    wire.post(CRDS, &widgets()).await.is(201);
    let ready = |answer: &Answer| {
        let conditions = answer.body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is = |kind: &str| conditions.iter().any(|one| one["type"] == kind && one["status"] == "True");
        is("Established") && is("NamesAccepted")
    };
    let served = wire.until(&format!("{CRDS}/widgets.shop.io"), ready).await;
    assert_eq!(served.body["status"]["acceptedNames"]["plural"], "widgets");
    let made = wire.post(WIDGETS, &widget("w", 3)).await.is(201);
    assert_eq!(made.body["spec"], json!({"size": 3, "colour": "red"}), "defaulted and pruned");
    wire.post(WIDGETS, &widget("small", 0)).await.is(422);
    let mut watch = wire.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.brief().await, "ADDED w");
    wire.delete(&format!("{CRDS}/widgets.shop.io"), &Value::Null).await.is(200);
    assert_eq!(watch.brief().await, "DELETED w", "objects go with their definition");
    ends(&mut watch).await;
    wire.until_gone(&format!("{CRDS}/widgets.shop.io")).await;
    wire.get(WIDGETS).await.is(404);
    // A second definition of the same name starts empty.
    wire.post(CRDS, &widgets()).await.is(201);
    assert_eq!(wire.until(WIDGETS, |answer| answer.code == 200).await.body["items"], json!([]));
    wire.post(WIDGETS, &widget("again", 1)).await.is(201);
    wire.post(MAPS, &map("still-here")).await.is(201);
    assert_eq!(maps.brief().await, "ADDED still-here");
    assert_eq!(definitions.brief().await, "ADDED widgets.shop.io");
}

async fn ends(watch: &mut Lines) {
    while let Some(event) = watch.next().await {
        assert!(event["type"] == "BOOKMARK" || event["type"] == "ERROR", "{event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_schema_holds_at_once() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(CRDS, &widgets()).await.is(201);
    wire.until(WIDGETS, |answer| answer.code == 200).await;
    wire.post(WIDGETS, &widget("w", 3)).await.is(201);
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/minimum";
    let patch = json!([{"op": "replace", "path": path, "value": 5}]).to_string();
    wire.patch(&format!("{CRDS}/widgets.shop.io"), "json-patch+json", &patch).await.is(200);
    let refused = wire.post(WIDGETS, &widget("x", 3)).await.is(422);
    assert_eq!(refused.body["details"]["causes"][0]["field"], "spec.size", "{}", refused.text);
    wire.post(WIDGETS, &widget("x", 5)).await.is(201);
    wire.get(&format!("{WIDGETS}/w")).await.is(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_watched_like_built_ins() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(super::QUEUES, &super::queue("default")).await.is(201);
    let mut watch = wire.watch(&format!("{JOBS}?watch=1&resourceVersion=0")).await;
    wire.post(JOBS, &job("j")).await.is(201);
    wire.merge(&format!("{JOBS}/j/status"), &json!({"status": {"state": {"phase": "Running"}}})).await.is(200);
    wire.delete(&format!("{JOBS}/j"), &Value::Null).await.is(200);
    assert_eq!(watch.briefs(3).await, ["ADDED j", "MODIFIED j", "DELETED j"]);
}

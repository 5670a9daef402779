//! Events of `events.k8s.io/v1`: those of the core, under other names.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Server, server};

const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
const CORE: &str = "/api/v1/namespaces/default/events";

fn event(name: &str) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name},
        "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "example.com/controller",
        "reportingInstance": "controller-0", "action": "Creating", "reason": "Created", "type": "Normal",
        "note": "made a pod", "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"},
    })
}

async fn with_event() -> Server {
    let server = server().await;
    server.post(EVENTS, &event("a")).await.is(201);
    server
}

#[tokio::test]
async fn one_event_has_two_forms() {
    let server = server().await;
    let made = server.post(EVENTS, &event("a")).await.is(201).body;
    assert_eq!((&made["apiVersion"], &made["note"]), (&json!("events.k8s.io/v1"), &json!("made a pod")));
    let core = server.get(&format!("{CORE}/a")).await.is(200).body;
    for (field, value) in [
        ("apiVersion", json!("v1")),
        ("message", json!("made a pod")),
        ("reportingComponent", json!("example.com/controller")),
        ("involvedObject", json!({"kind": "Pod", "name": "p", "namespace": "default"})),
        ("note", Value::Null),
        ("regarding", Value::Null),
    ] {
        assert_eq!(core[field], value, "{field}");
    }
    assert_eq!(core["metadata"], made["metadata"]);

    let old = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "old"}, "involvedObject": {"kind": "Node", "name": "n"},
        "message": "m", "source": {"component": "kubelet", "host": "n"}, "count": 3, "reason": "Started",
        "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:05:05Z", "type": "Warning",
    });
    server.post(CORE, &old).await.is(201);
    let seen = server.get(&format!("{EVENTS}/old")).await.is(200).body;
    assert_eq!(seen["regarding"], old["involvedObject"]);
    assert_eq!((&seen["deprecatedCount"], &seen["deprecatedSource"]), (&json!(3), &old["source"]));
    assert_eq!(seen["deprecatedLastTimestamp"], old["lastTimestamp"]);
    let list = server.get(EVENTS).await.is(200).body;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("EventList"), &json!("events.k8s.io/v1")));
    let notes: Vec<&Value> = list["items"].as_array().expect("items").iter().map(|one| &one["note"]).collect();
    assert_eq!(notes, ["made a pod", "m"]);

    server.delete(&format!("{EVENTS}/a"), &Value::Null).await.is(200);
    server.get(&format!("{CORE}/a")).await.is(404);
}

#[tokio::test]
async fn events_are_selected_watched_and_changed_in_the_newer_form() {
    let server = server().await;
    let mut watch = server.watch(&format!("{EVENTS}?watch=1&fieldSelector=regarding.name%3Dp")).await;
    let mut other = event("b");
    other["regarding"]["name"] = json!("q");
    server.post(EVENTS, &other).await.is(201);
    server.post(EVENTS, &event("a")).await.is(201);
    let told = watch.next().await.expect("an event");
    assert_eq!((&told["type"], &told["object"]["regarding"]["name"]), (&json!("ADDED"), &json!("p")));
    for (selector, count) in [
        ("regarding.name%3Dp", 1),
        ("regarding.kind%3DPod", 2),
        ("reportingController%3Dexample.com/controller,type%3DNormal", 2),
        ("reason%3DOther", 0),
    ] {
        let list = server.get(&format!("{EVENTS}?fieldSelector={selector}")).await.is(200).body;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(count), "{selector}");
    }
    server.get(&format!("{EVENTS}?fieldSelector=involvedObject.name%3Dp")).await.is(400);

    // As client-go tells that it happened again.
    let series = json!({"series": {"count": 3, "lastObservedTime": "2026-01-02T03:05:06.000000Z"}});
    let path = format!("{EVENTS}/a");
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    let patched = server.raw(Method::PATCH, &path, &strategic, series.to_string()).await.is(200).body;
    assert_eq!((&patched["series"]["count"], &patched["note"]), (&json!(3), &json!("made a pod")));
    let mut replaced = patched.clone();
    replaced["metadata"]["labels"] = json!({"k": "v"});
    server.put(&path, &replaced).await.is(200);
    assert_eq!(server.get(&format!("{CORE}/a")).await.body["message"], "made a pod");
    let told = watch.next().await.expect("an event");
    assert_eq!((&told["type"], &told["object"]["series"]["count"]), (&json!("MODIFIED"), &json!(3)));
}

#[tokio::test]
async fn the_newer_form_has_stricter_rules() {
    let server = with_event().await;
    let broken: [(&str, Value, &str); 10] = [
        ("eventTime", Value::Null, "eventTime: Required value"),
        ("reportingController", json!(""), "reportingController: Required value"),
        ("reportingController", json!("a b"), "reportingController: Invalid value"),
        ("reportingInstance", Value::Null, "reportingInstance: Required value"),
        ("action", Value::Null, "action: Required value"),
        ("reason", json!("r".repeat(129)), "reason: Invalid value: \"\": can have at most 128 characters"),
        ("note", json!("n".repeat(1025)), "message: Invalid value: \"\": can have at most 1024 characters"),
        ("type", json!("Odd"), "type: Invalid value: \"\": has invalid value: Odd"),
        ("deprecatedCount", json!(1), "count: Invalid value: \"\": needs to be unset"),
        ("series", json!({"count": 1, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}), "should be at least 2"),
    ];
    for (field, value, text) in broken {
        let mut wanted = event("b");
        wanted[field] = value;
        let refused = server.post(EVENTS, &wanted).await.is(422);
        assert!(refused.message().contains(text), "{field}: {}", refused.message());
    }
    for (patch, text) in [
        (json!({"note": "other"}), "message: Invalid value: \"other\": field is immutable"),
        (json!({"eventTime": "2026-01-02T03:04:05.000007Z"}), "eventTime: Invalid value"),
        (json!({"series": {"count": 1}}), "series.count: Invalid value"),
    ] {
        let refused = server.merge(&format!("{EVENTS}/a"), &patch).await.is(422);
        assert!(refused.message().contains(text), "{}", refused.message());
    }
    let same = json!({"eventTime": "2026-01-02T03:04:05.0000069Z"});
    server.merge(&format!("{EVENTS}/a"), &same).await.is(200);
}

#[tokio::test]
async fn events_are_shown_as_tables_and_described() {
    let server = with_event().await;
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let rows = |answer: Value| {
        let mut cells = answer["rows"][0]["cells"].as_array().expect("cells").clone();
        // Ages move on.
        cells.remove(0);
        cells.remove(6);
        cells
    };
    let newer = rows(server.raw(Method::GET, EVENTS, &table, "").await.is(200).body);
    assert_eq!(newer, rows(server.raw(Method::GET, CORE, &table, "").await.is(200).body));
    assert_eq!(newer[..3], [json!("Normal"), json!("Created"), json!("pod/p")]);
    let resources = server.get("/apis/events.k8s.io/v1").await.is(200).body;
    assert_eq!(resources["resources"][0]["name"], "events");
    let document = server.get("/openapi/v3/apis/events.k8s.io/v1").await.is(200).text;
    assert!(document.contains("io.k8s.api.events.v1.Event"));
}

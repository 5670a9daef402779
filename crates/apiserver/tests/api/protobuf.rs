//! Bodies as typed Go clients send them.

use http::Method;
use serde_json::Value;

use crate::definitions::definition;
use crate::harness::{Answer, MAPS, PODS, Server, config_map, pod, server};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// One field with a text, or another message, in it.
fn field(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    let length = u8::try_from(content.len()).ok().filter(|length| *length < 0x80).expect("short");
    [&[number << 3 | 2, length], content].concat()
}

fn body(version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let meta = [field(1, version), field(2, kind)].concat();
    [b"k8s\0".to_vec(), field(1, meta), field(2, raw)].concat()
}

async fn send(server: &Server, method: Method, path: &str, body: Vec<u8>) -> Answer {
    let accept = format!("{PROTOBUF},application/json");
    server.raw(method, path, &[("content-type", PROTOBUF), ("accept", &accept)], body).await
}

#[tokio::test]
async fn objects_are_made_and_replaced() {
    let server = server().await;
    let entry = |value: &str| field(2, [field(1, "k"), field(2, value)].concat());
    let map = |value: &str| body("v1", "ConfigMap", &[field(1, field(1, "a")), entry(value)].concat());
    let made = send(&server, Method::POST, MAPS, map("v")).await.is(201);
    assert_eq!((&made.body["data"]["k"], &made.body["metadata"]["name"]), (&"v".into(), &"a".into()));
    send(&server, Method::PUT, &format!("{MAPS}/a"), map("w")).await.is(200);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.body["data"]["k"], "w");
    let other = body("v1", "Secret", &field(1, field(1, "a")));
    let answer = send(&server, Method::POST, MAPS, other).await.is(400);
    assert!(answer.message().contains("does not match the expected kind"), "{}", answer.text);
}

#[tokio::test]
async fn bindings_evictions_and_deletions_are_read() {
    let server = server().await;
    server.post(PODS, &pod("p")).await.is(201);
    let target = [field(1, "Node"), field(3, "n")].concat();
    let binding = body("v1", "Binding", &[field(1, field(1, "p")), field(2, target)].concat());
    send(&server, Method::POST, &format!("{PODS}/p/binding"), binding).await.is(201);
    assert_eq!(server.get(&format!("{PODS}/p")).await.body["spec"]["nodeName"], "n");
    let eviction = body("policy/v1", "Eviction", &field(1, field(1, "p")));
    send(&server, Method::POST, &format!("{PODS}/p/eviction"), eviction).await.is(201);
    assert!(server.get(&format!("{PODS}/p")).await.body["metadata"]["deletionTimestamp"].is_string());
    // Zero seconds are not none.
    let at_once = body("v1", "DeleteOptions", &[1 << 3, 0]);
    send(&server, Method::DELETE, &format!("{PODS}/p"), at_once).await.is(200);
    server.get(&format!("{PODS}/p")).await.is(404);
    server.post(MAPS, &config_map("kept")).await.is(201);
    let other = body("apps/v1", "DeleteOptions", &field(2, field(1, "another uid")));
    send(&server, Method::DELETE, &format!("{MAPS}/kept"), other).await.is(409);
}

#[tokio::test]
async fn defined_kinds_have_no_protobuf_form() {
    let server = server().await;
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition()).await.is(201);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = body("example.com/v1", "Widget", &field(1, field(1, "a")));
    let answer = send(&server, Method::POST, widgets, widget).await.is(415);
    assert!(!answer.message().contains("protobuf"), "{}", answer.text);
    server.post(widgets, &crate::definitions::widget("w")).await.is(201);
    let options = body("v1", "DeleteOptions", &[]);
    send(&server, Method::DELETE, &format!("{widgets}/w"), options).await.is(200);
    assert_eq!(server.get(&format!("{widgets}/w")).await.body["kind"], Value::from("Status"));
}

#[tokio::test]
async fn events_and_endpoint_slices_are_read() {
    let server = server().await;
    let named = |name: &str| field(1, [field(1, name), field(3, "default")].concat());
    // Half past the first hour of 1970, by seconds.
    let time = field(2, [1 << 3, 0x88, 0x0e]);
    let event = [
        named("e"),
        time,
        field(4, "example.com/c"),
        field(5, "c-0"),
        field(6, "Act"),
        field(7, "Because"),
        field(8, [field(1, "Pod"), field(2, "default"), field(3, "p")].concat()),
        field(10, "a note"),
        field(11, "Normal"),
    ];
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    send(&server, Method::POST, events, body("events.k8s.io/v1", "Event", &event.concat())).await.is(201);
    let made = server.get("/api/v1/namespaces/default/events/e").await.is(200).body;
    assert_eq!((&made["message"], &made["involvedObject"]["name"]), (&"a note".into(), &"p".into()));
    assert_eq!(made["eventTime"], "1970-01-01T00:30:00.000000Z");

    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let slice = [named("s"), field(2, field(1, "10.0.0.1")), field(4, "IPv4")].concat();
    send(&server, Method::POST, slices, body("discovery.k8s.io/v1", "EndpointSlice", &slice)).await.is(201);
    let made = server.get(&format!("{slices}/s")).await.is(200).body;
    assert_eq!((&made["addressType"], &made["endpoints"][0]["addresses"][0]), (&"IPv4".into(), &"10.0.0.1".into()));
}

//! Numbers: what is out of range is refused, in pods and in templates; what was stored before that can be worked on.

use std::sync::Arc;

use pumice_apiserver::{AdmitAll, NoNodes};
use pumice_store::{Change, Draft, Expect, Key, Options, Store};
use serde_json::{Value, json};

use crate::harness::{PODS, over, pod, server};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const IDENTITY: &str = "must be between 0 and 2147483647, inclusive";

fn deployment(name: &str, template: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": template,
        }},
    })
}

/// A change of a pod's specification.
struct Wrong {
    /// The member that is set.
    pointer: &'static str,
    value: Value,
    /// What is said of it.
    told: String,
}

fn wrong() -> Vec<Wrong> {
    let of = |pointer, value, told| Wrong { pointer, value, told };
    let identity = |path: &str, value: i64| format!("{path}: Invalid value: {value}: {IDENTITY}");
    vec![
        of("/containers/0/securityContext", json!({"runAsUser": -1}), identity("spec.containers[0].securityContext.runAsUser", -1)),
        of(
            "/containers/0/securityContext",
            json!({"runAsUser": 4_294_967_296_i64}),
            identity("spec.containers[0].securityContext.runAsUser", 4_294_967_296),
        ),
        of(
            "/containers/0/securityContext",
            json!({"runAsGroup": 4_294_967_297_i64}),
            identity("spec.containers[0].securityContext.runAsGroup", 4_294_967_297),
        ),
        of("/securityContext", json!({"fsGroup": -1}), identity("spec.securityContext.fsGroup", -1)),
        of("/securityContext", json!({"supplementalGroups": [0, -1]}), identity("spec.securityContext.supplementalGroups[1]", -1)),
        of(
            "/initContainers",
            json!([{"name": "i", "image": "x:1", "securityContext": {"runAsUser": -7}}]),
            identity("spec.initContainers[0].securityContext.runAsUser", -7),
        ),
        of(
            "/containers/0/ports",
            json!([{"containerPort": 65_536}]),
            "spec.containers[0].ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive".into(),
        ),
        of(
            "/containers/0/livenessProbe",
            json!({"tcpSocket": {"port": 0}}),
            "spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive".into(),
        ),
        of(
            "/containers/0/livenessProbe",
            json!({"exec": {"command": ["true"]}, "periodSeconds": -1}),
            "spec.containers[0].livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0".into(),
        ),
        of(
            "/volumes",
            json!([{"name": "v", "secret": {"secretName": "s", "defaultMode": 512}}]),
            "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive".into(),
        ),
        of(
            "/volumes",
            json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 1}}]}}]),
            "spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: \
             may not specify a duration less than 10 minutes"
                .into(),
        ),
        of(
            "/terminationGracePeriodSeconds",
            json!(-1),
            "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0".into(),
        ),
    ]
}

/// Sets the member that a pointer leads to, of an object or of the first item of a list.
fn set(spec: &mut Value, pointer: &str, value: Value) {
    let (parent, member) = pointer.rsplit_once('/').expect("a pointer");
    spec.pointer_mut(parent).expect("its parent")[member] = value;
}

#[tokio::test]
async fn a_number_out_of_range_is_refused_in_a_pod_and_in_a_template() {
    let server = server().await;
    for Wrong { pointer, value, told } in wrong() {
        let mut wanted = pod("a");
        set(&mut wanted["spec"], pointer, value);
        let refused = server.post(PODS, &wanted).await.is(422);
        assert!(refused.message().contains(&told), "{told}: {}", refused.message());
        let refused = server.post(DEPLOYMENTS, &deployment("d", &wanted["spec"])).await.is(422);
        assert!(refused.message().contains(&format!("spec.template.{told}")), "{told}: {}", refused.message());
    }
}

#[tokio::test]
async fn an_integer_is_written_as_one() {
    let server = server().await;
    for number in ["1e3", "1000.0", "1.5", "\"1000\"", "9223372036854775808", "1e30", "true", "[]"] {
        let text = pod("a").to_string().replacen(
            "\"spec\":{",
            &format!("\"spec\":{{\"securityContext\":{{\"runAsUser\":{number}}},"),
            1,
        );
        let refused = server.raw(http::Method::POST, PODS, &[], text).await.is(422);
        assert!(refused.message().contains("spec.securityContext.runAsUser"), "{number}: {}", refused.message());
    }
}

/// Puts an object into a store as an earlier release left it there.
async fn store_before(store: &Store, resource: &str, mut object: Value) {
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    object["metadata"]["namespace"] = json!("default");
    object["metadata"]["uid"] = json!(format!("00000000-0000-7000-8000-{:012}", name.len()));
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["resourceVersion"] = json!("@");
    let text = object.to_string();
    let (head, tail) = text.split_once('@').expect("the place of the revision");
    let draft = Draft::new(head.to_owned(), tail.to_owned());
    let key = Key::new(resource, "default", name.as_str());
    store.apply(Change::Put { key, draft, expect: Expect::Absent }).await.expect("stored");
}

#[tokio::test]
async fn what_was_stored_before_can_be_labelled_told_of_mended_and_deleted() {
    // With all that a server fills in, as an earlier release had it.
    let model = server().await;
    let mut old = model.post(PODS, &pod("old")).await.is(201).body;
    let mut older = model.post(DEPLOYMENTS, &deployment("old-one", &pod("old")["spec"])).await.is(201).body;
    let store = Store::in_memory(Options::default()).expect("store");
    old["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 4_294_967_296_i64});
    old["metadata"]["finalizers"] = json!(["example.com/held"]);
    store_before(&store, "pods", old.clone()).await;
    older["spec"]["template"]["spec"]["containers"] = old["spec"]["containers"].clone();
    store_before(&store, "apps/deployments", older).await;
    let server = over(store, Arc::new(AdmitAll), Arc::new(NoNodes)).await;

    let path = format!("{PODS}/old");
    let served = server.get(&path).await.is(200);
    assert_eq!(served.body["spec"]["containers"][0]["securityContext"]["runAsUser"], 4_294_967_296_i64);
    server.merge(&format!("{path}/status"), &json!({"status": {"phase": "Failed", "reason": "Seen"}})).await.is(200);
    server.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    let worse = server.merge(&path, &json!({"spec": {"terminationGracePeriodSeconds": -1}})).await.is(422);
    assert!(!worse.message().contains("runAsUser"), "{}", worse.message());
    server.delete(&path, &Value::Null).await.is(200);
    server.merge(&path, &json!({"metadata": {"finalizers": null}})).await.is(200);
    server.until(&path, 404).await;

    let path = format!("{DEPLOYMENTS}/old-one");
    server.merge(&path, &json!({"metadata": {"annotations": {"a": "b"}}})).await.is(200);
    let container = |user: i64| {
        let mut container = old["spec"]["containers"][0].clone();
        container["securityContext"] = json!({"runAsUser": user});
        json!({"spec": {"template": {"spec": {"containers": [container]}}}})
    };
    server.merge(&path, &container(-1)).await.is(422);
    server.merge(&path, &container(1000)).await.is(200);
    server.merge(&path, &container(4_294_967_296)).await.is(422);
    server.delete(&path, &Value::Null).await.is(200);
}

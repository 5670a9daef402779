//! `spec` and `status` where nobody gave them: as Kubernetes writes them, whatever verb shows the object.

use http::Method;
use pumice_apiserver::{AdmitAll, NoNodes};
use pumice_store::{Change, Draft, Expect, Key, Options, Store};
use serde_json::{Value, json};

use crate::definitions::{WIDGETS, widget, with_widgets};
use crate::harness::{MAPS, Server, config_map, over, server};

const NODES: &str = "/api/v1/nodes";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// A kind that has such parts.
struct Least {
    path: &'static str,
    /// The parts as they are shown.
    shown: Value,
    /// The least object.
    object: Value,
}

/// Kinds whose status nobody here writes.
fn least() -> Vec<Least> {
    let of = |path, shown, object| Least { path, shown, object };
    vec![
        of(
            NODES,
            json!({ "spec": {}, "status": {
                "daemonEndpoints": { "kubeletEndpoint": { "Port": 0 } },
                "nodeInfo": {
                    "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "",
                    "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "",
                    "systemUUID": "",
                },
            } }),
            json!({}),
        ),
        of(
            "/api/v1/namespaces",
            json!({ "spec": { "finalizers": ["kubernetes"] }, "status": { "phase": "Active" } }),
            json!({}),
        ),
        // Upstream writes null there.
        of("/api/v1/namespaces/default/limitranges", json!({ "spec": { "limits": [] } }), json!({})),
        of("/apis/coordination.k8s.io/v1/namespaces/default/leases", json!({ "spec": {} }), json!({})),
        of(
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({ "spec": { "podSelector": {}, "policyTypes": ["Ingress"] } }),
            json!({}),
        ),
        of(
            SERVICES,
            json!({
                "spec": {
                    "clusterIP": "None", "clusterIPs": ["None"], "internalTrafficPolicy": "Cluster",
                    "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack", "sessionAffinity": "None",
                    "type": "ClusterIP",
                },
                "status": { "loadBalancer": {} },
            }),
            json!({ "spec": { "clusterIP": "None" } }),
        ),
    ]
}

/// The parts that are looked at.
fn parts(object: &Value) -> Value {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter(|(name, _)| ["spec", "status"].contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

async fn table_of(server: &Server, path: &str) -> u16 {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    server.raw(Method::GET, path, &accept, "").await.code.as_u16()
}

/// Bug: a Node without `spec` ended programs that have no types.
#[tokio::test]
async fn every_verb_shows_them() {
    let server = server().await;
    for Least { path, shown: wanted, mut object } in least() {
        object["metadata"] = json!({ "name": "least" });
        let one = format!("{path}/least");
        let mut watch = server.watch(&format!("{path}?watch=true&fieldSelector=metadata.name%3Dleast")).await;
        let dry = server.post(&format!("{path}?dryRun=All"), &object).await.is(201).body;
        assert_eq!(parts(&dry), wanted, "{path}");
        let made = server.post(path, &object).await.is(201).body;
        assert_eq!(parts(&made), wanted, "{path}");
        assert_eq!(parts(&server.get(&one).await.is(200).body), wanted, "{path}");
        let list = server.get(&format!("{path}?fieldSelector=metadata.name%3Dleast")).await.is(200).body;
        assert_eq!(parts(&list["items"][0]), wanted, "{path}");
        let seen = loop {
            let event = watch.next().await.expect("an event");
            if event["type"] == "ADDED" {
                break event["object"].clone();
            }
        };
        assert_eq!(parts(&seen), wanted, "{path}");
        assert_eq!(table_of(&server, path).await, 200, "{path}");
    }
}

/// What upstream's own code writes at creation, beside defaults.
#[tokio::test]
async fn new_objects_have_what_upstream_adds() {
    let server = server().await;
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let pod = |labels: Value| {
        json!({ "metadata": { "labels": labels },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } })
    };
    // A Job without labels has its template's, those that tell its pods among them; one with labels keeps its own.
    for (name, own, of_pods, has) in [
        ("taken", Value::Null, json!({ "a": "b" }), ["a", "job-name"].as_slice()),
        ("own", json!({ "a": "b" }), json!({ "a": "b" }), &["a"]),
        ("none", Value::Null, Value::Null, &[]),
    ] {
        let job = json!({ "metadata": { "name": name, "labels": own }, "spec": { "suspend": true, "template": pod(of_pods) } });
        let made = server.post(jobs, &job).await.is(201).body;
        let labels = made["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        assert_eq!(labels.contains_key("job-name"), has.contains(&"job-name"), "{name}: {labels:?}");
        assert_eq!(labels.contains_key("a"), has.contains(&"a"), "{name}: {labels:?}");
        assert_eq!(made["spec"]["manualSelector"], false, "{name}");
    }
    let mut gated = pod(json!({}));
    gated["metadata"]["name"] = json!("gated");
    gated["spec"]["schedulingGates"] = json!([{ "name": "example.com/gate" }]);
    let made = server.post("/api/v1/namespaces/default/pods", &gated).await.is(201).body;
    let condition = &made["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("SchedulingGated")));
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let endpoint = json!({ "addresses": ["1.2.3.4"], "deprecatedTopology": { "a": "b" } });
    let slice = json!({ "metadata": { "name": "s" }, "addressType": "IPv4", "endpoints": [endpoint] });
    let made = server.post(slices, &slice).await.is(201).body;
    assert_eq!(made["endpoints"][0]["deprecatedTopology"], Value::Null);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = json!({ "metadata": { "name": "low" }, "value": 1, "globalDefault": false });
    assert_eq!(server.post(classes, &class).await.is(201).body.get("globalDefault"), None);
}

#[tokio::test]
async fn no_write_takes_them_away() {
    let server = server().await;
    server.post(NODES, &json!({ "metadata": { "name": "n" } })).await.is(201);
    let path = format!("{NODES}/n");
    let whole = server.get(&path).await.body;
    for (at, kind, patch) in [
        (path.clone(), "application/merge-patch+json", json!({ "spec": null, "status": null })),
        (path.clone(), "application/json-patch+json", json!([{ "op": "remove", "path": "/spec" }])),
        (path.clone(), "application/strategic-merge-patch+json", json!({ "spec": null })),
        (format!("{path}/status"), "application/merge-patch+json", json!({ "status": null })),
        (format!("{path}/status"), "application/json-patch+json", json!([{ "op": "remove", "path": "/status" }])),
        (format!("{path}/status"), "application/merge-patch+json", json!({ "status": { "nodeInfo": null } })),
    ] {
        let same = server.raw(Method::PATCH, &at, &[("content-type", kind)], patch.to_string()).await.is(200).body;
        assert_eq!(same, whole, "{at} {patch}: nothing has changed");
    }
    for path in [path.clone(), format!("{path}/status")] {
        let bare = json!({ "metadata": { "name": "n" } });
        assert_eq!(server.put(&path, &bare).await.is(200).body, whole, "{path}");
    }
    let given =
        json!({ "status": { "phase": "Running", "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } } } });
    let status = server.merge(&format!("{path}/status"), &given).await.is(200).body["status"].clone();
    assert_eq!(status["daemonEndpoints"], given["status"]["daemonEndpoints"]);
    assert_eq!(status["nodeInfo"], whole["status"]["nodeInfo"]);
}

#[tokio::test]
async fn nobody_owns_them_and_an_apply_again_changes_nothing() {
    let server = server().await;
    let apply = [("content-type", "application/apply-patch+yaml")];
    let config = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "labels": { "a": "b" } } });
    let path = format!("{NODES}/n?fieldManager=m");
    let made = server.raw(Method::PATCH, &path, &apply, config.to_string()).await.is(201).body;
    assert_eq!(made["spec"], json!({}));
    let owned = &made["metadata"]["managedFields"][0]["fieldsV1"];
    assert_eq!(*owned, json!({ "f:metadata": { "f:labels": { "f:a": {} } } }));
    let again = server.raw(Method::PATCH, &path, &apply, config.to_string()).await.is(200).body;
    assert_eq!(again, made);
    // Another manager's update is recorded without them, too.
    let other = json!({ "metadata": { "labels": { "c": "d" } } });
    let changed = server.merge(&format!("{NODES}/n?fieldManager=o"), &other).await.is(200).body;
    assert!(!changed["metadata"]["managedFields"].to_string().contains("f:spec"), "{changed}");
}

/// What an older release stored gets them with its next change, which counts as no change of the specification.
#[tokio::test]
async fn objects_of_before_get_them_with_their_next_change() {
    let store = Store::in_memory(Options::default()).expect("store");
    let head = br#"{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"old","namespace":"default","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"resourceVersion":""#;
    let draft = Draft::new(head.to_vec(), br#""}}"#.to_vec());
    let key = Key::new("policy/poddisruptionbudgets", "default", "old");
    store.apply(Change::Put { key, draft, expect: Expect::Absent }).await.expect("put");
    let server = over(store, std::sync::Arc::new(AdmitAll), std::sync::Arc::new(NoNodes)).await;
    let path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/old";
    let labelled = server.merge(path, &json!({ "metadata": { "labels": { "a": "b" } } })).await.is(200).body;
    assert_eq!((&labelled["spec"], &labelled["metadata"]["generation"]), (&json!({}), &json!(1)));
    assert_eq!(labelled["status"]["disruptionsAllowed"], 0);
}

#[tokio::test]
async fn kinds_without_them_and_kinds_of_definitions_get_none() {
    let server = with_widgets().await;
    let map = server.post(MAPS, &config_map("m")).await.is(201).body;
    assert_eq!(parts(&map), json!({}));
    let mut object = widget("w");
    object.as_object_mut().expect("fields").remove("status");
    let made = server.post(WIDGETS, &object).await.is(201).body;
    assert_eq!(made.get("status"), None);
}

//! Kinds that nothing here makes or reads, and that Volcano's and Kubernetes' schedulers list before they begin.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{Server, server};

/// Where a kind is listed, the least object of it, and the first line of its table.
struct Listed {
    path: &'static str,
    object: Value,
    row: Value,
}

fn listed() -> Vec<Listed> {
    let all = [
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            "CSIDriver",
            json!({ "metadata": { "name": "d.example" } }),
            json!(["d.example", true, false, false, "<unset>", false, "Persistent", "0s"]),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            "CSINode",
            json!({ "metadata": { "name": "n" }, "spec": { "drivers": [] } }),
            json!(["n", 0, "0s"]),
        ),
        (
            "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities",
            "CSIStorageCapacity",
            json!({ "metadata": { "name": "c" }, "storageClassName": "fast" }),
            json!(["c", "0s"]),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            "VolumeAttachment",
            json!({
                "metadata": { "name": "a" },
                "spec": { "attacher": "d.example", "nodeName": "n", "source": { "persistentVolumeName": "v" } },
            }),
            json!(["a", "d.example", "v", "n", false, "0s"]),
        ),
        (
            "/apis/resource.k8s.io/v1/deviceclasses",
            "DeviceClass",
            json!({ "metadata": { "name": "gpu" } }),
            json!(["gpu", "0s"]),
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
            "ResourceClaim",
            json!({ "metadata": { "name": "c" }, "spec": { "devices": {} } }),
            json!(["c", "pending", "0s"]),
        ),
        (
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
            "ResourceClaimTemplate",
            json!({ "metadata": { "name": "t" }, "spec": { "spec": {} } }),
            json!(["t", "0s"]),
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "ResourceSlice",
            json!({
                "metadata": { "name": "s" },
                "spec": {
                    "driver": "d.example", "nodeName": "n",
                    "pool": { "name": "p", "generation": 1, "resourceSliceCount": 1 },
                },
            }),
            json!(["s", "n", "d.example", "p", "0s"]),
        ),
        (
            "/api/v1/namespaces/default/replicationcontrollers",
            "ReplicationController",
            json!({
                "metadata": { "name": "r" },
                "spec": { "template": {
                    "metadata": { "labels": { "a": "b" } },
                    "spec": { "containers": [{ "name": "c", "image": "i" }] },
                } },
            }),
            json!(["r", 1, 0, 0, "0s", "c", "i", "a=b"]),
        ),
    ];
    let whole = all.into_iter().map(|(path, kind, mut object, row)| {
        let version = path.split("/namespaces").next().unwrap_or_default();
        let version = version.trim_start_matches("/apis/").trim_start_matches("/api/");
        let parts: Vec<&str> = version.split('/').collect();
        let version = if parts[0] == "v1" { "v1".to_owned() } else { parts[..2].join("/") };
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        Listed { path, object, row }
    });
    whole.collect()
}

/// The first row's cells without the age, which the clock decides.
async fn cells(server: &Server, path: &str) -> Value {
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.raw(Method::GET, path, &accept, "").await.is(200).body;
    let is_time = |index: usize| {
        table["columnDefinitions"][index]["name"].as_str().is_some_and(|name| name == "Age" || name == "Created At")
    };
    let cells = table["rows"][0]["cells"].as_array().expect("cells").iter().enumerate();
    cells.map(|(index, cell)| if is_time(index) { json!("0s") } else { cell.clone() }).collect()
}

#[tokio::test]
async fn they_are_empty_and_take_what_others_write() {
    let server = server().await;
    for Listed { path, object, row } in listed() {
        let kind = object["kind"].as_str().expect("kind");
        let list = server.get(path).await.is(200).body;
        assert_eq!((&list["kind"], &list["items"]), (&json!(format!("{kind}List")), &json!([])), "{path}");
        let revision = list["metadata"]["resourceVersion"].as_str().expect("a revision");
        let mut watch = server.watch(&format!("{path}?watch=true&resourceVersion={revision}")).await;
        let made = server.post(path, &object).await.is(201).body;
        let name = object["metadata"]["name"].as_str().expect("a name");
        assert_eq!(server.get(&format!("{path}/{name}")).await.is(200).body, made);
        assert_eq!(server.get(path).await.body["items"], json!([made]));
        assert_eq!(watch.change().await, format!("ADDED {name}"));
        assert_eq!(cells(&server, path).await, row, "{kind}");
        server.put(&format!("{path}/{name}"), &made).await.is(200);
        let labels = json!({ "metadata": { "labels": { "x": "y" } } });
        let labelled = server.merge(&format!("{path}/{name}"), &labels).await.is(200).body;
        assert_eq!(labelled["spec"], made["spec"], "{kind}");
        assert_eq!(watch.change().await, format!("MODIFIED {name}"));
        server.delete(&format!("{path}/{name}"), &Value::Null).await.is(200);
        server.until(&format!("{path}/{name}"), 404).await;
        assert_eq!(watch.change().await, format!("DELETED {name}"));
        server.post(path, &json!({ "metadata": { "name": "_" } })).await.is(422);
    }
}

#[tokio::test]
async fn they_are_found_by_discovery_and_described() {
    let server = server().await;
    for (group, names) in [
        ("/api/v1", vec!["replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status"]),
        (
            "/apis/storage.k8s.io/v1",
            vec!["csidrivers", "csinodes", "csistoragecapacities", "volumeattachments", "volumeattachments/status"],
        ),
        (
            "/apis/resource.k8s.io/v1",
            vec![
                "deviceclasses",
                "resourceclaims",
                "resourceclaims/status",
                "resourceclaimtemplates",
                "resourceslices",
            ],
        ),
    ] {
        let served = server.get(group).await.is(200).body;
        let served: Vec<&str> =
            served["resources"].as_array().expect("list").iter().filter_map(|one| one["name"].as_str()).collect();
        for name in names {
            assert!(served.contains(&name), "{group} has no {name}");
        }
        let document = server.get(&format!("/openapi/v3{}", group)).await.is(200).body;
        assert!(document["components"]["schemas"].is_object(), "{group}");
    }
    // Versions that a Kubernetes of this release has switched off.
    for version in ["v1beta1", "v1beta2"] {
        server.get(&format!("/apis/resource.k8s.io/{version}/resourceslices")).await.is(404);
    }
}

#[tokio::test]
async fn what_has_no_effect_is_said() {
    let server = server().await;
    for Listed { path, object, .. } in listed() {
        let warned = !server.post(path, &object).await.is(201).warnings.is_empty();
        let kind = object["kind"].as_str().expect("kind");
        let people_write_it = ["ReplicationController", "ResourceClaim", "ResourceClaimTemplate"].contains(&kind);
        assert_eq!(warned, people_write_it, "{kind}");
    }
}

#[tokio::test]
async fn a_replication_controller_is_scaled_as_upstream() {
    let server = server().await;
    let controller = listed().pop().expect("the last one");
    server.post(controller.path, &controller.object).await.is(201);
    let scale = format!("{}/r/scale", controller.path);
    let changed = server.merge(&scale, &json!({ "spec": { "replicas": 3 } })).await.is(200).body;
    assert_eq!((&changed["spec"]["replicas"], &changed["status"]["selector"]), (&json!(3), &json!("a=b")));
    let stored = server.get(&format!("{}/r", controller.path)).await.body;
    assert_eq!((&stored["spec"]["replicas"], &stored["metadata"]["generation"]), (&json!(3), &json!(2)));
}

#[tokio::test]
async fn replacements_that_upstream_wants_a_revision_for_need_one() {
    let server = server().await;
    for Listed { path, object, .. } in listed() {
        server.post(path, &object).await.is(201);
        let name = object["metadata"]["name"].as_str().expect("a name");
        let wanted = if path.contains("storage.k8s.io") { 422 } else { 200 };
        server.put(&format!("{path}/{name}"), &object).await.is(wanted);
    }
}

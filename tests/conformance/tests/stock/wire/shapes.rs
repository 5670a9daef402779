//! What objects look like on the wire: content negotiation, tables, metadata only, discovery.

use serde_json::{Value, json};

use super::{JOBS, MAPS, PODS, QUEUES, job, map, node, pod, queue};
use crate::cluster::Cluster;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const PARTIALS: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[tokio::test(flavor = "multi_thread")]
async fn the_accept_header_chooses_the_shape() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let one = format!("{MAPS}/a");
    for (path, accept, kind) in [
        (MAPS, "application/json", "ConfigMapList"),
        (MAPS, "*/*", "ConfigMapList"),
        (MAPS, "application/*", "ConfigMapList"),
        (MAPS, "application/json, */*", "ConfigMapList"),
        (MAPS, TABLE, "Table"),
        (MAPS, &format!("{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"), "Table"),
        (MAPS, &format!("application/json;as=Table;v=v1beta1;g=meta.k8s.io,{TABLE}"), "Table"),
        (MAPS, &format!("application/json;q=0.1,{TABLE};q=0.9"), "Table"),
        (MAPS, &format!("{TABLE};q=0.1,application/json;q=0.9"), "ConfigMapList"),
        (MAPS, PARTIALS, "PartialObjectMetadataList"),
        (&one, PARTIAL, "PartialObjectMetadata"),
        (&one, TABLE, "Table"),
        (&one, &format!("{PROTOBUF},application/json"), "ConfigMap"),
        (MAPS, &format!("{PROTOBUF}, application/json;q=0.9, */*;q=0.8"), "ConfigMapList"),
        (
            MAPS,
            &format!("{PROTOBUF};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,{PARTIALS},application/json"),
            "PartialObjectMetadataList",
        ),
    ] {
        let answer = wire.get_as(path, accept).await.is(200);
        assert_eq!(answer.body["kind"], kind, "{path} {accept}");
        let content = answer.headers["content-type"].to_str().expect("text");
        assert!(content.starts_with("application/json"), "{accept}: {content}");
    }
    for accept in ["text/html", "application/yaml;as=Table", "application/json;q=0", "image/png;q=0.9"] {
        let refused = wire.get_as(MAPS, accept).await.is(406);
        assert_eq!(refused.body["reason"], "NotAcceptable", "{accept}");
        assert!(refused.message().starts_with("only the following media types are accepted: "), "{accept}");
    }
    let odd = wire.get_as(MAPS, "application/json;as=Odd;v=v1;g=meta.k8s.io").await.is(406);
    assert_eq!(odd.body["reason"], "NotAcceptable");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_have_columns_rows_and_objects() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(PODS, &pod("p")).await.is(201);
    wire.post(QUEUES, &queue("default")).await.is(201);
    wire.post(JOBS, &job("j")).await.is(201);
    wire.post("/api/v1/nodes", &node("n")).await.is(201);
    for (path, columns) in [
        (PODS, "Name Ready Status Restarts Age IP Node Nominated_Node Readiness_Gates"),
        (
            "/api/v1/nodes",
            "Name Status Roles Age Version Internal-IP External-IP OS-Image Kernel-Version Container-Runtime",
        ),
        (MAPS, "Name Data Age"),
        ("/api/v1/namespaces", "Name Status Age"),
        ("/api/v1/namespaces/default/secrets", "Name Type Data Age"),
        ("/api/v1/namespaces/default/services", "Name Type Cluster-IP External-IP Port(s) Age Selector"),
        (
            "/api/v1/namespaces/default/events",
            "Last_Seen Type Reason Object Subobject Source Message First_Seen Count Name",
        ),
        (JOBS, "Name STATUS minAvailable RUNNINGS AGE QUEUE"),
        (QUEUES, "Name PARENT"),
    ] {
        let table = wire.get_as(path, TABLE).await.is(200).body;
        let definitions = table["columnDefinitions"].as_array().expect("columns");
        let names: Vec<String> =
            definitions.iter().map(|one| one["name"].as_str().expect("name").replace(' ', "_")).collect();
        assert_eq!(names.join(" "), columns, "{path}");
        for row in table["rows"].as_array().expect("rows") {
            assert_eq!(row["cells"].as_array().map(Vec::len), Some(names.len()), "{path}");
            assert_eq!(row["object"]["kind"], "PartialObjectMetadata", "{path}");
            assert_eq!(row["object"]["apiVersion"], "meta.k8s.io/v1", "{path}");
            assert!(row["object"]["metadata"]["name"].is_string(), "{path}");
        }
        assert!(table["metadata"]["resourceVersion"].is_string(), "{path}");
    }
    for (wish, kind) in [("None", Value::Null), ("Metadata", json!("PartialObjectMetadata")), ("Object", json!("Pod"))]
    {
        let table = wire.get_as(&format!("{PODS}?includeObject={wish}"), TABLE).await.is(200).body;
        assert_eq!(table["rows"][0]["object"]["kind"], kind, "{wish}");
    }
    wire.get_as(&format!("{PODS}?includeObject=Odd"), TABLE).await.is(400);
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_have_shapes_too() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let mut tables = wire.watch_as(&format!("{MAPS}?watch=1"), TABLE).await;
    let mut partials = wire.watch_as(&format!("{MAPS}?watch=1"), PARTIALS).await;
    wire.merge(&format!("{MAPS}/a"), &json!({"data": {"b": "2"}})).await.is(200);
    let first = tables.next().await.expect("event");
    assert_eq!((&first["type"], &first["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(first["object"]["columnDefinitions"].as_array().map(Vec::len), Some(3));
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    let second = tables.next().await.expect("event");
    let data = second["object"]["rows"][0]["cells"][1].to_string();
    assert_eq!((&second["type"], data.trim_matches('"')), (&json!("MODIFIED"), "2"));
    let partial = partials.next().await.expect("event")["object"].clone();
    assert_eq!((&partial["kind"], &partial["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
    assert!(partial.get("data").is_none() && partial["metadata"]["name"] == "a", "{partial}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_only_leaves_the_rest_out() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let list = wire.get_as(MAPS, PARTIALS).await.is(200).body;
    assert_eq!(list["apiVersion"], "meta.k8s.io/v1");
    let item = &list["items"][0];
    assert!(item.get("data").is_none() && item["metadata"]["uid"].is_string(), "{item}");
    let gone = wire.call(http::Method::DELETE, &format!("{MAPS}/a"), &[("accept", PARTIAL)], "").await.is(200);
    assert_eq!(gone.body["status"], "Success", "{}", gone.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_is_served_both_ways() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    for path in ["/api", "/apis"] {
        let answer = wire.get_as(path, aggregated).await.is(200);
        assert_eq!(
            (&answer.body["kind"], &answer.body["apiVersion"]),
            (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
        );
        let content = answer.headers["content-type"].to_str().expect("text");
        assert_eq!(content.replace(' ', ""), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        let etag = answer.headers["etag"].to_str().expect("text").to_owned();
        let headers = [("accept", aggregated), ("if-none-match", etag.as_str())];
        wire.call(http::Method::GET, path, &headers, "").await.is(304);
    }
    assert_eq!(wire.get("/api").await.is(200).body["versions"], json!(["v1"]));
    let groups = wire.get("/apis").await.is(200).body;
    assert_eq!(groups["kind"], "APIGroupList");
    for group in groups["groups"].as_array().expect("groups") {
        let name = group["name"].as_str().expect("name");
        assert_eq!(wire.get(&format!("/apis/{name}")).await.is(200).body["kind"], "APIGroup");
        let version = group["preferredVersion"]["groupVersion"].as_str().expect("version");
        let list = wire.get(&format!("/apis/{version}")).await.is(200).body;
        assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!(version)));
    }
    wire.get("/apis/none.io").await.is(404);
    wire.get("/apis/none.io/v1").await.is(404);
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(wire.get(path).await.is(200).text, "ok", "{path}");
    }
    let version = wire.get("/version").await.is(200).body;
    assert!(version["gitVersion"].as_str().expect("text").starts_with("v1."), "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openapi_names_kinds_by_hash() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let index = wire.get("/openapi/v3").await.is(200).body;
    for (key, kind) in [("api/v1", "Pod"), ("apis/batch.volcano.sh/v1alpha1", "Job")] {
        let url = index["paths"][key]["serverRelativeURL"].as_str().expect("url");
        let document = wire.get(url).await.is(200).body;
        assert!(document["openapi"].as_str().expect("version").starts_with("3."), "{key}");
        let schemas = document["components"]["schemas"].as_object().expect("schemas");
        let named = schemas.values().any(|one| {
            one["x-kubernetes-group-version-kind"]
                .as_array()
                .is_some_and(|all| all.iter().any(|gvk| gvk["kind"] == kind))
        });
        assert!(named, "{key} has no {kind}");
    }
}

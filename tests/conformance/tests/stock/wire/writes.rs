//! Creating and changing: names, dry runs, field validation, revisions, subresources.

use http::Method;
use serde_json::{Value, json};

use super::{JOBS, MAPS, PODS, QUEUES, SECRETS, job, map, node, pod, queue};
use crate::cluster::Cluster;

#[tokio::test(flavor = "multi_thread")]
async fn the_server_owns_what_it_fills_in() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let mut claimed = map("a");
    claimed["metadata"]["uid"] = json!("mine");
    claimed["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    claimed["metadata"]["generation"] = json!(7);
    claimed["metadata"]["selfLink"] = json!("/x");
    claimed["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let made = wire.post(MAPS, &claimed).await.is(201).body;
    let metadata = &made["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert!(metadata.get("deletionTimestamp").is_none() && metadata.get("generation").is_none(), "{metadata}");
    let changed = wire.merge(&format!("{MAPS}/a"), &json!({"metadata": {"creationTimestamp": null}})).await.is(200);
    assert_eq!(changed.body["metadata"]["creationTimestamp"], metadata["creationTimestamp"]);
    let generated = json!({"metadata": {"generateName": "gen-"}, "data": {}});
    let first = wire.post(MAPS, &generated).await.is(201).body["metadata"]["name"].as_str().expect("name").to_owned();
    let second = wire.post(MAPS, &generated).await.is(201).body["metadata"]["name"].as_str().expect("name").to_owned();
    assert!(first != second && first.starts_with("gen-") && first.len() == 9, "{first} {second}");
    let both = json!({"metadata": {"generateName": "gen-", "name": "own"}});
    assert_eq!(wire.post(MAPS, &both).await.is(201).body["metadata"]["name"], "own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_what_would_be() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let before = wire.get(MAPS).await.revision().to_owned();
    let dry = wire.post(&format!("{PODS}?dryRun=All"), &pod("p")).await.is(201).body;
    assert_eq!(dry["spec"]["restartPolicy"], "Always", "defaults are in it");
    assert!(dry["metadata"]["uid"].is_string());
    wire.get(&format!("{PODS}/p")).await.is(404);
    wire.post(&format!("{PODS}?dryRun=All"), &json!({"metadata": {"name": "p"}, "spec": {}})).await.is(422);
    // Upstream: 422.
    wire.post(&format!("{PODS}?dryRun=Some"), &pod("p")).await.is(400);
    assert_eq!(wire.get(MAPS).await.revision(), before, "no revision was used");
    let made = wire.post(MAPS, &map("a")).await.is(201);
    let one = format!("{MAPS}/a");
    assert_eq!(
        wire.put(&format!("{one}?dryRun=All"), &json!({"metadata": {"name": "a"}})).await.is(200).body.get("data"),
        None
    );
    wire.delete(&format!("{one}?dryRun=All"), &Value::Null).await.is(200);
    assert_eq!(wire.get(&one).await.is(200).body, made.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_warn_or_refuse() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    let mut odd_pod = pod("p");
    odd_pod["spec"]["containers"][0]["comand"] = json!(["x"]);
    let mut odd_job = job("j");
    odd_job["spec"]["tasks"][0]["replica"] = json!(3);
    for (path, object, kind, field) in
        [(PODS, &odd_pod, "Pod", "spec.containers[0].comand"), (JOBS, &odd_job, "Job", "spec.tasks[0].replica")]
    {
        let strict = wire.post(&format!("{path}?fieldValidation=Strict"), object).await.is(400);
        assert!(
            strict.message().contains(&format!("strict decoding error: unknown field \"{field}\"")),
            "{}",
            strict.message()
        );
        assert!(strict.message().contains(kind), "{}", strict.message());
        let ignored = wire.post(&format!("{path}?fieldValidation=Ignore&dryRun=All"), object).await.is(201);
        assert_eq!(ignored.warnings(), Vec::<&str>::new());
        let warned = wire.post(&format!("{path}?fieldValidation=Warn"), object).await.is(201);
        assert_eq!(warned.warnings(), [format!("299 - \"unknown field \\\"{field}\\\"\"")]);
        assert!(!warned.text.contains("comand") && !warned.text.contains("\"replica\""), "dropped");
        // Upstream: 422.
        wire.post(&format!("{path}?fieldValidation=Odd"), object).await.is(400);
    }
    let twice = "{\"metadata\":{\"name\":\"twice\"},\"data\":{\"a\":\"1\",\"a\":\"2\"}}";
    let headers = [("content-type", "application/json")];
    let strict = wire.call(Method::POST, &format!("{MAPS}?fieldValidation=Strict"), &headers, twice).await.is(400);
    assert!(strict.message().contains("duplicate field \"data.a\""), "{}", strict.message());
    let patched = wire.merge(&format!("{PODS}/p?fieldValidation=Strict"), &json!({"spec": {"odd": 1}})).await;
    assert!(matches!(patched.code, 400 | 422), "{}", patched.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn yaml_bodies_are_read() {
    let cluster = Cluster::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  a: \"1\"\n";
    let made = cluster.wire.call(Method::POST, MAPS, &[("content-type", "application/yaml")], text).await.is(201);
    assert_eq!(made.body["data"], json!({"a": "1"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_hold_to_revision_and_uid() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    let made = wire.post(MAPS, &map("a")).await.is(201).body;
    let one = format!("{MAPS}/a");
    let again = wire.put(&one, &made).await.is(200).body;
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "nothing changed");
    let mut other = map("a");
    other["metadata"]["uid"] = json!("other");
    let refused = wire.put(&one, &other).await.is(409);
    assert!(refused.message().contains("Precondition failed: UID in precondition: other"), "{}", refused.message());
    wire.put(&one, &map("b")).await.is(400);
    wire.put(&format!("{MAPS}/none"), &map("none")).await.is(404);
    wire.put(&one, &map("a")).await.is(200);
    // Custom resources and leases have no unconditional update upstream.
    let mut plain = wire.post(JOBS, &job("j")).await.is(201).body;
    plain["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
    let refused = wire.put(&format!("{JOBS}/j"), &plain).await.is(422);
    assert!(refused.message().contains("metadata.resourceVersion: Invalid value: 0"), "{}", refused.message());
    assert!(refused.message().contains("must be specified for an update"), "{}", refused.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn status_has_a_path_of_its_own() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(QUEUES, &queue("default")).await.is(201);
    let mut with_status = job("j");
    with_status["status"] = json!({"state": {"phase": "Completed"}});
    let made = wire.post(JOBS, &with_status).await.is(201).body;
    assert_eq!(
        made["status"]["state"]["phase"], "Pending",
        "what a job begins with is not the client's to say: {made}"
    );
    let one = format!("{JOBS}/j");
    wire.merge(&one, &json!({"status": {"state": {"phase": "Failed"}}})).await.is(200);
    assert_eq!(wire.get(&one).await.body["status"]["state"]["phase"], "Pending");
    let patch = json!({"status": {"state": {"phase": "Running"}}, "spec": {"minAvailable": 9}, "metadata": {"labels": {"a": "b"}}});
    let patched = wire.merge(&format!("{one}/status"), &patch).await.is(200).body;
    assert_eq!(patched["status"]["state"]["phase"], "Running");
    assert_eq!(patched["spec"]["minAvailable"], 1);
    assert_eq!(patched["metadata"]["generation"], made["metadata"]["generation"]);
    let got = wire.get(&format!("{one}/status")).await.is(200).body;
    assert_eq!(got, patched);
    let generation = wire.merge(&one, &json!({"spec": {"minAvailable": 0}})).await;
    assert!(generation.code == 200 || generation.code == 400, "{}", generation.text);
    let made = wire.post("/api/v1/nodes", &node("n")).await.is(201).body;
    assert_eq!(made["status"]["capacity"]["cpu"], "4", "a kubelet registers with its status");
    wire.get(&format!("{MAPS}/x/status")).await.is(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn generation_counts_changes_of_spec() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let made = wire.post(QUEUES, &queue("q")).await.is(201).body;
    assert_eq!(made["metadata"]["generation"], 1);
    let one = format!("{QUEUES}/q");
    for (patch, wanted) in [
        (json!({"metadata": {"labels": {"a": "b"}}}), 1),
        (json!({"spec": {"weight": 2}}), 2),
        (json!({"spec": {"weight": 2}}), 2),
        (json!({"metadata": {"generation": 9}}), 2),
        (json!({"spec": {"weight": 3}, "metadata": {"annotations": {"x": "y"}}}), 3),
    ] {
        assert_eq!(wire.merge(&one, &patch).await.is(200).body["metadata"]["generation"], wanted, "{patch}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_bound_once() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post("/api/v1/nodes", &node("n")).await.is(201);
    let made = wire.post(PODS, &pod("p")).await.is(201).body;
    let binding = |uid: &Value| {
        json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", "uid": uid},
            "target": {"kind": "Node", "name": "n"}})
    };
    let path = format!("{PODS}/p/binding");
    wire.post(&path, &binding(&json!("other"))).await.is(409);
    let bound = wire.post(&path, &binding(&made["metadata"]["uid"])).await.is(201).body;
    assert_eq!((&bound["kind"], &bound["status"]), (&json!("Status"), &json!("Success")));
    let refused = wire.post(&path, &binding(&made["metadata"]["uid"])).await.is(409);
    assert!(refused.message().contains("pod p is already assigned to node \"n\""), "{}", refused.message());
    let got = wire.get(&format!("{PODS}/p")).await.body;
    assert_eq!(got["spec"]["nodeName"], "n");
    let scheduled =
        got["status"]["conditions"].as_array().expect("conditions").iter().find(|one| one["type"] == "PodScheduled");
    assert_eq!(scheduled.expect("condition")["status"], "True");
    let moved = wire.merge(&format!("{PODS}/p"), &json!({"spec": {"nodeName": "m"}})).await.is(422);
    assert!(moved.message().contains("pod updates may not change fields other than"), "{}", moved.message());
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_and_immutables() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "text"}, "data": {"b": "Yg=="}});
    let made = wire.post(SECRETS, &secret).await.is(201).body;
    assert_eq!(made["data"], json!({"a": "dGV4dA==", "b": "Yg=="}));
    assert!(made.get("stringData").is_none() && made["type"] == "Opaque", "{made}");
    wire.merge(&format!("{SECRETS}/s"), &json!({"type": "other"})).await.is(422);
    let broken = json!({"metadata": {"name": "t"}, "data": {"b": "%%"}});
    assert!(matches!(wire.post(SECRETS, &broken).await.code, 400 | 422));
    let mut fixed = map("f");
    fixed["immutable"] = json!(true);
    wire.post(MAPS, &fixed).await.is(201);
    let refused = wire.merge(&format!("{MAPS}/f"), &json!({"data": {"a": "2"}})).await.is(422);
    assert!(refused.message().contains("field is immutable when `immutable` is set"), "{}", refused.message());
    wire.merge(&format!("{MAPS}/f"), &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    wire.post(classes, &json!({"metadata": {"name": "hi"}, "value": 10})).await.is(201);
    wire.merge(&format!("{classes}/hi"), &json!({"value": 11})).await.is(422);
}

#[tokio::test(flavor = "multi_thread")]
async fn patches_follow_their_standards() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let one = format!("{MAPS}/a");
    wire.post(MAPS, &map("a")).await.is(201);
    for (patch, code, wanted) in [
        (json!([{"op": "add", "path": "/data/b", "value": "2"}]), 200, json!({"a": "1", "b": "2"})),
        (
            json!([{"op": "test", "path": "/data/b", "value": "2"}, {"op": "replace", "path": "/data/b", "value": "3"}]),
            200,
            json!({"a": "1", "b": "3"}),
        ),
        (json!([{"op": "move", "from": "/data/b", "path": "/data/c"}]), 200, json!({"a": "1", "c": "3"})),
        (json!([{"op": "copy", "from": "/data/c", "path": "/data/d"}]), 200, json!({"a": "1", "c": "3", "d": "3"})),
        (json!([{"op": "test", "path": "/data/a", "value": "9"}]), 422, Value::Null),
        (json!([{"op": "remove", "path": "/data/none"}]), 422, Value::Null),
        (json!([{"op": "replace", "path": "/data", "value": null}]), 200, Value::Null),
    ] {
        let answer = wire.patch(&one, "json-patch+json", &patch.to_string()).await;
        assert_eq!(answer.code, code, "{patch}: {}", answer.text);
        if code == 200 {
            assert_eq!(answer.body["data"], wanted, "{patch}");
        }
    }
    let escaped = json!([{"op": "add", "path": "/metadata/annotations", "value": {}}, {"op": "add", "path": "/metadata/annotations/a.b~1c~0d", "value": "1"}]);
    let refused = wire.patch(&one, "json-patch+json", &escaped.to_string()).await.is(422);
    assert!(refused.message().contains("a.b/c~d"), "the name was unescaped: {}", refused.message());
    wire.patch(&one, "strategic-merge-patch+json", "{\"data\":{\"c\":\"3\"}}").await.is(200);
    let strategic = json!({"data": {"$patch": "replace", "a": "2", "b": null}});
    let answer = wire.patch(&one, "strategic-merge-patch+json", &strategic.to_string()).await.is(200);
    assert_eq!(answer.body["data"], json!({"a": "2"}));
    let broken = json!({"data": {"$patch": "nonsense"}});
    let refused = wire.patch(&one, "strategic-merge-patch+json", &broken.to_string()).await.is(400);
    assert!(refused.message().contains("unknown patch type"), "{}", refused.message());
    // Custom resources take none, as upstream.
    let answer = wire.patch(&format!("{JOBS}/j"), "strategic-merge-patch+json", "{}").await;
    assert!(matches!(answer.code, 415 | 404), "{}", answer.text);
}

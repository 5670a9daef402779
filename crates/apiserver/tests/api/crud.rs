//! get, list, create, update, patch, delete on plain objects.

use http::Method;
use serde_json::{Value, json};

use crate::harness::{MAPS, config_map, server};

#[tokio::test]
async fn an_object_lives_and_dies() {
    let server = server().await;
    let made = server.post(MAPS, &config_map("a")).await.is(201).body;
    let metadata = &made["metadata"];
    assert_eq!(metadata["namespace"], "default");
    for field in ["uid", "creationTimestamp", "resourceVersion"] {
        assert!(metadata[field].is_string(), "{field}");
    }
    let got = server.get(&format!("{MAPS}/a")).await.is(200).body;
    assert_eq!(got, made);

    let mut changed = made.clone();
    changed["data"]["b"] = json!("2");
    let updated = server.put(&format!("{MAPS}/a"), &changed).await.is(200).body;
    assert_ne!(updated["metadata"]["resourceVersion"], metadata["resourceVersion"]);
    assert_eq!(updated["metadata"]["uid"], metadata["uid"]);
    let stale = server.put(&format!("{MAPS}/a"), &changed).await.is(409);
    assert_eq!(stale.body["reason"], "Conflict");
    assert!(stale.message().contains("the object has been modified"), "{}", stale.message());

    let gone = server.delete(&format!("{MAPS}/a"), &Value::Null).await.is(200).body;
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    let missing = server.get(&format!("{MAPS}/a")).await.is(404);
    assert_eq!(missing.message(), "configmaps \"a\" not found");
}

#[tokio::test]
async fn create_refuses_what_upstream_refuses() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    let cases = [
        (MAPS, config_map("a"), 409, "configmaps \"a\" already exists"),
        (MAPS, config_map("A"), 422, "metadata.name"),
        (MAPS, json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}}), 400, "kind"),
        (MAPS, json!({"kind": "ConfigMap", "apiVersion": "v2", "metadata": {"name": "x"}}), 400, "apiVersion"),
        (MAPS, json!({"metadata": {"name": "x", "namespace": "other"}}), 400, "namespace"),
        (MAPS, json!({"metadata": {}}), 422, "name or generateName is required"),
        (MAPS, json!({"metadata": {"name": "x", "resourceVersion": "5"}}), 400, "resourceVersion"),
        (MAPS, json!({"metadata": 3}), 400, "metadata"),
        (MAPS, json!({"metadata": {"name": "x"}, "data": {"a": 1}}), 422, "data"),
        (MAPS, json!([1]), 400, "not an object"),
        ("/api/v1/namespaces/none/configmaps", config_map("a"), 404, "namespaces \"none\" not found"),
        ("/api/v1/configmaps", config_map("a"), 400, "namespace"),
        ("/api/v1/nothings", json!({}), 404, "could not find"),
        ("/apis/none.io/v1/jobs", json!({}), 404, "could not find"),
    ];
    for (path, object, code, text) in cases {
        let answer = server.post(path, &object).await;
        assert!(answer.code == code && answer.message().contains(text), "{path} {object}: {}", answer.text);
        assert_eq!(answer.body["kind"], "Status");
    }
}

#[tokio::test]
async fn names_are_generated() {
    let server = server().await;
    let object = json!({"metadata": {"generateName": "a-"}});
    let first = server.post(MAPS, &object).await.is(201).body;
    let second = server.post(MAPS, &object).await.is(201).body;
    let name = first["metadata"]["name"].as_str().expect("name");
    assert!(name.starts_with("a-") && name.len() == 7, "{name}");
    assert_ne!(first["metadata"]["name"], second["metadata"]["name"]);
}

#[tokio::test]
async fn lists_select_and_share_a_revision() {
    let server = server().await;
    for (name, tier) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        server.post(MAPS, &object).await.is(201);
    }
    let names = |body: &Value| -> Vec<String> {
        let items = body["items"].as_array().expect("items");
        items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
    };
    for (query, wanted) in [
        ("", vec!["a", "b", "c"]),
        ("?labelSelector=tier%3Dx", vec!["a", "c"]),
        ("?labelSelector=tier+in+(y),!none", vec!["b"]),
        ("?fieldSelector=metadata.name%3Db", vec!["b"]),
        ("?fieldSelector=metadata.name!=b,metadata.namespace=default", vec!["a", "c"]),
        ("?limit=1", vec!["a"]),
        ("?resourceVersion=0", vec!["a", "b", "c"]),
    ] {
        let list = server.get(&format!("{MAPS}{query}")).await.is(200).body;
        assert_eq!(names(&list), wanted, "{query}");
        assert_eq!(list["kind"], "ConfigMapList");
    }
    let list = server.get(MAPS).await.is(200).body;
    let revision = list["metadata"]["resourceVersion"].as_str().expect("revision");
    server.delete(&format!("{MAPS}/a"), &Value::Null).await.is(200);
    let exact = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    assert_eq!(names(&server.get(&exact).await.is(200).body), ["a", "b", "c"]);
    for (query, code) in [
        ("?resourceVersion=999999", 504),
        ("?resourceVersionMatch=Exact", 400),
        ("?resourceVersion=0&resourceVersionMatch=Exact", 400),
        ("?continue=abc", 400),
        ("?fieldSelector=data.a%3D1", 400),
        ("?labelSelector=%3D%3D", 400),
        ("?sendInitialEvents=true", 400),
    ] {
        server.get(&format!("{MAPS}{query}")).await.is(code);
    }
}

#[tokio::test]
async fn patches_change_parts() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    let path = format!("{MAPS}/a");
    let merged = server.merge(&path, &json!({"data": {"a": null, "b": "2"}})).await.is(200).body;
    assert_eq!(merged["data"], json!({"b": "2"}));
    let same = server.merge(&path, &json!({"data": {"b": "2"}})).await.is(200).body;
    assert_eq!(same["metadata"]["resourceVersion"], merged["metadata"]["resourceVersion"]);
    let json_patch = [("content-type", "application/json-patch+json")];
    let add = r#"[{"op":"add","path":"/data/c","value":"3"}]"#;
    let patched = server.raw(Method::PATCH, &path, &json_patch, add).await.is(200).body;
    assert_eq!(patched["data"], json!({"b": "2", "c": "3"}));
    for (kind, patch, code) in [
        ("application/json-patch+json", r#"[{"op":"test","path":"/data/c","value":"4"}]"#, 422),
        ("application/json-patch+json", r#"[{"op":"remove","path":"/data/none"}]"#, 422),
        ("application/json-patch+json", r#"{"op":"add"}"#, 400),
        ("application/merge-patch+json", "[]", 400),
        ("application/merge-patch+json", r#"{"metadata":{"name":"b"}}"#, 400),
        ("application/merge-patch+json", r#"{"metadata":{"resourceVersion":"1"}}"#, 409),
        ("application/merge-patch+json", r#"{"metadata":{"uid":"1"}}"#, 409),
        ("application/merge-patch+json", r#"{"kind":"Pod"}"#, 400),
        ("application/merge-patch+json", "{", 400),
        ("application/apply-patch+yaml", "{}", 422),
        ("text/plain", "{}", 415),
    ] {
        let answer = server.raw(Method::PATCH, &path, &[("content-type", kind)], patch).await;
        assert_eq!(answer.code.as_u16(), code, "{kind} {patch}: {}", answer.text);
    }
    server.merge(&format!("{MAPS}/none"), &json!({})).await.is(404);
}

#[tokio::test]
async fn many_patches_at_once_all_count() {
    let server = server().await;
    server.post(MAPS, &config_map("a")).await.is(201);
    let patches = (0..8).map(|number| {
        let server = server.clone();
        async move {
            let patch = json!({"data": {format!("k{number}"): "v"}});
            server.merge(&format!("{MAPS}/a"), &patch).await.is(200);
        }
    });
    futures::future::join_all(patches).await;
    let data = server.get(&format!("{MAPS}/a")).await.is(200).body["data"].clone();
    assert_eq!(data.as_object().map(serde_json::Map::len), Some(9));
}

#[tokio::test]
async fn unknown_fields_follow_the_wish() {
    let server = server().await;
    let text = r#"{"metadata":{"name":"NAME"},"odd":1,"data":{"a":"1","a":"2"}}"#;
    let post = |name: &'static str, wish: &'static str| {
        let server = server.clone();
        async move { server.raw(Method::POST, &format!("{MAPS}{wish}"), &[], text.replace("NAME", name)).await }
    };
    let warned = post("a", "").await.is(201);
    assert_eq!(warned.warnings.len(), 2, "{:?}", warned.warnings);
    assert!(warned.warnings[0].contains("unknown field"), "{:?}", warned.warnings);
    assert_eq!((&warned.body["odd"], &warned.body["data"]["a"]), (&Value::Null, &json!("2")));
    assert!(post("b", "?fieldValidation=Ignore").await.is(201).warnings.is_empty());
    let strict = post("c", "?fieldValidation=Strict").await.is(400);
    assert!(strict.message().contains("strict decoding error: unknown field \"odd\""), "{}", strict.message());
    post("d", "?fieldValidation=Odd").await.is(400);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = server().await;
    server.post(&format!("{MAPS}?dryRun=All"), &config_map("a")).await.is(201);
    server.get(&format!("{MAPS}/a")).await.is(404);
    server.post(MAPS, &config_map("a")).await.is(201);
    server.post(&format!("{MAPS}?dryRun=All"), &config_map("a")).await.is(409);
    let patched = server.merge(&format!("{MAPS}/a?dryRun=All"), &json!({"data": {"a": "9"}})).await.is(200).body;
    assert_eq!(patched["data"]["a"], "9");
    server.delete(&format!("{MAPS}/a"), &json!({"dryRun": ["All"]})).await.is(200);
    assert_eq!(server.get(&format!("{MAPS}/a")).await.is(200).body["data"]["a"], "1");
}

#[tokio::test]
async fn deletes_hold_to_their_conditions() {
    let server = server().await;
    let mut object = config_map("a");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let made = server.post(MAPS, &object).await.is(201).body;
    let path = format!("{MAPS}/a");
    server.delete(&path, &json!({"preconditions": {"uid": "other"}})).await.is(409);
    server.delete(&path, &json!({"preconditions": {"resourceVersion": "1"}})).await.is(409);
    let marked = server.delete(&path, &json!({"preconditions": {"uid": made["metadata"]["uid"]}})).await.is(200).body;
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 0);
    server.merge(&path, &json!({"metadata": {"finalizers": ["example.com/hold", "b.c/d"]}})).await.is(422);
    server.merge(&path, &json!({"metadata": {"finalizers": null}})).await.is(200);
    server.get(&path).await.is(404);
    server.delete(&path, &Value::Null).await.is(404);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let server = server().await;
    for (name, tier) in [("a", "x"), ("b", "y")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"tier": tier});
        server.post(MAPS, &object).await.is(201);
    }
    let gone = server.delete(&format!("{MAPS}?labelSelector=tier%3Dx"), &Value::Null).await.is(200).body;
    assert_eq!(gone["items"].as_array().map(Vec::len), Some(1));
    server.get(&format!("{MAPS}/a")).await.is(404);
    server.get(&format!("{MAPS}/b")).await.is(200);
}

#[tokio::test]
async fn fields_select_by_what_they_mean() {
    let server = server().await;
    for (name, spec) in [("a", json!({})), ("b", json!({"unschedulable": true}))] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
        server.post("/api/v1/nodes", &node).await.is(201);
    }
    for (selector, wanted) in [("spec.unschedulable%3Dfalse", "a"), ("spec.unschedulable!=false", "b")] {
        let list = server.get(&format!("/api/v1/nodes?fieldSelector={selector}")).await.is(200).body;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{selector}");
        assert_eq!(list["items"][0]["metadata"]["name"], wanted, "{selector}");
    }
}

#[tokio::test]
async fn a_strategic_patch_merges_lists_by_their_keys() {
    let server = server().await;
    let webhook = |name: &str| {
        json!({
            "name": name, "clientConfig": {"url": "https://localhost/"}, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "rules": [],
        })
    };
    let wanted = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "two"}, "webhooks": [webhook("a.b.c"), webhook("d.e.f")],
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    server.post(path, &wanted).await.is(201);
    let patch = json!({"webhooks": [{"name": "d.e.f", "timeoutSeconds": 3}]});
    let kind = [("content-type", "application/strategic-merge-patch+json")];
    let patched = server.raw(Method::PATCH, &format!("{path}/two"), &kind, patch.to_string()).await.is(200).body;
    let timeouts = ["/webhooks/0/timeoutSeconds", "/webhooks/1/timeoutSeconds"].map(|at| patched.pointer(at));
    assert_eq!(timeouts, [Some(&json!(10)), Some(&json!(3))], "{patched:#}");
}

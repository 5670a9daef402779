//! Status bodies of what is refused: clients switch on code, reason and details.

use http::Method;
use serde_json::{Value, json};

use super::{JOBS, MAPS, PODS, QUEUES, job, map, pod, queue};
use crate::cluster::Cluster;

/// Every field of a Status that clients read.
fn failure(code: u16, reason: &str, message: &str, details: Value) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if !details.is_null() {
        status["details"] = details;
    }
    status
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_or_taken_is_named() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    wire.post(QUEUES, &queue("default")).await.is(201);
    wire.post(JOBS, &job("j")).await.is(201);
    let missing = wire.get(&format!("{PODS}/x")).await.is(404).body;
    assert_eq!(missing, failure(404, "NotFound", "pods \"x\" not found", json!({"name": "x", "kind": "pods"})));
    let missing = wire.delete(&format!("{JOBS}/x"), &Value::Null).await.is(404).body;
    let details = json!({"name": "x", "group": "batch.volcano.sh", "kind": "jobs"});
    assert_eq!(missing, failure(404, "NotFound", "jobs.batch.volcano.sh \"x\" not found", details));
    let taken = wire.post(MAPS, &map("a")).await.is(409).body;
    let details = json!({"name": "a", "kind": "configmaps"});
    assert_eq!(taken, failure(409, "AlreadyExists", "configmaps \"a\" already exists", details.clone()));
    let taken = wire.post(JOBS, &job("j")).await.is(409).body;
    assert_eq!((&taken["reason"], &taken["details"]["group"]), (&json!("AlreadyExists"), &json!("batch.volcano.sh")));
    let mut stale = map("a");
    stale["metadata"]["resourceVersion"] = json!("1");
    let conflict = wire.put(&format!("{MAPS}/a"), &stale).await.is(409).body;
    let message = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; \
                   please apply your changes to the latest version and try again";
    assert_eq!(conflict, failure(409, "Conflict", message, details));
    for path in ["/api/v1/nothings", "/apis/batch.volcano.sh/v9/jobs", "/nothing", "/apis/none.io/v1/nothings/x"] {
        wire.get(path).await.is(404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_invalid_has_causes_with_fields() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    let containers = |list: Value| {
        let mut object = pod("p");
        object["spec"]["containers"] = list;
        object
    };
    let named = |name: &str| {
        let mut object = pod("p");
        object["metadata"]["name"] = json!(name);
        object
    };
    let one = |field: &str, value: Value| {
        let mut container = json!({"name": "a", "image": "b"});
        container[field] = value;
        containers(json!([container]))
    };
    for (object, field, reason) in [
        (containers(json!([])), "spec.containers", "FieldValueRequired"),
        (containers(json!([{"image": "b"}])), "spec.containers[0].name", "FieldValueRequired"),
        (containers(json!([{"name": "A_b", "image": "b"}])), "spec.containers[0].name", "FieldValueInvalid"),
        (containers(json!([{"name": "a"}])), "spec.containers[0].image", "FieldValueRequired"),
        (
            containers(json!([{"name": "a", "image": "b"}, {"name": "a", "image": "b"}])),
            "spec.containers[1].name",
            "FieldValueDuplicate",
        ),
        (
            one("volumeMounts", json!([{"name": "none", "mountPath": "/x"}])),
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        (one("env", json!([{"name": "", "value": "x"}])), "spec.containers[0].env[0].name", "FieldValueRequired"),
        (
            one("ports", json!([{"containerPort": 70000}])),
            "spec.containers[0].ports[0].containerPort",
            "FieldValueInvalid",
        ),
        (one("imagePullPolicy", json!("Odd")), "spec.containers[0].imagePullPolicy", "FieldValueNotSupported"),
        (
            one("resources", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})),
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (named("Not_valid"), "metadata.name", "FieldValueInvalid"),
        (named(&"x".repeat(254)), "metadata.name", "FieldValueInvalid"),
    ] {
        let answer = wire.post(PODS, &object).await;
        assert_eq!(answer.code, 422, "{field}: {}", answer.text);
        assert_eq!(answer.body["reason"], "Invalid");
        assert_eq!(answer.body["details"]["kind"], "Pod", "the kind, not the resource");
        let causes = answer.body["details"]["causes"].as_array().expect("causes");
        assert!(
            causes.iter().any(|one| one["field"] == field && one["reason"] == reason),
            "{field} {reason}: {}",
            answer.text
        );
        assert!(answer.message().starts_with("Pod \""), "{}", answer.message());
    }
    let mut labelled = map("a");
    labelled["metadata"]["labels"] = json!({"a b": "c"});
    let answer = wire.post(MAPS, &labelled).await.is(422);
    assert_eq!(answer.body["details"]["causes"][0]["field"], "metadata.labels", "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_cannot_be_read() {
    let cluster = Cluster::start().await;
    let wire = &cluster.wire;
    wire.post(MAPS, &map("a")).await.is(201);
    let one = format!("{MAPS}/a");
    let json = "application/json";
    let merge = "application/merge-patch+json";
    let big = format!("{{\"metadata\":{{\"name\":\"big\"}},\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(4 << 20));
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep = format!("{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{deep}}}");
    for (method, path, kind, body, code, reason) in [
        (Method::POST, MAPS, json, "{", 400, "BadRequest"),
        (Method::POST, MAPS, json, "", 400, "BadRequest"),
        (Method::POST, MAPS, json, "[]", 400, "BadRequest"),
        (Method::POST, MAPS, json, "null", 400, "BadRequest"),
        (Method::POST, MAPS, json, "{\"metadata\":{\"name\":\"b\"}} trailing", 400, "BadRequest"),
        (Method::POST, MAPS, json, deep.as_str(), 400, "BadRequest"),
        (Method::POST, MAPS, json, big.as_str(), 413, "RequestEntityTooLarge"),
        (Method::PUT, one.as_str(), json, big.as_str(), 413, "RequestEntityTooLarge"),
        (Method::PATCH, one.as_str(), merge, big.as_str(), 413, "RequestEntityTooLarge"),
        (Method::POST, MAPS, "text/plain", "{}", 415, "UnsupportedMediaType"),
        (Method::POST, MAPS, "application/vnd.kubernetes.protobuf", "k8s\0", 400, "BadRequest"),
        (Method::POST, QUEUES, "application/vnd.kubernetes.protobuf", "k8s\0", 415, "UnsupportedMediaType"),
        (Method::POST, MAPS, merge, "{}", 415, "UnsupportedMediaType"),
        (Method::PATCH, one.as_str(), json, "{}", 415, "UnsupportedMediaType"),
        (Method::PATCH, one.as_str(), merge, "{", 400, "BadRequest"),
        (Method::PUT, MAPS, json, "{}", 405, "MethodNotAllowed"),
        (Method::POST, one.as_str(), json, "{}", 405, "MethodNotAllowed"),
        (Method::PATCH, MAPS, merge, "{}", 405, "MethodNotAllowed"),
    ] {
        let length = body.len();
        let answer = wire.call(method.clone(), path, &[("content-type", kind)], body).await;
        let found = (answer.code, answer.body["reason"].as_str().unwrap_or_default());
        assert_eq!(found, (code, reason), "{method} {path} {kind} of {length} bytes: {}", answer.text);
        assert_eq!((&answer.body["kind"], &answer.body["status"]), (&json!("Status"), &json!("Failure")));
    }
    assert_eq!(wire.get(MAPS).await.names(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_is_told_what() {
    let cluster = Cluster::start().await;
    cluster.wire.post(PODS, &pod("p")).await.is(201);
    let user = cluster.user("eve", &[]).await;
    let one = format!("{PODS}/p");
    for (answer, message) in [
        (
            user.get(&one).await,
            "pods \"p\" is forbidden: User \"eve\" cannot get resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            user.get(PODS).await,
            "pods is forbidden: User \"eve\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            user.get("/api/v1/pods?watch=1").await,
            "pods is forbidden: User \"eve\" cannot watch resource \"pods\" in API group \"\" at the cluster scope",
        ),
        (
            user.get("/api/v1/nodes/x").await,
            "nodes \"x\" is forbidden: User \"eve\" cannot get resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            user.post(JOBS, &job("j")).await,
            "jobs.batch.volcano.sh is forbidden: User \"eve\" cannot create resource \"jobs\" in API group \"batch.volcano.sh\" in the namespace \"default\"",
        ),
        (
            user.delete(&one, &Value::Null).await,
            "pods \"p\" is forbidden: User \"eve\" cannot delete resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            user.delete(PODS, &Value::Null).await,
            "pods is forbidden: User \"eve\" cannot deletecollection resource \"pods\" in API group \"\" in the namespace \"default\"",
        ),
        (
            user.merge(&format!("{one}/status"), &json!({})).await,
            "pods \"p\" is forbidden: User \"eve\" cannot patch resource \"pods/status\" in API group \"\" in the namespace \"default\"",
        ),
    ] {
        let answer = answer.is(403);
        assert_eq!(answer.message(), message);
        assert_eq!(answer.body["reason"], "Forbidden");
    }
    // Nobody is told whether a thing exists.
    user.get(&format!("{PODS}/none")).await.is(403);
    for path in ["/api", "/apis", "/version", "/openapi/v3", "/readyz"] {
        user.get(path).await.is(200);
    }
    let nobody = cluster.nobody();
    for path in [PODS, one.as_str(), "/api", "/apis"] {
        let answer = nobody.get(path).await;
        assert!(matches!(answer.code, 401 | 403), "{path}: {}", answer.text);
        assert_eq!(answer.body["kind"], "Status");
    }
    nobody.get("/readyz").await.is(200);
}

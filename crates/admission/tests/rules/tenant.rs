//! Tenants, through an API server with the rules in its process.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::server::{send, server};

const TENANTS: &str = "/apis/pumice.sh/v1alpha1/tenants";

/// The least one.
fn tenant(name: &str, uid: i64) -> Value {
    json!({
        "apiVersion": "pumice.sh/v1alpha1", "kind": "Tenant", "metadata": { "name": name },
        "spec": { "user": name, "uid": uid, "gid": uid, "groups": [5000], "namespace": name },
    })
}

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn what_no_tenant_may_be_is_refused_when_it_is_written() {
    let server = server().await;
    let cases = [
        (json!({ "uid": 999 }), "spec.uid: 999 is one of the system's; choose one from 1000 on"),
        (json!({ "uid": 65534 }), "spec.uid: 65534 is nobody's"),
        (json!({ "gid": 6 }), "spec.gid: 6 is one of the system's"),
        (json!({ "groups": [5000, 27] }), "spec.groups[1]: 27 is one of the system's"),
        (json!({ "user": "system:admin" }), "spec.user: \"system:admin\" means something to the platform"),
        (json!({ "namespace": "kube-system" }), "spec.namespace: kube-system is the cluster's; choose another"),
        (json!({ "roles": ["cluster-admin"] }), "spec.roles[0]: cluster-admin"),
    ];
    for (change, expected) in cases {
        let mut refused = tenant("alice", 4001);
        refused["spec"].as_object_mut().expect("a spec").extend(change.as_object().expect("fields").clone());
        let (code, _, body) = send(&server, "root", Method::POST, TENANTS, refused).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{change}: {body}");
        assert!(message(&body).contains(expected), "{body}");
    }
    // The schema refuses what is no uid at all.
    let (code, _, body) = send(&server, "root", Method::POST, TENANTS, tenant("alice", 0)).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    let (code, _, body) = send(&server, "root", Method::POST, TENANTS, tenant("alice", 4001)).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
}

#[tokio::test]
async fn what_another_tenant_has_is_refused_until_that_one_has_it_no_more() {
    let server = server().await;
    let post = async |tenant: Value| send(&server, "root", Method::POST, TENANTS, tenant).await;
    assert_eq!(post(tenant("alice", 4001)).await.0, StatusCode::CREATED);
    for (field, value) in [("uid", json!(4001)), ("namespace", json!("alice")), ("user", json!("alice"))] {
        let mut second = tenant("bob", 4002);
        second["spec"][field] = value;
        let (code, _, body) = post(second).await;
        assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
        let expected = format!("spec.{field}: ");
        assert!(message(&body).contains(&expected) && message(&body).contains("is the Tenant alice's"), "{body}");
    }
    let (code, _, body) = post(tenant("bob", 4002)).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    // A change can't take what is another's either, but a renamed user sets his old name free.
    let alice = format!("{TENANTS}/alice");
    let patch = async |spec: Value| send(&server, "root", Method::PATCH, &alice, json!({ "spec": spec })).await;
    let (code, _, body) = patch(json!({ "user": "bob" })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    assert_eq!(patch(json!({ "user": "alice.smith" })).await.0, StatusCode::OK);
    let mut third = tenant("carol", 4003);
    third["spec"]["user"] = "alice".into();
    let (code, _, body) = post(third).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    // What was refused without being stored has nothing.
    let mut refused = tenant("dave", 4004);
    refused["spec"]["gid"] = 5.into();
    assert_eq!(post(refused).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(post(tenant("erin", 4004)).await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_tenant_in_use_is_suspended_before_it_is_deleted_or_becomes_another() {
    let server = server().await;
    assert_eq!(send(&server, "root", Method::POST, TENANTS, tenant("alice", 4001)).await.0, StatusCode::CREATED);
    let alice = format!("{TENANTS}/alice");
    let status = json!({ "status": { "phase": "Active" } });
    let (code, _, body) = send(&server, "root", Method::PATCH, &format!("{alice}/status"), status).await;
    assert_eq!(code, StatusCode::OK, "{body}");
    let patch = async |spec: Value| send(&server, "root", Method::PATCH, &alice, json!({ "spec": spec })).await;
    let delete = async || send(&server, "root", Method::DELETE, &alice, Value::Null).await;

    let (code, _, body) = delete().await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    assert!(message(&body).contains("pumice tenant suspend alice"), "{body}");
    let (code, _, body) = patch(json!({ "uid": 4009 })).await;
    assert!(code == StatusCode::BAD_REQUEST && message(&body).contains("spec.uid: it can be changed only"), "{body}");
    let (code, _, body) = patch(json!({ "namespace": "other" })).await;
    assert!(code.is_client_error(), "{body}");
    assert_eq!(patch(json!({ "suspended": true })).await.0, StatusCode::OK);
    let (code, _, body) = patch(json!({ "uid": 4009, "suspended": false })).await;
    assert_eq!(code, StatusCode::BAD_REQUEST, "{body}");
    assert_eq!(patch(json!({ "uid": 4009 })).await.0, StatusCode::OK);
    assert_eq!(delete().await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_tenant_that_was_refused_goes_at_once() {
    let server = server().await;
    assert_eq!(send(&server, "root", Method::POST, TENANTS, tenant("alice", 4001)).await.0, StatusCode::CREATED);
    let alice = format!("{TENANTS}/alice");
    let status = json!({ "status": { "phase": "Refused", "message": "the namespace exists" } });
    assert_eq!(send(&server, "root", Method::PATCH, &format!("{alice}/status"), status).await.0, StatusCode::OK);
    // It has a claim to nothing.
    let mut second = tenant("ann", 4001);
    second["spec"]["namespace"] = "alice".into();
    let (code, _, body) = send(&server, "root", Method::POST, TENANTS, second).await;
    assert_eq!(code, StatusCode::CREATED, "{body}");
    assert_eq!(send(&server, "root", Method::DELETE, &alice, Value::Null).await.0, StatusCode::OK);
}

//! Fields that ask for protection which nobody here gives: the client is told.

use serde_json::json;

use crate::harness::{PODS, pod, server};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn texts(warnings: &[String]) -> String {
    warnings.join("\n")
}

#[tokio::test]
async fn a_pod_that_is_not_protected_is_made_with_a_warning() {
    let server = server().await;
    assert_eq!(server.post(PODS, &pod("plain")).await.is(201).warnings, [""; 0]);
    let mut asking = pod("asking");
    asking["spec"]["securityContext"] = json!({ "appArmorProfile": { "type": "RuntimeDefault" } });
    let made = server.post(PODS, &asking).await.is(201);
    let told = texts(&made.warnings);
    assert!(
        told.contains("299 - \"appArmorProfile: nodes of this platform have no default profile of AppArmor"),
        "{told}"
    );
    // Said once, not with every label.
    let labelled = json!({ "metadata": { "labels": { "a": "b" } } });
    assert_eq!(server.merge(&format!("{PODS}/asking"), &labelled).await.is(200).warnings, [""; 0]);
}

#[tokio::test]
async fn templates_are_looked_at_when_they_change() {
    let server = server().await;
    let context = json!({ "appArmorProfile": { "type": "RuntimeDefault" } });
    let container = json!({ "name": "c", "image": "i", "securityContext": context });
    let deployment = json!({
        "metadata": { "name": "d" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [container] } },
        },
    });
    let told = texts(&server.post(DEPLOYMENTS, &deployment).await.is(201).warnings);
    assert!(told.contains("AppArmor"), "{told}");
    let path = format!("{DEPLOYMENTS}/d");
    let labelled = json!({ "metadata": { "labels": { "x": "y" } } });
    assert_eq!(server.merge(&path, &labelled).await.is(200).warnings, [""; 0]);
    let confined = json!({ "spec": { "template": { "spec": {
        "securityContext": { "appArmorProfile": { "type": "Localhost", "localhostProfile": "p" } },
    } } } });
    let told = texts(&server.merge(&path, &confined).await.is(200).warnings);
    assert!(told.contains("AppArmor") && told.contains("(pod, container"), "{told}");
}

/// As Kubernetes does in its API, before any node sees the pod.
#[tokio::test]
async fn fields_that_exclude_each_other_are_refused() {
    let server = server().await;
    let refused = [
        (json!({ "hostPID": true, "shareProcessNamespace": true }), "spec.securityContext.shareProcessNamespace"),
        (json!({ "ephemeralContainers": [{ "name": "e", "image": "i" }] }), "spec.ephemeralContainers"),
        (
            json!({ "hostNetwork": true, "securityContext": { "sysctls": [{ "name": "net.a", "value": "1" }] } }),
            "spec.securityContext.sysctls[0].name",
        ),
    ];
    for (fields, path) in refused {
        let mut asking = pod("asking");
        for (field, value) in fields.as_object().unwrap() {
            asking["spec"][field] = value.clone();
        }
        let told = server.post(PODS, &asking).await.is(422).body;
        assert_eq!(told["details"]["causes"][0]["field"], path, "{told}");
    }
}

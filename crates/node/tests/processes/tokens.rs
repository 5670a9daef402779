//! Tokens of service accounts in real pods.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::harness::{is_root, wait_for};
use crate::node::{TestNode, sh};

/// What a token says, whoever signed it.
fn claims(token: &str) -> Value {
    let body = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&decode(body)).unwrap()
}

/// Base 64 as tokens have it.
fn decode(text: &str) -> Vec<u8> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for letter in text.bytes() {
        let value =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".iter().position(|one| *one == letter);
        bits = bits << 6 | u32::try_from(value.unwrap()).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

fn age(file: &Path, by: Duration) {
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.set_modified(file.metadata().unwrap().modified().unwrap() - by).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_has_a_token_of_its_own_as_long_as_it_runs() {
    if !is_root() {
        return;
    }
    let mut node = TestNode::start().await;
    let accounts: Api<ServiceAccount> = Api::namespaced(node.admin.clone(), "default");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    accounts.create(&PostParams::default(), &serde_json::from_value(account).unwrap()).await.unwrap();
    let mut container = sh("cat /v/token; echo; stat -c %a /v/token; sleep 1000");
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    container["securityContext"] = json!({"runAsUser": 1234});
    let token = json!({"path": "token", "expirationSeconds": 600, "audience": "vault"});
    let volumes =
        json!([{"name": "v", "projected": {"defaultMode": 292, "sources": [{"serviceAccountToken": token}]}}]);
    let spec = json!({"serviceAccountName": "robot", "automountServiceAccountToken": false, "containers": [container],
        "volumes": volumes});
    let pod = node.create("p", spec).await;
    node.phase("p", "Running").await;
    let file = node.pod_dir(&pod).join("volumes/v/token");
    let first = std::fs::read_to_string(&file).unwrap();
    let said = claims(&first);
    assert_eq!(said["sub"], "system:serviceaccount:default:robot");
    assert_eq!(said["aud"], json!(["vault"]));
    assert_eq!(said["exp"].as_i64().unwrap() - said["iat"].as_i64().unwrap(), 600);
    let of_pod = &said["kubernetes.io"]["pod"];
    assert_eq!((&of_pod["name"], of_pod["uid"].as_str()), (&json!("p"), pod.metadata.uid.as_deref()));
    let expected = format!("{first}\n444\n");
    let mut log = String::new();
    let reading = async {
        while log != expected {
            log = node.log("p", "main").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let read = tokio::time::timeout(Duration::from_secs(60), reading).await;
    assert!(read.is_ok(), "{log}");
    // The next agent finds it old, and renews it in its place.
    node.stop_agent().await;
    age(&file, Duration::from_secs(481));
    node.start_agent().await;
    let read = || std::fs::read_to_string(&file).ok().filter(|token| *token != first);
    let second = tokio::task::block_in_place(|| wait_for("another token", read));
    assert_eq!(claims(&second)["sub"], said["sub"]);
    assert_ne!(claims(&second)["jti"], said["jti"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o444);
    let names = std::fs::read_dir(file.parent().unwrap()).unwrap().count();
    assert_eq!(names, 1, "nothing is left beside it");
    node.delete("p", &DeleteParams::default().grace_period(0)).await;
    node.gone(&pod).await;
}

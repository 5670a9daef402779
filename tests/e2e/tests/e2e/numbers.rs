//! Numbers that wrap, on a real platform: refused by the API, and refused by the node where they were stored before.

use pumice_store::{Change, Draft, Expect, Key, Options, Store};
use pumice_testkit::{Platform, eventually};
use serde_json::{Value, json};

const WRONG_USERS: [i64; 4] = [-1, 1 << 32, (1 << 32) + 1, 1 << 31];

fn pod(name: &str, user: i64) -> String {
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["sh", "-c", "id -u; sleep 1000"],
        "securityContext": {"runAsUser": user}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}})
        .to_string()
}

fn job(user: i64) -> String {
    let container = json!({"name": "main", "image": "pumice.sh/host", "command": ["true"],
        "securityContext": {"runAsUser": user}});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "bad"},
        "spec": {"tasks": [{"name": "main", "replicas": 1, "template": template}]}})
    .to_string()
}

/// Puts `pod` into the store of a platform that is down.
fn store_before(platform: &Platform, mut pod: Value) {
    pod["metadata"]["resourceVersion"] = json!("@");
    let text = pod.to_string();
    let (head, tail) = text.split_once('@').unwrap();
    let draft = Draft::new(head.to_owned(), tail.to_owned());
    let key = Key::new("pods", "default", pod["metadata"]["name"].as_str().unwrap());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Store::open(&platform.data_dir(), Options::default()).unwrap();
        store.apply(Change::Put { key, draft, expect: Expect::Absent }).await.unwrap();
        store.close().await.unwrap();
    });
}

#[test]
fn what_is_no_user_never_runs_as_root() {
    let mut platform = Platform::new();
    for user in WRONG_USERS {
        let text = "must be between 0 and 2147483647, inclusive";
        let refused = platform.kubectl_with_input(["create", "-f", "-"], &pod("bad", user));
        assert!(refused.code != 0 && refused.stderr.contains(text), "{refused:?}");
        assert!(refused.stderr.contains("spec.containers[0].securityContext.runAsUser"), "{refused:?}");
        let refused = platform.kubectl_with_input(["create", "-f", "-"], &job(user));
        assert!(refused.code != 0 && refused.stderr.contains(text), "{refused:?}");
    }
    assert!(platform.list("pods").is_empty() && platform.list("jobs.batch.volcano.sh").is_empty());

    // As an earlier release stored it: a good one that is on the node, with another user.
    platform.kubectl_with_input(["create", "-f", "-"], &pod("model", 0)).ok();
    let mut old = eventually("the model is on the node", || {
        let found = platform.get("pod", "model").ok_or("no such pod")?;
        if found["spec"]["nodeName"].is_string() { Ok(found) } else { Err(found["status"].to_string()) }
    });
    platform.kubectl(["delete", "pod", "model", "--grace-period=0", "--force"]).ok();
    assert_eq!(platform.stop(), 0);
    old["metadata"] = json!({"name": "old", "namespace": "default", "uid": "00000000-0000-7000-8000-000000000001",
        "creationTimestamp": old["metadata"]["creationTimestamp"].clone()});
    old["spec"]["containers"][0]["securityContext"]["runAsUser"] = json!(1_i64 << 32);
    old["status"] = json!({"phase": "Pending"});
    store_before(&platform, old);
    platform.up();

    eventually("the node refuses it, and says why", || {
        let found = platform.get("pod", "old").ok_or("no such pod")?;
        let waiting = &found["status"]["containerStatuses"][0]["state"]["waiting"];
        let told = waiting["message"].as_str().unwrap_or_default();
        let is_refused = waiting["reason"] == "CreateContainerConfigError"
            && told.contains("spec.containers[0].securityContext.runAsUser: Invalid value: 4294967296");
        if is_refused { Ok(()) } else { Err(found["status"].to_string()) }
    });
    platform.kubectl(["label", "pod", "old", "seen=yes"]).ok();
    platform.kubectl(["delete", "pod", "old"]).ok();
    eventually(
        "it is gone",
        || if platform.get("pod", "old").is_none() { Ok(()) } else { Err("it is there".to_owned()) },
    );
}

//! Claims and their volumes.

use serde_json::{Value, json};

use crate::harness::{PODS, Server, pod, server};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";

fn claim(name: &str, class: Option<&str>) -> Value {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = json!(class);
    }
    claim
}

fn volume(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}, "storageClassName": class,
            "hostPath": {"path": "/data"},
        },
    })
}

async fn phase(server: &Server, path: &str, wanted: &str) -> Value {
    server.until_that(path, |object| object["status"]["phase"] == wanted).await
}

#[tokio::test]
async fn a_claim_that_names_no_class_becomes_a_folder() {
    let server = server().await;
    let made = server.post(CLAIMS, &claim("c", None)).await.is(201).body;
    assert_eq!(made["spec"]["storageClassName"], "folder");
    assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    let bound = phase(&server, &format!("{CLAIMS}/c"), "Bound").await;
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let name = bound["spec"]["volumeName"].as_str().expect("a volume");
    let volume = phase(&server, &format!("{VOLUMES}/{name}"), "Bound").await;
    assert_eq!(volume["spec"]["csi"], json!({"driver": "pumice.sh/folder", "volumeHandle": "default/c"}));
    assert_eq!(volume["spec"]["claimRef"]["uid"], bound["metadata"]["uid"]);
    // What it was is kept, and not given to the next of its name.
    server.delete(&format!("{CLAIMS}/c"), &Value::Null).await.is(200);
    server.until(&format!("{CLAIMS}/c"), 404).await;
    phase(&server, &format!("{VOLUMES}/{name}"), "Released").await;
    server.post(CLAIMS, &claim("c", None)).await.is(201);
    let again = phase(&server, &format!("{CLAIMS}/c"), "Bound").await;
    assert_ne!(again["spec"]["volumeName"], name);
    let other = server.get(&format!("{VOLUMES}/{}", again["spec"]["volumeName"].as_str().expect("name"))).await.body;
    assert_ne!(other["spec"]["csi"]["volumeHandle"], "default/c");
    server.delete(&format!("{VOLUMES}/{name}"), &Value::Null).await.is(200);
    server.until(&format!("{VOLUMES}/{name}"), 404).await;
}

#[tokio::test]
async fn claims_and_volumes_made_by_hand_find_each_other() {
    let server = server().await;
    // Without a class it waits for one of these; of a class that is not defined it would get a folder.
    server.post(CLAIMS, &claim("early", Some(""))).await.is(201);
    phase(&server, &format!("{CLAIMS}/early"), "Pending").await;
    server.post(VOLUMES, &volume("other", "different")).await.is(201);
    phase(&server, &format!("{VOLUMES}/other"), "Available").await;
    server.post(VOLUMES, &volume("v", "")).await.is(201);
    let bound = phase(&server, &format!("{CLAIMS}/early"), "Bound").await;
    assert_eq!((&bound["spec"]["volumeName"], &bound["status"]["capacity"]["storage"]), (&json!("v"), &json!("2Gi")));
    // A volume that is in use stays until its claim has gone.
    let marked = server.delete(&format!("{VOLUMES}/v"), &Value::Null).await.is(200);
    assert!(marked.body["metadata"]["deletionTimestamp"].is_string());
    server.post(PODS, &using("p", "early")).await.is(201);
    server.delete(&format!("{CLAIMS}/early"), &Value::Null).await.is(200);
    server.get(&format!("{VOLUMES}/v")).await.is(200);
    let held = server.get(&format!("{CLAIMS}/early")).await.is(200).body;
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "a pod uses it");
    server.merge(&format!("{PODS}/p/status"), &json!({"status": {"phase": "Succeeded"}})).await.is(200);
    server.until(&format!("{CLAIMS}/early"), 404).await;
    server.until(&format!("{VOLUMES}/v"), 404).await;
}

fn using(name: &str, claim: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["nodeName"] = json!("n");
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pod
}

#[tokio::test]
async fn a_class_that_waits_gets_its_folder_where_the_scheduler_says() {
    let server = server().await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
        "provisioner": "pumice.sh/folder", "volumeBindingMode": "WaitForFirstConsumer",
    });
    server.post(CLASSES, &class).await.is(201);
    server.post(CLAIMS, &claim("c", Some("late"))).await.is(201);
    server.post(CLAIMS, &claim("probe", None)).await.is(201);
    phase(&server, &format!("{CLAIMS}/probe"), "Bound").await;
    assert_eq!(server.get(&format!("{CLAIMS}/c")).await.body["status"]["phase"], "Pending");
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    server.merge(&format!("{CLAIMS}/c"), &selected).await.is(200);
    let bound = phase(&server, &format!("{CLAIMS}/c"), "Bound").await;
    let name = bound["spec"]["volumeName"].as_str().expect("name");
    let volume = server.get(&format!("{VOLUMES}/{name}")).await.is(200).body;
    let term = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(*term, json!({"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}));
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    // The volume under a claim goes: the claim is lost.
    server.merge(&format!("{VOLUMES}/{name}"), &json!({"metadata": {"finalizers": null}})).await.is(200);
    server.delete(&format!("{VOLUMES}/{name}"), &Value::Null).await.is(200);
    phase(&server, &format!("{CLAIMS}/c"), "Lost").await;
}

#[tokio::test]
async fn classes_and_network_policies_say_what_has_no_effect() {
    let server = server().await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "s"}, "provisioner": "ebs.csi.aws.com",
    });
    assert!(server.post(CLASSES, &class).await.is(201).warnings[0].contains("nobody here makes volumes"));
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"},
        "spec": {"podSelector": {}},
    });
    let made = server.post("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", &policy).await.is(201);
    assert!(made.warnings[0].contains("has no effect here"), "{:?}", made.warnings);
    assert_eq!(made.body["spec"]["policyTypes"], json!(["Ingress"]));
}

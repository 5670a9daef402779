//! Server-side apply: what each manager owns, and what it may change.

use pumice_testkit::{Clients, Output};
use serde_json::{Value, json};

/// Runs `kubectl apply --server-side` under a field manager's name.
fn apply(clients: &Clients, manager: &str, flags: &[&str], object: &Value) -> Output {
    let manager = format!("--field-manager={manager}");
    let args = [&["apply", "--server-side", manager.as_str()], flags, &["-f", "-"]].concat();
    clients.kubectl_with_input(args, &object.to_string())
}

/// An object with its managers but for the times.
fn owned(clients: &Clients, kind: &str, name: &str) -> (Value, Vec<Value>) {
    let text = clients.kubectl(["get", kind, name, "--show-managed-fields", "-o", "json"]).ok();
    let object: Value = serde_json::from_str(&text).expect("kubectl prints JSON");
    let mut managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for manager in &mut managers {
        let time = manager.as_object_mut().and_then(|manager| manager.remove("time"));
        assert!(time.is_some_and(|time| time.is_string()), "{manager}");
    }
    (object, managers)
}

fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data})
}

/// Two managers share an object; a third takes a field, by force only; somebody edits by hand.
pub fn managers_own_what_they_apply(clients: &Clients) {
    let data = |fields: Value| json!({ "f:data": fields });
    let said = apply(clients, "ann", &[], &map(json!({"a": "1", "b": "2"}))).ok();
    assert_eq!(said, "configmap/shared serverside-applied\n");
    apply(clients, "bob", &[], &map(json!({"c": "3"}))).ok();
    apply(clients, "ann", &[], &map(json!({"a": "1"}))).ok();
    let (object, managers) = owned(clients, "configmap", "shared");
    assert_eq!(object["data"], json!({"a": "1", "c": "3"}), "what ann no longer says is gone");
    let revision = object["metadata"]["resourceVersion"].clone();
    assert_eq!(managers.len(), 2);
    assert!(managers.contains(&entry("ann", "Apply", "v1", data(json!({"f:a": {}})))), "{managers:?}");
    apply(clients, "ann", &[], &map(json!({"a": "1"}))).ok();
    let (object, same) = owned(clients, "configmap", "shared");
    assert_eq!((&object["metadata"]["resourceVersion"], same), (&revision, managers), "the same again is no write");

    let theirs = map(json!({"a": "9", "c": "3"}));
    let refused = apply(clients, "eve", &[], &theirs);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("Apply failed with 1 conflict: conflict with \"ann\": .data.a"), "{refused:?}");
    let mut misspelt = map(json!({"e": "1"}));
    misspelt["dato"] = json!({"f": "1"});
    let refused = apply(clients, "eve", &["--validate=false"], &misspelt);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains(".dato: field not declared in schema"), "{refused:?}");
    let dry = apply(clients, "eve", &["--force-conflicts", "--dry-run=server", "-o", "jsonpath={.data.a}"], &theirs);
    assert_eq!(dry.ok(), "9");
    assert_eq!(owned(clients, "configmap", "shared").0["data"]["a"], "1", "a dry run changes nothing");
    apply(clients, "eve", &["--force-conflicts"], &theirs).ok();
    let patch = json!({"data": {"c": "4", "d": "5"}}).to_string();
    clients.kubectl(["patch", "configmap", "shared", "--field-manager=hand", "-p", &patch]).ok();
    let (object, managers) = owned(clients, "configmap", "shared");
    assert_eq!(object["data"], json!({"a": "9", "c": "4", "d": "5"}));
    let wanted = [
        entry("eve", "Apply", "v1", data(json!({"f:a": {}}))),
        entry("hand", "Update", "v1", data(json!({"f:c": {}, "f:d": {}}))),
    ];
    assert_eq!(managers, wanted, "ann and bob own nothing any more");
}

/// Items of lists have owners of their own, by the keys that tell them apart.
pub fn items_of_lists_have_owners_of_their_own(clients: &Clients) {
    let service = |ports: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": ports}})
    };
    apply(clients, "ann", &[], &service(json!([{"name": "one", "port": 1}, {"name": "two", "port": 2}]))).ok();
    let more = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
        "spec": {"ports": [{"name": "three", "port": 3, "targetPort": 30}]}});
    apply(clients, "bob", &[], &more).ok();
    apply(clients, "ann", &[], &service(json!([{"name": "two", "port": 2}]))).ok();
    let (object, managers) = owned(clients, "service", "peers");
    let ports: Vec<&Value> =
        object["spec"]["ports"].as_array().expect("ports").iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [2, 3]);
    let two = json!({".": {}, "f:name": {}, "f:port": {}});
    let fields = json!({"f:spec": {"f:clusterIP": {}, "f:selector": {}, "f:ports": {"k:{\"port\":2,\"protocol\":\"TCP\"}": two}}});
    assert!(managers.contains(&entry("ann", "Apply", "v1", fields)), "{managers:?}");
    let clash = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "peers"},
        "spec": {"selector": {"a": "c"}, "ports": [{"name": "third", "port": 3}]}});
    let refused = apply(clients, "eve", &[], &clash);
    assert_eq!(refused.code, 1, "{refused:?}");
    for part in [
        "Apply failed with 2 conflicts: conflicts with \"ann\":\n- .spec.selector\nconflicts with \"bob\":\n",
        "- .spec.ports[port=3,protocol=\"TCP\"].name",
    ] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
    let twice = service(json!([{"name": "a", "port": 1}, {"name": "b", "port": 1}]));
    assert_eq!(apply(clients, "eve", &[], &twice).code, 1, "two items with one key");
}

/// Kinds that definitions add are applied in the same way, each manager's status apart.
pub fn custom_resources_are_applied_too(clients: &Clients) {
    let queue = |spec: Value| json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "applied"}, "spec": spec});
    apply(clients, "ann", &[], &queue(json!({"weight": 2, "capability": {"cpu": "4"}}))).ok();
    let refused = apply(clients, "bob", &[], &queue(json!({"weight": 3})));
    assert!(refused.stderr.contains("conflict with \"ann\": .spec.weight"), "{refused:?}");
    apply(clients, "bob", &["--force-conflicts"], &queue(json!({"weight": 3}))).ok();
    apply(clients, "ann", &[], &queue(json!({"capability": {"cpu": "4", "memory": "1Gi"}}))).ok();
    let (object, managers) = owned(clients, "queues.scheduling.volcano.sh", "applied");
    assert_eq!(object["spec"]["weight"], 3);
    let version = "scheduling.volcano.sh/v1beta1";
    let of_ann = entry("ann", "Apply", version, json!({"f:spec": {"f:capability": {"f:cpu": {}, "f:memory": {}}}}));
    let of_bob = entry("bob", "Apply", version, json!({"f:spec": {"f:weight": {}}}));
    assert!(managers.contains(&of_ann) && managers.contains(&of_bob), "{managers:?}");
    clients.kubectl(["delete", "queues.scheduling.volcano.sh", "applied", "--wait=false"]).ok();
}

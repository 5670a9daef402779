//! What strategic merge patches of built-in kinds give, and what they are refused with.

use pumice_testkit::Clients;
use serde_json::{Value, json};

/// Kind, what the object has beside its name, the patch, where to look, what stands there.
type Patch = (&'static str, Value, Value, &'static str, Value);

fn patches() -> Vec<Patch> {
    let ports = |names: &[(&str, u16)]| -> Value {
        names
            .iter()
            .map(|(name, port)| json!({"name": name, "port": port, "protocol": "TCP", "targetPort": port}))
            .collect()
    };
    let service = |ports: &Value| json!({"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": ports}});
    let two = ports(&[("one", 1), ("two", 2)]);
    let pod = json!({"spec": {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "x"}]}});
    let map = json!({"metadata": {"finalizers": ["example.com/a", "example.com/b"]}, "data": {"a": "1", "b": "2"}});
    vec![
        ("configmap", map.clone(), json!({"data": {"b": null, "c": "3"}}), "/data", json!({"a": "1", "c": "3"})),
        ("configmap", map.clone(), json!({"data": {"$patch": "replace", "c": "3"}}), "/data", json!({"c": "3"})),
        ("configmap", map.clone(), json!({"data": {"$patch": "delete"}}), "/data", Value::Null),
        ("configmap", map.clone(), json!({"data": {"$retainKeys": ["b"]}}), "/data", json!({"b": "2"})),
        (
            "configmap",
            map.clone(),
            json!({"metadata": {"finalizers": ["example.com/c", "example.com/a"]}}),
            "/metadata/finalizers",
            json!(["example.com/c", "example.com/a", "example.com/b"]),
        ),
        (
            "configmap",
            map,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"],
                "$setElementOrder/finalizers": ["example.com/c", "example.com/b"], "finalizers": ["example.com/c"]}}),
            "/metadata/finalizers",
            json!(["example.com/c", "example.com/b"]),
        ),
        (
            "service",
            service(&two),
            json!({"spec": {"ports": [{"name": "new", "port": 9}]}}),
            "/spec/ports",
            ports(&[("new", 9), ("one", 1), ("two", 2)]),
        ),
        (
            "service",
            service(&two),
            json!({"spec": {"ports": [{"port": 1, "$patch": "delete"}, {"port": 2, "name": "other"}]}}),
            "/spec/ports/0/name",
            json!("other"),
        ),
        (
            "service",
            service(&two),
            json!({"spec": {"ports": [{"$patch": "replace"}, {"name": "new", "port": 9}]}}),
            "/spec/ports",
            ports(&[("new", 9)]),
        ),
        (
            "service",
            service(&ports(&[("one", 1), ("two", 2), ("theirs", 3)])),
            json!({"spec": {"$setElementOrder/ports": [{"port": 2}, {"port": 4}, {"port": 1}],
                "ports": [{"name": "four", "port": 4}]}}),
            "/spec/ports",
            ports(&[("two", 2), ("four", 4), ("one", 1), ("theirs", 3)]),
        ),
        (
            "pod",
            pod,
            json!({"spec": {"containers": [{"name": "b", "image": "y"}]}}),
            "/spec/containers/1/image",
            json!("y"),
        ),
    ]
}

/// Lists merge by their keys and stand in the order that is stated.
pub fn patches_of_built_in_kinds_merge_lists_by_key(clients: &Clients) {
    for (number, (kind, mut object, patch, place, wanted)) in patches().into_iter().enumerate() {
        let name = format!("patched-{number}");
        let kinds = json!({"configmap": "ConfigMap", "service": "Service", "pod": "Pod"});
        object["apiVersion"] = json!("v1");
        object["kind"] = kinds[kind].clone();
        object["metadata"]["name"] = json!(name);
        clients.kubectl_with_input(["create", "-f", "-"], &object.to_string()).ok();
        clients.kubectl(["patch", kind, &name, "-p", &patch.to_string()]).ok();
        let stored = clients.get(kind, &name).expect("the object");
        // Kubernetes leaves out an object that is empty.
        let found = stored.pointer(place).filter(|found| **found != json!({})).unwrap_or(&Value::Null);
        assert_eq!(found, &wanted, "{kind} {patch}");
        let free = json!({"metadata": {"finalizers": null}}).to_string();
        clients.kubectl(["patch", kind, &name, "--type=merge", "-p", &free]).ok();
        clients.kubectl(["delete", kind, &name, "--wait=false"]).ok();
    }
}

/// A patch that makes no sense leaves no trace.
pub fn patches_that_make_no_sense_are_refused(clients: &Clients) {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "kept"},
        "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"name": "one", "port": 1}]}});
    clients.kubectl_with_input(["create", "-f", "-"], &object.to_string()).ok();
    let before = clients.get("service", "kept");
    for (patch, wanted) in [
        (json!({"spec": {"ports": [{"name": "x"}]}}), "does not contain declared merge key: port"),
        (json!({"spec": {"$patch": "nonsense"}}), "unknown patch type: "),
        (json!({"spec": {"$setElementOrder/ports": [{"port": 1}], "ports": [{"port": 2}]}}), "$setElementOrder list"),
        (json!({"spec": {"$retainKeys": ["clusterIP"], "selector": {}}}), "invalid patch format"),
    ] {
        let output = clients.kubectl(["patch", "service", "kept", "-p", &patch.to_string()]);
        assert_eq!(output.code, 1, "{patch}");
        assert!(output.stderr.contains(wanted), "{patch}: {}", output.stderr);
    }
    let refused = clients.kubectl(["patch", "queues.scheduling.volcano.sh", "default", "-p", "{}", "--type=strategic"]);
    assert!(
        refused.stderr.contains("UnsupportedMediaType") || refused.stderr.contains("not supported"),
        "{}",
        refused.stderr
    );
    assert_eq!(clients.get("service", "kept"), before);
}

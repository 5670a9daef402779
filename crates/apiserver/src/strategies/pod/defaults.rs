//! Defaults of pods that no schema carries: they depend on other fields, or upstream sets them in code.
//!
//! Invariant: applying them twice changes nothing, and a pod made of a template with its defaults gets no other ones than
//! those of pods alone. Called on every write of a pod, and of kinds that hold a template of pods.

use serde_json::{Map, Value, json};

use super::CONTAINER_LISTS;
use crate::ephemeral_containers::EPHEMERAL_CONTAINERS;

/// Seconds between SIGTERM and SIGKILL when nobody says otherwise.
pub(super) const GRACE_SECONDS: i64 = 30;

/// Fills what the writer of the manifest left out.
pub(super) fn apply(object: &mut Value) {
    apply_to_template(object);
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    fill(spec, "enableServiceLinks", json!(true));
    fill(spec, "serviceAccountName", json!("default"));
    each(spec.get_mut(EPHEMERAL_CONTAINERS), container);
    let on_host = spec.get("hostNetwork").is_some_and(|on_host| *on_host == true);
    for list in CONTAINER_LISTS {
        each(spec.get_mut(list), requests_from_limits);
        if on_host {
            each(spec.get_mut(list), ports_of_host);
        }
    }
}

/// Fills what a template of pods leaves out and upstream fills in there, too.
pub(crate) fn apply_to_template(template: &mut Value) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else { return };
    // The old name of the field.
    if let Some(account) = spec.get("serviceAccount").filter(|account| account.is_string()).cloned() {
        fill(spec, "serviceAccountName", account);
    }
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
    ] {
        fill(spec, field, value);
    }
    for list in CONTAINER_LISTS {
        each(spec.get_mut(list), container);
    }
    each(spec.get_mut("volumes"), volume);
}

fn fill(object: &mut Map<String, Value>, field: &str, value: Value) {
    let empty = object.get(field).is_none_or(|old| old.is_null() || old.as_str() == Some(""));
    if empty {
        object.insert(field.to_owned(), value);
    }
}

fn each(list: Option<&mut Value>, change: fn(&mut Map<String, Value>)) {
    list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut).for_each(change);
}

/// On the host's network a port of the container is one of the host.
fn ports_of_host(container: &mut Map<String, Value>) {
    each(container.get_mut("ports"), |port| {
        let is_given = port.get("hostPort").is_some_and(|given| *given != 0);
        if !is_given && let Some(number) = port.get("containerPort").cloned() {
            port.insert("hostPort".to_owned(), number);
        }
    });
}

fn container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let pull = pull_policy(image);
    for (field, value) in [
        ("imagePullPolicy", json!(pull)),
        ("resources", json!({})),
        ("terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePolicy", json!("File")),
    ] {
        fill(container, field, value);
    }
    each(container.get_mut("ports"), |port| fill(port, "protocol", json!("TCP")));
    each(container.get_mut("env"), |entry| {
        if let Some(source) = entry.get_mut("valueFrom").and_then(Value::as_object_mut) {
            of_fields(source);
        }
    });
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
            fill_probe(probe);
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    if pulls_always(image) { "Always" } else { "IfNotPresent" }
}

/// An image without a tag, or tagged `latest`, is pulled each time.
fn pulls_always(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn requests_from_limits(container: &mut Map<String, Value>) {
    let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else { return };
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else { return };
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if let Some(requests) = requests.as_object_mut() {
        for (resource, limit) in limits {
            requests.entry(resource).or_insert(limit);
        }
    }
}

fn fill_probe(probe: &mut Map<String, Value>) {
    for (field, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        // Zero stands for "not given" there.
        if probe.get(field).is_some_and(|given| given.as_i64() == Some(0)) {
            probe.remove(field);
        }
        fill(probe, field, json!(value));
    }
    if let Some(http) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
        fill(http, "path", json!("/"));
        fill(http, "scheme", json!("HTTP"));
    }
}

/// The sources whose files get a default mode.
const MODED_SOURCES: [&str; 4] = ["configMap", "secret", "projected", "downwardAPI"];
const FILE_MODE: i32 = 0o644;

fn volume(volume: &mut Map<String, Value>) {
    if volume.keys().all(|key| key == "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for source in MODED_SOURCES {
        if let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) {
            fill(source, "defaultMode", json!(FILE_MODE));
        }
    }
    source_defaults(volume);
    each(volume.get_mut("downwardAPI").and_then(|source| source.get_mut("items")), of_fields);
    each(volume.get_mut("projected").and_then(|source| source.get_mut("sources")), |source| {
        each(source.get_mut("downwardAPI").and_then(|source| source.get_mut("items")), of_fields);
        if let Some(token) = source.get_mut("serviceAccountToken").and_then(Value::as_object_mut) {
            fill(token, "expirationSeconds", json!(TOKEN_SECONDS));
        }
    });
    let claim = volume.get_mut("ephemeral").and_then(|source| source.get_mut("volumeClaimTemplate"));
    if let Some(spec) = claim.and_then(|claim| claim.get_mut("spec")).and_then(Value::as_object_mut) {
        fill(spec, "volumeMode", json!("Filesystem"));
    }
    if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = pull_policy(reference);
        fill(image, "pullPolicy", json!(policy));
    }
}

/// How long a projected token lasts, where nobody says it.
const TOKEN_SECONDS: i64 = 3600;

/// A reference to a field of the pod is to one of version 1.
fn of_fields(item: &mut Map<String, Value>) {
    if let Some(reference) = item.get_mut("fieldRef").and_then(Value::as_object_mut) {
        fill(reference, "apiVersion", json!("v1"));
    }
}

/// What sources are given that a pod's volume and a PersistentVolume may have alike.
const SOURCE_DEFAULTS: [(&str, &[(&str, &str)]); 5] = [
    ("azureDisk", &[("cachingMode", "ReadWrite"), ("fsType", "ext4"), ("kind", "Shared")]),
    ("hostPath", &[("type", "")]),
    ("iscsi", &[("iscsiInterface", "default")]),
    ("rbd", &[("keyring", "/etc/ceph/keyring"), ("pool", "rbd"), ("user", "admin")]),
    ("scaleIO", &[("fsType", "xfs"), ("storageMode", "ThinProvisioned")]),
];

/// Fills what the source of a volume leaves out.
pub(crate) fn source_defaults(volume: &mut Map<String, Value>) {
    for (source, fields) in SOURCE_DEFAULTS {
        let Some(source) = volume.get_mut(source).and_then(Value::as_object_mut) else { continue };
        for (field, value) in fields {
            source.entry(*field).or_insert_with(|| json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_and_ports_of_the_host_are_filled() {
        let field = json!({"path": "a", "fieldRef": {"fieldPath": "metadata.name"}});
        let mut pod = json!({"spec": {
            "hostNetwork": true,
            "containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}]}],
            "volumes": [
                {"name": "d", "downwardAPI": {"items": [field]}},
                {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": [field]}}, {"serviceAccountToken": {"path": "t"}}]}},
                {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
                {"name": "i", "image": {"reference": "busybox"}},
                {"name": "s", "iscsi": {"lun": 0}},
            ],
        }});
        apply(&mut pod);
        let spec = &pod["spec"];
        let ports: Vec<&Value> =
            spec["containers"][0]["ports"].as_array().unwrap().iter().map(|port| &port["hostPort"]).collect();
        assert_eq!(ports, [&json!(80), &json!(9)]);
        let of = |path: &str| spec["volumes"].pointer(path).cloned().unwrap_or_default();
        for (path, wanted) in [
            ("/0/downwardAPI/items/0/fieldRef/apiVersion", json!("v1")),
            ("/1/projected/sources/0/downwardAPI/items/0/fieldRef/apiVersion", json!("v1")),
            ("/1/projected/sources/1/serviceAccountToken/expirationSeconds", json!(3600)),
            ("/2/ephemeral/volumeClaimTemplate/spec/volumeMode", json!("Filesystem")),
            ("/3/image/pullPolicy", json!("Always")),
            ("/4/iscsi/iscsiInterface", json!("default")),
        ] {
            assert_eq!(of(path), wanted, "{path}");
        }
    }

    #[test]
    fn defaults_are_filled_once() {
        let mut pod = json!({"spec": {"containers": [{
            "name": "a", "image": "busybox",
            "resources": {"limits": {"cpu": "1"}},
            "ports": [{"containerPort": 80}],
            "readinessProbe": {"httpGet": {"port": 80}},
        }], "volumes": [{"name": "v"}, {"name": "c", "configMap": {"name": "x"}}]}});
        apply(&mut pod);
        let spec = &pod["spec"];
        assert_eq!(spec["restartPolicy"], "Always");
        assert_eq!(spec["terminationGracePeriodSeconds"], 30);
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], "Always");
        assert_eq!(container["resources"]["requests"]["cpu"], "1");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/");
        assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(spec["volumes"][1]["configMap"]["defaultMode"], 420);
        let once = pod.clone();
        apply(&mut pod);
        assert_eq!(pod, once);
    }

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, always) in [
            ("busybox", true),
            ("busybox:latest", true),
            ("busybox:1.36", false),
            ("registry:5000/busybox", true),
            ("registry:5000/busybox:1", false),
            ("busybox@sha256:00", false),
        ] {
            assert_eq!(pulls_always(image), always, "{image}");
        }
    }

    #[test]
    fn odd_shapes_are_left_alone() {
        for mut pod in [json!({}), json!({"spec": 1}), json!({"spec": {"containers": [1, null], "volumes": {}}})] {
            apply(&mut pod);
        }
    }
}

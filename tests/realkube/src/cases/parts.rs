//! What objects have though nobody gave it, and kinds that schedulers list though nobody makes them.

use pumice_testkit::Clients;
use serde_json::{Value, json};

/// `spec` and `status` are as Kubernetes writes them, however little was given.
pub fn objects_have_the_parts_that_go_writes(clients: &Clients) {
    let group = |version: &str, kind: &str, more: Value| {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "least" } });
        object.as_object_mut().expect("fields").extend(more.as_object().cloned().expect("fields"));
        object
    };
    let attachment = json!({ "attacher": "d.example", "nodeName": "n", "source": { "persistentVolumeName": "v" } });
    let none = json!({});
    for (object, at, wanted) in [
        (group("v1", "Node", none.clone()), "/status/nodeInfo/architecture", json!("")),
        (group("v1", "Node", none.clone()), "/status/daemonEndpoints/kubeletEndpoint/Port", json!(0)),
        (group("v1", "Service", json!({ "spec": { "clusterIP": "None" } })), "/status", json!({ "loadBalancer": {} })),
        (group("v1", "ResourceQuota", none.clone()), "/spec", none.clone()),
        (group("v1", "ResourceQuota", none.clone()), "/status", none.clone()),
        (group("coordination.k8s.io/v1", "Lease", none.clone()), "/spec", none.clone()),
        (group("networking.k8s.io/v1", "NetworkPolicy", none.clone()), "/spec/podSelector", none.clone()),
        (group("policy/v1", "PodDisruptionBudget", none.clone()), "/status/disruptionsAllowed", json!(0)),
        (
            group("storage.k8s.io/v1", "VolumeAttachment", json!({ "spec": attachment })),
            "/status",
            json!({ "attached": false }),
        ),
        (group("resource.k8s.io/v1", "DeviceClass", none.clone()), "/spec", none.clone()),
        (group("resource.k8s.io/v1", "ResourceClaim", none.clone()), "/status", none),
    ] {
        let create = ["create", "--dry-run=server", "--validate=false", "-o", "json", "-f", "-"];
        let made = clients.kubectl_with_input(create, &object.to_string()).ok();
        let made: Value = serde_json::from_str(&made).expect("kubectl prints JSON");
        assert_eq!(made.pointer(at), Some(&wanted), "{at} of {object}");
    }
}

/// Those that Volcano's and Kubernetes' schedulers and controllers wait for before they begin.
pub fn kinds_that_schedulers_list_are_served(clients: &Clients) {
    for kind in [
        "csidrivers.storage.k8s.io",
        "csinodes.storage.k8s.io",
        "csistoragecapacities.storage.k8s.io",
        "volumeattachments.storage.k8s.io",
        "deviceclasses.resource.k8s.io",
        "resourceclaims.resource.k8s.io",
        "resourceclaimtemplates.resource.k8s.io",
        "resourceslices.resource.k8s.io",
        "replicationcontrollers",
    ] {
        let list: Value = serde_json::from_str(&clients.kubectl(["get", kind, "-o", "json"]).ok()).expect("JSON");
        assert!(list["items"].is_array(), "{kind}: {list}");
    }
}

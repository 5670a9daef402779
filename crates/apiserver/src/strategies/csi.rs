//! What drivers of storage tell about themselves, and what is attached where: stored, and read by other programs alone.
//!
//! Volumes of such drivers are not mounted here; schedulers and operators that people bring list these kinds before they
//! begin, and drivers register in them.

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::names;
use pumice_objects::selector::LabelSelector;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::pod::spec::parse_quantity;
use super::workload::{fill, one_of, spec_mut};
use super::{Hook, Strategy};
use crate::problems::{Problems, immutable_spec};

/// Longest name of a driver.
const DRIVER_BYTES_MAX: usize = 63;
/// Longest name that a driver has for a node.
const NODE_ID_BYTES_MAX: usize = 192;
const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLES: [&str; 2] = ["Persistent", "Ephemeral"];
/// Shortest time between two looks at how much a node can take, in seconds.
const PERIOD_SECONDS_MIN: i64 = 10;
const TOKEN_SECONDS_MIN: i64 = 600;
const TOKEN_SECONDS_MAX: i64 = 1 << 32;

pub(crate) struct CSIDriver;
pub(crate) struct CSINode;
pub(crate) struct CSIStorageCapacity;
pub(crate) struct VolumeAttachment;

impl Strategy for CSIDriver {
    fn defaults(&self, object: &mut Value) {
        let Some(spec) = spec_mut(object) else { return };
        fill(spec, "attachRequired", json!(true));
        for field in ["podInfoOnMount", "requiresRepublish", "seLinuxMount", "storageCapacity"] {
            fill(spec, field, json!(false));
        }
        fill(spec, "fsGroupPolicy", json!(GROUP_POLICIES[2]));
        if spec.get("volumeLifecycleModes").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("volumeLifecycleModes".to_owned(), json!([LIFECYCLES[0]]));
        }
    }

    /// Counts changes from none, as upstream.
    fn prepare_update(&self, new: &mut Value, old: &Value, _hook: &mut Hook<'_>) -> Result<(), Status> {
        if new["spec"] != old["spec"] {
            meta::set_generation(new, meta::generation(old) + 1);
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (mut problems, spec) = (Problems::default(), &object["spec"]);
        one_of(&mut problems, "spec.fsGroupPolicy", &spec["fsGroupPolicy"], &GROUP_POLICIES);
        for mode in spec["volumeLifecycleModes"].as_array().into_iter().flatten() {
            one_of(&mut problems, "spec.volumeLifecycleModes", mode, &LIFECYCLES);
        }
        let period = &spec["nodeAllocatableUpdatePeriodSeconds"];
        if period.as_i64().is_some_and(|seconds| seconds < PERIOD_SECONDS_MIN) {
            let path = "spec.nodeAllocatableUpdatePeriodSeconds";
            problems.invalid(path, period, "must be greater than or equal to 10 seconds");
        }
        let requests = spec["tokenRequests"].as_array().map_or(&[][..], Vec::as_slice);
        check_tokens(requests, &mut problems);
        let in_secrets = &spec["serviceAccountTokenInSecrets"];
        if in_secrets.is_boolean() && requests.is_empty() {
            let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
            problems.invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail);
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        // The first path is upstream's, slip included.
        for (field, path) in [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
        {
            problems.immutable(&format!("spec.{path}"), &new["spec"][field], &old["spec"][field]);
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

fn check_tokens(requests: &[Value], problems: &mut Problems) {
    let audience = |request: &Value| request["audience"].as_str().unwrap_or_default().to_owned();
    for (index, request) in requests.iter().enumerate() {
        let path = format!("spec.tokenRequests[{index}]");
        if requests[..index].iter().any(|before| audience(before) == audience(request)) {
            problems.duplicate(&format!("{path}.audience"), &audience(request));
            continue;
        }
        let seconds = &request["expirationSeconds"];
        let detail = match seconds.as_i64() {
            Some(number) if number < TOKEN_SECONDS_MIN => "may not specify a duration less than 10 minutes",
            Some(number) if number > TOKEN_SECONDS_MAX => "may not specify a duration larger than 2^32 seconds",
            _ => continue,
        };
        problems.invalid(&format!("{path}.expirationSeconds"), seconds, detail);
    }
}

impl Strategy for CSINode {
    fn defaults(&self, object: &mut Value) {
        if let Some(spec) = spec_mut(object) {
            fill(spec, "drivers", json!([]));
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let drivers = object["spec"]["drivers"].as_array().map_or(&[][..], Vec::as_slice);
        for (index, driver) in drivers.iter().enumerate() {
            let path = format!("spec.drivers[{index}]");
            check_driver_name(&format!("{path}.name"), &driver["name"], &mut problems);
            if drivers[..index].iter().any(|before| before["name"] == driver["name"]) {
                problems.duplicate(&format!("{path}.name"), driver["name"].as_str().unwrap_or_default());
            }
            match driver["nodeID"].as_str().unwrap_or_default() {
                "" => problems.required(&format!("{path}.nodeID"), ""),
                id if id.len() > NODE_ID_BYTES_MAX => {
                    let detail = format!("must be {NODE_ID_BYTES_MAX} characters or less");
                    problems.invalid(&format!("{path}.nodeID"), &driver["nodeID"], &detail);
                }
                _ => {}
            }
            let count = &driver["allocatable"]["count"];
            if count.as_i64().is_some_and(|count| count < 0) {
                problems.invalid(&format!("{path}.allocatable.count"), count, "must be greater than or equal to 0");
            }
            check_keys(&path, driver["topologyKeys"].as_array().map_or(&[][..], Vec::as_slice), &mut problems);
        }
        problems.into_errors()
    }

    /// A driver that is there stays as it is, but for how much it can take.
    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let drivers = |node: &Value| node["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        let fixed = |driver: &Value| {
            let fields = driver.as_object().into_iter().flatten().filter(|(field, _)| *field != "allocatable");
            Value::Object(fields.map(|(field, value)| (field.clone(), value.clone())).collect::<Map<_, _>>())
        };
        for before in drivers(old) {
            for driver in drivers(new).iter().filter(|driver| driver["name"] == before["name"]) {
                problems.immutable("spec.drivers", &fixed(driver), &fixed(&before));
            }
        }
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

fn check_keys(path: &str, keys: &[Value], problems: &mut Problems) {
    for (index, key) in keys.iter().enumerate() {
        let text = key.as_str().unwrap_or_default();
        if text.is_empty() {
            problems.required(path, "");
        }
        if keys[..index].contains(key) {
            problems.duplicate(path, text);
        }
        if let Err(error) = names::check_qualified_name(text) {
            problems.invalid(path, key, &error.to_string());
        }
    }
}

impl Strategy for CSIStorageCapacity {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (topology, class) = (&object["nodeTopology"], &object["storageClassName"]);
        if !topology.is_null()
            && let Err(error) = LabelSelector::from_json(topology)
        {
            problems.invalid("nodeTopology", topology, &error.to_string());
        }
        if let Err(error) = names::check_dns1123_subdomain(class.as_str().unwrap_or_default()) {
            problems.invalid("storageClassName", class, &error.to_string());
        }
        let capacity = &object["capacity"];
        if !capacity.is_null() && parse_quantity(capacity).is_none_or(|amount| amount.is_negative()) {
            problems.invalid("capacity", capacity, "must be greater than or equal to 0");
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        for field in ["nodeTopology", "storageClassName"] {
            problems.immutable(field, &new[field], &old[field]);
        }
        problems.into_errors()
    }
}

impl Strategy for VolumeAttachment {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (mut problems, spec) = (Problems::default(), &object["spec"]);
        check_driver_name("spec.attacher", &spec["attacher"], &mut problems);
        let source = &spec["source"];
        let name = source["persistentVolumeName"].as_str();
        let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        match (source["inlineVolumeSpec"].is_object(), name) {
            (false, None) => problems.required("spec.source", detail),
            (true, Some(_)) => problems.forbidden("spec.source", detail),
            (false, Some("")) => {
                let path = "spec.source.persistentVolumeName";
                problems.required(path, "must specify non empty persistentVolumeName");
            }
            (false, Some(name)) => {
                if let Err(error) = names::check_dns1123_subdomain(name) {
                    problems.invalid("spec.source.persistentVolumeName", &json!(name), &error.to_string());
                }
            }
            (true, None) => {}
        }
        if let Err(error) = names::check_dns1123_subdomain(spec["nodeName"].as_str().unwrap_or_default()) {
            problems.invalid("spec.nodeName", &spec["nodeName"], &error.to_string());
        }
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        immutable_spec(new, old)
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// Checks the name of a driver: that of a host, in any case.
pub(super) fn check_driver_name(path: &str, name: &Value, problems: &mut Problems) {
    let text = name.as_str().unwrap_or_default();
    if text.is_empty() {
        problems.required(path, "");
        return;
    }
    if text.len() > DRIVER_BYTES_MAX {
        problems.too_long(path, DRIVER_BYTES_MAX);
    }
    if let Err(error) = names::check_dns1123_subdomain(&text.to_lowercase()) {
        problems.invalid(path, name, &error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.path.as_str()).collect()
    }

    #[test]
    fn a_driver_is_filled_as_upstream() {
        let mut driver = json!({"spec": {}});
        CSIDriver.defaults(&mut driver);
        let wanted = json!({
            "attachRequired": true, "podInfoOnMount": false, "requiresRepublish": false, "seLinuxMount": false,
            "storageCapacity": false, "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
        });
        assert_eq!(driver["spec"], wanted);
        assert!(CSIDriver.validate(&driver).is_empty());
        let mut other = driver.clone();
        other["spec"]["attachRequired"] = json!(false);
        assert_eq!(paths(&CSIDriver.validate_update(&other, &driver)), ["spec.attachedRequired"]);
    }

    #[test]
    fn drivers_are_checked() {
        for (spec, path) in [
            (json!({"fsGroupPolicy": "Odd"}), "spec.fsGroupPolicy"),
            (json!({"volumeLifecycleModes": ["Odd"]}), "spec.volumeLifecycleModes"),
            (json!({"nodeAllocatableUpdatePeriodSeconds": 9}), "spec.nodeAllocatableUpdatePeriodSeconds"),
            (json!({"serviceAccountTokenInSecrets": true}), "spec.serviceAccountTokenInSecrets"),
            (json!({"tokenRequests": [{"audience": "a"}, {"audience": "a"}]}), "spec.tokenRequests[1].audience"),
            (json!({"tokenRequests": [{"expirationSeconds": 599}]}), "spec.tokenRequests[0].expirationSeconds"),
        ] {
            assert_eq!(paths(&CSIDriver.validate(&json!({ "spec": spec }))), [path]);
        }
    }

    #[test]
    fn the_drivers_of_a_node_are_checked() {
        let node = |driver: Value| json!({ "spec": { "drivers": [driver] } });
        let whole = json!({"name": "d.example", "nodeID": "n", "topologyKeys": ["zone"], "allocatable": {"count": 1}});
        assert!(CSINode.validate(&node(whole.clone())).is_empty());
        for (field, value, path) in [
            ("name", json!(""), "spec.drivers[0].name"),
            ("nodeID", json!(""), "spec.drivers[0].nodeID"),
            ("nodeID", json!("n".repeat(NODE_ID_BYTES_MAX + 1)), "spec.drivers[0].nodeID"),
            ("allocatable", json!({"count": -1}), "spec.drivers[0].allocatable.count"),
            ("topologyKeys", json!(["zone", "zone"]), "spec.drivers[0]"),
        ] {
            let mut driver = whole.clone();
            driver[field] = value;
            assert_eq!(paths(&CSINode.validate(&node(driver))), [path]);
        }
        let (mut more, mut moved) = (whole.clone(), whole.clone());
        more["allocatable"]["count"] = json!(2);
        assert!(CSINode.validate_update(&node(more), &node(whole.clone())).is_empty());
        moved["nodeID"] = json!("m");
        assert_eq!(paths(&CSINode.validate_update(&node(moved), &node(whole))), ["spec.drivers"]);
    }

    #[test]
    fn capacities_and_attachments_are_checked() {
        let capacity =
            json!({"storageClassName": "fast", "capacity": "1Gi", "nodeTopology": {"matchLabels": {"a": "b"}}});
        assert!(CSIStorageCapacity.validate(&capacity).is_empty());
        for (field, value) in [
            ("storageClassName", json!("")),
            ("capacity", json!("-1")),
            ("nodeTopology", json!({"matchExpressions": [{"key": "a", "operator": "Odd"}]})),
        ] {
            let mut other = capacity.clone();
            other[field] = value;
            assert_eq!(paths(&CSIStorageCapacity.validate(&other)), [field]);
        }
        let attachment = |source: Value| json!({"spec": {"attacher": "d.example", "nodeName": "n", "source": source}});
        assert!(VolumeAttachment.validate(&attachment(json!({"persistentVolumeName": "v"}))).is_empty());
        for (source, path) in [
            (json!({}), "spec.source"),
            (json!({"persistentVolumeName": "v", "inlineVolumeSpec": {}}), "spec.source"),
            (json!({"persistentVolumeName": ""}), "spec.source.persistentVolumeName"),
            (json!({"persistentVolumeName": "V"}), "spec.source.persistentVolumeName"),
        ] {
            assert_eq!(paths(&VolumeAttachment.validate(&attachment(source))), [path]);
        }
    }
}

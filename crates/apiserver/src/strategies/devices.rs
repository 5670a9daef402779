//! Devices, their classes, and claims to them: stored, and read by other programs alone. Nothing here gives devices to claims,
//! and no node prepares them.

use pumice_objects::field::FieldError;
use pumice_objects::names;
use pumice_objects::status::Status;
use serde_json::{Map, Value, json};

use super::csi::check_driver_name;
use super::workload::{fill, one_of, spec_mut};
use super::{Hook, Strategy};
use crate::problems::{Problems, immutable_spec};

/// Most requests of a claim, and most of a request's alternatives, selectors and the like of each.
const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
/// Longest expression of a selector.
const EXPRESSION_BYTES_MAX: usize = 10 * 1024;
/// Longest name of a pool.
const POOL_BYTES_MAX: usize = 253;
/// Most devices of a slice.
const DEVICES_MAX: usize = 128;
const MODES: [&str; 2] = ["All", "ExactCount"];
const WARNING: &str = "it is stored, but nothing here gives devices to claims: pods that refer to one don't start";

pub(crate) struct DeviceClass;
pub(crate) struct ResourceClaim;
pub(crate) struct ResourceClaimTemplate;
pub(crate) struct ResourceSlice;

impl Strategy for DeviceClass {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (mut problems, spec) = (Problems::default(), &object["spec"]);
        check_selectors("spec.selectors", &spec["selectors"], &mut problems);
        check_config("spec.config", &spec["config"], &mut problems);
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

impl Strategy for ResourceClaim {
    fn defaults(&self, object: &mut Value) {
        if let Some(spec) = spec_mut(object) {
            fill_claim(spec);
        }
    }

    fn prepare_create(&self, _object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        hook.warnings.push(WARNING.to_owned());
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        check_claim("spec", &object["spec"], &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        immutable_spec(new, old)
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

impl Strategy for ResourceClaimTemplate {
    fn defaults(&self, object: &mut Value) {
        let Some(template) = spec_mut(object) else { return };
        fill(template, "spec", json!({}));
        if let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) {
            fill(spec, "devices", json!({}));
            fill_claim(spec);
        }
    }

    fn prepare_create(&self, _object: &mut Value, hook: &mut Hook<'_>) -> Result<(), Status> {
        hook.warnings.push(WARNING.to_owned());
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        check_claim("spec.spec", &object["spec"]["spec"], &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        immutable_spec(new, old)
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

impl Strategy for ResourceSlice {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (mut problems, spec) = (Problems::default(), &object["spec"]);
        check_driver_name("spec.driver", &spec["driver"], &mut problems);
        check_pool(&spec["pool"], &mut problems);
        let chosen = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
        if chosen.iter().filter(|field| !spec[**field].is_null()).count() != 1 {
            let detail = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
            problems.required("spec", detail);
        }
        let devices = spec["devices"].as_array().map_or(&[][..], Vec::as_slice);
        if devices.len() > DEVICES_MAX {
            problems.invalid("spec.devices", &json!(devices.len()), &format!("must have at most {DEVICES_MAX} items"));
        }
        check_named("spec.devices", devices, &mut problems);
        problems.into_errors()
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut problems = Problems::default();
        let (new, old) = (&new["spec"], &old["spec"]);
        problems.immutable("spec.driver", &new["driver"], &old["driver"]);
        problems.immutable("spec.pool.name", &new["pool"]["name"], &old["pool"]["name"]);
        problems.immutable("spec.nodeName", &new["nodeName"], &old["nodeName"]);
        problems.into_errors()
    }

    fn returns_deleted(&self) -> bool {
        true
    }
}

/// What a request that does not say gets: one device.
fn fill_claim(spec: &mut Map<String, Value>) {
    let requests = spec.get_mut("devices").and_then(|devices| devices.get_mut("requests")?.as_array_mut());
    for request in requests.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(exactly) = request.get_mut("exactly") {
            fill_request(exactly);
        }
        let alternatives = request.get_mut("firstAvailable").and_then(Value::as_array_mut);
        alternatives.into_iter().flatten().for_each(fill_request);
    }
}

fn fill_request(request: &mut Value) {
    let Some(request) = request.as_object_mut() else { return };
    fill(request, "allocationMode", json!(MODES[1]));
    if request.get("allocationMode").is_some_and(|mode| mode == MODES[1]) {
        fill(request, "count", json!(1));
    }
}

fn check_claim(path: &str, spec: &Value, problems: &mut Problems) {
    let requests = spec["devices"]["requests"].as_array().map_or(&[][..], Vec::as_slice);
    let path = format!("{path}.devices");
    let requests_path = format!("{path}.requests");
    check_count(&requests_path, requests, REQUESTS_MAX, problems);
    check_named(&requests_path, requests, problems);
    for (index, request) in requests.iter().enumerate() {
        let path = format!("{requests_path}[{index}]");
        let alternatives = request["firstAvailable"].as_array().map_or(&[][..], Vec::as_slice);
        match (request["exactly"].is_object(), alternatives.is_empty()) {
            (true, true) => check_request(&format!("{path}.exactly"), &request["exactly"], problems),
            (false, false) => {
                let path = format!("{path}.firstAvailable");
                check_count(&path, alternatives, ALTERNATIVES_MAX, problems);
                check_named(&path, alternatives, problems);
                for (index, alternative) in alternatives.iter().enumerate() {
                    check_request(&format!("{path}[{index}]"), alternative, problems);
                }
            }
            (false, true) => problems.required(&path, "exactly one of `exactly` or `firstAvailable` is required"),
            (true, false) => {
                let detail = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                problems.invalid(&path, &Value::Null, detail);
            }
        }
    }
    check_config(&format!("{path}.config"), &spec["devices"]["config"], problems);
}

fn check_request(path: &str, request: &Value, problems: &mut Problems) {
    let class = request["deviceClassName"].as_str().unwrap_or_default();
    let class_path = format!("{path}.deviceClassName");
    if class.is_empty() {
        problems.required(&class_path, "");
    } else if let Err(error) = names::check_dns1123_subdomain(class) {
        problems.invalid(&class_path, &json!(class), &error.to_string());
    }
    check_selectors(&format!("{path}.selectors"), &request["selectors"], problems);
    one_of(problems, &format!("{path}.allocationMode"), &request["allocationMode"], &MODES);
    let (mode, count) = (&request["allocationMode"], request["count"].as_i64().unwrap_or_default());
    let count_path = format!("{path}.count");
    if mode == MODES[0] && count != 0 {
        problems.invalid(&count_path, &json!(count), "must not be specified when allocationMode is 'All'");
    } else if mode == MODES[1] && count <= 0 {
        problems.invalid(&count_path, &json!(count), "must be greater than zero");
    }
}

/// What a selector says is not compiled: nothing here asks it.
fn check_selectors(path: &str, selectors: &Value, problems: &mut Problems) {
    let selectors = selectors.as_array().map_or(&[][..], Vec::as_slice);
    check_count(path, selectors, REQUESTS_MAX, problems);
    for (index, selector) in selectors.iter().enumerate() {
        let path = format!("{path}[{index}].cel");
        match selector["cel"]["expression"].as_str() {
            None => problems.required(&path, ""),
            Some(text) if text.len() > EXPRESSION_BYTES_MAX => {
                problems.too_long(&format!("{path}.expression"), EXPRESSION_BYTES_MAX);
            }
            Some(_) => {}
        }
    }
}

fn check_config(path: &str, config: &Value, problems: &mut Problems) {
    let config = config.as_array().map_or(&[][..], Vec::as_slice);
    check_count(path, config, REQUESTS_MAX, problems);
    for (index, one) in config.iter().enumerate() {
        let path = format!("{path}[{index}].opaque");
        if one["opaque"].is_object() {
            check_driver_name(&format!("{path}.driver"), &one["opaque"]["driver"], problems);
        } else {
            problems.required(&path, "");
        }
    }
}

fn check_pool(pool: &Value, problems: &mut Problems) {
    let name = pool["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        problems.required("spec.pool.name", "");
    } else if name.len() > POOL_BYTES_MAX {
        problems.too_long("spec.pool.name", POOL_BYTES_MAX);
    }
    if !name.is_empty() {
        for part in name.split('/') {
            if let Err(error) = names::check_dns1123_subdomain(part) {
                problems.invalid("spec.pool.name", &json!(part), &error.to_string());
            }
        }
    }
    if pool["resourceSliceCount"].as_i64().unwrap_or_default() <= 0 {
        problems.invalid("spec.pool.resourceSliceCount", &pool["resourceSliceCount"], "must be greater than zero");
    }
    if pool["generation"].as_i64().unwrap_or_default() < 0 {
        let detail = "must be greater than or equal to zero";
        problems.invalid("spec.pool.generation", &pool["generation"], detail);
    }
}

fn check_count(path: &str, items: &[Value], count_max: usize, problems: &mut Problems) {
    if items.len() > count_max {
        problems.invalid(path, &json!(items.len()), &format!("must have at most {count_max} items"));
    }
}

/// Checks that each item has a name of its own.
fn check_named(path: &str, items: &[Value], problems: &mut Problems) {
    for (index, item) in items.iter().enumerate() {
        let name = item["name"].as_str().unwrap_or_default();
        problems.dns_label(&format!("{path}[{index}].name"), name);
        if !name.is_empty() && items[..index].iter().any(|before| before["name"] == item["name"]) {
            problems.duplicate(&format!("{path}[{index}]"), name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.path.as_str()).collect()
    }

    fn claim(request: Value) -> Value {
        json!({ "spec": { "devices": { "requests": [request] } } })
    }

    #[test]
    fn a_request_is_for_one_device_where_it_does_not_say() {
        let mut one = claim(json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}}));
        ResourceClaim.defaults(&mut one);
        let request = &one["spec"]["devices"]["requests"][0];
        assert_eq!(request["exactly"], json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}));
        assert!(ResourceClaim.validate(&one).is_empty());
        let mut template = json!({ "spec": { "spec": claim(json!({"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]}))["spec"] } });
        ResourceClaimTemplate.defaults(&mut template);
        assert_eq!(template["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"][0]["count"], 1);
        assert!(ResourceClaimTemplate.validate(&template).is_empty());
    }

    #[test]
    fn claims_are_checked() {
        let exactly = |more: Value| {
            let mut request = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
            request.as_object_mut().expect("fields").extend(more.as_object().cloned().expect("fields"));
            json!({"name": "r", "exactly": request})
        };
        let at = "spec.devices.requests[0]";
        for (request, path) in [
            (json!({"name": "r"}), at.to_owned()),
            (json!({"name": "r", "exactly": {}, "firstAvailable": [{}]}), at.to_owned()),
            (json!({"name": "R", "exactly": exactly(json!({}))["exactly"]}), format!("{at}.name")),
            (exactly(json!({"deviceClassName": ""})), format!("{at}.exactly.deviceClassName")),
            (exactly(json!({"count": 0})), format!("{at}.exactly.count")),
            (exactly(json!({"allocationMode": "All"})), format!("{at}.exactly.count")),
            (exactly(json!({"allocationMode": "Odd"})), format!("{at}.exactly.allocationMode")),
            (exactly(json!({"selectors": [{}]})), format!("{at}.exactly.selectors[0].cel")),
        ] {
            assert_eq!(paths(&ResourceClaim.validate(&claim(request))), [path]);
        }
    }

    #[test]
    fn slices_are_checked() {
        let whole = json!({
            "driver": "d.example", "nodeName": "n", "devices": [{"name": "gpu-0"}],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        });
        assert!(ResourceSlice.validate(&json!({ "spec": whole })).is_empty());
        for (field, value, path) in [
            ("driver", json!(""), "spec.driver"),
            ("allNodes", json!(true), "spec"),
            ("devices", json!([{"name": "a"}, {"name": "a"}]), "spec.devices[1]"),
            ("pool", json!({"name": "", "resourceSliceCount": 1}), "spec.pool.name"),
            ("pool", json!({"name": "a", "resourceSliceCount": 0}), "spec.pool.resourceSliceCount"),
        ] {
            let mut spec = whole.clone();
            spec[field] = value;
            assert_eq!(paths(&ResourceSlice.validate(&json!({ "spec": spec }))), [path]);
        }
    }
}

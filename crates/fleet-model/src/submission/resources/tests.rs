//! Each rule of resources, kept and broken, and what pods take.

use serde_json::json;

use super::super::tests::{check_one, item_of, pod_spec};
use super::*;

fn container(requests: Value, limits: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

fn same(amounts: Value) -> Value {
    container(amounts.clone(), amounts)
}

#[test]
fn requests_and_limits_are_checked() {
    let plain = Rules::default();
    let generous = Rules {
        max_oversubscription_by_resource_request: BTreeMap::from([("cpu".to_owned(), 1.15)]),
        ..Rules::default()
    };
    let free = Rules { assert_init_containers_request_fractional_cpu: false, ..Rules::default() };
    let main = |container: Value| json!({"containers": [container]});
    let init = |container: Value| json!({"initContainers": [container]});
    let cpu = |request: &str, limit: &str| main(container(json!({"cpu": request}), json!({"cpu": limit})));
    for (rules, changes, text) in [
        (&plain, main(same(json!({"cpu": 1}))), None),
        (&plain, main(json!({"name": "c"})), Some("podSpec.containers[0].resources: it names none")),
        (&plain, main(same(json!({}))), Some("it names none")),
        (&plain, json!({"containers": [Value::Null]}), Some("it names none")),
        (&plain, json!({"containers": []}), Some("podSpec.containers: there is none")),
        (&plain, init(same(json!({"cpu": "100m"}))), None),
        (&plain, init(json!({"name": "c"})), Some("podSpec.initContainers[0].resources: it names none")),
        (
            &plain,
            main(container(json!({"cpu": 1}), json!({}))),
            Some("containers[0].resources.limits[cpu]: it is missing"),
        ),
        (
            &plain,
            main(container(json!({}), json!({"a": 1}))),
            Some("containers[0].resources.requests[a]: it is missing"),
        ),
        (&plain, main(same(json!({"cpu": "-1"}))), Some("resources.requests[cpu]: \"-1\" is not an amount")),
        (&plain, main(same(json!({"cpu": "8Ei"}))), Some("is not an amount between 0 and")),
        (&plain, main(same(json!({"cpu": "0"}))), None),
        (&plain, main(same(json!({"cpu": "9e18"}))), None),
        (&plain, cpu("1", "1000m"), None),
        (&plain, cpu("1", "999m"), Some("resources.limits[cpu]: 999m is below the request of 1")),
        (&plain, cpu("1", "1001m"), Some("resources.limits[cpu]: 1001m is more than 1 times the request of 1")),
        (&generous, cpu("100", "115"), None),
        (&generous, cpu("100", "116"), Some("more than 1.15 times")),
        (&plain, main(same(json!({"memory": "1Mi"}))), None),
        (&plain, main(same(json!({"memory": "1023Ki"}))), Some("requests[memory]: 1023Ki is below the least, 1Mi")),
        (&plain, init(same(json!({"cpu": "1999m"}))), None),
        (&plain, init(same(json!({"cpu": "0"}))), None),
        (&plain, init(same(json!({"cpu": "2"}))), Some("initContainers[0].resources.requests[cpu]: 2 are whole cores")),
        (&free, init(same(json!({"cpu": "2"}))), None),
        (&plain, json!({"overhead": {"cpu": "10m"}}), None),
        (&plain, json!({"overhead": {"cpu": "-10m"}}), Some("podSpec.overhead[cpu]: \"-10m\" is not an amount")),
        (&plain, json!({"resources": {"limits": {"cpu": 1}}}), None),
        (&plain, json!({"resources": {"limits": {"cpu": -1}}}), Some("podSpec.resources.limits[cpu]: -1 is not")),
    ] {
        match (check_one(item_of(pod_spec(changes.clone())), rules).err(), text) {
            (None, None) => {}
            (Some(refusal), Some(text)) if refusal.contains(text) => {}
            (refusal, text) => panic!("{refusal:?} is not {text:?}: {changes}"),
        }
    }
}

#[test]
fn a_pod_takes_its_containers_or_its_largest_init_container() {
    let sidecar = |cpu: &str| {
        let mut sidecar = same(json!({"cpu": cpu}));
        sidecar["restartPolicy"] = json!("Always");
        sidecar
    };
    let of = |cpu: &str| same(json!({"cpu": cpu}));
    for (spec, wanted) in [
        (json!({"containers": [of("1"), of("500m")]}), json!({"cpu": "1500m"})),
        (json!({"containers": [of("1")], "initContainers": [of("700m"), of("900m")]}), json!({"cpu": "1"})),
        (json!({"containers": [of("1")], "initContainers": [of("700m"), of("1900m")]}), json!({"cpu": "1900m"})),
        (json!({"containers": [of("1")], "initContainers": [sidecar("2"), of("1500m")]}), json!({"cpu": "3500m"})),
        (json!({"containers": [of("1")], "initContainers": [of("1500m"), sidecar("2")]}), json!({"cpu": "3"})),
        (
            json!({"containers": [of("1")], "initContainers": [same(json!({"memory": "1Gi"}))]}),
            json!({"cpu": "1", "memory": "1Gi"}),
        ),
        (json!({"containers": [of("1")], "overhead": {"cpu": "250m"}}), json!({"cpu": "1250m"})),
        (json!({"containers": [of("1")], "resources": {"requests": {"cpu": "4", "a": 1}}}), json!({"cpu": "4"})),
        (json!({}), json!({})),
    ] {
        assert_eq!(json!(requests(&spec)), wanted, "{spec}");
    }
}

//! Each rule of items, kept and broken. Gangs, resources and services have their own.

use serde_json::json;

use super::super::tests::{check_one, item, item_of, map, pod_spec};
use super::super::{IngressConfig, annotations};
use super::*;

#[track_caller]
fn check(item: Item, rules: &Rules, text: Option<&str>) {
    match (check_one(item, rules).err(), text) {
        (None, None) => {}
        (Some(refusal), Some(text)) if refusal.contains(text) => {}
        (refusal, text) => panic!("{refusal:?} is not {text:?}"),
    }
}

#[test]
fn an_item_has_a_namespace_and_one_pod_spec() {
    let rules = Rules::default();
    let spec = || pod_spec(json!({}));
    check(item(), &rules, None);
    check(Item { namespace: String::new(), ..item() }, &rules, Some("[0].namespace: it is missing"));
    check(Item { pod_spec: Some(spec()), pod_specs: Vec::new(), ..item() }, &rules, None);
    check(Item { pod_specs: Vec::new(), ..item() }, &rules, Some("[0].podSpec: it is missing"));
    check(Item { pod_spec: Some(spec()), ..item() }, &rules, Some("podSpecs: there are 2 pod specs"));
    check(Item { pod_specs: vec![spec(), spec()], ..item() }, &rules, Some("podSpecs: there are 2 pod specs"));
    check(Item { priority: f64::NAN, ..item() }, &rules, Some("priority: it is not a number"));
    check(Item { priority: f64::INFINITY, ..item() }, &rules, None);
}

#[test]
fn a_pod_spec_is_of_its_type_and_bounded() {
    let rules = Rules::default();
    let with = |changes: Value| item_of(pod_spec(changes));
    check(with(json!({"nodeName": "x".repeat(65_000)})), &rules, None);
    check(with(json!({"nodeName": "x".repeat(65_536)})), &rules, Some("podSpec: it has more than 65535 bytes"));
    check(with(json!({"nodename": "x"})), &rules, Some("podSpec: nodename: there is no such field"));
    check(with(json!({"hostNetwork": "yes"})), &rules, Some("podSpec: hostNetwork: it must be true or false"));
    check(item_of(json!(["x"])), &rules, Some("podSpec: it must be an object"));
    check(item_of(Value::Null), &rules, Some("podSpec.containers: there is none"));
    let small = Rules { max_pod_spec_size_bytes: 60, ..Rules::default() };
    // It has fewer values and less text than bytes: the tags count, too.
    check(with(json!({})), &small, Some("podSpec: it has more than 60 bytes"));
}

#[test]
fn node_affinity_is_read() {
    let rules = Rules::default();
    let affinity = |node_affinity: Value| item_of(pod_spec(json!({"affinity": {"nodeAffinity": node_affinity}})));
    let required = |terms: Value| {
        affinity(json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}))
    };
    let expression = |key: &str, operator: &str, values: Value| {
        required(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    let field = |key: &str, operator: &str, values: Value| {
        required(json!([{"matchFields": [{"key": key, "operator": operator, "values": values}]}]))
    };
    check(affinity(json!({})), &rules, None);
    check(affinity(json!({"preferredDuringSchedulingIgnoredDuringExecution": []})), &rules, None);
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]);
    let preferred = affinity(json!({"preferredDuringSchedulingIgnoredDuringExecution": preferred}));
    check(preferred, &rules, Some("preferences are not read"));
    check(required(json!([])), &rules, Some("nodeSelectorTerms: there is none"));
    check(expression("a", "In", json!(["x"])), &rules, None);
    check(expression("a", "In", json!([])), &rules, Some("nodeSelectorTerms[0].matchExpressions[0]: "));
    check(expression("a", "Gt", json!(["5"])), &rules, None);
    check(expression("a", "Gt", json!(["x"])), &rules, Some("matchExpressions[0]: "));
    check(expression("a", "Near", json!(["5"])), &rules, Some("matchExpressions[0]: "));
    check(expression("/", "Exists", json!([])), &rules, Some("matchExpressions[0]: "));
    check(field("metadata.name", "In", json!(["n"])), &rules, None);
    check(field("metadata.name", "In", json!(["n", "m"])), &rules, Some("matchFields[0]: give key metadata.name"));
    check(field("metadata.uid", "In", json!(["n"])), &rules, Some("matchFields[0]: "));
    check(field("metadata.name", "Exists", json!(["n"])), &rules, Some("matchFields[0]: "));
    // Affinity to pods is not looked at.
    let pods = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone"}},
    ]}});
    check(item_of(pod_spec(json!({"affinity": pods}))), &rules, None);
}

#[test]
fn classes_grace_periods_and_tolerations_are_bounded() {
    let rules = Rules::default();
    let with = |changes: Value| item_of(pod_spec(changes));
    check(with(json!({"priorityClassName": ""})), &rules, None);
    check(with(json!({"priorityClassName": "armada-preemptible"})), &rules, None);
    check(
        with(json!({"priorityClassName": "system"})),
        &rules,
        Some("use armada-default, armada-preemptible, armada-res"),
    );
    for (seconds, text) in [
        (json!(null), None),
        (json!(0), None),
        (json!(1), None),
        (json!(300), None),
        (json!(301), Some("301 is not between 1 and 300")),
        (json!(-1), Some("-1 is not between 1 and 300")),
    ] {
        check(with(json!({"terminationGracePeriodSeconds": seconds})), &rules, text);
    }
    let restricted = Rules { restricted_toleration_keys: ["dear".to_owned()].into(), ..Rules::default() };
    let tolerating = |key: &str| with(json!({"tolerations": [{"key": "a"}, {"key": key, "operator": "Exists"}]}));
    check(tolerating("cheap"), &restricted, None);
    check(tolerating("dear"), &rules, None);
    check(tolerating("dear"), &restricted, Some("podSpec.tolerations[1]: \"dear\" may not be tolerated"));
    check(tolerating(""), &rules, None);
    check(tolerating(""), &restricted, Some("podSpec.tolerations[1]: it has no key"));
}

#[test]
fn ports_are_named_once() {
    let rules = Rules::default();
    let ingress = |ports: &[u32]| IngressConfig { ports: ports.to_vec(), ..IngressConfig::default() };
    let of = |ingresses: &[&[u32]]| Item { ingress: ingresses.iter().map(|ports| ingress(ports)).collect(), ..item() };
    check(of(&[&[80], &[81, 82]]), &rules, None);
    check(of(&[&[80], &[]]), &rules, Some("ingress[1].ports: there is none"));
    check(of(&[&[80, 81], &[82, 81]]), &rules, Some("ingress[1].ports: 81 is in ingress[0], too"));

    let spec = pod_spec(json!({}));
    let container = |port: u32, restart: &str| {
        let mut container = spec["containers"][0].clone();
        container["ports"] = json!([{"containerPort": port}]);
        if !restart.is_empty() {
            container["restartPolicy"] = json!(restart);
        }
        container
    };
    let pod = |main: Value, init: Value| item_of(pod_spec(json!({"containers": main, "initContainers": init})));
    check(pod(json!([container(80, ""), container(81, "")]), json!([])), &rules, None);
    let twice = Some("podSpec.containers[1].ports: 80 is a port of podSpec.containers[0], too");
    check(pod(json!([container(80, ""), container(80, "")]), json!([])), &rules, twice);
    check(pod(json!([container(80, "")]), json!([container(80, "")])), &rules, None);
    let beside = Some("podSpec.initContainers[0].ports: 80 is a port of podSpec.containers[0], too");
    check(pod(json!([container(80, "")]), json!([container(80, "Always")])), &rules, beside);
}

#[test]
fn client_ids_bands_and_node_labels_are_checked() {
    let rules = Rules::default();
    let named = |id: String| Item { client_id: id, ..item() };
    check(named("é".repeat(100)), &rules, None);
    check(named("x".repeat(101)), &rules, Some("clientId: it has 101 characters: have at most 100"));
    let band = |band: &str| Item { annotations: map(&[(annotations::PRICE_BAND, band)]), ..item() };
    for good in ["A", "h"] {
        check(band(good), &rules, None);
    }
    for bad in ["", "I", "AA"] {
        check(band(bad), &rules, Some("is no band: use a letter from A to H"));
    }
    let labelled = |value: &str| Item {
        required_node_labels: map(&[("zone", value)]),
        ..item_of(pod_spec(json!({"nodeSelector": {"zone": "a"}})))
    };
    check(labelled("a"), &rules, None);
    check(labelled("b"), &rules, Some("requiredNodeLabels[zone]: \"b\", but \"a\" in podSpec.nodeSelector"));
}

//! Pods: the gate, the groups of the configuration, the budgets.

use pumice_admission::pod::{self, ResourceGroups};
use pumice_admission::{Findings, Rules};
use serde_json::{Value, json};

const GATE: &str = "scheduling.volcano.sh/queue-allocation-gate";
const FILE: &str = r#"
resourceGroups:
- resourceGroup: management
  object:
    key: namespace
    value: [mng-ns-1, mng-ns-2]
  schedulerName: default-scheduler
  tolerations:
  - {effect: NoSchedule, key: taint, operator: Exists}
  labels:
    volcano.sh/nodetype: management
- resourceGroup: cpu
  object:
    key: annotation
    value:
    - "volcano.sh/resource-group: cpu"
    - "team: blue"
  schedulerName: volcano
  labels:
    volcano.sh/nodetype: cpu
- resourceGroup: gpu
  schedulerName: volcano
  labels:
    volcano.sh/nodetype: gpu
  affinity: '{"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}}'
"#;

fn rules(file: &str) -> Rules {
    Rules { resource_groups: ResourceGroups::parse(file).expect("a good file"), ..Rules::default() }
}

fn pod(annotations: Value, spec: Value) -> Value {
    let mut pod =
        json!({ "metadata": { "name": "p", "annotations": annotations }, "spec": { "schedulerName": "volcano" } });
    pod["spec"].as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    pod
}

/// The spec after filling in, and whether that changed it.
fn filled(mut given: Value, namespace: &str, rules: &Rules) -> (Value, bool) {
    let before = given.clone();
    let changed = pod::mutate(&mut given, namespace, rules);
    assert_eq!(changed, given != before, "it says whether it changed: {before}");
    let once = given.clone();
    assert!(!pod::mutate(&mut given, namespace, rules), "twice is once");
    assert_eq!(given, once);
    (once["spec"].clone(), changed)
}

#[test]
fn pods_that_ask_for_it_wait_behind_their_queues_gate() {
    let gate = json!([{ "name": GATE }]);
    let other = json!([{ "name": "mine" }]);
    let both = json!([{ "name": "mine" }, { "name": GATE }]);
    let asks = json!({ GATE: "true" });
    let cases = [
        (asks.clone(), json!({}), gate.clone()),
        (asks.clone(), json!({ "schedulingGates": [] }), gate.clone()),
        (asks.clone(), json!({ "schedulingGates": gate }), gate),
        (asks.clone(), json!({ "schedulingGates": other }), both),
        (asks.clone(), json!({ "schedulerName": "default-scheduler" }), Value::Null),
        (asks, json!({ "nodeName": "n" }), Value::Null),
        (json!({ GATE: "false" }), json!({}), Value::Null),
        (json!({}), json!({}), Value::Null),
    ];
    for (annotations, spec, wanted) in cases {
        let (filled, _) = filled(pod(annotations, spec.clone()), "n", &Rules::default());
        assert_eq!(filled["schedulingGates"], wanted, "{spec}");
    }
}

#[test]
fn pods_are_given_what_their_group_has() {
    let rules = rules(FILE);
    let toleration = json!({ "effect": "NoSchedule", "key": "taint", "operator": "Exists" });
    let of_type = |kind: &str| json!({ "volcano.sh/nodetype": kind });
    let cases = [
        // By namespace, the first group that fits; the scheduler is overwritten.
        (
            "mng-ns-2",
            json!({ "volcano.sh/resource-group": "cpu" }),
            json!({ "nodeSelector": { "x": "y", "volcano.sh/nodetype": "mine" }, "tolerations": [{ "key": "own" }] }),
            json!({ "schedulerName": "default-scheduler",
                "nodeSelector": { "x": "y", "volcano.sh/nodetype": "management" }, "tolerations": [{ "key": "own" }, toleration] }),
        ),
        (
            "n",
            json!({ "team": "blue" }),
            json!({}),
            json!({ "schedulerName": "volcano", "nodeSelector": of_type("cpu") }),
        ),
        // Without a key, by the group's own name.
        (
            "n",
            json!({ "volcano.sh/resource-group": "gpu" }),
            json!({ "affinity": { "podAffinity": {} } }),
            json!({ "schedulerName": "volcano", "nodeSelector": of_type("gpu"), "affinity": { "podAffinity": {} } }),
        ),
        ("n", json!({ "volcano.sh/resource-group": "other" }), json!({}), json!({ "schedulerName": "volcano" })),
        ("mng-ns", json!({}), json!({}), json!({ "schedulerName": "volcano" })),
    ];
    for (namespace, annotations, spec, wanted) in cases {
        assert_eq!(filled(pod(annotations.clone(), spec), namespace, &rules).0, wanted, "{namespace} {annotations}");
    }
    let (spec, _) =
        filled(pod(json!({ "volcano.sh/resource-group": "gpu" }), json!({ "affinity": null })), "n", &rules);
    let term =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions/0";
    assert_eq!(spec.pointer(term), Some(&json!({ "key": "a", "operator": "Exists" })));
}

#[test]
fn files_that_can_not_be_meant_are_refused_with_the_group() {
    let group = |fields: &str| format!("resourceGroups: [{{resourceGroup: g, {fields}}}]");
    let cases = [
        (String::new(), None),
        ("resourceGroups:".to_owned(), None),
        ("resourceGroups: 1".to_owned(), Some("can't be read")),
        (group("object: {key: label}"), Some("resource group \"g\": object.key \"label\" is unknown")),
        (group("object: {key: annotation, value: [x]}"), Some("object.value \"x\" is no annotation")),
        (group("affinity: '{'"), Some("affinity can't be read")),
        (group("labels: {'a b': c}"), Some("labels \"a b\"")),
        (group("schedulerName: 'A b'"), Some("schedulerName \"A b\"")),
    ];
    for (text, wanted) in cases {
        match (ResourceGroups::parse(&text), wanted) {
            (Ok(_), None) => {}
            (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{text}: {error}"),
            (result, wanted) => panic!("{text}: {result:?}, not {wanted:?}"),
        }
    }
    let many = format!("resourceGroups: [{}]", "{resourceGroup: g},".repeat(1001));
    assert!(ResourceGroups::parse(&many).expect_err("too many").to_string().contains("1001"));
}

#[test]
fn budgets_are_numbers_or_shares() {
    let (least, most) = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable");
    let invalid =
        |value: &str, key: &str, what: &str| Some(format!("invalid value <{value:?}> for {key}, it must be {what}"));
    let (number, share) = ("a positive integer", "a valid percentage which between 1% ~ 99%");
    let cases = [
        (json!({}), None),
        (json!({ least: "1" }), None),
        (json!({ most: "99%" }), None),
        (json!({ least: "0" }), invalid("0", least, number)),
        (json!({ most: "-3" }), invalid("-3", most, number)),
        (json!({ least: "0%" }), invalid("0%", least, share)),
        (json!({ least: "100%" }), invalid("100%", least, share)),
        (json!({ most: "x" }), Some(format!("invalid value strconv.Atoi: parsing \"x\": invalid syntax for {most}"))),
        (
            json!({ most: "1.5%" }),
            Some(format!("invalid value strconv.Atoi: parsing \"1.5\": invalid syntax for {most}")),
        ),
        (
            json!({ least: "1", most: "1" }),
            Some(format!("not allow configure multiple annotations <[{least} {most}]> at same time")),
        ),
    ];
    for (annotations, wanted) in cases {
        let mut findings = Findings::default();
        pod::validate(&pod(annotations.clone(), json!({})), &Rules::default(), &mut findings);
        assert_eq!(findings.refusal(), wanted, "{annotations}");
        let mut findings = Findings::default();
        pod::validate(&pod(annotations, json!({ "schedulerName": "other" })), &Rules::default(), &mut findings);
        assert_eq!(findings, Findings::default(), "pods of others are theirs");
    }
}

#[test]
fn nonsense_is_left_for_the_schema() {
    let asks = json!({ "annotations": { GATE: "true", "volcano.sh/resource-group": "cpu", "volcano.sh/jdb-min-available": 1 } });
    let cases = [
        json!(null),
        json!([]),
        json!({ "metadata": asks }),
        json!({ "metadata": asks, "spec": 1 }),
        json!({ "metadata": { "annotations": [] }, "spec": {} }),
        json!({ "metadata": asks, "spec": { "schedulerName": "volcano", "schedulingGates": 1, "nodeSelector": 1, "tolerations": 1 } }),
    ];
    for nonsense in cases {
        let mut given = nonsense.clone();
        pod::mutate(&mut given, "n", &rules(FILE));
        pod::validate(&given, &rules(FILE), &mut Findings::default());
        for pointer in ["/spec/schedulingGates", "/spec/tolerations"] {
            assert_eq!(given.pointer(pointer), nonsense.pointer(pointer));
        }
    }
}

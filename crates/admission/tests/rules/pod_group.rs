//! PodGroups: one case for each rule.

use super::cluster::{Cluster, queue, typed};
use pumice_admission::{Findings, pod_group};
use serde_json::{Value, json};

fn cluster() -> Cluster {
    Cluster {
        queues: vec![
            queue(json!({ "metadata": { "name": "default" }, "status": { "state": "Open" } })),
            queue(json!({ "metadata": { "name": "closing" }, "status": { "state": "Closing" } })),
            queue(json!({ "metadata": { "name": "new" } })),
        ],
        annotations: vec![("team", "scheduling.volcano.sh/queue-name", "new")],
    }
}

fn refusals(spec: Value) -> Vec<String> {
    let mut findings = Findings::default();
    pod_group::validate(&typed(&json!({ "metadata": { "name": "g" }, "spec": spec })), &cluster(), &mut findings);
    findings.refusals
}

#[test]
fn groups_need_an_open_queue_and_one_tier() {
    assert_eq!(refusals(json!({})), Vec::<String>::new());
    assert_eq!(refusals(json!({ "queue": "new", "minMember": 3 })), Vec::<String>::new());
    let twice = json!({ "highestTierAllowed": 1, "highestTierName": "t" });
    let cases = [
        (json!({ "queue": "nowhere" }), "unable to find queue"),
        (
            json!({ "queue": "closing" }),
            "can only submit PodGroup to queue with state `Open`, queue `closing` status is `Closing`",
        ),
        (json!({ "networkTopology": twice }), "must not specify"),
        (
            json!({ "subGroupPolicy": [{ "name": "s", "networkTopology": twice }] }),
            "in networkTopology of subGroupPolicy s",
        ),
    ];
    for (spec, fragment) in cases {
        let found = refusals(spec);
        assert_eq!(found.len(), 1, "{fragment}: {found:?}");
        assert!(found[0].contains(fragment), "{found:?}");
    }
}

#[test]
fn the_namespace_names_the_queue_of_groups_that_ask_for_default() {
    let cases = [
        ("team", json!({ "queue": "default" }), "new"),
        ("team", json!({}), "new"),
        ("team", json!({ "queue": "closing" }), "closing"),
        ("other", json!({ "queue": "default" }), "default"),
    ];
    for (namespace, spec, wanted) in cases {
        let mut group = json!({ "spec": spec });
        pod_group::mutate(&mut group, namespace, &cluster());
        assert_eq!(group["spec"]["queue"], wanted, "{namespace} {spec}");
    }
}

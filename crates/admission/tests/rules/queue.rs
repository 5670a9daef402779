//! Queues: one case for each rule.

use super::cluster::{Cluster, queue as parse};
use pumice_admission::{Findings, Rules, queue};
use serde_json::{Value, json};

fn named(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// root ─ a (cap 8, des 6, gua 4) ─ b (cap 6, des 3, gua 2) ─ c;  root ─ busy (holds pods);  root ─ free
fn cluster() -> Cluster {
    let queues = [
        named("root", json!({})),
        named("default", json!({})),
        named(
            "a",
            json!({ "capability": { "cpu": "8" }, "deserved": { "cpu": "6" }, "guarantee": { "resource": { "cpu": "4" } } }),
        ),
        named(
            "b",
            json!({ "parent": "a", "capability": { "cpu": "6" }, "deserved": { "cpu": "3" }, "guarantee": { "resource": { "cpu": "2" } } }),
        ),
        named("c", json!({ "parent": "b", "capability": { "cpu": "5" } })),
        json!({ "metadata": { "name": "busy" }, "spec": { "parent": "root" }, "status": { "allocated": { "pods": "3", "cpu": "1" } } }),
        named("free", json!({ "parent": "root" })),
        json!({ "metadata": { "name": "old", "annotations": {
            "volcano.sh/hierarchy": "root/x/y", "volcano.sh/hierarchy-weights": "1/2/3" } } }),
    ];
    Cluster { queues: queues.into_iter().map(parse).collect(), ..Cluster::default() }
}

fn judge(new: Value, old: Option<Value>) -> Findings {
    let mut findings = Findings::default();
    let old = old.map(parse);
    queue::validate(&parse(new), old.as_ref(), &cluster(), &Rules::default(), &mut findings);
    findings
}

#[test]
fn good_queues_are_admitted() {
    let cases = [
        named("q", json!({ "weight": 1 })),
        named("q", json!({ "parent": "root", "capability": { "cpu": "100" } })),
        named("q", json!({ "parent": "b", "capability": { "memory": "1Gi", "cpu": "6" }, "deserved": { "cpu": "3" } })),
        named("q", json!({ "parent": "free", "deserved": {} })),
        named("q", json!({ "guarantee": { "resource": { "cpu": "1", "gpu": "1" } }, "deserved": { "cpu": "2" } })),
        named("q", json!({ "guarantee": { "resource": { "cpu": "100m" } }, "capability": { "cpu": "200m" } })),
        named("q", json!({ "parent": "a", "guarantee": { "resource": { "cpu": "2" } } })),
        json!({ "metadata": { "name": "q" }, "status": { "state": "Closed" } }),
        json!({ "metadata": { "name": "q", "annotations": {
            "volcano.sh/hierarchy": "root/x/z", "volcano.sh/hierarchy-weights": "1/2/0.5" } } }),
    ];
    for new in cases {
        assert_eq!(judge(new.clone(), None).refusals, Vec::<String>::new(), "{new}");
    }
}

#[test]
fn a_number_of_running_jobs_is_read_when_it_is_written() {
    let annotated =
        |text: &str| json!({ "metadata": { "name": "q", "annotations": { "pumice.sh/max-running-jobs": text } } });
    for good in ["0", "12"] {
        assert_eq!(judge(annotated(good), None).refusals, Vec::<String>::new(), "{good}");
    }
    for bad in ["-1", "many", ""] {
        let refusals = judge(annotated(bad), None).refusals;
        assert!(refusals.len() == 1 && refusals[0].contains("is no whole number from 0"), "{bad}: {refusals:?}");
        assert_eq!(judge(annotated(bad), Some(annotated(bad))).refusals, Vec::<String>::new(), "it was there before");
    }
}

#[test]
fn every_rule_refuses_in_volcanos_words() {
    let annotated = |path: &str, weights: &str| json!({ "metadata": { "name": "q", "annotations": { "volcano.sh/hierarchy": path, "volcano.sh/hierarchy-weights": weights } } });
    let cases = [
        (named("q", json!({ "capability": { "cpu": "x" } })), "spec.capability[cpu]: Invalid value: \"x\""),
        (
            named("q", json!({ "capability": { "cpu": "-1" } })),
            "spec.capability[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (
            named("q", json!({ "guarantee": { "resource": { "cpu": "2" } }, "capability": { "cpu": "1" } })),
            "spec.guarantee.resource[cpu]: Invalid value: \"2\": must be <= capability 1",
        ),
        (
            named("q", json!({ "deserved": { "cpu": "500m" }, "guarantee": { "resource": { "cpu": "1" } } })),
            "spec.deserved[cpu]: Invalid value: \"500m\": must be >= guarantee 1",
        ),
        (named("q", json!({ "deserved": { "cpu": "2" }, "capability": { "cpu": "1" } })), "must be <= capability"),
        (
            json!({ "metadata": { "name": "q" }, "status": { "state": "Closing" } }),
            "queue state must be in [Open Closed]",
        ),
        (annotated("root/a", "1"), "must have the same length"),
        (annotated("root/a", "1/0"), "is invalid number"),
        (annotated("root/a", "1/x"), "is invalid number"),
        (annotated("root/x", "1/2"), "is not allowed to be in the sub path of"),
        (named("q", json!({ "parent": "q" })), "cannot use itself as parent"),
        (named("q", json!({ "parent": "nowhere" })), "\"nowhere\" not found"),
        (
            named("q", json!({ "parent": "busy" })),
            "cannot be the parent queue of queue q because it has allocated Pods",
        ),
        (named("q", json!({ "parent": "a", "capability": { "cpu": "9" } })), "exceeds its ancestor's capability"),
        (named("q", json!({ "parent": "c", "capability": { "cpu": "6" } })), "exceeds its ancestor's capability"),
        (
            named("q", json!({ "parent": "a", "deserved": { "cpu": "4" } })),
            "sum of children's deserved (cpu: 7) exceeds parent's deserved limit (6)",
        ),
        (
            named(
                "q",
                json!({ "parent": "a", "deserved": { "cpu": "3" }, "guarantee": { "resource": { "cpu": "3" } } }),
            ),
            "sum of children's guarantee (cpu: 5) exceeds parent's guarantee limit (4)",
        ),
        (
            named("q", json!({ "parent": "a", "deserved": { "gpu": "1" } })),
            "sum of children's deserved (gpu: 1) exceeds parent's deserved limit (0)",
        ),
    ];
    for (new, fragment) in cases {
        let findings = judge(new.clone(), None);
        assert!(findings.refusals.iter().any(|found| found.contains(fragment)), "{new}: {fragment}: {findings:?}");
    }
}

#[test]
fn changes_are_judged_beside_what_was() {
    let b = |spec: Value| named("b", spec);
    let before = b(json!({ "parent": "a", "capability": { "cpu": "6" }, "deserved": { "cpu": "3" } }));
    let cases = [
        (
            b(json!({ "parent": "a", "capability": { "cpu": "4" } })),
            "is smaller than its descendants' max capability 5",
        ),
        (b(json!({ "parent": "c" })), "queue b would be its own ancestor"),
    ];
    for (new, fragment) in cases {
        let findings = judge(new, Some(before.clone()));
        assert!(findings.refusals.iter().any(|found| found.contains(fragment)), "{fragment}: {findings:?}");
    }
    let root = judge(named("root", json!({ "capability": { "cpu": "1" } })), Some(named("root", json!({}))));
    assert_eq!(
        root.refusals,
        ["root queue's resource attributes (capability, deserved, guarantee) cannot be modified"]
    );
    let weight = judge(named("root", json!({ "weight": 2 })), Some(named("root", json!({}))));
    assert_eq!(weight.refusals, Vec::<String>::new());
    let closing = json!({ "metadata": { "name": "q" }, "status": { "state": "Closing" } });
    assert_eq!(
        judge(closing.clone(), Some(closing)).refusals,
        Vec::<String>::new(),
        "a state that was there is no wish"
    );
}

#[test]
fn the_tree_is_bounded_in_depth() {
    let mut cluster = Cluster::default();
    for depth in 1..=4 {
        let parent = if depth == 1 { "root".to_owned() } else { format!("q{}", depth - 1) };
        cluster.queues.push(parse(named(&format!("q{depth}"), json!({ "parent": parent }))));
    }
    let judge = |name: &str, parent: &str, cluster: &Cluster| {
        let mut findings = Findings::default();
        queue::validate(
            &parse(named(name, json!({ "parent": parent }))),
            None,
            cluster,
            &Rules::default(),
            &mut findings,
        );
        findings.refusals
    };
    assert_eq!(judge("q5", "q4", &cluster), Vec::<String>::new());
    cluster.queues.push(parse(named("q5", json!({ "parent": "q4" }))));
    let refusals = judge("q6", "q5", &cluster);
    assert!(refusals[0].contains("queue depth 6 exceeds the maximum allowed depth of 5"), "{refusals:?}");
}

#[test]
fn a_cycle_that_is_already_there_ends_the_walk() {
    let queues = [named("x", json!({ "parent": "y" })), named("y", json!({ "parent": "x" }))];
    let cluster = Cluster { queues: queues.into_iter().map(parse).collect(), ..Cluster::default() };
    let mut findings = Findings::default();
    let new = named("q", json!({ "parent": "x", "capability": { "cpu": "1" } }));
    queue::validate(&parse(new), None, &cluster, &Rules::default(), &mut findings);
    assert_eq!(findings.refusals, Vec::<String>::new());
}

#[test]
fn some_queues_stay() {
    let delete = |name: &str, rules: &Rules| {
        let cluster = cluster();
        let queue =
            cluster.queues.iter().find(|queue| queue.metadata.name.as_deref() == Some(name)).expect("queue").clone();
        let mut findings = Findings::default();
        queue::validate_delete(&queue, &cluster, rules, &mut findings);
        findings.refusals
    };
    let rules = Rules::default();
    assert_eq!(delete("default", &rules), ["`default` queue can not be deleted"]);
    assert_eq!(delete("root", &rules), ["`root` queue can not be deleted"]);
    assert_eq!(delete("a", &rules), ["queue a can not be deleted because it has 1 child queues"]);
    assert_eq!(delete("free", &rules), Vec::<String>::new());
    assert_eq!(delete("busy", &rules), Vec::<String>::new());
    let strict = Rules { queue_with_pods_protected: true, ..rules };
    assert_eq!(delete("busy", &strict), ["queue busy cannot be deleted because it has allocated Pods"]);
}

#[test]
fn new_queues_are_filled_in() {
    let cases = [
        (json!({}), json!({ "spec": { "reclaimable": true, "weight": 1 } })),
        (
            json!({ "spec": { "reclaimable": false, "weight": 7 } }),
            json!({ "spec": { "reclaimable": false, "weight": 7 } }),
        ),
        (json!({ "spec": { "weight": 0 } }), json!({ "spec": { "reclaimable": true, "weight": 1 } })),
        (
            json!({ "metadata": { "annotations": { "volcano.sh/hierarchy": "a/b", "volcano.sh/hierarchy-weights": "2/3" } } }),
            json!({ "metadata": { "annotations": { "volcano.sh/hierarchy": "root/a/b", "volcano.sh/hierarchy-weights": "1/2/3" } },
                    "spec": { "reclaimable": true, "weight": 1 } }),
        ),
    ];
    for (mut given, wanted) in cases {
        queue::mutate(&mut given);
        assert_eq!(given, wanted);
        queue::mutate(&mut given);
        assert_eq!(given, wanted, "a second time changes nothing");
    }
}

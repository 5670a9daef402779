//! Which queue's pods may run in which group of nodes, and how much of it they may hold.

use super::*;
use crate::facts::{NodeName, PodFacts, QueueFacts};
use crate::plugin::tests::small_cluster::{Scene, binds, texts};

fn rules(required: &[&str], preferred: &[&str], anti_required: &[&str], anti_preferred: &[&str]) -> NodeGroupAffinity {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    NodeGroupAffinity {
        required: owned(required),
        preferred: owned(preferred),
        anti_required: owned(anti_required),
        anti_preferred: owned(anti_preferred),
    }
}

/// Nodes `a`, `b`, `c` in the groups of their names, and `none` in no group.
fn scene() -> Scene {
    ["none", "c", "b", "a"].into_iter().fold(Scene::default(), |scene, name| {
        scene.node(name, &[("cpu", 4_000)], |node| {
            if name != "none" {
                node.labels = texts(&[(LABEL, name)]);
            }
        })
    })
}

fn of_queue(queue: &'static str) -> impl Fn(&mut PodFacts) {
    move |pod| pod.queue = Some(queue.to_owned())
}

#[test]
fn lists_decide_in_order() {
    let everything = rules(&["a"], &["b"], &["b", "c"], &["c"]);
    for (rules, group, allowed, points) in [
        (&everything, "a", true, 100),
        (&everything, "b", false, 50),
        // Forbidden and unwanted: the last list decides.
        (&everything, "c", true, -1),
        (&everything, "d", false, 0),
        (&rules(&["a"], &["a"], &[], &[]), "a", true, 150),
        (&rules(&[], &[], &["a"], &[]), "b", false, 0),
    ] {
        assert_eq!(allows(rules, group), allowed, "{group} of {rules:?}");
        assert_eq!(score(rules, group, false), points * POINT, "{group} of {rules:?}");
    }
    let ordered = rules(&[], &["a", "b"], &[], &[]);
    assert_eq!([score(&ordered, "a", true), score(&ordered, "b", true)], [50 * POINT, 25 * POINT]);
}

#[test]
fn pods_go_where_their_queue_may() {
    type Adapt = fn(&mut QueueFacts);
    for (name, arguments, adapt, node) in [
        ("no rules, strict", "{}", (|_| {}) as Adapt, None),
        ("no rules, not strict: only outside groups", "{strict: false}", |_| {}, Some("none")),
        ("required", "{}", |queue| queue.affinity = Some(rules(&["b"], &[], &[], &[])), Some("b")),
        ("preferred first", "{}", |queue| queue.affinity = Some(rules(&["c"], &["b"], &[], &[])), Some("c")),
        (
            "preferred in order",
            "{enablePreferredOrder: true}",
            |queue| queue.affinity = Some(rules(&[], &["b", "c"], &[], &[])),
            Some("b"),
        ),
        ("not there", "{}", |queue| queue.affinity = Some(rules(&["d"], &[], &[], &[])), None),
        ("of its parent, not asked for", "{}", |queue| queue.parent = Some("above".to_owned()), None),
        ("of its parent", "{enableHierarchy: true}", |queue| queue.parent = Some("above".to_owned()), Some("a")),
    ] {
        let scene = scene()
            .queue("root", |_| {})
            .queue("above", |queue| queue.affinity = Some(rules(&["a"], &[], &[], &[])))
            .queue("q", adapt)
            .pod("p", &[("cpu", 1_000)], of_queue("q"));
        assert_eq!(scene.binds("nodegroup", arguments).get("p").map(NodeName::as_str), node, "{name}");
    }
}

#[test]
fn a_queue_holds_no_more_of_a_group_than_its_limit() {
    for (name, limits, bound) in [
        ("two cores more", r#"{"a": {"cpu": "3"}}"#, 2),
        ("another group's limit", r#"{"b": {"cpu": "1"}}"#, 3),
        ("a resource that nobody asks for", r#"{"a": {"nvidia.com/gpu": "1"}}"#, 3),
        ("what does not read blocks all", "{", 0),
    ] {
        let pods = ["p1", "p2", "p3"];
        let limits = texts(&[(limits::ANNOTATION, limits)]);
        let scene = scene().queue("q", |queue| {
            queue.affinity = Some(rules(&["a"], &[], &[], &[]));
            queue.annotations = limits;
        });
        let scene = scene.running("old", "a", &[("cpu", 1_000)], of_queue("q"));
        let scene = pods.iter().fold(scene, |scene, pod| scene.pod(pod, &[("cpu", 1_000)], of_queue("q")));
        let (mut world, plan) = scene.cycle("nodegroup", "{}");
        assert_eq!(binds(&plan).len(), bound, "{name}");
        // What was bound still counts, and what has gone does not.
        assert_eq!(world.cycle(TimeMs(2_000_000)).binds.len(), 0, "{name}");
        world.apply(&crate::Delta::TaskRemove("old".into()));
        let more = usize::from(name == "two cores more");
        assert_eq!(world.cycle(TimeMs(3_000_000)).binds.len(), more, "{name}");
    }
}

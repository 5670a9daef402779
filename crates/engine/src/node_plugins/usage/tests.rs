//! Checks and scores by measured use, and what no measurement shows yet.

use super::*;
use crate::facts::{Delta, NodeFacts};
use crate::plugin::tests::small_cluster::{Scene, amounts, class_of, config, node_of, refusal};

const GB: i64 = 1_000_000_000;

fn measured(cpu_per_mille: i64, memory_per_mille: i64, at: i64) -> Option<NodeUsage> {
    Some(NodeUsage { cpu_per_mille, memory_per_mille, at: TimeMs(at) })
}

fn scene(usage: Option<NodeUsage>) -> Scene {
    Scene::default().node("n1", &[("cpu", 10_000), ("memory", 10 * GB)], |node| node.usage = usage).pod(
        "p",
        &[("cpu", 1_000), ("memory", GB)],
        |_| {},
    )
}

fn opened(scene: &Scene, arguments: &str) -> (Tables, Usage) {
    let tables = scene.tables();
    let mut plugin = Usage::new(&config("usage", arguments)).unwrap();
    plugin.open(&tables, TimeMs(1_000_000));
    (tables, plugin)
}

#[test]
fn machines_above_a_threshold_take_nothing() {
    for (arguments, usage, refused) in [
        ("{}", measured(800, 800, 0), false),
        ("{}", measured(801, 0, 0), true),
        ("{}", measured(0, 801, 0), true),
        ("{}", None, false),
        ("{thresholds: {cpu: 90, mem: 70.5}}", measured(850, 700, 0), false),
        ("{thresholds: {cpu: 90, mem: 70.5}}", measured(850, 706, 0), true),
        ("{thresholds: {cpu: '10'}}", measured(500, 0, 0), false),
        ("{thresholds: 5}", measured(500, 0, 0), false),
    ] {
        let (tables, plugin) = opened(&scene(usage), arguments);
        let found = plugin.check_facts(&tables, class_of(&tables, "p"), node_of(&tables, "n1"));
        assert_eq!(found, refused.then_some(Check::Usage), "{usage:?} with {arguments}");
    }
}

#[test]
fn the_idler_the_better_with_what_is_coming_counted() {
    // The pod itself is taken to use 7 % of cpu and memory, 8.4 % where the machine is busy.
    let plain = |cpu: i64, memory: i64| (200_000 - cpu - memory) * 5 / 2;
    let with = |usage, adapt: fn(&mut crate::PodFacts)| {
        scene(usage).running("other", "n1", &[("cpu", 2_000), ("memory", 2 * GB)], adapt)
    };
    for (name, scene, arguments, score) in [
        ("plain", scene(measured(200, 400, 0)), "{}", plain(27_000, 47_000)),
        ("busy", scene(measured(700, 600, 0)), "{}", plain(78_400, 68_400)),
        ("full", scene(measured(990, 990, 0)), "{}", 0),
        ("not measured", scene(None), "{}", 0),
        ("weights", scene(measured(200, 400, 0)), "{usage.weight: 1, cpu.weight: 0}", 53_000),
        ("no weights", scene(measured(200, 400, 0)), "{cpu.weight: 0, memory.weight: 0}", 0),
        (
            "long started",
            with(measured(200, 400, 500_000), |pod| pod.started = Some(TimeMs(400_000))),
            "{}",
            plain(27_000, 47_000),
        ),
        (
            "just started",
            with(measured(200, 400, 500_000), |pod| pod.started = Some(TimeMs(480_000))),
            "{}",
            plain(41_000, 61_000),
        ),
        (
            "just bound",
            with(measured(200, 400, 500_000), |pod| pod.phase = crate::PodPhase::Pending),
            "{}",
            plain(41_000, 61_000),
        ),
        ("ratio", scene(measured(200, 400, 0)), "{estimator: {request_ratio: 1}}", plain(30_000, 50_000)),
    ] {
        let (tables, plugin) = opened(&scene, arguments);
        assert_eq!(plugin.score(&tables, class_of(&tables, "p"), node_of(&tables, "n1")), score, "{name}");
    }
}

#[test]
fn pods_placed_in_the_same_cycle_count_for_each_other() {
    let node = |scene: Scene, name| {
        scene.node(name, &[("cpu", 10_000), ("memory", 10 * GB)], |node| node.usage = measured(100, 100, 1_000_000))
    };
    let scene = node(node(Scene::default(), "n1"), "n2");
    let scene = ["p1", "p2", "p3", "p4"].iter().fold(scene, |scene, pod| scene.pod(pod, &[("cpu", 1_000)], |_| {}));
    let binds = scene.binds("usage", "{}");
    assert_eq!(binds.values().filter(|node| *node == "n1").count(), 2, "{binds:?}");
}

#[test]
fn a_measurement_that_is_too_old_says_nothing() {
    for (at, bound) in [(1_000_000 - FRESH_MS, 0), (1_000_000 - FRESH_MS - 1, 1)] {
        assert_eq!(scene(measured(990, 0, at)).binds("usage", "{}").len(), bound, "measured at {at}");
    }
}

#[test]
fn a_measurement_stays_when_the_node_is_told_of_anew() {
    let mut tables = scene(None).tables();
    let used = |tables: &Tables| tables.nodes.row(node_of(tables, "n1")).usage;
    let usage = |name: &str, cpu| Delta::NodeUsage { name: name.into(), usage: measured(cpu, 0, 7).unwrap() };
    assert!(!tables.apply(&usage("nobody", 1)), "of no node");
    assert!(tables.apply(&usage("n1", 5)) && !tables.apply(&usage("n1", 5)), "new only once");
    let node = NodeFacts { name: "n1".into(), unschedulable: true, ..NodeFacts::default() };
    assert!(tables.apply(&Delta::NodeUpsert(node)));
    assert_eq!(used(&tables), measured(5, 0, 7));
    tables.apply(&Delta::NodeRemove("n1".into()));
    assert!(tables.nodes.table.find("n1").is_none_or(|node| tables.nodes.row(node).usage.is_none()));
}

#[test]
fn capacity_counts_where_it_is_known() {
    let scene = Scene::default()
        .node("n1", &[("cpu", 5_000), ("memory", 10 * GB)], |node| {
            node.usage = measured(0, 0, 0);
            node.capacity = amounts(&[("cpu", 10_000)]);
        })
        .pod("p", &[("cpu", 1_000)], |_| {});
    let (tables, plugin) = opened(&scene, "{memory.weight: 0, usage.weight: 1}");
    assert_eq!(plugin.score(&tables, class_of(&tables, "p"), node_of(&tables, "n1")), 93_000);
}

#[test]
fn an_estimator_that_does_not_decode_is_refused() {
    for (arguments, part) in [
        ("{estimator: 5}", "argument estimator must be a mapping"),
        ("{estimator: {risk_factor: much}}", "argument estimator.risk_factor must be a number"),
        ("{estimator: {be_cpu: lots}}", "argument estimator.be_cpu must be a quantity"),
    ] {
        let text = refusal("usage", arguments);
        assert!(text.contains(part), "{arguments}: {text}");
    }
}

//! Whose pods leave for a gang, where, and what happens then.

use crate::engine::tests::{Lab, group, node, pod};
use crate::*;

fn config(action: &str, more: &str) -> String {
    format!(
        "actions: allocate, {action}
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: network-topology-aware
{more}"
    )
}

fn lab(action: &str, more: &str, nodes: &[i64]) -> Lab {
    let mut lab = Lab::of(&config(action, more), nodes);
    for (name, value) in [("low", 1), ("high", 9)] {
        lab.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
    }
    lab
}

/// A group of pods of one core that run on these nodes.
fn runs(lab: &mut Lab, name: &str, queue: &str, min: u32, nodes: &[&str]) {
    let facts = GroupFacts { queue: queue.to_owned(), priority_class: "low".to_owned(), ..group(name, min) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for (index, node) in nodes.iter().enumerate() {
        let facts = pod(name, u32::try_from(index).unwrap(), 1_000);
        lab.pod(PodFacts { node: Some((*node).into()), phase: PodPhase::Running, ..facts });
    }
}

fn wants(lab: &mut Lab, pods: u32, cpu_milli: i64, topology: Option<TopologySpec>) {
    let facts = GroupFacts { priority_class: "high".to_owned(), topology, ..group("gang", pods) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    (0..pods).for_each(|index| lab.pod(pod("gang", index, cpu_milli)));
}

fn evicted(plan: &Plan) -> Vec<&str> {
    let mut names: Vec<&str> = plan.evictions.iter().map(|eviction| eviction.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn hard() -> Option<TopologySpec> {
    Some(TopologySpec { hard: true, highest_tier: Some(1), highest_tier_name: None })
}

fn racks(lab: &mut Lab) {
    for (name, nodes) in [("rack-a", ["n0", "n1"]), ("rack-b", ["n2", "n3"])] {
        let member = |node: &str| HyperNodeMember { hyper_node: false, which: MemberKind::Exact(node.to_owned()) };
        let members = nodes.map(member).to_vec();
        let facts = HyperNodeFacts { name: name.to_owned(), tier: 1, members, ..HyperNodeFacts::default() };
        lab.apply(Delta::HyperNodeUpsert(facts));
    }
}

#[test]
fn what_breaks_no_gang_leaves_first_and_nobody_in_vain() {
    for (pods, more, expected) in [
        (1, "", vec!["elastic-0"]),
        (2, "", vec!["whole-0", "whole-1"]),
        (2, "configurations:\n- name: gangpreempt\n  arguments:\n    allowWholeBundle: false\n", vec![]),
        (5, "", vec![]),
    ] {
        let mut lab = lab("gangpreempt", more, &[4_000]);
        runs(&mut lab, "elastic", "default", 1, &["n0", "n0"]);
        runs(&mut lab, "whole", "default", 2, &["n0", "n0"]);
        wants(&mut lab, pods, 1_000, None);
        let plan = lab.cycle();
        assert_eq!(evicted(&plan), expected, "{pods} pods {more}");
        assert_eq!(plan.pipelined.len(), if expected.is_empty() { 0 } else { pods as usize });
    }
}

#[test]
fn a_gang_that_gets_a_pod_is_not_broken_in_the_same_cycle() {
    let mut lab = lab("gangpreempt", "", &[2_000, 1_000]);
    runs(&mut lab, "whole", "default", 2, &["n0", "n0"]);
    lab.pod(pod("whole", 2, 1_000));
    wants(&mut lab, 1, 2_000, None);
    let plan = lab.cycle();
    assert_eq!((plan.binds.len(), evicted(&plan)), (1, vec![]));
    lab.world.bind_result(&"uid-whole-2".into(), Ok(()), lab.now);
    assert_eq!(evicted(&lab.cycle()), ["whole-0", "whole-1", "whole-2"]);
}

#[test]
fn victims_are_of_the_queue_and_less_important() {
    for (action, queue, priority, expected) in [
        ("gangpreempt", "default", "low", 1),
        ("gangpreempt", "default", "high", 0),
        ("gangpreempt", "other", "low", 0),
        ("gangreclaim", "other", "high", 1),
        ("gangreclaim", "default", "low", 0),
        ("gangreclaim", "kept", "low", 0),
    ] {
        let mut lab = lab(action, "", &[1_000]);
        lab.queue("other", &[]);
        let kept = QueueFacts { name: "kept".to_owned(), reclaimable: Some(false), ..QueueFacts::default() };
        lab.apply(Delta::QueueUpsert(kept));
        runs(&mut lab, "victim", queue, 1, &["n0"]);
        let facts = GroupFacts { queue: queue.to_owned(), priority_class: priority.to_owned(), ..group("victim", 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        wants(&mut lab, 1, 1_000, None);
        assert_eq!(lab.cycle().evictions.len(), expected, "{action} {queue} {priority}");
    }
}

#[test]
fn a_gang_that_must_lie_together_frees_one_rack_and_starts_there() {
    let mut lab = lab("gangpreempt", "", &[2_000, 2_000, 2_000, 2_000]);
    racks(&mut lab);
    runs(&mut lab, "a", "default", 1, &["n0", "n1", "n1"]);
    runs(&mut lab, "b", "default", 1, &["n2", "n3"]);
    wants(&mut lab, 2, 2_000, hard());
    let plan = lab.cycle();
    let nodes: Vec<&str> = plan.evictions.iter().map(|eviction| eviction.node.as_str()).collect();
    let one_rack = |rack: &[&str]| nodes.iter().all(|node| rack.contains(node));
    assert!(!nodes.is_empty() && (one_rack(&["n0", "n1"]) || one_rack(&["n2", "n3"])), "{nodes:?}");
    assert!(plan.evictions.iter().all(|eviction| eviction.beneficiary.as_deref() == Some("ns/gang")));
    let promised: Vec<NodeName> = plan.pipelined.iter().map(|pod| pod.node.clone()).collect();
    lab.apply(Delta::NodeUpsert(node("free", 8_000)));
    assert_eq!(lab.cycle().binds, vec![], "a node outside of the rack is of no use");
    for eviction in &plan.evictions {
        lab.apply(Delta::TaskRemove(eviction.uid.clone()));
    }
    let mut bound: Vec<NodeName> = lab.cycle().binds.into_iter().map(|bind| bind.node).collect();
    bound.sort();
    let mut promised = promised;
    promised.sort();
    assert_eq!(bound, promised);
}

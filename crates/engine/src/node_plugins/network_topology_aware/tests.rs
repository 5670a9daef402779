//! The formulas, on two racks of two nodes under one row and a node in none.

use super::*;
use crate::config::Switches;
use crate::engine::tests::{Lab, group, pod};
use crate::facts::{Delta, GroupFacts, HyperNodeFacts, HyperNodeMember, MemberKind, PodFacts, PodPhase, TopologySpec};

const RACK_A: HyperId = HyperId(0);
const RACK_B: HyperId = HyperId(1);
const ROW: HyperId = HyperId(2);

fn hyper_node(name: &str, tier: u32, hyper_node: bool, members: [&str; 2]) -> Delta {
    let member = |name: &str| HyperNodeMember { hyper_node, which: MemberKind::Exact(name.to_owned()) };
    let members = members.map(member).to_vec();
    Delta::HyperNodeUpsert(HyperNodeFacts { name: name.to_owned(), tier, members, ..HyperNodeFacts::default() })
}

/// A pod of another group runs on n2; the group has two pods, of which so many run, on n0 first.
fn lab(running: u32, tier: Option<u32>, cpu_milli: i64) -> Lab {
    let mut lab = Lab::new(&[4_000; 5]);
    lab.apply(hyper_node("rack-a", 1, false, ["n0", "n1"]));
    lab.apply(hyper_node("rack-b", 1, false, ["n2", "n3"]));
    lab.apply(hyper_node("row", 2, true, ["rack-a", "rack-b"]));
    let runs = |facts: PodFacts, node: &str| PodFacts { node: Some(node.into()), phase: PodPhase::Running, ..facts };
    lab.pod(runs(pod("other", 0, 1_000), "n2"));
    let topology = tier.map(|tier| TopologySpec { hard: true, highest_tier: Some(tier), highest_tier_name: None });
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { topology, ..group("job", 3) })));
    for index in 0..2 {
        let facts = pod("job", index, cpu_milli);
        lab.pod(if index < running { runs(facts, ["n0", "n1"][index as usize]) } else { facts });
    }
    lab.cycle();
    lab
}

fn plugin(lab: &Lab, arguments: &[(&str, i64)]) -> NetworkTopologyAware {
    let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), Argument::Int(*value))).collect();
    let name = "network-topology-aware".to_owned();
    let mut plugin = NetworkTopologyAware::new(&PluginConfig { name, switches: Switches::default(), arguments });
    plugin.open(lab.tables(), lab.now);
    plugin
}

#[test]
fn a_hyper_node_is_better_the_fuller_it_gets() {
    for (running, cpu_milli, arguments, expected) in [
        (0, 3_000, &[][..], [750_000, 875_000, 437_500]),
        (0, 3_000, &[("weight", 2)], [1_500_000, 1_750_000, 875_000]),
        (0, 4_500, &[], [0, 0, 625_000]),
        (0, 3_000, &[("hypernode.binpack.cpu", 0)], [0, 0, 0]),
        // Counted with all pods of the group, those that run among them; then equal ones by the pods there already.
        (1, 1_000, &[("hypernode.binpack.cpu", 0)], [500_000, 0, 500_000]),
    ] {
        let lab = lab(running, Some(2), cpu_milli);
        let plugin = plugin(&lab, arguments);
        let within = lab.tables().hyper_nodes.root();
        let search = HyperSearch { group: lab.group_id("job"), sub_job: None, within, need: &[], evict: false };
        let mut scores = [0; 3];
        plugin.score_hyper_nodes(lab.tables(), &search, &[RACK_A, RACK_B, ROW], &mut scores);
        assert_eq!(scores, expected, "{running} {cpu_milli} {arguments:?}");
    }
}

#[test]
fn a_node_is_better_the_nearer_it_lies_and_normal_pods_fill_up() {
    for (running, tier, arguments, expected) in [
        (1, Some(2), &[][..], [150, 150, 50, 50, 0]),
        (0, Some(2), &[], [0, 0, 0, 0, 0]),
        // 1 of 8 cores against 2 of 8, and 2 of 16 in the row, which counts 0.8; outside of all it counts as full.
        (0, None, &[], [12, 12, 19, 19, 100]),
        (0, None, &[("weight", 3)], [36, 36, 57, 57, 300]),
    ] {
        let lab = lab(running, tier, 1_000);
        let plugin = plugin(&lab, arguments);
        let nodes: Vec<NodeId> = (0..5).map(NodeId::from).collect();
        let task = lab.task_id("job", 1);
        assert!(plugin.is_specific(lab.tables(), task));
        let mut scores = [0; 5];
        plugin.score_task(lab.tables(), task, &nodes, &mut scores);
        assert_eq!(scores, expected, "{running} {tier:?} {arguments:?}");
    }
}

#[test]
fn gradients_go_up_the_tiers_and_down_for_evictions() {
    let cpu = |amount: i64| vec![(crate::resource_dims::CPU, amount)];
    for (running, tier, need, evict, expected) in [
        (0, Some(2), cpu(8_000), false, vec![vec![RACK_A], vec![ROW]]),
        (0, Some(2), cpu(7_000), false, vec![vec![RACK_A, RACK_B], vec![ROW]]),
        (0, Some(1), cpu(9_000), false, vec![]),
        (0, Some(2), cpu(8_000), true, vec![vec![ROW], vec![RACK_A, RACK_B]]),
        // Where its pods are no sum is asked for.
        (1, Some(1), cpu(90_000), false, vec![vec![RACK_A]]),
        (1, Some(2), cpu(90_000), false, vec![vec![RACK_A, RACK_B], vec![ROW]]),
        (1, Some(0), cpu(1), false, vec![]),
    ] {
        let lab = lab(running, tier, 1_000);
        let plugin = plugin(&lab, &[]);
        let within = lab.tables().hyper_nodes.root();
        let search = HyperSearch { group: lab.group_id("job"), sub_job: None, within, need: &need, evict };
        assert_eq!(
            plugin.hyper_gradients(lab.tables(), &search),
            Some(expected),
            "{running} {tier:?} {need:?} {evict}"
        );
    }
    let lab = lab(0, Some(2), 1_000);
    let plugin = plugin(&lab, &[("hypernode.gradient.evict.max-hypernodes", 2)]);
    let within = lab.tables().hyper_nodes.root();
    let search = HyperSearch { group: lab.group_id("job"), sub_job: None, within, need: &[], evict: true };
    assert_eq!(plugin.hyper_gradients(lab.tables(), &search), Some(vec![vec![ROW], vec![RACK_A]]));
}

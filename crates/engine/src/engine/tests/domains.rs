//! Gangs in the network: hard and soft topology, parts of a group, what later pods may do, shards.

use proptest::prelude::*;

use super::*;
use crate::config::Sharding;

const CONFIG: &str = "actions: allocate
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: nodeorder
  - name: network-topology-aware
";

fn hyper_node(name: &str, tier: u32, of_hyper_nodes: bool, members: &[&str]) -> Delta {
    let member =
        |name: &&str| HyperNodeMember { hyper_node: of_hyper_nodes, which: MemberKind::Exact((*name).to_owned()) };
    let members = members.iter().map(member).collect();
    Delta::HyperNodeUpsert(HyperNodeFacts { name: name.to_owned(), tier, tier_name: format!("tier-{tier}"), members })
}

/// Two racks of two nodes each under one row, and a node in none; 4 cores a node.
fn two_racks() -> Lab {
    let mut lab = Lab::of(CONFIG, &[4_000; 5]);
    lab.apply(hyper_node("rack-a", 1, false, &["n0", "n1"]));
    lab.apply(hyper_node("rack-b", 1, false, &["n2", "n3"]));
    lab.apply(hyper_node("row", 2, true, &["rack-a", "rack-b"]));
    lab
}

fn hard(tier: u32) -> Option<TopologySpec> {
    Some(TopologySpec { hard: true, highest_tier: Some(tier), highest_tier_name: None })
}

fn gang(lab: &mut Lab, name: &str, topology: Option<TopologySpec>, min: u32, pods: u32, cpu_milli: i64) {
    let created = TimeMs(lab.world.groups().count() as i64);
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { created, topology, ..super::group(name, min) })));
    (0..pods).for_each(|index| lab.pod(pod(name, index, cpu_milli)));
}

/// The pods' nodes, sorted.
fn nodes(plan: &Plan) -> Vec<&str> {
    let mut nodes: Vec<&str> = plan.binds.iter().map(|bind| bind.node.as_str()).collect();
    nodes.sort_unstable();
    nodes
}

fn running(lab: &mut Lab, group: &str, index: u32, cpu_milli: i64, node: &str) {
    let facts = pod(group, index, cpu_milli);
    lab.pod(PodFacts { node: Some(node.into()), phase: PodPhase::Running, ..facts });
}

#[test]
fn a_gang_lies_in_one_rack_or_waits() {
    let mut lab = two_racks();
    gang(&mut lab, "fits", hard(1), 4, 4, 2_000);
    gang(&mut lab, "large", hard(1), 5, 5, 2_000);
    let plan = lab.cycle();
    assert_eq!(nodes(&plan), ["n0", "n0", "n1", "n1"]);
    assert_eq!(
        lab.why("large"),
        "no HyperNode of tier ≤ 1 has room for 5 pods: of 2 rack-b comes nearest, with room for 4\n\
         └─ starts with at least 5 pods together: 0 placed, 5 waiting"
    );
    gang(&mut lab, "row-wide", hard(2), 3, 3, 2_000);
    assert_eq!(nodes(&lab.cycle()), ["n2", "n2", "n3"], "the closest that has room");
}

#[test]
fn the_fullest_rack_that_has_room_is_best() {
    let mut lab = two_racks();
    running(&mut lab, "other", 0, 1_000, "n2");
    gang(&mut lab, "job", hard(2), 2, 2, 3_000);
    assert_eq!(nodes(&lab.cycle()), ["n2", "n3"]);
}

#[test]
fn soft_topology_is_as_close_as_can_be() {
    let soft = Some(TopologySpec { hard: false, highest_tier: Some(0), highest_tier_name: None });
    let mut lab = two_racks();
    gang(&mut lab, "near", soft.clone(), 2, 2, 4_000);
    assert_eq!(nodes(&lab.cycle()), ["n0", "n1"]);
    gang(&mut lab, "wide", soft, 3, 3, 4_000);
    assert_eq!(nodes(&lab.cycle()), ["n2", "n3", "n4"]);
}

#[test]
fn later_pods_stay_where_the_others_are() {
    let mut lab = two_racks();
    gang(&mut lab, "job", hard(1), 2, 0, 0);
    running(&mut lab, "job", 0, 4_000, "n0");
    running(&mut lab, "job", 1, 2_000, "n1");
    lab.pod(pod("job", 2, 2_000));
    lab.pod(pod("job", 3, 2_000));
    assert_eq!(nodes(&lab.cycle()), ["n1"]);
    let why = lab.why("job");
    let first = why.lines().next().unwrap();
    assert_eq!(
        first,
        "no HyperNode of tier ≤ 1 has room for 1 more pod where its other pods are, in rack-a: \
         of 1 rack-a comes nearest, with room for 0"
    );
}

#[test]
fn where_not_all_pods_find_room_together_the_minimum_does() {
    let mut lab = two_racks();
    gang(&mut lab, "job", hard(1), 2, 9, 2_000);
    assert_eq!(nodes(&lab.cycle()), ["n0", "n0", "n1", "n1"]);
    assert!(lab.why("job").starts_with("no HyperNode of tier ≤ 1 has room for 1 more pod"), "{}", lab.why("job"));
}

#[test]
fn a_tier_may_be_given_by_its_name() {
    let named = |name: &str| TopologySpec { hard: true, highest_tier: None, highest_tier_name: Some(name.to_owned()) };
    let mut lab = two_racks();
    gang(&mut lab, "job", Some(named("tier-1")), 2, 2, 4_000);
    gang(&mut lab, "typo", Some(named("tier1")), 1, 1, 1_000);
    assert_eq!(nodes(&lab.cycle()), ["n0", "n1"]);
    assert!(lab.why("typo").starts_with("no HyperNode has tier name tier1"), "{}", lab.why("typo"));
}

fn parted(lab: &mut Lab, min: u32, min_parts: u32, parts: &[(&str, u32)]) {
    parted_by(lab, min, min_parts, 2, parts);
}

/// Parts of `size`, of which `min_parts` have to start.
fn parted_by(lab: &mut Lab, min: u32, min_parts: u32, size: u32, parts: &[(&str, u32)]) {
    let policy = SubGroupPolicy {
        name: "stage".to_owned(),
        match_label_keys: vec!["stage".to_owned()],
        size: Some(size),
        min_sub_groups: Some(min_parts),
        topology: hard(1),
        ..SubGroupPolicy::default()
    };
    for (part, pods) in parts {
        for index in 0..*pods {
            let facts = pod(&format!("job-{part}"), index, 4_000);
            let labels = [("stage".to_owned(), (*part).to_owned())].into();
            lab.pod(PodFacts { group: Some("job".to_owned()), labels, ..facts });
        }
    }
    // After its pods: they are put into parts then.
    let facts = GroupFacts { sub_groups: vec![policy], ..super::group("job", min) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
}

/// One pod of each part makes the parts ready, and the group wants three pods.
#[test]
fn parts_get_more_than_they_need_where_the_group_needs_it() {
    let mut lab = two_racks();
    parted_by(&mut lab, 3, 0, 1, &[("1", 1), ("2", 2)]);
    assert_eq!(lab.cycle().binds.len(), 3, "{}", lab.why("job"));
}

#[test]
fn each_part_lies_together_and_enough_parts_start() {
    let mut lab = two_racks();
    parted(&mut lab, 4, 2, &[("1", 2), ("2", 2), ("3", 2)]);
    let plan = lab.cycle();
    let rack = |part: &str| {
        let of_part = plan.binds.iter().filter(|bind| bind.name.starts_with(&format!("job-{part}-")));
        let mut nodes: Vec<&str> = of_part.map(|bind| bind.node.as_str()).collect();
        nodes.sort_unstable();
        nodes
    };
    assert_eq!((rack("1"), rack("2"), rack("3")), (vec!["n0", "n1"], vec!["n2", "n3"], vec![]));
    let mut lab = two_racks();
    parted(&mut lab, 2, 3, &[("1", 2), ("2", 2)]);
    assert_eq!(nodes(&lab.cycle()), Vec::<&str>::new());
    assert!(lab.why("job").starts_with("only 2 of at least 3 sub-groups of stage exist"), "{}", lab.why("job"));
    let mut lab = two_racks();
    parted(&mut lab, 2, 3, &[("1", 2), ("2", 2), ("3", 2)]);
    assert_eq!(nodes(&lab.cycle()), Vec::<&str>::new(), "all three or none");
    assert!(lab.why("job").contains("of sub-group stage/"), "{}", lab.why("job"));
}

#[test]
fn the_pod_group_tells_where_its_pods_lie() {
    let mut lab = two_racks();
    gang(&mut lab, "job", hard(2), 2, 3, 4_000);
    let told = |plan: &Plan| plan.groups.iter().find_map(|update| update.annotations.values().next().cloned());
    let plan = lab.cycle();
    assert_eq!(told(&plan), None, "binds are in flight");
    for bind in &plan.binds {
        lab.world.bind_result(&bind.uid, Ok(()), lab.now);
    }
    assert_eq!(told(&lab.cycle()).as_deref(), Some("row"));
    for bind in &plan.binds {
        let index = bind.name.rsplit('-').next().unwrap().parse().unwrap();
        running(&mut lab, "job", index, 4_000, &bind.node);
    }
    assert_eq!(told(&lab.cycle()), None, "once");
    lab.world.status_result("ns", "job", false);
    assert_eq!(told(&lab.cycle()).as_deref(), Some("row"), "again, where it could not be written");
}

#[test]
fn a_shard_keeps_a_scheduler_to_its_nodes() {
    for (is_hard, expected) in [(true, vec!["n1"]), (false, vec!["n0", "n1"])] {
        let mut lab = Lab::with(
            Config { sharding: Some(Sharding { hard: is_hard, name: "mine".into() }), ..Config::default() },
            &[8_000, 4_000],
        );
        let desired = vec!["n1".into()];
        lab.apply(Delta::ShardUpsert(ShardFacts { name: "mine".into(), desired, in_use: Vec::new() }));
        gang(&mut lab, "job", None, 1, 2, 3_000);
        let plan = lab.cycle();
        assert_eq!(plan.binds[0].node, "n1", "its own first");
        assert_eq!(nodes(&plan), expected);
        assert_eq!(lab.world.shard_nodes(), Some(vec!["n1"]));
        assert_eq!(lab.why("job").contains("1 outside of this scheduler's shard"), is_hard, "{}", lab.why("job"));
        lab.apply(Delta::ShardUpsert(ShardFacts {
            name: "mine".into(),
            desired: vec!["n0".into()],
            in_use: Vec::new(),
        }));
        assert_eq!(nodes(&lab.cycle()), if is_hard { vec!["n0"] } else { vec![] });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever is asked: what starts lies in one HyperNode of an allowed tier; what waits would fit in none.
    #[test]
    fn hard_topology_is_kept_and_no_fit_is_missed(
        racks in prop::collection::vec((1_usize..4, 0_i64..5), 1..5),
        gangs in prop::collection::vec((1_u32..5, 1_i64..4, 1_u32..4), 1..6),
    ) {
        let mut lab = Lab::of(CONFIG, &[]);
        let (mut rows, mut total) = (Vec::new(), 0);
        for (rack, (size, cores)) in racks.iter().enumerate() {
            let names: Vec<String> = (total..total + size).map(|index| format!("n{index}")).collect();
            total += size;
            for name in &names {
                lab.apply(Delta::NodeUpsert(node(name, cores * 1_000)));
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            lab.apply(hyper_node(&format!("rack{rack}"), 1, false, &names));
            rows.push(format!("rack{rack}"));
        }
        let halves = [&rows[..rows.len() / 2], &rows[rows.len() / 2..]];
        for (row, members) in halves.iter().enumerate() {
            let names: Vec<&str> = members.iter().map(String::as_str).collect();
            lab.apply(hyper_node(&format!("row{row}"), 2, true, &names));
        }
        for (index, (pods, cores, tier)) in gangs.iter().enumerate() {
            gang(&mut lab, &format!("job{index}"), hard(*tier), *pods, *pods, cores * 1_000);
        }
        lab.cycle();
        let tables = lab.tables();
        for (index, (pods, cores, tier)) in gangs.iter().enumerate() {
            let row = tables.groups.row(lab.group_id(&format!("job{index}")));
            let placed: Vec<_> = row.tasks.iter().filter_map(|task| tables.task(*task).node).collect();
            let allowed = || tables.hyper_nodes.ids().filter(|id| tables.hyper_nodes.row(*id).tier <= *tier);
            let holds = |id: crate::ids::HyperId, node: usize| tables.hyper_nodes.row(id).nodes.contains(node);
            if placed.is_empty() {
                for id in allowed() {
                    let room: i64 = tables.hyper_nodes.row(id).nodes.ones()
                        .map(|node| tables.nodes.idle(node.into(), crate::resource_dims::CPU) / (cores * 1_000)).sum();
                    prop_assert!(room < i64::from(*pods), "job{index} would fit");
                }
            } else {
                prop_assert_eq!(placed.len(), *pods as usize);
                prop_assert!(allowed().any(|id| placed.iter().all(|node| holds(id, node.index()))));
            }
        }
    }
}

//! A gang's minimum is decided as one, and blocks nobody.

use super::*;

// INV-17
#[test]
fn kube_batch_514_an_unplaceable_gang_holds_nothing() {
    let mut lab = Lab::new(&[10_000]);
    lab.gang("j1", 3, 3, 4_000);
    lab.gang("j2", 1, 1, 3_000);
    assert_eq!(lab.binds(), ["j2-0"]);
    assert!(lab.why("j1").starts_with("room for 2 of 3 pods; 0/1 nodes fit the next one"), "{}", lab.why("j1"));
    // And again in the next cycle, with j2 running.
    assert_eq!(lab.binds(), [""; 0]);
}

#[test]
fn kube_batch_561_a_gang_that_can_never_fit_lets_others_use_the_large_nodes() {
    let mut lab = Lab::new(&[32_000, 32_000, 32_000, 40_000, 40_000, 40_000]);
    lab.gang("j1", 4, 6, 35_000);
    lab.gang("j2", 3, 3, 35_000);
    let plan = lab.cycle();
    let mut nodes: Vec<&str> = plan.binds.iter().map(|bind| bind.node.as_str()).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["n3", "n4", "n5"]);
    assert!(plan.binds.iter().all(|bind| bind.group == "ns/j2"));
}

#[test]
fn an_impossible_group_is_not_admitted_and_holds_up_nobody() {
    let mut lab = Lab::new(&[10_000]);
    for (index, (name, cpu)) in [("j1", 11_000), ("j2", 2_000)].into_iter().enumerate() {
        let facts = GroupFacts {
            min_resources: Some(resources(cpu)),
            created: TimeMs(index as i64),
            status: GroupStatus::default(),
            ..group(name, 1)
        };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
    }
    assert_eq!(lab.cycle().admitted, ["ns/j2"]);
    assert!(lab.why("j1").starts_with("does not fit the cluster even when it is empty"), "{}", lab.why("j1"));
    assert!(lab.world.reasons("ns", "j1").unwrap().approximate);
}

#[test]
fn a_failed_pod_of_a_role_hides_no_smaller_pod_of_it() {
    let mut lab = Lab::new(&[4_000]);
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 1))));
    for (index, cpu) in [(0, 9_000), (1, 2_000)] {
        lab.pod(PodFacts { role: "worker".to_owned(), ..pod("j", index, cpu) });
    }
    assert_eq!(lab.binds(), ["j-1"]);
}

#[test]
fn minimum_first_then_what_is_beyond_it() {
    let mut lab = Lab::new(&[5_000]);
    lab.gang("old", 2, 5, 1_000);
    lab.gang("young", 2, 2, 1_000);
    // Two and two for the minima, and one more of the older.
    assert_eq!(lab.binds(), ["old-0", "old-1", "old-2", "young-0", "young-1"]);
    assert!(lab.why("old").contains("0/1 nodes fit 2 pods: 1 insufficient cpu (short by 1)"), "{}", lab.why("old"));
    assert_eq!(lab.why("young"), "");
}

#[test]
fn role_minima_are_met_before_others_take_the_room() {
    let mut lab = Lab::new(&[3_000]);
    let facts =
        GroupFacts { min_task_member: [("ps".to_owned(), 1), ("worker".to_owned(), 2)].into(), ..group("j", 3) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for index in 0..4 {
        lab.pod(PodFacts { role: "worker".to_owned(), ..pod("j", index, 1_000) });
    }
    lab.pod(PodFacts { role: "ps".to_owned(), ..pod("j", 9, 1_000) });
    assert_eq!(lab.binds(), ["j-0", "j-1", "j-9"]);
}

#[test]
fn role_minima_that_exceed_the_gangs_are_ignored_as_in_volcano() {
    let mut lab = Lab::new(&[1_000]);
    let facts = GroupFacts { min_task_member: [("worker".to_owned(), 2)].into(), ..group("j", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for index in 0..2 {
        lab.pod(PodFacts { role: "worker".to_owned(), ..pod("j", index, 1_000) });
    }
    assert_eq!(lab.binds(), ["j-0"]);
}

#[test]
fn a_gang_waits_for_all_its_pods_to_exist() {
    let mut lab = Lab::new(&[10_000]);
    lab.gang("j", 3, 2, 1_000);
    assert_eq!(lab.binds(), [""; 0]);
    assert_eq!(lab.why("j").lines().next(), Some("only 2 of at least 3 pods exist"));
    assert_eq!(lab.world.reasons("ns", "j").unwrap().stage, Stage::NoPods);
    lab.pod(pod("j", 2, 1_000));
    assert_eq!(lab.binds().len(), 3);
}

#[test]
fn pods_that_ask_for_nothing_run_and_are_part_of_their_gang() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("alone", 2, 2, 0);
    assert_eq!(lab.binds(), ["alone-0", "alone-1"]);
    // One pod of the gang never fits, so the one that asks for nothing does not start either.
    lab.gang("mixed", 2, 1, 5_000);
    lab.pod(pod("mixed", 1, 0));
    assert_eq!(lab.binds(), [""; 0]);
    lab.gang("fits", 2, 1, 1_000);
    lab.pod(pod("fits", 1, 0));
    assert_eq!(lab.binds(), ["fits-0", "fits-1"]);
}

#[test]
fn higher_priority_goes_first() {
    let mut lab = Lab::new(&[1_000]);
    lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 100, global_default: false });
    lab.gang("low", 1, 1, 1_000);
    let facts = GroupFacts { priority_class: "high".to_owned(), created: TimeMs(99), ..group("high", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    lab.pod(pod("high", 0, 1_000));
    assert_eq!(lab.binds(), ["high-0"]);
}

#[test]
fn a_bare_pod_is_a_group_of_one() {
    let mut lab = Lab::new(&[1_000]);
    lab.pod(PodFacts { group: None, ..pod("bare", 0, 1_000) });
    lab.pod(PodFacts { group: None, ..pod("bare", 1, 1_000) });
    assert_eq!(lab.binds(), ["bare-0"]);
    let waiting: Vec<String> =
        lab.world.groups().filter_map(|group| group.reasons().map(|_| group.name.to_owned())).collect();
    assert_eq!(waiting, ["podgroup-uid-bare-1"]);
}

#[test]
fn enqueue_reads_the_jobs_tasks_before_pods_exist() {
    let mut lab = Lab::new(&[2_000, 2_000]);
    for (index, (name, count)) in [("fits", 4), ("never", 5)].into_iter().enumerate() {
        let owner = OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("job-{name}") };
        let template = PodTemplate { requests: resources(1_000), ..PodTemplate::default() };
        let task = ShapeTask { role: "worker".to_owned(), count, template: template.into(), ..ShapeTask::default() };
        lab.apply(Delta::ShapeUpsert { owner_uid: owner.uid.clone(), tasks: vec![task], ended: false });
        let facts = GroupFacts {
            owner: Some(owner),
            created: TimeMs(index as i64),
            status: GroupStatus::default(),
            ..group(name, count)
        };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
    }
    assert_eq!(lab.cycle().admitted, ["ns/fits"]);
    assert_eq!(
        lab.why("never"),
        "does not fit the cluster even when it is empty: room for 4 of 5 pods of task worker; 0/2 nodes \
         fit the next one: 2 insufficient cpu (short by 1)\n\
         ├─ cpu: each pod asks for 1; node n0 comes nearest and lacks 1; in all 1 more cpu would be needed\n\
         └─ starts with at least 5 pods together; none is made yet"
    );
    // A third node makes room for it.
    lab.apply(Delta::NodeUpsert(node("n2", 10_000)));
    assert_eq!(lab.cycle().admitted, ["ns/never"]);
}

#[test]
fn a_shape_of_many_kinds_is_packed_largest_first() {
    let mut lab = Lab::new(&[3_000, 2_000]);
    let owner = OwnerFacts { kind: "Job".to_owned(), name: "j".to_owned(), uid: "job".to_owned() };
    let task = |role: &str, count, cpu| ShapeTask {
        role: role.to_owned(),
        count,
        template: PodTemplate { requests: resources(cpu), ..PodTemplate::default() }.into(),
        ..ShapeTask::default()
    };
    let tasks = vec![task("small", 2, 1_000), task("large", 1, 3_000)];
    lab.apply(Delta::ShapeUpsert { owner_uid: "job".to_owned(), tasks, ended: false });
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
        owner: Some(owner),
        status: GroupStatus::default(),
        ..group("j", 3)
    })));
    assert_eq!(lab.cycle().admitted, ["ns/j"]);
}

#[test]
fn small_pods_of_a_gang_make_way_for_its_large_one() {
    let mut lab = Lab::new(&[4_000, 4_000]);
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 3))));
    for (index, cpu) in [(0, 1_000), (1, 1_000), (2, 4_000)] {
        lab.pod(pod("j", index, cpu));
    }
    assert_eq!(lab.binds(), ["j-0", "j-1", "j-2"]);
}

fn of_sizes(lab: &mut Lab, facts: GroupFacts, sizes: &[i64]) {
    let name = facts.name.clone();
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    for (index, cpu) in (0..).zip(sizes) {
        lab.pod(pod(&name, index, *cpu));
    }
}

/// Neither in order nor the largest first: only the two small ones fit together.
#[test]
fn a_gang_starts_with_those_of_its_pods_that_fit_together() {
    let mut lab = Lab::new(&[4_000]);
    of_sizes(&mut lab, group("j", 2), &[3_000, 2_000, 2_000]);
    assert_eq!(lab.binds(), ["j-1", "j-2"]);
}

/// The large one has to leave the larger node to the small ones, whatever the scores say.
#[test]
fn a_gang_is_placed_where_only_one_way_is_left() {
    let mut lab = Lab::new(&[4_000, 3_000]);
    of_sizes(&mut lab, group("j", 3), &[3_000, 2_000, 2_000]);
    let mut places: Vec<_> = lab.cycle().binds.into_iter().map(|bind| (bind.name, bind.node)).collect();
    places.sort();
    assert_eq!(places, [("j-0", "n1"), ("j-1", "n0"), ("j-2", "n0")].map(|(pod, node)| (pod.into(), node.into())));
}

#[test]
fn a_group_is_admitted_for_those_of_its_pods_that_can_run() {
    let waits = |min| GroupFacts { status: GroupStatus::default(), ..group("j", min) };
    let mut lab = Lab::new(&[4_000]);
    of_sizes(&mut lab, waits(1), &[9_000, 1_000]);
    assert_eq!(lab.binds(), ["j-1"]);
    // The same for the limit of a queue.
    let mut lab = Lab::new(&[9_000]);
    lab.queue("default", &[("cpu", 4_000)]);
    of_sizes(&mut lab, waits(2), &[3_000, 2_000, 2_000]);
    assert_eq!(lab.binds(), ["j-1", "j-2"]);
}

#[test]
fn gated_pods_are_not_placed() {
    let mut lab = Lab::new(&[4_000]);
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 2))));
    lab.pod(PodFacts { gated: true, ..pod("j", 0, 1_000) });
    lab.pod(pod("j", 1, 1_000));
    assert_eq!(lab.binds(), [""; 0]);
    assert_eq!(lab.why("j").lines().next(), Some("1 pod held by scheduling gates"));
    lab.pod(pod("j", 0, 1_000));
    assert_eq!(lab.binds(), ["j-0", "j-1"]);
}

#[test]
fn queues_are_served_in_turn_and_a_full_one_blocks_no_other() {
    let mut lab = Lab::new(&[3_000]);
    lab.queue("q", &[("cpu", 1_000)]);
    for index in 0..3 {
        let facts = GroupFacts { queue: "q".to_owned(), ..group(&format!("q{index}"), 1) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
        lab.pod(pod(&format!("q{index}"), 0, 1_000));
    }
    lab.gang("d", 2, 2, 1_000);
    assert_eq!(lab.binds(), ["d-0", "d-1", "q0-0"]);
}

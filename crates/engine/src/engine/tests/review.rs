//! What a stranger found: orders that were none, loops through own writes, gangs half-way.

use super::*;

/// A pod of `group` under its own name.
fn named(group: &str, name: &str, created: i64, cpu_milli: i64) -> PodFacts {
    PodFacts {
        uid: format!("uid-{name}").into(),
        name: name.to_owned(),
        created: TimeMs(created),
        ..pod(group, 0, cpu_milli)
    }
}

/// Cycles as the shell runs them: what is written is seen again, and asked-for cycles come. Counts the writes.
fn writes_of(lab: &mut Lab, facts: &GroupFacts, cycles: usize) -> usize {
    let mut writes = 0;
    for _ in 0..cycles {
        let plan = lab.cycle();
        writes += plan.groups.len();
        for update in plan.groups {
            lab.world.status_result("ns", &update.name, true);
            lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { status: update.status, ..facts.clone() })));
        }
        lab.now = lab.now.plus_ms(5);
    }
    writes
}

#[test]
fn pods_with_and_without_a_number_have_one_order() {
    let mut lab = Lab::new(&[1_000]);
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 1))));
    // By number a is before c; by age c is before b, and b before a.
    lab.pod(named("j", "a-w-1", 10, 1_000));
    lab.pod(named("j", "plain", 5, 1_000));
    lab.pod(named("j", "a-w-2", 1, 1_000));
    let World { tables, policy, .. } = &lab.world;
    let tasks: Vec<_> = tables.tasks.iter().map(|(id, _)| id).collect();
    let before = |left: usize, right: usize| policy.task_order(tables, tasks[left], tasks[right]).is_lt();
    for [a, b, c] in [[0, 1, 2], [0, 2, 1]] {
        assert!(!(before(a, b) && before(b, c) && before(c, a)), "a sort by this would panic");
    }
    assert_eq!(lab.binds(), ["a-w-1"]);
}

#[test]
fn a_group_below_its_minimum_in_a_closed_queue_comes_to_rest() {
    let mut lab = Lab::new(&[4_000]);
    lab.apply(Delta::QueueUpsert(QueueFacts {
        name: "q".to_owned(),
        state: QueueState::Closed,
        ..QueueFacts::default()
    }));
    let status = GroupStatus { phase: GroupPhase::Running, ..GroupStatus::default() };
    let facts = GroupFacts { queue: "q".to_owned(), status, ..group("j", 3) };
    lab.apply(Delta::GroupUpsert(Box::new(facts.clone())));
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod("j", 0, 1_000) });
    let writes = writes_of(&mut lab, &facts, 30);
    assert!(writes <= 3, "{writes} writes of a group that nothing happens to");
}

#[test]
fn a_replaced_pod_makes_a_running_group_run_on() {
    let mut lab = Lab::new(&[4_000]);
    let status = GroupStatus { phase: GroupPhase::Running, ..GroupStatus::default() };
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { status, ..group("j", 2) })));
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod("j", 0, 1_000) });
    lab.pod(pod("j", 1, 1_000));
    let plan = lab.cycle();
    assert_eq!(plan.binds.len(), 1);
    assert!(plan.groups.iter().all(|update| update.status.phase == GroupPhase::Running), "{:?}", plan.groups);
}

#[test]
fn a_gang_half_bound_before_a_restart_is_finished_first() {
    let mut lab = Lab::new(&[3_000]);
    lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 100, global_default: false });
    lab.queue("another", &[]);
    for (name, queue) in [("a", ""), ("z", "another")] {
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            priority_class: "high".to_owned(),
            queue: queue.to_owned(),
            ..group(name, 1)
        })));
        lab.pod(pod(name, 0, 1_000));
    }
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { created: TimeMs(9), ..group("half", 3) })));
    for index in 0..2 {
        lab.pod(PodFacts { node: Some("n0".into()), ..pod("half", index, 1_000) });
    }
    lab.pod(pod("half", 2, 1_000));
    assert_eq!(lab.binds(), ["half-2"]);
}

#[test]
fn wherever_a_crash_cuts_a_plan_the_next_scheduler_finishes_its_gangs() {
    let gangs = |lab: &mut Lab| {
        for name in ["a", "b", "c"] {
            lab.gang(name, 4, 5, 1_000);
        }
    };
    let mut lab = Lab::new(&[7_000, 6_000]);
    gangs(&mut lab);
    let binds = lab.cycle().binds;
    assert_eq!(binds.len(), 13, "three minima, and one more");
    for cut in 0..=binds.len() {
        // Without preempt, which may break one for somebody more important.
        let actions = vec![Action::Enqueue, Action::Allocate, Action::Backfill];
        let mut lab = Lab::with(Config { actions, ..Config::default() }, &[7_000, 6_000]);
        lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 1, global_default: false });
        gangs(&mut lab);
        // Somebody more important has come in the meantime.
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { priority_class: "high".to_owned(), ..group("new", 2) })));
        for index in 0..6 {
            lab.pod(pod("new", index, 1_000));
        }
        for bind in &binds[..cut] {
            let (group, index) = bind.name.split_once('-').unwrap();
            let node = Some(bind.node.clone());
            lab.pod(PodFacts { node, ..pod(group, index.parse().unwrap(), 1_000) });
        }
        lab.cycle();
        for (_, row) in lab.world.tables.groups.table.iter() {
            let ready = row.counts.ready();
            assert!(ready == 0 || ready >= row.min_member, "{} has {ready} after a cut at {cut}", row.name());
        }
    }
}

#[test]
fn what_a_finished_half_gang_has_beyond_its_minimum_waits_for_the_minima_of_others() {
    let mut lab = Lab::new(&[3_000]);
    lab.gang("half", 2, 3, 1_000);
    lab.pod(PodFacts { node: Some("n0".into()), ..pod("half", 0, 1_000) });
    lab.gang("other", 1, 1, 1_000);
    assert_eq!(lab.binds(), ["half-1", "other-0"]);
}

#[test]
fn pods_of_a_job_that_is_ended_or_gone_are_not_placed() {
    let owner = OwnerFacts { kind: "Job".to_owned(), name: "j".to_owned(), uid: "job".to_owned() };
    let template = PodTemplate { requests: resources(1_000), ..PodTemplate::default() };
    let tasks = vec![ShapeTask { count: 2, template: template.into(), ..ShapeTask::default() }];
    let shape = |ended| Delta::ShapeUpsert { owner_uid: "job".to_owned(), tasks: tasks.clone(), ended };
    for end in [shape(true), Delta::ShapeRemove { owner_uid: "job".to_owned() }] {
        let mut lab = Lab::new(&[4_000]);
        lab.apply(shape(false));
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { owner: Some(owner.clone()), ..group("j", 1) })));
        lab.pod(pod("j", 0, 1_000));
        lab.apply(end);
        assert_eq!(lab.binds(), [""; 0]);
        // Its PodGroup is written while it goes.
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { owner: Some(owner.clone()), ..group("j", 1) })));
        assert_eq!(lab.binds(), [""; 0]);
        assert_eq!(lab.why("j"), "");
        // Resumed, it is placed.
        lab.apply(shape(false));
        assert_eq!(lab.binds(), ["j-0"]);
    }
}

#[test]
fn a_queue_that_says_zero_is_not_written_again() {
    let mut lab = Lab::new(&[1_000]);
    lab.cycle();
    let allocated = [("cpu".to_owned(), 0), ("memory".to_owned(), 0)].into();
    lab.apply(Delta::QueueUpsert(QueueFacts { name: "q".to_owned(), allocated, ..QueueFacts::default() }));
    assert_eq!(lab.cycle().queues, []);
}

#[test]
fn news_without_news_want_no_cycle() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 1, 2, 1_000);
    lab.cycle();
    assert!(!lab.world.apply(&Delta::NodeUpsert(node("n0", 1_000))), "a heartbeat");
    for index in 0..2 {
        assert!(!lab.world.apply(&Delta::TaskUpsert(Box::new(pod("j", index, 1_000)))), "a condition was written");
    }
    let cordoned = NodeFacts { unschedulable: true, ..node("n0", 1_000) };
    assert!(lab.world.apply(&Delta::NodeUpsert(cordoned)));
    assert!(lab.world.apply(&Delta::NodeUpsert(node("n0", 2_000))));
    let bound = PodFacts { node: Some("n0".into()), ..pod("j", 0, 1_000) };
    assert!(lab.world.apply(&Delta::TaskUpsert(Box::new(bound.clone()))));
    let running = PodFacts { phase: PodPhase::Running, ..bound };
    assert!(lab.world.apply(&Delta::TaskUpsert(Box::new(running.clone()))));
    assert!(!lab.world.apply(&Delta::TaskUpsert(Box::new(running))));
    assert!(lab.world.apply(&Delta::TaskRemove("uid-j-0".into())));
    assert!(!lab.world.apply(&Delta::TaskRemove("uid-j-0".into())));
}

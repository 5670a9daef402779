//! Queues' limits and states, and everything that counts as use.

use super::*;

fn in_queue(queue: &str, name: &str, created: i64, phase: GroupPhase) -> Delta {
    let status = GroupStatus { phase, ..GroupStatus::default() };
    let min_resources = Some(resources(1_000));
    Delta::GroupUpsert(Box::new(GroupFacts {
        queue: queue.to_owned(),
        created: TimeMs(created),
        status,
        min_resources,
        ..group(name, 1)
    }))
}

// INV-15
#[test]
fn capability_is_a_hard_limit_when_placing() {
    let mut lab = Lab::new(&[10_000]);
    lab.queue("q", &[("cpu", 2_000)]);
    for index in 0..3 {
        lab.apply(in_queue("q", &format!("j{index}"), index, GroupPhase::Inqueue));
        lab.pod(pod(&format!("j{index}"), 0, 1_000));
    }
    assert_eq!(lab.binds(), ["j0-0", "j1-0"]);
    assert_eq!(lab.why("j2"), "queue q is at its cpu limit: 2 of 2 in use, 1 asked for (short by 1)");
    assert_eq!(lab.binds(), [""; 0]);
    lab.apply(Delta::TaskRemove("uid-j0-0".into()));
    assert_eq!(lab.binds(), ["j2-0"]);
}

#[test]
fn capability_is_a_limit_on_what_is_admitted() {
    let mut lab = Lab::new(&[10_000]);
    lab.queue("q", &[("cpu", 2_000)]);
    for index in 0..4 {
        lab.apply(in_queue("q", &format!("j{index}"), index, GroupPhase::Pending));
    }
    assert_eq!(lab.cycle().admitted, ["ns/j0", "ns/j1"]);
    assert_eq!(
        lab.why("j3"),
        "queue q is at its cpu limit: 2 of 2 in use, 1 asked for (short by 1)\n\
         ├─ behind 2 groups admitted earlier: ns/j0, ns/j1\n\
         └─ estimated from minResources: its pods are not known yet"
    );
    let facts = GroupFacts {
        queue: "q".to_owned(),
        min_resources: Some(resources(3_000)),
        status: GroupStatus::default(),
        ..group("never", 1)
    };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    assert_eq!(lab.cycle().admitted, [""; 0]);
    assert_eq!(lab.why("never").lines().next(), Some("asks for 3 cpu, more than queue q may ever hold (2)"));
}

#[test]
fn a_queue_runs_so_many_jobs_at_a_time_and_the_next_waits_for_one_to_end() {
    let mut lab = Lab::new(&[10_000]);
    let queue = |name: &str, parent: Option<&str>, most| {
        Delta::QueueUpsert(QueueFacts {
            name: name.to_owned(),
            parent: parent.map(str::to_owned),
            max_running_jobs: most,
            ..QueueFacts::default()
        })
    };
    lab.apply(queue("top", None, Some(3)));
    lab.apply(queue("q", Some("top"), Some(2)));
    lab.apply(queue("beside", Some("top"), None));
    for index in 0..4 {
        lab.apply(in_queue("q", &format!("j{index}"), index, GroupPhase::Pending));
    }
    lab.apply(in_queue("beside", "j4", 4, GroupPhase::Pending));
    let mut admitted = lab.cycle().admitted;
    admitted.sort();
    assert_eq!(admitted, ["ns/j0", "ns/j1", "ns/j4"]);
    lab.apply(in_queue("beside", "j5", 5, GroupPhase::Pending));
    assert_eq!(lab.cycle().admitted, [""; 0]);
    let says = |lab: &Lab, job: &str| lab.why(job).lines().next().unwrap().to_owned();
    assert_eq!(says(&lab, "j2"), "queue q runs as many jobs as it may at a time: 2 of 2 (maxRunningJobs)");
    assert_eq!(says(&lab, "j5"), "queue top runs as many jobs as it may at a time: 3 of 3 (maxRunningJobs)");
    // One ends by its pods, one is deleted, of one the queue changes.
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Succeeded, ..pod("j0", 0, 1_000) });
    lab.cycle();
    assert_eq!(lab.phase("j0"), GroupPhase::Completed);
    assert_eq!(lab.cycle().admitted, ["ns/j5"], "whose queue holds less");
    assert_eq!(says(&lab, "j2"), "queue top runs as many jobs as it may at a time: 3 of 3 (maxRunningJobs)");
    lab.apply(Delta::GroupRemove { namespace: "ns".to_owned(), name: "j4".to_owned(), uid: "".into() });
    assert_eq!(lab.cycle().admitted, ["ns/j2"]);
    lab.apply(queue("q", Some("top"), Some(9)));
    assert_eq!(lab.cycle().admitted, [""; 0], "the one above has its limit still");
    lab.apply(queue("top", None, None));
    assert_eq!(lab.cycle().admitted, ["ns/j3"]);
}

#[test]
fn a_queue_that_may_run_no_job_admits_none_and_pods_alone_are_no_jobs() {
    let mut lab = Lab::new(&[10_000]);
    lab.apply(Delta::QueueUpsert(QueueFacts {
        name: "q".to_owned(),
        max_running_jobs: Some(0),
        ..QueueFacts::default()
    }));
    lab.apply(in_queue("q", "j", 0, GroupPhase::Pending));
    lab.pod(PodFacts { group: None, queue: Some("q".to_owned()), ..pod("alone", 0, 1_000) });
    assert_eq!(lab.binds(), ["alone-0"]);
    assert_eq!(lab.phase("j"), GroupPhase::Pending);
}

#[test]
fn a_closed_or_missing_queue_takes_nothing_new() {
    let mut lab = Lab::new(&[10_000]);
    for (queue, state) in [("closed", QueueState::Closed), ("closing", QueueState::Closing)] {
        lab.apply(Delta::QueueUpsert(QueueFacts { name: queue.to_owned(), state, ..QueueFacts::default() }));
    }
    for (index, queue) in ["closed", "closing", "nowhere"].into_iter().enumerate() {
        lab.apply(in_queue(queue, queue, index as i64, GroupPhase::Pending));
    }
    assert_eq!(lab.cycle().admitted, [""; 0]);
    assert_eq!(lab.why("closed"), "queue closed is Closed and takes no new work");
    assert_eq!(lab.why("closing"), "queue closing is Closing and takes no new work");
    assert_eq!(lab.why("nowhere"), "queue nowhere does not exist: create it, or choose another");
    lab.queue("nowhere", &[]);
    assert_eq!(lab.cycle().admitted, ["ns/nowhere"]);
    // A bare pod is not admitted by enqueue, so allocate looks.
    lab.pod(PodFacts { group: None, queue: Some("closed".to_owned()), ..pod("bare", 0, 1_000) });
    assert_eq!(lab.binds(), [""; 0]);
}

#[test]
fn a_closing_queue_places_what_it_has_admitted_and_a_closed_one_nothing() {
    let plugins = |share: &str| {
        format!("actions: allocate, preempt, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: priority\n{share}")
    };
    let shares = ["", "  - name: capacity\n", "  - name: proportion\n"].map(plugins);
    let states = [(QueueState::Open, true), (QueueState::Closing, true), (QueueState::Closed, false)];
    for (config, (state, places)) in shares.iter().flat_map(|config| states.map(|state| (config, state))) {
        let mut lab = Lab::of(config, &[2_000]);
        let deserved = resources(2_000);
        lab.apply(Delta::QueueUpsert(QueueFacts { name: "q".to_owned(), state, deserved, ..QueueFacts::default() }));
        lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 100, global_default: false });
        for (name, queue, class, least) in [("other", "default", "", 0), ("own", "q", "", 0), ("waits", "q", "high", 1)]
        {
            let queue = queue.to_owned();
            let facts = GroupFacts { queue, priority_class: class.to_owned(), ..group(name, least) };
            lab.apply(Delta::GroupUpsert(Box::new(facts)));
        }
        for name in ["other", "own"] {
            lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod(name, 0, 1_000) });
        }
        lab.pod(pod("waits", 0, 1_000));
        let victims = lab.cycle().evictions;
        assert_eq!(!victims.is_empty(), state == QueueState::Open, "{state:?} in {config}: {victims:?}");
        lab.end(&victims);
        lab.apply(Delta::TaskRemove("uid-own-0".into()));
        assert_eq!(!lab.binds().is_empty(), places, "{state:?} in {config}");
        if !places {
            assert_eq!(lab.why("waits"), "queue q is Closed and takes no new work", "{config}");
        }
    }
}

#[test]
fn what_could_start_now_is_admitted_past_promises() {
    let mut lab = Lab::new(&[10_000]);
    lab.queue("q", &[("cpu", 10_000)]);
    // Admitted, but no node suits it: it holds the queue's promise.
    let facts = GroupFacts { queue: "q".to_owned(), min_resources: Some(resources(9_000)), ..group("waits", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    let mut picky = pod("waits", 0, 9_000);
    picky.template.node_selector.insert("disk".to_owned(), "ssd".to_owned());
    lab.pod(picky);
    let facts = GroupFacts {
        queue: "q".to_owned(),
        min_resources: Some(resources(2_000)),
        created: TimeMs(1),
        status: GroupStatus::default(),
        ..group("small", 1)
    };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    assert_eq!(lab.cycle().admitted, ["ns/small"]);
}

#[test]
fn pods_of_others_and_terminating_pods_count() {
    let mut lab = Lab::new(&[4_000]);
    let elsewhere =
        |index| PodFacts { mine: false, group: None, node: Some("n0".into()), ..pod("other", index, 1_000) };
    lab.pod(elsewhere(0));
    lab.pod(PodFacts { phase: PodPhase::Running, terminating: true, ..elsewhere(1) });
    lab.pod(PodFacts { phase: PodPhase::Succeeded, ..elsewhere(2) });
    // Not bound and not ours: none of our business.
    lab.pod(PodFacts { mine: false, group: None, ..pod("other", 3, 1_000) });
    lab.gang("j", 1, 3, 1_000);
    assert_eq!(lab.binds(), ["j-0", "j-1"]);
}

#[test]
fn a_decision_counts_until_the_bind_fails_and_is_tried_again_later() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 1, 1, 1_000);
    lab.gang("k", 1, 1, 1_000);
    assert_eq!(lab.binds(), ["j-0"]);
    // The watch shows the pod still without a node: the decision stands.
    lab.pod(pod("j", 0, 1_000));
    assert_eq!(lab.binds(), [""; 0]);
    lab.world.bind_result(&"uid-j-0".into(), Err("the server is on fire"), lab.now);
    let plan = lab.cycle();
    assert_eq!(plan.binds[0].name, "k-0", "the room is free again");
    let retry_at = plan.next_wakeup.unwrap();
    assert!(retry_at > lab.now);
    assert!(
        lab.why("j").starts_with("1 pod could not be bound, to be tried again: the server is on fire"),
        "{}",
        lab.why("j")
    );
    lab.apply(Delta::TaskRemove("uid-k-0".into()));
    assert_eq!(lab.binds(), [""; 0]);
    lab.now = retry_at;
    assert_eq!(lab.binds(), ["j-0"]);
    lab.world.bind_result(&"uid-j-0".into(), Ok(()), lab.now);
    assert_eq!(lab.world.groups().find(|group| group.name == "j").unwrap().phase, GroupPhase::Inqueue);
    lab.cycle();
    assert_eq!(lab.world.groups().find(|group| group.name == "j").unwrap().phase, GroupPhase::Running);
}

#[test]
fn nodes_take_no_more_pods_than_they_allow() {
    let mut lab = Lab::new(&[]);
    let mut facts = node("n0", 10_000);
    facts.allocatable.insert("pods".to_owned(), 2);
    lab.apply(Delta::NodeUpsert(facts));
    lab.gang("j", 1, 3, 0);
    assert_eq!(lab.binds(), ["j-0", "j-1"]);
    assert!(lab.why("j").starts_with("0/1 nodes fit 1 pod: 1 with too many pods"), "{}", lab.why("j"));
}

#[test]
fn a_resource_no_node_offers_is_named() {
    let mut lab = Lab::new(&[10_000]);
    let mut facts = pod("j", 0, 1_000);
    facts.template.requests.insert("nvidia.com/gpu".to_owned(), 1);
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 1))));
    lab.pod(facts);
    assert_eq!(lab.binds(), [""; 0]);
    assert!(
        lab.why("j").starts_with("0/1 nodes fit 1 pod: 1 insufficient nvidia.com/gpu (short by 1)"),
        "{}",
        lab.why("j")
    );
}

#[test]
fn a_node_that_goes_takes_no_pods() {
    let mut lab = Lab::new(&[1_000, 1_000]);
    lab.gang("j", 1, 3, 1_000);
    assert_eq!(lab.binds().len(), 2);
    lab.apply(Delta::NodeRemove("n1".into()));
    lab.apply(Delta::TaskRemove("uid-j-0".into()));
    lab.apply(Delta::TaskRemove("uid-j-1".into()));
    assert_eq!(lab.cycle().binds[0].node, "n0");
}

#[test]
fn amounts_that_no_machine_has_break_nothing() {
    let mut lab = Lab::new(&[i64::MAX, 1_000]);
    lab.queue("q", &[("cpu", i64::MIN), ("memory", i64::MAX), ("pods", i64::MIN)]);
    for index in 0..3 {
        let huge = |index| PodFacts { node: Some("n1".into()), ..pod("huge", index, i64::MAX) };
        lab.pod(PodFacts { phase: PodPhase::Running, ..huge(index) });
        lab.apply(in_queue("q", &format!("j{index}"), 0, GroupPhase::Pending));
        lab.pod(pod(&format!("j{index}"), 0, i64::MAX - i64::from(index)));
    }
    let facts = GroupFacts { min_member: u32::MAX, ..group("many", 0) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    lab.gang("one", 1, 1, 500);
    assert_eq!(lab.cycle().binds[0].node, "n0");
    for index in 0..3 {
        lab.apply(Delta::TaskRemove(format!("uid-huge-{index}").into()));
    }
    lab.gang("two", 1, 1, 500);
    assert_eq!(lab.binds(), ["two-0"]);
}

#[test]
fn more_task_names_than_are_told_apart_still_count() {
    let mut lab = Lab::new(&[1_000]);
    let min_task_member = (0..5_000).map(|index| (format!("r{index}"), 1)).collect();
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { min_task_member, ..group("j", 1) })));
    lab.pod(PodFacts { role: "unheard".to_owned(), ..pod("j", 0, 1_000) });
    assert_eq!(lab.binds(), ["j-0"]);
}

//! What is written and told, and how often.

use super::*;

#[test]
fn reasons_are_structured_and_readable() {
    let mut lab = Lab::new(&[2_000, 1_000]);
    let mut tainted = node("n2", 8_000);
    tainted.taints.push(Taint { key: "gpu".to_owned(), value: "yes".to_owned(), effect: TaintEffect::NoSchedule });
    lab.apply(Delta::NodeUpsert(tainted));
    lab.gang("j", 3, 3, 2_500);
    lab.cycle();
    insta::assert_snapshot!(lab.why("j"), @"
    0/3 nodes fit 3 pods: 1 with taint gpu=yes that it does not tolerate, 2 insufficient cpu (short by 500m)
    ├─ cpu: each pod asks for 2500m; node n0 comes nearest and lacks 500m; in all 4500m more cpu would be needed
    └─ starts with at least 3 pods together: 0 placed, 3 waiting
    ");
    insta::assert_json_snapshot!(lab.world.reasons("ns", "j").unwrap(), @r#"
    {
      "stage": "Allocate",
      "since": 1000000,
      "queue": "default",
      "minimum": {
        "minMember": 3,
        "ready": 0,
        "pending": 3
      },
      "reasons": [
        {
          "code": "nodesUnfit",
          "role": "",
          "needed": 3,
          "foundRoom": 0,
          "nodes": 3,
          "checks": [
            {
              "check": "taint",
              "detail": "gpu=yes",
              "nodes": 1
            },
            {
              "check": "resource",
              "detail": "cpu",
              "nodes": 2
            }
          ],
          "short": [
            {
              "resource": "cpu",
              "requested": 2500,
              "bestNode": "n0",
              "shortOnBest": 500,
              "shortTotal": 4500
            }
          ]
        }
      ]
    }
    "#);
}

/// Debug builds compare what is remembered of the nodes with what they say.
#[test]
fn reasons_follow_the_facts_of_many_nodes() {
    const NODES: usize = 300;
    let mut lab = Lab::new(&[]);
    let taint = |lab: &mut Lab, nodes: std::ops::Range<usize>, value: fn(usize) -> Option<usize>| {
        for index in nodes {
            let mut facts = node(&format!("n{index}"), 100);
            let taint = |value| Taint { key: "k".to_owned(), value, effect: TaintEffect::NoSchedule };
            facts.taints.extend(value(index).map(|value| taint(format!("v{value:03}"))));
            lab.apply(Delta::NodeUpsert(facts));
        }
    };
    let said = |lab: &mut Lab| -> Vec<(String, u32)> {
        lab.cycle();
        let reasons = lab.world.reasons("ns", "j").unwrap().reasons;
        let [crate::reasons::Reason::NodesUnfit(unfit)] = &reasons[..] else { panic!("{reasons:?}") };
        unfit.checks.iter().map(|check| (check.detail.clone(), check.nodes)).collect()
    };
    taint(&mut lab, 0..NODES, Some);
    lab.gang("j", 1, 1, 500);
    let all = said(&mut lab);
    assert_eq!(all.len(), 17);
    assert_eq!((all[0].clone(), all[1].clone()), (("...".to_owned(), 284), ("k=v000".to_owned(), 1)));
    taint(&mut lab, 0..150, |_| Some(7));
    taint(&mut lab, 150..290, |_| None);
    let expected: Vec<(String, u32)> = [("k=v007", 150)]
        .into_iter()
        .map(|(detail, nodes)| (detail.to_owned(), nodes))
        .chain((290..NODES).map(|index| (format!("k=v{index}"), 1)))
        .chain([("cpu".to_owned(), 140)])
        .collect();
    assert_eq!(said(&mut lab), expected);
    taint(&mut lab, 0..NODES, |_| None);
    lab.apply(Delta::NodeRemove("n0".into()));
    assert_eq!(said(&mut lab), [("cpu".to_owned(), 299)]);
}

#[test]
fn equal_jobs_get_equal_reasons_from_one_look() {
    let mut lab = Lab::new(&[2_000]);
    for index in 0..4 {
        lab.gang(&format!("j{index}"), 2, 2, 1_500);
    }
    lab.cycle();
    assert!(!lab.why("j0").is_empty());
    assert_eq!(lab.why("j0"), lab.why("j3"));
}

#[test]
fn statuses_and_conditions_are_written_once_per_class_of_reason() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 2, 2, 1_000);
    let plan = lab.cycle();
    let [update] = &plan.groups[..] else { panic!("{:?}", plan.groups) };
    assert_eq!(update.status.phase, GroupPhase::Inqueue);
    let [condition] = &update.status.conditions[..] else { panic!("{:?}", update.status.conditions) };
    assert_eq!((condition.kind.as_str(), condition.reason.as_str()), ("Unschedulable", "NotEnoughResources"));
    assert_eq!(plan.pods.iter().map(|notice| notice.name.as_str()).collect::<Vec<_>>(), ["j-0", "j-1"]);
    // Nothing new to say, also after the echo of what was written.
    lab.world.status_result("ns", "j", true);
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { status: update.status.clone(), ..group("j", 2) })));
    lab.now = lab.now.plus_ms(60_000);
    let quiet = lab.cycle();
    assert!(quiet.is_empty(), "{quiet:?}");
    // A write that failed is planned again.
    lab.world.status_result("ns", "j", false);
    assert_eq!(lab.cycle().groups.len(), 1);
    lab.world.status_result("ns", "j", true);
    // Room: it starts, and the condition turns.
    lab.apply(Delta::NodeUpsert(node("n1", 1_000)));
    let plan = lab.cycle();
    assert_eq!(plan.binds.len(), 2);
    assert!(plan.groups.is_empty(), "binds are in flight: {:?}", plan.groups);
    for bind in plan.binds {
        lab.world.bind_result(&bind.uid, Ok(()), lab.now);
    }
    let plan = lab.cycle();
    assert_eq!(plan.groups[0].status.phase, GroupPhase::Running);
    let conditions: Vec<(String, bool)> =
        plan.groups[0].status.conditions.iter().map(|condition| (condition.kind.clone(), condition.status)).collect();
    assert_eq!(conditions, [("Unschedulable".to_owned(), false), ("Scheduled".to_owned(), true)]);
    assert!(lab.why("j").is_empty());
}

#[test]
fn missing_pods_are_news_only_after_a_while() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 2, 1, 500);
    let plan = lab.cycle();
    assert!(plan.groups.is_empty() && plan.pods.is_empty(), "{plan:?}");
    lab.now = plan.next_wakeup.unwrap();
    let plan = lab.cycle();
    assert_eq!(plan.groups[0].status.conditions[0].reason, "NotEnoughTasks");
}

#[test]
fn a_gang_is_told_nothing_while_its_pods_come() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 100, 1, 1);
    for index in 1..20 {
        lab.now = lab.now.plus_ms(1_000);
        lab.pod(pod("j", index, 1));
        let plan = lab.cycle();
        assert!(plan.groups.is_empty() && plan.pods.is_empty(), "{plan:?}");
    }
    let last = lab.now;
    lab.now = lab.cycle().next_wakeup.unwrap();
    assert_eq!(lab.now, last.plus_ms(5_000));
    let plan = lab.cycle();
    assert_eq!((plan.groups.len(), plan.pods.len()), (1, 20), "no more come");
    lab.now = lab.now.plus_ms(60_000);
    assert!(lab.cycle().is_empty(), "once");
    lab.apply(Delta::TaskRemove("uid-j-0".into()));
    lab.now = lab.now.plus_ms(6_000);
    assert_eq!(lab.cycle().pods.len(), 0, "one that goes puts nothing off, and is nothing new");
}

#[test]
fn phases_follow_the_pods() {
    let mut lab = Lab::new(&[4_000]);
    lab.gang("j", 2, 2, 1_000);
    lab.cycle();
    let phase = |lab: &Lab| lab.world.groups().find(|group| group.name == "j").map(|group| group.phase);
    let seen = |lab: &mut Lab, index, phase| {
        lab.pod(PodFacts { node: Some("n0".into()), phase, ..pod("j", index, 1_000) });
        lab.cycle()
    };
    assert_eq!(phase(&lab), Some(GroupPhase::Inqueue));
    seen(&mut lab, 0, PodPhase::Running);
    assert_eq!(phase(&lab), Some(GroupPhase::Inqueue));
    let plan = seen(&mut lab, 1, PodPhase::Running);
    assert_eq!(phase(&lab), Some(GroupPhase::Running));
    assert_eq!(plan.groups[0].status.running, 2);
    seen(&mut lab, 0, PodPhase::Succeeded);
    assert_eq!(phase(&lab), Some(GroupPhase::Running));
    seen(&mut lab, 1, PodPhase::Failed);
    assert_eq!(phase(&lab), Some(GroupPhase::Completed));
    // All pods are cleaned away: it has ended all the same, and holds no room.
    for index in 0..2 {
        lab.apply(Delta::TaskRemove(format!("uid-j-{index}").into()));
    }
    let plan = lab.cycle();
    assert_eq!((phase(&lab), plan.next_wakeup), (Some(GroupPhase::Completed), None));
    lab.gang("other", 4, 4, 1_000);
    assert_eq!(lab.binds().len(), 4);
    // One more pod was admitted with the others.
    lab.pod(pod("j", 2, 1_000));
    let plan = lab.cycle();
    assert_eq!((phase(&lab), plan.admitted), (Some(GroupPhase::Inqueue), Vec::<ObjectName>::new()));
}

/// As a Job makes them that runs one pod after the other.
#[test]
fn a_group_has_not_ended_while_a_pod_of_it_waits() {
    let mut lab = Lab::new(&[2_000]);
    let phase = |lab: &Lab| lab.world.groups().find(|group| group.name == "j").map(|group| group.phase);
    lab.gang("j", 1, 1, 2_000);
    assert_eq!(lab.binds(), ["j-0"]);
    let at = |phase| PodFacts { node: Some("n0".into()), phase, ..pod("j", 0, 2_000) };
    lab.pod(at(PodPhase::Running));
    lab.cycle();
    lab.pod(at(PodPhase::Succeeded));
    lab.gang("other", 1, 1, 2_000);
    assert_eq!((lab.binds(), phase(&lab)), (vec!["other-0".to_owned()], Some(GroupPhase::Completed)));
    lab.pod(pod("j", 1, 2_000));
    let plan = lab.cycle();
    assert_eq!((phase(&lab), plan.binds), (Some(GroupPhase::Inqueue), Vec::new()));
    assert!(lab.why("j").contains("1 insufficient cpu (short by 2)"), "{}", lab.why("j"));
    lab.apply(Delta::TaskRemove("uid-other-0".into()));
    assert_eq!((lab.binds(), phase(&lab)), (vec!["j-1".to_owned()], Some(GroupPhase::Inqueue)));
}

#[test]
fn a_group_whose_owner_ended_wants_nothing() {
    let mut lab = Lab::new(&[4_000]);
    let owner = OwnerFacts { kind: "Job".to_owned(), name: "j".to_owned(), uid: "job".to_owned() };
    let facts = GroupFacts { owner: Some(owner), status: GroupStatus::default(), ..group("j", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
    lab.apply(Delta::ShapeUpsert { owner_uid: "job".to_owned(), tasks: Vec::new(), ended: true });
    assert_eq!(lab.cycle().admitted, [""; 0]);
    assert_eq!(lab.why("j"), "");
    lab.apply(Delta::ShapeUpsert { owner_uid: "job".to_owned(), tasks: Vec::new(), ended: false });
    assert_eq!(lab.cycle().admitted, ["ns/j"]);
}

#[test]
fn what_queues_hold_is_told_when_it_changes() {
    let mut lab = Lab::new(&[4_000]);
    lab.gang("j", 1, 1, 1_000);
    let plan = lab.cycle();
    assert_eq!(plan.queues.len(), 1);
    assert_eq!(plan.queues[0].allocated, [("cpu".to_owned(), 1_000), ("pods".to_owned(), 1)].into());
    assert!(lab.cycle().queues.is_empty());
    lab.world.queue_failed("default");
    assert_eq!(lab.cycle().queues.len(), 1);
}

#[test]
fn an_action_that_is_not_configured_is_named() {
    let config = Config { actions: vec![Action::Enqueue, Action::Allocate], ..Config::default() };
    let mut lab = Lab::with(config, &[1_000]);
    lab.gang("j", 1, 1, 0);
    assert_eq!(lab.binds(), [""; 0]);
    assert!(lab.why("j").contains("no action backfill"), "{}", lab.why("j"));
}

#[test]
fn reasons_that_go_back_and_forth_are_told_to_pods_now_and_then() {
    let mut lab = Lab::new(&[1_000]);
    lab.gang("j", 1, 2, 2_000);
    assert_eq!(lab.cycle().pods.len(), 2);
    let cordon = |on| Delta::NodeUpsert(NodeFacts { unschedulable: on, ..node("n0", 1_000) });
    lab.apply(cordon(true));
    let plan = lab.cycle();
    assert_eq!(plan.pods.len(), 0, "another kind of reason, but too soon");
    lab.pod(pod("j", 2, 2_000));
    assert_eq!(lab.cycle().pods.iter().map(|notice| notice.name.as_str()).collect::<Vec<_>>(), ["j-2"]);
    lab.now = lab.now.plus_ms(10_000);
    assert_eq!(lab.cycle().pods.len(), 2);
    lab.apply(cordon(true));
    assert_eq!(lab.cycle().pods.len(), 0);
}

/// Names of the pods that a cycle tells something.
fn told(plan: &Plan) -> Vec<&str> {
    plan.pods.iter().map(|notice| notice.name.as_str()).collect()
}

#[test]
fn pods_are_told_that_their_group_is_not_there_after_a_while_and_once() {
    let mut lab = Lab::new(&[1_000]);
    lab.pod(pod("spark", 0, 500));
    lab.pod(pod("podgroup-7", 0, 500));
    let first = lab.cycle();
    assert_eq!(told(&first), [""; 0], "it may come in a moment");
    lab.now = lab.now.plus_ms(1_000);
    lab.pod(pod("spark", 1, 500));
    let second = lab.cycle();
    assert_eq!(told(&second), [""; 0]);
    assert_eq!(second.next_wakeup, first.next_wakeup, "whatever happens before");
    lab.now = second.next_wakeup.unwrap();
    let plan = lab.cycle();
    assert_eq!(told(&plan), ["spark-0", "spark-1", "podgroup-7-0"]);
    assert!(plan.groups.is_empty() && plan.next_wakeup.is_none(), "{plan:?}");
    let notice = &plan.pods[0];
    assert_eq!(notice.reason, "Unschedulable");
    assert!(notice.message.starts_with("PodGroup ns/spark does not exist: create it"), "{}", notice.message);
    assert!(plan.pods[2].message.contains("the controllers make it"), "{}", plan.pods[2].message);
    assert!(lab.why("spark").contains("PodGroup ns/spark does not exist"), "{}", lab.why("spark"));
    lab.now = lab.now.plus_ms(60_000);
    assert_eq!(told(&lab.cycle()), [""; 0], "once");
    // Others of the same group are told when they come.
    lab.pod(pod("spark", 2, 500));
    assert_eq!(told(&lab.cycle()), ["spark-2"]);
    lab.apply(Delta::GroupUpsert(Box::new(group("spark", 1))));
    assert_eq!(lab.cycle().binds.len(), 2);
}

#[test]
fn a_group_that_comes_in_a_moment_is_not_missed() {
    let mut lab = Lab::new(&[1_000]);
    lab.pod(pod("j", 0, 500));
    lab.pod(pod("gone", 0, 500));
    let wakeup = lab.cycle().next_wakeup.unwrap();
    lab.apply(Delta::GroupUpsert(Box::new(group("j", 1))));
    lab.apply(Delta::TaskRemove("uid-gone-0".into()));
    let plan = lab.cycle();
    assert_eq!((plan.binds.len(), told(&plan)), (1, vec![]));
    lab.now = wakeup;
    assert_eq!(told(&lab.cycle()), [""; 0]);
    // One that goes is missed like one that never came, from then on.
    lab.pod(pod("j", 1, 2_000));
    assert_eq!(told(&lab.cycle()), ["j-1"], "no room");
    lab.apply(Delta::GroupRemove { namespace: "ns".to_owned(), name: "j".to_owned(), uid: "".into() });
    assert_eq!(told(&lab.cycle()), [""; 0]);
    lab.now = lab.now.plus_ms(20_000);
    assert_eq!(told(&lab.cycle()), ["j-1"]);
}

#[test]
fn pods_alone_are_in_the_queue_of_their_namespace() {
    let mut lab = Lab::new(&[8_000]);
    for name in ["q", "r"] {
        lab.queue(name, &[]);
    }
    let namespace = |queue: Option<&str>| Delta::NamespaceUpsert {
        name: "ns".to_owned(),
        weight: 1,
        labels: [].into(),
        queue: queue.map(str::to_owned),
    };
    let alone = |index: u32, queue: Option<&str>| PodFacts {
        group: None,
        queue: queue.map(str::to_owned),
        ..pod("bare", index, 1_000)
    };
    let held = |lab: &mut Lab| -> Vec<(String, i64)> {
        lab.cycle();
        let cpu = |queue: QueueView| (queue.name, queue.allocated.get("cpu").copied().unwrap_or(0));
        lab.world.queues().into_iter().map(cpu).collect()
    };
    let of = |default: i64, q: i64, r: i64| {
        [("default", default), ("q", q), ("r", r)].map(|(name, cpu)| (name.to_owned(), cpu)).to_vec()
    };
    // Before the namespace is known, and after.
    lab.pod(alone(0, None));
    lab.pod(alone(1, Some("default")));
    lab.pod(alone(2, Some("r")));
    assert_eq!(held(&mut lab), of(2_000, 0, 1_000));
    lab.apply(namespace(Some("q")));
    assert_eq!(held(&mut lab), of(0, 2_000, 1_000));
    lab.pod(alone(3, None));
    assert_eq!(held(&mut lab), of(0, 3_000, 1_000));
    lab.apply(namespace(Some("r")));
    assert_eq!(held(&mut lab), of(0, 0, 4_000));
    // Once its PodGroup is there, that says it.
    let made = GroupFacts { queue: "q".to_owned(), ..group("podgroup-uid-bare-0", 1) };
    lab.apply(Delta::GroupUpsert(Box::new(made)));
    assert_eq!(held(&mut lab), of(0, 1_000, 3_000));
    lab.apply(Delta::NamespaceRemove("ns".to_owned()));
    assert_eq!(held(&mut lab), of(2_000, 1_000, 1_000));
}

/// What runs comes and goes, and every number changes with it: objects are told once.
#[test]
fn numbers_that_change_are_not_written() {
    let mut lab = Lab::new(&[4_000, 4_000, 4_000]);
    lab.gang("j", 3, 3, 5_000);
    let told = lab.cycle();
    assert_eq!((told.groups.len(), told.pods.len()), (1, 3));
    for update in &told.groups {
        lab.world.status_result(&update.namespace, &update.name, true);
    }
    let mut texts = std::collections::BTreeSet::from([lab.why("j")]);
    for round in 1..=20_u32 {
        lab.now = lab.now.plus_ms(20_000);
        let mut facts = pod(&format!("r{}", round % 3), round, i64::from(round) * 100);
        (facts.mine, facts.group) = (false, None);
        (facts.node, facts.phase) = (Some(format!("n{}", round % 3).into()), PodPhase::Running);
        lab.pod(facts);
        let plan = lab.cycle();
        assert_eq!((plan.groups.len(), plan.pods.len()), (0, 0), "round {round}: {:?} {:?}", plan.groups, plan.pods);
        texts.insert(lab.why("j"));
    }
    assert!(texts.len() > 10, "the answer follows the numbers: {texts:?}");
}

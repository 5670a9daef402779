//! Gangs that no present node fits, where something adds nodes for pods that wait.

use super::*;

const CONFIG: &str = "actions: enqueue, allocate, preempt, reclaim, backfill\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n\
                      - plugins:\n  - name: predicates\n  - name: proportion\nconfigurations:\n- name: autoscaling\n  arguments: ";

fn with(arguments: &str, nodes: &[i64]) -> Lab {
    Lab::of(&format!("{CONFIG}{arguments}\n"), nodes)
}

/// A gang that is not admitted yet, and its pods' class.
fn gang(lab: &mut Lab, name: &str, pods: u32, cpu_milli: i64) {
    let owner = OwnerFacts { kind: "Job".to_owned(), name: name.to_owned(), uid: format!("job-{name}") };
    let template = PodTemplate { requests: resources(cpu_milli), ..PodTemplate::default() }.into();
    let tasks = vec![ShapeTask { count: pods, template, ..ShapeTask::default() }];
    lab.apply(Delta::ShapeUpsert { owner_uid: owner.uid.clone(), tasks, ended: false });
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
        created: TimeMs(lab.world.groups().count() as i64),
        owner: Some(owner),
        status: GroupStatus::default(),
        ..group(name, pods)
    })));
}

fn make(lab: &mut Lab, name: &str, pods: u32, cpu_milli: i64) {
    (0..pods).for_each(|index| lab.pod(pod(name, index, cpu_milli)));
}

fn labelled(name: &str, cpu: i64, label: (&str, &str)) -> Delta {
    let labels = [(label.0.to_owned(), label.1.to_owned())].into();
    Delta::NodeUpsert(NodeFacts { labels, ..node(name, cpu) })
}

#[test]
fn a_gang_that_no_node_fits_has_its_pods_made_and_told_where_nodes_are_added() {
    for (arguments, label, admitted) in [
        ("{enable: true}", ("a", "b"), true),
        ("{enable: false}", ("karpenter.sh/nodepool", "p"), false),
        ("{enable: auto}", ("karpenter.sh/nodepool", "p"), true),
        ("{enable: auto}", ("pumice.sh/autoscaled", "true"), true),
        ("{enable: auto}", ("pumice.sh/autoscaled", "false"), false),
        ("{}", ("a", "b"), false),
    ] {
        let mut lab = with(arguments, &[]);
        lab.apply(labelled("n0", 4_000, label));
        gang(&mut lab, "big", 2, 8_000);
        lab.cycle();
        let phase = if admitted { GroupPhase::Inqueue } else { GroupPhase::Pending };
        assert_eq!(lab.phase("big"), phase, "{arguments} {label:?}: {}", lab.why("big"));
        if !admitted {
            assert!(lab.why("big").starts_with("does not fit the cluster even when it is empty"), "{}", lab.why("big"));
            continue;
        }
        make(&mut lab, "big", 2, 8_000);
        let plan = lab.cycle();
        let told: Vec<&str> = plan.pods.iter().map(|pod| pod.reason.as_str()).collect();
        assert_eq!(told, ["Unschedulable", "Unschedulable"], "{arguments}");
        assert!(lab.why("big").contains("its pods are there for an autoscaler to see"), "{}", lab.why("big"));
        let condition = plan.groups.iter().flat_map(|group| &group.status.conditions);
        let condition = condition.into_iter().find(|condition| condition.kind == "AwaitsNodes");
        assert!(condition.is_some_and(|condition| condition.status), "{:?}", plan.groups);
    }
}

#[test]
fn a_gang_that_was_impossible_is_admitted_once_an_autoscaler_is_seen() {
    for (arguments, admitted) in [("{}", true), ("{enable: auto}", true), ("{enable: false}", false)] {
        let mut lab = with(arguments, &[4_000]);
        gang(&mut lab, "big", 2, 8_000);
        lab.cycle();
        assert_eq!(lab.phase("big"), GroupPhase::Pending, "{arguments}");
        assert!(lab.world.apply(&Delta::AutoscalerSeen(true)));
        assert!(!lab.world.apply(&Delta::AutoscalerSeen(true)), "no news");
        lab.cycle();
        let phase = if admitted { GroupPhase::Inqueue } else { GroupPhase::Pending };
        assert_eq!(lab.phase("big"), phase, "{arguments}: {}", lab.why("big"));
    }
}

#[test]
fn it_is_promised_nothing_and_makes_no_victims() {
    let mut lab = with("{enable: true}", &[4_000]);
    lab.queue("default", &[("cpu", 20_000)]);
    lab.gang("small", 1, 4, 1_000);
    assert_eq!(lab.binds().len(), 4);
    lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 10, global_default: false });
    gang(&mut lab, "big", 2, 8_000);
    make(&mut lab, "big", 2, 8_000);
    for _ in 0..3 {
        let plan = lab.cycle();
        assert!(plan.evictions.is_empty() && plan.binds.is_empty(), "{:?}", plan.evictions);
    }
    // What was free after it is for others at once.
    lab.apply(Delta::TaskRemove("uid-small-0".into()));
    gang(&mut lab, "later", 1, 1_000);
    make(&mut lab, "later", 1, 1_000);
    assert_eq!(lab.binds(), ["later-0"]);
}

#[test]
fn it_takes_no_place_among_the_jobs_that_a_queue_may_run() {
    let mut lab = with("{enable: true}", &[4_000]);
    lab.apply(Delta::QueueUpsert(QueueFacts {
        name: "default".to_owned(),
        uid: "default".to_owned(),
        max_running_jobs: Some(1),
        ..QueueFacts::default()
    }));
    gang(&mut lab, "big", 2, 8_000);
    gang(&mut lab, "small", 1, 1_000);
    lab.cycle();
    assert_eq!((lab.phase("big"), lab.phase("small")), (GroupPhase::Inqueue, GroupPhase::Inqueue));
    gang(&mut lab, "next", 1, 1_000);
    lab.cycle();
    assert_eq!(lab.phase("next"), GroupPhase::Pending, "{}", lab.why("next"));
}

#[test]
fn when_nodes_have_come_it_is_a_gang_like_any_other() {
    let mut lab = with("{enable: true}", &[4_000]);
    gang(&mut lab, "big", 2, 8_000);
    lab.cycle();
    make(&mut lab, "big", 2, 8_000);
    lab.cycle();
    lab.apply(Delta::NodeUpsert(node("new-0", 8_000)));
    assert_eq!(lab.binds(), [""; 0], "both or none");
    assert!(lab.tables().groups.row(lab.group_id("big")).awaits_nodes);
    lab.apply(Delta::NodeUpsert(node("new-1", 8_000)));
    assert_eq!(lab.binds(), ["big-0", "big-1"]);
    assert!(!lab.tables().groups.row(lab.group_id("big")).awaits_nodes);
}

#[test]
fn a_queues_limit_is_one_that_no_node_lifts() {
    let mut lab = with("{enable: true}", &[4_000]);
    lab.queue("default", &[("cpu", 10_000)]);
    gang(&mut lab, "big", 2, 8_000);
    lab.cycle();
    assert_eq!(lab.phase("big"), GroupPhase::Pending);
    assert!(lab.why("big").starts_with("asks for 16 cpu, more than queue default may ever hold"), "{}", lab.why("big"));
}

#[test]
fn it_still_is_promised_nothing_after_a_restart_of_the_scheduler() {
    let mut lab = with("{enable: true}", &[4_000]);
    let condition =
        GroupCondition { kind: "AwaitsNodes".to_owned(), status: true, reason: String::new(), message: String::new() };
    gang(&mut lab, "big", 2, 8_000);
    let status = GroupStatus { phase: GroupPhase::Inqueue, conditions: vec![condition], ..GroupStatus::default() };
    lab.apply(Delta::GroupRemove { namespace: "ns".to_owned(), name: "big".to_owned(), uid: "".into() });
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { status, ..group("big", 2) })));
    make(&mut lab, "big", 2, 8_000);
    gang(&mut lab, "small", 4, 1_000);
    make(&mut lab, "small", 4, 1_000);
    assert_eq!(lab.binds().len(), 4, "{}", lab.why("small"));
}

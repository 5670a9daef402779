//! Cases of capacity.

use std::collections::BTreeMap;

use super::*;
use crate::config::{Argument, Switches};
use crate::engine::tests::{Lab, group, pod, resources};
use crate::facts::{Delta, GroupFacts, PodFacts, PodPhase, QueueFacts};

fn plugin(lab: &Lab, hierarchical: bool, levels: i64) -> Capacity {
    let mut switches = Switches::default();
    switches.set(Switch::Hierarchy, hierarchical);
    let arguments = BTreeMap::from([("ancestorReclaimLevel".to_owned(), Argument::Int(levels))]);
    let mut plugin = Capacity::new(&PluginConfig { name: "capacity".to_owned(), switches, arguments });
    plugin.open(lab.tables(), lab.now);
    plugin
}

/// Milli-cores that a queue says of itself.
#[derive(Default, Clone, Copy)]
struct Spec {
    deserved: i64,
    capability: i64,
    guarantee: i64,
}

fn queue(lab: &mut Lab, name: &str, parent: &str, spec: Spec) {
    lab.apply(Delta::QueueUpsert(QueueFacts {
        name: name.to_owned(),
        uid: name.to_owned(),
        weight: 1,
        parent: (!parent.is_empty()).then(|| parent.to_owned()),
        deserved: resources(spec.deserved),
        capability: resources(spec.capability),
        guarantee: resources(spec.guarantee),
        ..QueueFacts::default()
    }));
}

fn owns(deserved: i64) -> Spec {
    Spec { deserved, ..Spec::default() }
}

fn most(capability: i64) -> Spec {
    Spec { capability, ..Spec::default() }
}

fn sure(guarantee: i64) -> Spec {
    Spec { guarantee, ..Spec::default() }
}

/// A group named as its queue, of pods of one core; the first ones run.
fn jobs(lab: &mut Lab, queue: &str, pods: u32, running: u32) {
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: queue.to_owned(), ..group(queue, 1) })));
    for index in 0..pods {
        let on = (index < running).then(|| "n0".into());
        let phase = if on.is_some() { PodPhase::Running } else { PodPhase::Pending };
        lab.pod(PodFacts { node: on, phase, ..pod(queue, index, 1_000) });
    }
}

fn one(lab: &Lab, group: &str) -> Demand {
    let class = lab.tables().task(lab.task_id(group, 0)).class;
    lab.tables().classes.row(class).demand.clone()
}

fn may(plugin: &Capacity, lab: &Lab, queue: &str) -> String {
    let answer = plugin.allocatable(lab.tables(), lab.queue_id(queue), &one(lab, queue));
    answer.map_or_else(|| "yes".to_owned(), |reason| reason.to_string())
}

#[test]
fn limits_bind_and_what_is_deserved_does_not() {
    let mut lab = Lab::new(&[10_000]);
    queue(&mut lab, "owner", "", owns(1_000));
    queue(&mut lab, "limited", "", most(2_000));
    queue(&mut lab, "sure", "", sure(5_000));
    for (name, running) in [("owner", 2), ("limited", 2), ("sure", 0)] {
        jobs(&mut lab, name, 8, running);
    }
    let plugin = plugin(&lab, false, 0);
    assert_eq!(may(&plugin, &lab, "owner"), "yes");
    assert_eq!(
        may(&plugin, &lab, "limited"),
        "queue limited is at its cpu limit: 2 of 2 in use, 1 asked for (short by 1)"
    );
    // What is guaranteed to others can't be had.
    let real = |name: &str| plugin.limits[&lab.queue_id(name)].real.get(crate::resource_dims::CPU);
    assert_eq!(["owner", "limited", "sure"].map(real), [5_000, 2_000, 10_000]);
}

#[test]
fn the_limits_of_all_above_bind() {
    let mut lab = Lab::new(&[100_000]);
    queue(&mut lab, "root", "", Spec::default());
    queue(&mut lab, "team", "root", most(3_000));
    queue(&mut lab, "a", "team", Spec::default());
    queue(&mut lab, "b", "team", most(9_000));
    jobs(&mut lab, "a", 4, 2);
    jobs(&mut lab, "b", 4, 1);
    let plugin = plugin(&lab, true, 0);
    for name in ["a", "b"] {
        assert_eq!(may(&plugin, &lab, name), "queue team is at its cpu limit: 3 of 3 in use, 1 asked for (short by 1)");
    }
    let mut missing = Missing::default();
    one(&lab, "a").add_to(&mut missing.total, 1);
    assert!(plugin.job_enqueueable(lab.tables(), lab.group_id("a"), &missing).is_err());
}

/// Upstream nothing at all is scheduled when one queue is wrong.
/// As its own limit does.
#[test]
fn the_limits_of_all_above_count_those_that_leave() {
    const TREE: &str = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  \
                        - name: capacity\n    enableHierarchy: true\n";
    let mut lab = Lab::of(TREE, &[8_000]);
    queue(&mut lab, "above", "", most(2_000));
    queue(&mut lab, "old", "above", Spec::default());
    queue(&mut lab, "new", "above", Spec::default());
    jobs(&mut lab, "old", 2, 2);
    jobs(&mut lab, "new", 1, 0);
    let leaves =
        PodFacts { terminating: true, node: Some("n0".into()), phase: PodPhase::Running, ..pod("old", 0, 1_000) };
    lab.pod(leaves);
    assert_eq!(lab.binds(), [""; 0]);
    lab.apply(Delta::TaskRemove("uid-old-0".into()));
    assert_eq!(lab.binds(), ["new-0"]);
}

#[test]
fn a_wrong_queue_is_unusable_and_the_others_go_on() {
    let mut lab = Lab::new(&[10_000]);
    queue(&mut lab, "root", "", Spec::default());
    queue(&mut lab, "good", "root", Spec::default());
    queue(&mut lab, "orphan", "nobody", Spec::default());
    queue(&mut lab, "below", "orphan", Spec::default());
    queue(&mut lab, "egg", "hen", Spec::default());
    queue(&mut lab, "hen", "egg", Spec::default());
    queue(&mut lab, "inner", "root", Spec::default());
    queue(&mut lab, "leaf", "inner", Spec::default());
    let names = ["good", "orphan", "below", "egg", "inner", "leaf"];
    for name in names {
        jobs(&mut lab, name, 1, 0);
    }
    let plugin = plugin(&lab, true, 0);
    let answers = names.map(|name| may(&plugin, &lab, name));
    assert_eq!(
        answers,
        [
            "yes",
            "queue orphan can't be used: its parent nobody does not exist",
            "queue below can't be used: a queue above it names a parent that does not exist",
            "queue egg can't be used: its parents go in a circle",
            "queue inner can't be used: it has queues below it, such as leaf: use one of them",
            "yes",
        ]
    );
}

#[test]
fn guarantees_of_siblings_are_kept_free() {
    let mut lab = Lab::new(&[100_000]);
    queue(&mut lab, "root", "", Spec::default());
    queue(&mut lab, "team", "root", most(10_000));
    queue(&mut lab, "a", "team", sure(4_000));
    queue(&mut lab, "b", "team", sure(3_000));
    queue(&mut lab, "c", "team", Spec::default());
    let plugin = plugin(&lab, true, 0);
    let real = |name: &str| plugin.limits[&lab.queue_id(name)].real.get(crate::resource_dims::CPU);
    assert_eq!(["root", "team", "a", "b", "c"].map(real), [i64::MAX, 10_000, 7_000, 6_000, 3_000]);
}

#[test]
fn the_order_of_queues() {
    let mut lab = Lab::new(&[10_000]);
    queue(&mut lab, "half", "", owns(4_000));
    queue(&mut lab, "full", "", owns(2_000));
    queue(&mut lab, "guest", "", Spec::default());
    for (name, running) in [("half", 2), ("full", 2), ("guest", 0)] {
        jobs(&mut lab, name, 4, running);
    }
    let plugin = plugin(&lab, false, 0);
    let mut names = ["guest", "full", "half"];
    names.sort_by(|left, right| plugin.queue_order(lab.tables(), lab.queue_id(left), lab.queue_id(right)));
    assert_eq!(names, ["half", "full", "guest"], "owners by share, then who owns nothing");
}

#[test]
fn who_may_reclaim_and_from_whom() {
    let mut lab = Lab::new(&[20_000]);
    queue(&mut lab, "owner", "", owns(4_000));
    queue(&mut lab, "borrower", "", owns(2_000));
    queue(&mut lab, "guest", "", Spec::default());
    queue(&mut lab, "safe", "", Spec { deserved: 1_000, guarantee: 3_000, capability: 0 });
    for (name, running) in [("owner", 1), ("borrower", 4), ("guest", 2), ("safe", 4)] {
        jobs(&mut lab, name, 6, running);
    }
    let plugin = plugin(&lab, false, 0);
    let (tables, demand) = (lab.tables(), one(&lab, "owner"));
    let may = ["owner", "borrower", "guest"].map(|name| plugin.preemptive(tables, lab.queue_id(name), &demand));
    assert_eq!(may, [true, false, false]);
    for (name, victims, allowed) in [("borrower", 4, 2), ("guest", 2, 2), ("safe", 4, 1)] {
        let victims: Vec<TaskId> = (0..victims).map(|index| lab.task_id(name, index)).collect();
        let taken = plugin.reclaimable(tables, lab.task_id("owner", 5), &victims).unwrap();
        assert_eq!(taken, victims[..allowed], "{name}");
        let want = GangEviction { preemptor: lab.group_id("owner"), reclaim: true, need: Vec::new() };
        assert_eq!(plugin.unified_evictable(tables, &want, &victims).unwrap(), victims[..allowed], "{name}");
        let want = GangEviction { reclaim: false, ..want };
        assert_eq!(plugin.unified_evictable(tables, &want, &victims), None);
    }
}

/// root -> (one -> a, b), (two -> c)
fn two_teams(one: Spec, two: Spec) -> Lab {
    let mut lab = Lab::new(&[20_000]);
    queue(&mut lab, "root", "", Spec::default());
    queue(&mut lab, "one", "root", one);
    queue(&mut lab, "two", "root", two);
    queue(&mut lab, "a", "one", Spec::default());
    queue(&mut lab, "b", "one", Spec::default());
    queue(&mut lab, "c", "two", Spec::default());
    jobs(&mut lab, "a", 6, 0);
    jobs(&mut lab, "b", 6, 4);
    jobs(&mut lab, "c", 6, 4);
    lab
}

#[test]
fn teams_reclaim_for_their_queues() {
    for (levels, one_deserves, two_deserves, may_reclaim, from_b, from_c) in [
        // Queues without anything deserved don't reclaim by themselves.
        (0, 5_000, 3_000, false, 4, 4),
        // Team one may, from team two down to what it deserves, and not within itself.
        (1, 5_000, 3_000, true, 0, 1),
        (1, 5_000, 1_000, true, 0, 3),
        (1, 4_000, 3_000, false, 0, 1),
    ] {
        let lab = two_teams(owns(one_deserves), owns(two_deserves));
        let plugin = plugin(&lab, true, levels);
        let (tables, preemptor) = (lab.tables(), lab.task_id("a", 0));
        assert_eq!(plugin.preemptive(tables, lab.queue_id("a"), &one(&lab, "a")), may_reclaim);
        for (name, allowed) in [("b", from_b), ("c", from_c)] {
            let victims: Vec<TaskId> = (0..4).map(|index| lab.task_id(name, index)).collect();
            let taken = plugin.reclaimable(tables, preemptor, &victims).unwrap();
            assert_eq!(taken.len(), allowed, "level {levels}, from {name}");
        }
    }
}

#[test]
fn the_nearest_relatives_give_first() {
    let lab = two_teams(owns(5_000), owns(1_000));
    let plugin = plugin(&lab, true, 0);
    let (a, b, c) = (lab.queue_id("a"), lab.queue_id("b"), lab.queue_id("c"));
    assert_eq!(plugin.victim_queue_order(lab.tables(), b, c, a), Ordering::Less);
    assert_eq!(plugin.victim_queue_order(lab.tables(), c, b, a), Ordering::Greater);
    let victims = [lab.task_id("c", 0), lab.task_id("b", 0)];
    let taken = plugin.reclaimable(lab.tables(), lab.task_id("a", 0), &victims).unwrap();
    assert_eq!(taken, [victims[1], victims[0]]);
}

#[test]
fn a_queue_within_its_own_keeps_all_where_nobody_lives_on_loan() {
    let mut lab = Lab::new(&[10_000]);
    for (name, deserved, running) in [("within", 4_000, 3), ("above", 2_000, 3), ("nothing", 0, 1)] {
        queue(&mut lab, name, "", owns(deserved));
        jobs(&mut lab, name, 4, running);
    }
    let keeps = |lab: &Lab| {
        let plugin = plugin(lab, false, 0);
        ["within", "above", "nothing"].map(|name| {
            let all = plugin.keeps_all_of(lab.tables(), lab.queue_id(name));
            let task = |index| lab.task_id(name, index);
            assert!(!all || (0..4).all(|index| plugin.keeps(lab.tables(), task(index))), "{name} keeps each");
            all
        })
    };
    assert_eq!(keeps(&lab), [true, false, false]);
    // It asks for nothing that a queue deserves, and may leave any.
    let mut guest = pod("within", 9, 0);
    guest.template.requests = [("memory".to_owned(), 1)].into();
    lab.pod(guest);
    assert_eq!(keeps(&lab), [false, false, false]);
}

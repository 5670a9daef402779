//! Cases of proportion, with the faults of kube-batch.

use super::*;
use crate::engine::tests::{Lab, group, pod, resources};
use crate::facts::{Delta, GroupFacts, PodFacts, PodPhase, QueueFacts, QueueState};

const CONFIG: &str =
    "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: proportion\n";

fn queue(lab: &mut Lab, name: &str, change: impl Fn(&mut QueueFacts)) {
    let mut facts = QueueFacts { name: name.to_owned(), uid: name.to_owned(), weight: 1, ..QueueFacts::default() };
    change(&mut facts);
    lab.apply(Delta::QueueUpsert(facts));
}

/// A group of single pods of so many milli-cores, in the queue of its name; the first ones run.
fn jobs(lab: &mut Lab, queue: &str, pods: u32, running: u32, cpu: i64) {
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: queue.to_owned(), ..group(queue, 1) })));
    for index in 0..pods {
        let on = (index < running).then(|| "n0".into());
        let phase = if on.is_some() { PodPhase::Running } else { PodPhase::Pending };
        lab.pod(PodFacts { node: on, phase, ..pod(queue, index, cpu) });
    }
}

fn opened(lab: &Lab) -> Proportion {
    let mut plugin = Proportion::default();
    plugin.open(lab.tables(), lab.now);
    plugin
}

fn deserved(lab: &Lab, plugin: &Proportion, queue: &str, resource: &str) -> i64 {
    at(plugin.due(lab.queue_id(queue)), lab.tables().dims.lookup(resource).unwrap())
}

fn demand(lab: &Lab, group: &str) -> Demand {
    let class = lab.tables().task(lab.task_id(group, 0)).class;
    lab.tables().classes.row(class).demand.clone()
}

/// Pods bound per queue when three queues share what 665 tells of.
#[test]
fn earlier_rounds_are_not_charged_again() {
    let mut lab = Lab::of(CONFIG, &[9_000]);
    for (name, pods) in [("a", 1), ("b", 6), ("c", 6)] {
        queue(&mut lab, name, |_| {});
        jobs(&mut lab, name, pods, 0, 1_000);
    }
    let plugin = opened(&lab);
    assert_eq!(["a", "b", "c"].map(|name| deserved(&lab, &plugin, name, "cpu")), [1_000, 4_000, 4_000]);
    let binds = lab.binds();
    let of = |name: &str| binds.iter().filter(|pod| pod.starts_with(name)).count();
    assert_eq!(["a", "b", "c"].map(of), [1, 4, 4]);
}

/// 729: a queue that wants none of a resource gets its share of the others.
#[test]
fn a_resource_that_nobody_wants_freezes_no_queue() {
    let mut lab = Lab::of(CONFIG, &[12_000]);
    let mut gpus = crate::engine::tests::node("gpu", 0);
    gpus.allocatable.insert("nvidia.com/gpu".to_owned(), 3);
    lab.apply(Delta::NodeUpsert(gpus));
    for (name, pods) in [("a", 2), ("b", 8)] {
        queue(&mut lab, name, |_| {});
        jobs(&mut lab, name, pods, 0, 1_000);
    }
    let plugin = opened(&lab);
    for (name, cpu) in [("a", 2_000), ("b", 8_000)] {
        assert_eq!((deserved(&lab, &plugin, name, "cpu"), deserved(&lab, &plugin, name, "nvidia.com/gpu")), (cpu, 0));
    }
    assert_eq!(lab.binds().len(), 10);
}

#[test]
fn limits_and_guarantees_bound_what_is_deserved() {
    let mut lab = Lab::of(CONFIG, &[10_000]);
    queue(&mut lab, "limited", |facts| facts.capability = resources(1_000));
    queue(&mut lab, "sure", |facts| facts.guarantee = resources(4_000));
    queue(&mut lab, "idle", |facts| facts.guarantee = resources(2_000));
    queue(&mut lab, "heavy", |facts| facts.weight = 3);
    for name in ["limited", "sure", "heavy"] {
        jobs(&mut lab, name, 20, 0, 1_000);
    }
    let plugin = opened(&lab);
    // 4 are left to heavy: 10 without the 6 that are guaranteed to others.
    for (name, cpu) in [("limited", 1_000), ("sure", 5_000), ("heavy", 4_000)] {
        assert_eq!(deserved(&lab, &plugin, name, "cpu"), cpu, "{name}");
    }
}

#[test]
fn what_is_deserved_bounds_what_is_placed_and_taken_back() {
    let mut lab = Lab::of(CONFIG, &[8_000]);
    queue(&mut lab, "a", |_| {});
    queue(&mut lab, "b", |facts| facts.priority = 7);
    jobs(&mut lab, "a", 6, 6, 1_000);
    jobs(&mut lab, "b", 6, 2, 1_000);
    let plugin = opened(&lab);
    let (a, b) = (lab.queue_id("a"), lab.queue_id("b"));
    let tables = lab.tables();
    assert!(plugin.overused(tables, a).is_some() && plugin.overused(tables, b).is_none());
    let more = demand(&lab, "a");
    assert_eq!(
        plugin.allocatable(tables, a, &more).unwrap().to_string(),
        "queue a holds its share of cpu: 6 of 4 in use, 1 asked for"
    );
    assert!(plugin.allocatable(tables, b, &more).is_none() && plugin.preemptive(tables, b, &more));
    assert_eq!(plugin.queue_order(tables, b, a), Ordering::Less, "by priority");
    let victims: Vec<TaskId> = (0..6).map(|index| lab.task_id("a", index)).chain([lab.task_id("b", 0)]).collect();
    // 6 are held and 4 deserved; b holds less than it deserves.
    assert_eq!(plugin.reclaimable(tables, lab.task_id("b", 2), &victims), Some(victims[..2].to_vec()));
    assert_eq!([a, b].map(|queue| plugin.keeps_all_of(tables, queue)), [false, true]);
}

#[test]
fn a_protected_queue_keeps_more_than_it_deserves() {
    let mut lab = Lab::of(CONFIG, &[8_000]);
    queue(&mut lab, "a", |_| {});
    queue(&mut lab, "b", |_| {});
    jobs(&mut lab, "a", 6, 6, 1_000);
    jobs(&mut lab, "b", 6, 2, 1_000);
    let victims: Vec<TaskId> = (0..6).map(|index| lab.task_id("a", index)).collect();
    // 4 are deserved. Below that nothing is taken, whatever the fraction.
    for (fraction, taken) in [(0.0, 2), (0.5, 2), (1.0, 2), (1.25, 1), (1.5, 0), (f64::NAN, 2)] {
        let config = PluginConfig {
            name: "proportion".to_owned(),
            switches: crate::config::Switches::default(),
            arguments: [("protectedFraction".to_owned(), crate::config::Argument::Float(fraction))].into(),
        };
        let mut plugin = Proportion::new(&config);
        plugin.open(lab.tables(), lab.now);
        let allowed = plugin.reclaimable(lab.tables(), lab.task_id("b", 2), &victims);
        assert_eq!(allowed, Some(victims[..taken].to_vec()), "{fraction}");
        assert_eq!(plugin.keeps(lab.tables(), victims[0]), taken == 0, "{fraction}");
    }
}

#[test]
fn the_smaller_share_goes_first_among_equals() {
    let mut lab = Lab::of(CONFIG, &[8_000]);
    queue(&mut lab, "a", |_| {});
    queue(&mut lab, "b", |facts| facts.weight = 3);
    jobs(&mut lab, "a", 6, 1, 1_000);
    jobs(&mut lab, "b", 6, 2, 1_000);
    let plugin = opened(&lab);
    // 1 of 2 against 2 of 6.
    assert_eq!(plugin.queue_order(lab.tables(), lab.queue_id("b"), lab.queue_id("a")), Ordering::Less);
}

#[test]
fn closed_queues_and_used_up_limits_admit_nobody() {
    for (state, limit, held, verdict) in [
        (QueueState::Open, 8_000, 2, "yes"),
        (QueueState::Open, 2_000, 2, "queue q is at its cpu limit: 2 of 2 in use, 1 asked for (short by 1)"),
        (
            QueueState::Open,
            9_000,
            8,
            "insufficient cpu (short by 1): queue q holds or awaits 8 of the 8 of the cluster",
        ),
        (QueueState::Closed, 8_000, 0, "queue q is Closed and takes no new work"),
    ] {
        let mut lab = Lab::of(CONFIG, &[8_000]);
        queue(&mut lab, "q", |facts| {
            facts.state = state;
            facts.capability = resources(limit);
        });
        jobs(&mut lab, "q", held + 2, held, 1_000);
        let plugin = opened(&lab);
        let mut missing = Missing::default();
        demand(&lab, "q").add_to(&mut missing.total, 1);
        let answer = plugin.job_enqueueable(lab.tables(), lab.group_id("q"), &missing);
        assert_eq!(answer.map_or_else(|reason| reason.to_string(), |_| "yes".to_owned()), verdict);
    }
}

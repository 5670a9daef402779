//! Cases of drf.

use super::*;
use crate::engine::tests::{Lab, group, node, pod};
use crate::facts::{Delta, GroupFacts, NodeFacts, PodFacts, PodPhase, QueueFacts};

fn lab() -> Lab {
    let mut lab = Lab::new(&[10_000]);
    for (name, running) in [("rich", 4), ("poor", 1), ("new", 0)] {
        lab.gang(name, 1, 0, 0);
        for index in 0..5 {
            let on = (index < running).then(|| "n0".into());
            let phase = if on.is_some() { PodPhase::Running } else { PodPhase::Pending };
            lab.pod(PodFacts { node: on, phase, ..pod(name, index, 1_000) });
        }
    }
    lab
}

fn plain() -> Drf {
    Drf { hierarchical: false, tree: Hierarchy::default() }
}

#[test]
fn the_job_with_the_smallest_share_goes_first() {
    let lab = lab();
    let mut names = ["rich", "new", "poor"];
    names.sort_by(|left, right| plain().job_order(lab.tables(), lab.group_id(left), lab.group_id(right)));
    assert_eq!(names, ["new", "poor", "rich"]);
}

#[test]
fn jobs_give_while_they_hold_as_much_as_the_preemptor_would() {
    let lab = lab();
    for (preemptor, victims, allowed) in [
        // 1 for the preemptor: rich may go down to 1, poor not to 0.
        ("new", vec![("rich", 0), ("rich", 1), ("rich", 2), ("rich", 3), ("poor", 0)], 3),
        // 2 for it: rich may go down to 2.
        ("poor", vec![("rich", 0), ("rich", 1), ("rich", 2)], 2),
        ("rich", vec![("poor", 0)], 0),
    ] {
        let victims: Vec<TaskId> = victims.into_iter().map(|(name, index)| lab.task_id(name, index)).collect();
        let preemptor = lab.task_id(preemptor, 4);
        assert_eq!(plain().preemptable(lab.tables(), preemptor, &victims).unwrap(), victims[..allowed]);
    }
    assert_eq!(plain().reclaimable(lab.tables(), lab.task_id("new", 0), &[]), None);
}

const HIERARCHY: &str =
    "actions: allocate\ntiers:\n- plugins:\n  - name: drf\n    enableHierarchy: true\n  - name: predicates\n";

/// Volcano's own test intends these numbers but compares nothing: 5 pods each on 10 cores and 10 GB.
#[test]
fn queues_share_along_their_annotations() {
    let mut lab = Lab::of(HIERARCHY, &[]);
    let mut facts: NodeFacts = node("n", 10_000);
    facts.allocatable.insert("memory".to_owned(), 10_000_000_000);
    lab.apply(Delta::NodeUpsert(facts));
    for (queue, path, weights, cpu, memory) in [
        ("sci", "root/sci", "100/50", 1_000, 1_000_000_000),
        ("dev", "root/eng/dev", "100/50/50", 1_000, 0),
        ("prod", "root/eng/prod", "100/50/50", 0, 1_000_000_000),
    ] {
        let annotations =
            [(PATH, path), (WEIGHTS, weights)].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        lab.apply(Delta::QueueUpsert(QueueFacts {
            name: queue.to_owned(),
            uid: queue.to_owned(),
            annotations,
            ..QueueFacts::default()
        }));
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: queue.to_owned(), ..group(queue, 0) })));
        for index in 0..10 {
            let mut facts = pod(queue, index, cpu);
            if memory > 0 {
                facts.template.requests.insert("memory".to_owned(), memory);
            }
            lab.pod(facts);
        }
    }
    let binds = lab.binds();
    for queue in ["sci", "dev", "prod"] {
        assert_eq!(binds.iter().filter(|pod| pod.starts_with(queue)).count(), 5, "{queue}: {binds:?}");
    }
}

#[test]
fn the_hierarchy_decides_who_gives() {
    let mut lab = Lab::of(HIERARCHY, &[10_000]);
    for (queue, running) in [("a", 8), ("b", 2)] {
        let annotations = [(PATH, format!("root/{queue}")), (WEIGHTS, "1/1".to_owned())]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
        let name = queue.to_owned();
        lab.apply(Delta::QueueUpsert(QueueFacts { uid: name.clone(), name, annotations, ..QueueFacts::default() }));
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: queue.to_owned(), ..group(queue, 1) })));
        for index in 0..10 {
            let on = (index < running).then(|| "n0".into());
            let phase = if on.is_some() { PodPhase::Running } else { PodPhase::Pending };
            lab.pod(PodFacts { node: on, phase, ..pod(queue, index, 1_000) });
        }
    }
    let mut plugin = Drf { hierarchical: true, tree: Hierarchy::default() };
    plugin.open(lab.tables(), lab.now);
    let (a, b) = (lab.task_id("a", 0), lab.task_id("b", 0));
    assert_eq!(plugin.reclaimable(lab.tables(), lab.task_id("b", 5), &[a]), Some(vec![a]));
    assert_eq!(plugin.reclaimable(lab.tables(), lab.task_id("a", 9), &[b]), Some(vec![]));
    assert_eq!(plugin.queue_order(lab.tables(), lab.queue_id("b"), lab.queue_id("a")), Ordering::Less);
}

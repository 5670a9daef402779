//! Pods that carry their queue's gate.

use super::*;

fn gated(group: &str, index: u32, others: bool) -> PodFacts {
    PodFacts { gated: true, queue_gated: !others, ..pod(group, index, 1_000) }
}

fn ungated(plan: &Plan) -> Vec<&str> {
    plan.ungates.iter().map(|ungate| ungate.name.as_str()).collect()
}

fn open_group(lab: &mut Lab, name: &str, min: u32) {
    let status = GroupStatus { phase: GroupPhase::Inqueue, ..GroupStatus::default() };
    let facts = GroupFacts { queue: "q".to_owned(), status, ..group(name, min) };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
}

#[test]
fn the_gate_goes_when_the_queue_takes_the_pod_and_the_pod_is_placed_after() {
    let mut lab = Lab::new(&[10_000]);
    lab.queue("q", &[("cpu", 2_000)]);
    open_group(&mut lab, "j", 1);
    for index in 0..3 {
        lab.pod(gated("j", index, false));
    }
    lab.pod(gated("j", 3, true));
    let plan = lab.cycle();
    assert_eq!(ungated(&plan), ["j-0", "j-1"], "within the limit, and not with other gates");
    assert_eq!((plan.binds.len(), plan.ungates[0].gate.as_str()), (0, "scheduling.volcano.sh/queue-allocation-gate"));
    assert_eq!(ungated(&lab.cycle()), [""; 0], "told once, and promised until placed");
    // The gate is gone: the pod is placed, and its promise with it.
    lab.pod(pod("j", 0, 1_000));
    let plan = lab.cycle();
    assert_eq!(plan.binds.iter().map(|bind| bind.name.as_str()).collect::<Vec<_>>(), ["j-0"]);
    assert_eq!(ungated(&plan), [""; 0]);
    // A gate that could not be removed is no promise any more: another pod may have the room, or the same.
    lab.world.ungate_failed(&"uid-j-1".into());
    assert_eq!(ungated(&lab.cycle()), ["j-1"]);
    // What was promised to a pod that is gone is free again.
    lab.apply(Delta::TaskRemove("uid-j-1".into()));
    assert_eq!(ungated(&lab.cycle()), ["j-2"]);
}

#[test]
fn a_gang_is_let_in_pod_by_pod_and_starts_together() {
    let mut lab = Lab::new(&[10_000]);
    lab.queue("q", &[("cpu", 5_000)]);
    open_group(&mut lab, "gang", 2);
    lab.pod(gated("gang", 0, false));
    lab.pod(gated("gang", 1, false));
    assert_eq!(ungated(&lab.cycle()), ["gang-0", "gang-1"]);
    lab.pod(pod("gang", 0, 1_000));
    assert!(lab.cycle().binds.is_empty(), "half of it carries the gate still");
    lab.pod(pod("gang", 1, 1_000));
    assert_eq!(lab.cycle().binds.len(), 2);
}

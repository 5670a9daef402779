//! Cases of overcommit.

use std::collections::BTreeMap;

use super::*;
use crate::config::{Argument, Switches};
use crate::engine::tests::{Lab, group, pod, resources};
use crate::facts::{Delta, GroupFacts, GroupStatus, PodFacts, PodPhase};

const CONFIG: &str = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: priority\n  - name: gang\n- plugins:\n  - name: overcommit\n    arguments: {overcommit-factor: 1.2}\n  - name: predicates\n";

fn plugin(factor: Option<Argument>) -> Overcommit {
    let arguments =
        factor.map(|factor| ("overcommit-factor".to_owned(), factor)).into_iter().collect::<BTreeMap<_, _>>();
    Overcommit::new(&PluginConfig { name: "overcommit".to_owned(), switches: Switches::default(), arguments })
}

fn pending(lab: &mut Lab, name: &str, created: i64, cpu: i64) {
    let facts = GroupFacts {
        created: TimeMs(created),
        min_resources: Some(resources(cpu)),
        status: GroupStatus::default(),
        ..group(name, 1)
    };
    lab.apply(Delta::GroupUpsert(Box::new(facts)));
}

#[test]
fn factors_below_one_are_not_taken() {
    for (factor, kept) in [
        (None, 1_200_000),
        (Some(Argument::Float(1.5)), 1_500_000),
        (Some(Argument::Int(2)), 2_000_000),
        (Some(Argument::Float(0.5)), 1_200_000),
        (Some(Argument::Float(f64::NAN)), 1_200_000),
        (Some(Argument::Text("3".to_owned())), 1_200_000),
    ] {
        assert_eq!(plugin(factor.clone()).factor, kept, "{factor:?}");
    }
}

#[test]
fn promises_stay_below_a_multiple_of_the_cluster() {
    let mut lab = Lab::of(CONFIG, &[10_000]);
    lab.gang("running", 1, 0, 0);
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod("running", 0, 4_000) });
    // 12 may be promised, 4 of it are in use.
    for (name, cpu) in [("a", 5_000), ("b", 2_000), ("c", 2_000), ("d", 1_000)] {
        pending(&mut lab, name, cpu, cpu);
    }
    assert_eq!(lab.cycle().admitted, ["ns/d", "ns/b", "ns/c"]);
    assert!(
        lab.why("a").starts_with("enough was admitted already: 5 of 8 cpu are promised, 5 asked for"),
        "{}",
        lab.why("a")
    );
}

/// K3: what can never run holds nobody up. Volcano admits the 11 of 10 cores, and the 2 wait for ever.
#[test]
fn a_gang_that_can_never_run_holds_up_nobody() {
    let mut lab = Lab::of(CONFIG, &[10_000]);
    pending(&mut lab, "j1", 0, 11_000);
    lab.pod(pod("j1", 0, 11_000));
    pending(&mut lab, "j2", 1, 2_000);
    lab.pod(pod("j2", 0, 2_000));
    let plan = lab.cycle();
    assert_eq!(plan.admitted, ["ns/j2"]);
    assert_eq!(plan.binds.iter().map(|bind| bind.name.as_str()).collect::<Vec<_>>(), ["j2-0"]);
    assert!(lab.why("j1").starts_with("does not fit the cluster even when it is empty"), "{}", lab.why("j1"));
}

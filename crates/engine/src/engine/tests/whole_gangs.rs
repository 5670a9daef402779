//! Gangs that leave whole: who has to leave leaves with all of its group.

use proptest::prelude::*;

use super::laws::{some_event, step};
use super::*;
use crate::world::tasks::TaskState;

fn whole() -> Config {
    Config { gangs_leave_whole: true, ..Config::default() }
}

/// A group of running pods, one on each of these nodes.
fn running(lab: &mut Lab, name: &str, class: &str, nodes: &[usize], cpu: i64) {
    let (minimum, priority_class) = (nodes.len() as u32, class.to_owned());
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { priority_class, ..group(name, minimum) })));
    for (index, node) in nodes.iter().enumerate() {
        let node = Some(format!("n{node}").into());
        lab.pod(PodFacts { node, phase: PodPhase::Running, ..pod(name, index as u32, cpu) });
    }
}

fn waiting(lab: &mut Lab, name: &str, class: &str, pods: u32, cpu: i64) {
    let priority_class = class.to_owned();
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { priority_class, ..group(name, pods) })));
    (0..pods).for_each(|index| lab.pod(pod(name, index, cpu)));
}

fn lab(config: Config, nodes: &[i64]) -> Lab {
    let mut lab = Lab::with(config, nodes);
    for (name, value) in [("low", 10), ("high", 100)] {
        lab.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
    }
    lab
}

fn victims(plan: &Plan) -> Vec<&str> {
    let mut victims: Vec<&str> = plan.evictions.iter().map(|eviction| eviction.name.as_str()).collect();
    victims.sort_unstable();
    victims
}

#[test]
fn one_victim_takes_its_gang_along_where_that_is_said() {
    for (config, expected) in [(whole(), vec!["g-0", "g-1", "g-2"]), (Config::default(), vec!["g-0"])] {
        let mut lab = lab(config, &[1_000, 1_000, 1_000]);
        running(&mut lab, "g", "low", &[0, 1, 2], 1_000);
        waiting(&mut lab, "w", "high", 1, 1_000);
        let plan = lab.cycle();
        assert_eq!(victims(&plan).len(), expected.len(), "{:?}", victims(&plan));
        assert!(victims(&plan).iter().all(|name| name.starts_with("g-")));
    }
}

#[test]
fn a_gang_stays_where_a_single_pod_is_enough() {
    let mut lab = lab(whole(), &[1_000, 1_000, 1_000]);
    running(&mut lab, "g", "low", &[0, 1], 1_000);
    running(&mut lab, "s", "low", &[2], 1_000);
    waiting(&mut lab, "w", "high", 1, 1_000);
    assert_eq!(victims(&lab.cycle()), ["s-0"]);
}

#[test]
fn all_that_a_gang_frees_is_used_before_others_leave() {
    let mut lab = lab(whole(), &[1_000, 1_000, 1_000, 1_000]);
    running(&mut lab, "g", "low", &[0, 1], 1_000);
    running(&mut lab, "h", "low", &[2, 3], 1_000);
    waiting(&mut lab, "w", "high", 2, 1_000);
    let plan = lab.cycle();
    let left = victims(&plan);
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(left[0].split('-').next(), left[1].split('-').next(), "one gang makes room for both");
}

#[test]
fn a_gang_with_a_pod_that_may_not_leave_stays() {
    let mut lab = lab(whole(), &[1_000, 1_000]);
    running(&mut lab, "g", "low", &[0], 1_000);
    let node = Some("n1".into());
    lab.pod(PodFacts { node, phase: PodPhase::Running, preemptable: Some(false), ..pod("g", 1, 1_000) });
    waiting(&mut lab, "w", "high", 1, 1_000);
    assert_eq!(victims(&lab.cycle()), Vec::<&str>::new());
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn no_group_leaves_in_part(events in proptest::collection::vec(some_event(), 0..60)) {
        let mut lab = lab(whole(), &[2_000, 1_500, 1_000]);
        lab.queue("q", &[]);
        running(&mut lab, "g0", "low", &[0, 1, 2, 0], 1_000);
        waiting(&mut lab, "g1", "high", 2, 1_000);
        for event in &events {
            let Some(plan) = step(&mut lab, event) else { continue };
            for eviction in plan.evictions.iter().filter(|eviction| matches!(&*eviction.action, "preempt" | "reclaim")) {
                let group = lab.world.tables.groups.table.find(&eviction.group).expect("a group");
                let counts = &lab.world.tables.groups.row(group).counts;
                prop_assert_eq!(counts.get(TaskState::Bound) + counts.get(TaskState::Running), 0, "{}", &eviction.group);
            }
        }
    }
}

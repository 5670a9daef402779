//! Queues that stand alike, where the one goes first whose next group asks for most.

use std::collections::BTreeSet;

use super::*;

fn lab(large_first: bool, nodes: &[i64]) -> Lab {
    let mut lab = Lab::with(Config { large_first, ..Config::default() }, nodes);
    for name in ["a", "b"] {
        lab.apply(Delta::QueueUpsert(QueueFacts { name: name.to_owned(), weight: 1, ..QueueFacts::default() }));
    }
    lab
}

fn waiting(lab: &mut Lab, queue: &str, name: &str, pods: u32, cpu: i64) {
    let queue = queue.to_owned();
    lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue, ..group(name, pods) })));
    (0..pods).for_each(|index| lab.pod(pod(name, index, cpu)));
}

/// The groups that got nodes in a cycle.
fn placed(lab: &mut Lab) -> BTreeSet<String> {
    lab.cycle().binds.iter().map(|bind| bind.group.to_string()).collect()
}

/// Pods are spread: the small one takes half of the large node where it goes first.
#[test]
fn the_larger_of_two_next_groups_goes_first() {
    for (large_first, wanted) in [(true, vec!["ns/large", "ns/small"]), (false, vec!["ns/small"])] {
        let mut lab = lab(large_first, &[2_000, 1_000, 1_000]);
        waiting(&mut lab, "a", "small", 1, 1_000);
        waiting(&mut lab, "b", "large", 1, 2_000);
        assert_eq!(Vec::from_iter(placed(&mut lab)), wanted);
    }
}

/// All pods of a gang count: it takes the two large nodes, and would have had room beside the single pod, too.
#[test]
fn a_gang_is_as_large_as_its_pods_together() {
    for (large_first, wanted) in [(true, vec!["ns/gang"]), (false, vec!["ns/gang", "ns/single"])] {
        let mut lab = lab(large_first, &[1_500, 1_500, 1_000]);
        waiting(&mut lab, "a", "single", 1, 1_500);
        waiting(&mut lab, "b", "gang", 2, 1_000);
        assert_eq!(Vec::from_iter(placed(&mut lab)), wanted);
    }
}

/// A group that finds no room gives way to the next of its queue, whose size counts then.
#[test]
fn what_finds_no_room_does_not_count_for_its_queue() {
    let mut lab = lab(true, &[2_000, 1_000, 1_000]);
    waiting(&mut lab, "a", "a-vast", 1, 9_000);
    waiting(&mut lab, "a", "small", 1, 1_000);
    waiting(&mut lab, "b", "large", 1, 2_000);
    assert_eq!(Vec::from_iter(placed(&mut lab)), ["ns/large", "ns/small"]);
}

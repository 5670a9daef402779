//! Which of the nodes that fit are filled first.

use super::*;

const GPU: &str = "nvidia.com/gpu";

fn scene(nodes: &[(&str, i64, i64)], placements: Placements) -> Fixture {
    let mut scene = Fixture::within(&[], &[("q", 1.0)], Constraints { placements, ..Constraints::default() });
    for (name, cores, gpus) in nodes {
        let mut allocatable: BTreeMap<String, i64> =
            [("cpu".to_owned(), cores * 1000), ("pods".to_owned(), 110)].into();
        if *gpus > 0 {
            allocatable.insert(GPU.to_owned(), *gpus);
        }
        let facts = NodeFacts { name: (*name).into(), allocatable, ..NodeFacts::default() };
        scene.pool.apply(&[node_delta("one", facts)]);
    }
    scene
}

fn spread() -> Placements {
    let spread: Placement = serde_json::from_value(serde_json::json!({"strategy": "spread"})).unwrap();
    Placements { by_pool: [("p".to_owned(), spread)].into(), ..Placements::default() }
}

/// How many jobs each node has, the most first.
fn counts(leased: &BTreeMap<JobId, String>) -> Vec<usize> {
    let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
    leased.values().for_each(|node| *nodes.entry(node).or_default() += 1);
    let mut counts: Vec<usize> = nodes.into_values().collect();
    counts.sort_unstable_by(|left, right| right.cmp(left));
    counts
}

#[test]
fn small_jobs_leave_whole_nodes_to_large_ones() {
    for (placements, of_small, of_large) in [(Placements::default(), vec![4, 2], 1), (spread(), vec![2, 2, 2], 0)] {
        let mut scene = scene(&[("a", 4, 0), ("b", 4, 0), ("c", 4, 0)], placements);
        for _ in 0..6 {
            scene.submit("q", "default", 1, 0, None);
        }
        assert_eq!(counts(&scene.round()), of_small);
        scene.submit("q", "default", 4, 0, None);
        assert_eq!(scene.round().len(), of_large);
    }
}

/// Where queues hold the same, the larger job has its node while that is whole: jobs are spread here, so the small one would
/// take half of it.
#[test]
fn of_queues_with_equal_shares_the_one_with_the_larger_job_goes_first() {
    let nodes = [("one", "a", 2), ("one", "b", 1), ("one", "c", 1)];
    let constraints = Constraints { placements: spread(), ..Constraints::default() };
    let mut scene = Fixture::within(&nodes, &[("early", 1.0), ("late", 1.0)], constraints);
    let small = scene.submit("early", "default", 1, 0, None);
    let large = scene.submit("late", "default", 2, 0, None);
    let leased = scene.round();
    assert_eq!(leased.keys().copied().collect::<Vec<_>>(), [small, large]);
    assert_eq!(leased[&large], "one/a");
}

/// Twenty jobs of a GPU leave seven of ten nodes to those of eight.
#[test]
fn nodes_with_gpus_are_filled_one_after_the_other() {
    let names: Vec<String> = (0..10).map(|index| format!("n{index}")).collect();
    let nodes: Vec<(&str, i64, i64)> = names.iter().map(|name| (name.as_str(), 64, 8)).collect();
    let mut scene = scene(&nodes, Placements::default());
    for _ in 0..20 {
        scene.submit_asking("q", "default", &[("cpu", 1000), (GPU, 1)], 0, None);
    }
    assert_eq!(counts(&scene.round()), [8, 8, 4]);
    for _ in 0..8 {
        scene.submit_asking("q", "default", &[("cpu", 8000), (GPU, 8)], 0, None);
    }
    assert_eq!(scene.round().len(), 7);
}

#[test]
fn gpus_are_kept_for_those_that_ask_for_them() {
    let mut scene = scene(&[("gpu", 4, 2), ("plain", 8, 0)], Placements::default());
    let training = scene.submit_asking("q", "default", &[("cpu", 1000), (GPU, 1)], 0, None);
    let plain = scene.submit("q", "default", 1, 0, None);
    let leased = scene.round();
    assert_eq!((leased[&training].as_str(), leased[&plain].as_str()), ("one/gpu", "one/plain"));
    let large = scene.submit("q", "default", 7, 0, None);
    let last = scene.submit("q", "default", 1, 1, None);
    let leased = scene.round();
    assert_eq!((leased[&large].as_str(), leased[&last].as_str()), ("one/plain", "one/gpu"), "idle nodes are of no use");
}

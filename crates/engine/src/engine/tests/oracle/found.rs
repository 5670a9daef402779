//! Worlds in which the oracle once found something.

use super::scene::{Amounts, GroupPlan, NodePlan, PodPlan, QueuePlan, Scene};
use super::{Setting, Trial};

/// Two queues below one that deserves what is said, and others.
fn siblings(above: Amounts, deserved: [Amounts; 2]) -> Vec<QueuePlan> {
    vec![
        QueuePlan::of(0, None, above, 1),
        QueuePlan::of(1, None, [0; 3], 1),
        QueuePlan::of(2, Some(0), deserved[0], 1),
        QueuePlan::of(3, Some(0), deserved[1], 1),
        QueuePlan::of(4, Some(1), [0; 3], 1),
    ]
}

/// q2 took back its memory from the pod of q3 that also held the cores; then what was lent to q2's third pod made it pay
/// for q3 to take the cores again, with memory that q2 could take back.
#[test]
fn what_is_lent_in_between_starts_no_circle() {
    let groups = vec![GroupPlan::of(2, 0, 0, &[[1, 1, 0]; 3]), GroupPlan::of(3, 0, 0, &[[1, 0, 0], [4, 1, 0]])];
    let nodes = vec![NodePlan::of([5, 2, 0], 110), NodePlan::of([2, 1, 0], 110)];
    let queues = siblings([0; 3], [[1, 2, 0], [0, 1, 0]]);
    Trial::play(Setting::Capacity, &Scene { nodes, queues, groups, lingers: 0 });
}

/// Each within its share, and the plugins that decide about victims know no shares.
#[test]
fn nobody_is_evicted_from_a_share_that_it_could_take_back() {
    let groups = vec![GroupPlan::of(2, 0, 0, &[[1, 0, 0]]), GroupPlan::of(3, 0, 0, &[[0, 1, 0]])];
    let queues = siblings([1, 1, 0], [[1, 0, 0], [0, 1, 0]]);
    Trial::play(Setting::Capacity, &Scene { nodes: vec![NodePlan::of([1, 1, 0], 1)], queues, groups, lingers: 0 });
}

/// The queues above say nothing of what they deserve, so that all they held counted as too much.
#[test]
fn queues_above_that_deserve_nothing_make_no_victims() {
    let groups = [(3, 2), (2, 1), (4, 1)].map(|(queue, memory)| GroupPlan::of(queue, 0, 0, &[[0, memory, 0]]));
    let mut queues = siblings([0; 3], [[0; 3], [0, 2, 0]]);
    queues[4].deserved = [1, 1, 0];
    let nodes = vec![NodePlan::of([5, 2, 1], 110)];
    Trial::play(Setting::Capacity, &Scene { nodes, queues, groups: groups.to_vec(), lingers: 0 });
}

/// One of the gang's pods asks for nothing, but for a place that the node has not left.
#[test]
fn no_room_is_made_for_a_gang_whose_idle_pods_find_none() {
    let groups = vec![GroupPlan::of(0, 0, 0, &[[0, 1, 0]]), GroupPlan::of(0, 2, 1, &[[0, 0, 0], [1, 0, 0]])];
    let queues = (0..3).map(|index| QueuePlan::of(index, None, [0; 3], 1)).collect();
    Trial::play(Setting::Shipped, &Scene { nodes: vec![NodePlan::of([3, 1, 0], 1)], queues, groups, lingers: 0 });
}

#[test]
fn what_asks_for_nothing_takes_nothing_of_a_share() {
    let groups = vec![
        GroupPlan::of(1, 0, 0, &[[0, 0, 0]]),
        GroupPlan::of(1, 0, 0, &[[0, 1, 0]]),
        GroupPlan::of(0, 0, 0, &[[0, 2, 0]]),
    ];
    let mut queues: Vec<QueuePlan> = (0..3).map(|index| QueuePlan::of(index, None, [0; 3], 1)).collect();
    queues[0].capability[1] = Some(1);
    Trial::play(Setting::Stock, &Scene { nodes: vec![NodePlan::of([1, 2, 0], 2)], queues, groups, lingers: 0 });
}

/// Shares followed what the promise's own victims still asked for: it was made within a share and not kept.
#[test]
fn a_fence_is_used_when_its_room_is_free() {
    let pods = |amounts| PodPlan { runs: None, ..PodPlan::of(amounts) };
    let half = GroupPlan {
        pods: vec![PodPlan { runs: Some(0), ..pods([0, 1, 0]) }, pods([0, 3, 0]), pods([0, 2, 0])],
        ..GroupPlan::of(1, 2, 0, &[])
    };
    let groups = vec![half, GroupPlan::of(1, 3, 1, &[[0, 1, 0]; 3]), GroupPlan::of(2, 0, 0, &[[0, 1, 0], [0, 2, 0]])];
    let nodes = vec![NodePlan::of([1, 1, 0], 110), NodePlan::of([3, 2, 0], 110), NodePlan::of([2, 5, 0], 110)];
    let queues =
        vec![QueuePlan::of(0, None, [0; 3], 1), QueuePlan::of(1, None, [0; 3], 3), QueuePlan::of(2, None, [0; 3], 1)];
    Trial::play(Setting::Shipped, &Scene { nodes, queues, groups, lingers: 1 });
}

/// A gang that has started is promised room for one pod more, and then all its pods are evicted.
#[test]
fn a_fence_falls_when_its_gang_has_lost_the_others() {
    let pods = |amounts| PodPlan { runs: None, ..PodPlan::of(amounts) };
    let half = GroupPlan {
        pods: vec![PodPlan { runs: Some(0), ..pods([0, 1, 0]) }, pods([0, 3, 0]), pods([3, 2, 0])],
        ..GroupPlan::of(1, 2, 0, &[])
    };
    let last = GroupPlan {
        pods: vec![PodPlan { runs: Some(1), ..pods([0, 1, 0]) }, pods([0, 2, 0])],
        ..GroupPlan::of(2, 0, 0, &[])
    };
    let groups = vec![half, GroupPlan::of(1, 3, 1, &[[0, 1, 0]; 4]), last];
    let nodes = vec![NodePlan::of([1, 1, 0], 110), NodePlan::of([3, 2, 0], 110), NodePlan::of([2, 5, 0], 110)];
    let queues =
        vec![QueuePlan::of(0, None, [0; 3], 1), QueuePlan::of(1, None, [0; 3], 3), QueuePlan::of(2, None, [0; 3], 1)];
    Trial::play(Setting::Shipped, &Scene { nodes, queues, groups, lingers: 1 });
}

/// One more pod of a gang is bound, and in the same cycle all others were to leave.
#[test]
fn a_gang_that_gets_a_pod_does_not_lose_its_minimum_at_once() {
    let groups = vec![
        GroupPlan::of(0, 0, 0, &[[0, 0, 0], [4, 0, 0]]),
        GroupPlan::of(2, 0, 0, &[[2, 0, 0]]),
        GroupPlan::of(1, 2, 0, &[[2, 0, 0]; 3]),
    ];
    let queues = [2, 1, 2].into_iter().enumerate();
    let queues = queues.map(|(index, weight)| QueuePlan::of(index, None, [0; 3], weight)).collect();
    let nodes = vec![NodePlan::of([6, 3, 0], 110), NodePlan::of([1, 1, 0], 110)];
    Trial::play(Setting::Shipped, &Scene { nodes, queues, groups, lingers: 0 });
}

/// q2's last pod takes memory that is its own from q4's; with it the gang has a pod more than its minimum, so that q4 now
/// gets the GPU that is its own. Nobody takes back what it lost.
#[test]
fn a_tier_before_the_shares_starts_no_circle() {
    let groups = vec![
        GroupPlan::of(2, 2, 0, &[[0, 1, 0], [0, 0, 1], [0, 3, 0]]),
        GroupPlan::of(4, 0, 0, &[[0, 0, 1], [0, 1, 0]]),
    ];
    let mut queues = siblings([0, 3, 0], [[0, 3, 0], [0; 3]]);
    queues[4].deserved = [0, 0, 1];
    Trial::play(Setting::Tiers, &Scene { nodes: vec![NodePlan::of([4, 3, 1], 110)], queues, groups, lingers: 0 });
}

/// q3 took cores beyond its share from a pod of q4 that was too large to come back; then q4 took them for a smaller one.
#[test]
fn what_is_owed_to_a_queue_is_not_taken_from_it() {
    let groups = vec![GroupPlan::of(3, 0, 0, &[[3, 1, 0]]), GroupPlan::of(4, 0, 0, &[[3, 0, 0], [2, 0, 0]])];
    let mut queues = siblings([0; 3], [[0; 3], [1, 1, 0]]);
    queues[1].deserved = [1, 0, 0];
    queues[4].deserved = [2, 0, 0];
    Trial::play(Setting::Capacity, &Scene { nodes: vec![NodePlan::of([4, 2, 2], 110)], queues, groups, lingers: 0 });
}

/// q0, above q3, deserves cores and says nothing of memory, so that all that q3 held of it counted as too much.
#[test]
fn queues_above_have_a_say_only_in_what_they_deserve() {
    let runs = PodPlan { runs: Some(1), ..PodPlan::of([0, 3, 0]) };
    let groups = vec![
        GroupPlan::of(3, 0, 0, &[[0, 3, 0]]),
        GroupPlan { pods: vec![runs, PodPlan::of([0, 2, 0])], ..GroupPlan::of(4, 0, 0, &[]) },
    ];
    let mut queues = siblings([1, 0, 0], [[0; 3], [0, 3, 0]]);
    queues[1].deserved = [1, 0, 0];
    queues[4].deserved = [1, 2, 0];
    let nodes = vec![NodePlan::of([1, 1, 0], 110), NodePlan::of([3, 3, 0], 110)];
    Trial::play(Setting::Tiers, &Scene { nodes, queues, groups, lingers: 0 });
}

/// By its share the gang may not have all its pods, and without counting that it starts with the small ones and finds no
/// room for the large one. q1 can't use what it deserves.
#[test]
fn what_is_lent_is_packed_too() {
    let selects = PodPlan { selects: true, ..PodPlan::of([2, 0, 0]) };
    let groups = vec![
        GroupPlan { pods: vec![selects], ..GroupPlan::of(1, 0, 0, &[]) },
        GroupPlan::of(0, 3, 0, &[[2, 0, 0], [4, 0, 0], [2, 0, 0]]),
    ];
    let queues = (0..3).map(|index| QueuePlan::of(index, None, [0; 3], 1)).collect();
    let nodes = vec![NodePlan::of([2, 3, 0], 110), NodePlan::of([3, 1, 0], 110), NodePlan::of([4, 3, 0], 110)];
    Trial::play(Setting::Shipped, &Scene { nodes, queues, groups, lingers: 0 });
}

/// q4 deserves all the memory and q1, above it, a third: what q4 takes beyond that q3 takes back.
#[test]
fn what_queues_above_are_not_entitled_to_is_not_kept() {
    let groups = vec![
        GroupPlan::of(3, 0, 0, &[[0, 1, 0]]),
        GroupPlan::of(4, 0, 0, &[[0, 3, 0]]),
        GroupPlan { priority: 1, ..GroupPlan::of(3, 0, 0, &[[0, 1, 1]]) },
    ];
    let mut queues = siblings([2, 0, 1], [[0; 3], [2, 1, 0]]);
    queues[1].deserved = [0, 1, 0];
    queues[4].deserved = [1, 3, 0];
    Trial::play(Setting::Tiers, &Scene { nodes: vec![NodePlan::of([2, 3, 1], 110)], queues, groups, lingers: 0 });
}

/// q2 and q3 deserve more cores together than there are; what q3 also held of memory, lent to it, made it pay each time.
#[test]
fn nobody_pays_in_cores_for_memory_that_was_lent() {
    let groups = vec![
        GroupPlan::of(2, 0, 0, &[[4, 0, 0]]),
        GroupPlan::of(3, 0, 0, &[[1, 0, 0]]),
        GroupPlan { priority: 1, ..GroupPlan::of(3, 0, 0, &[[1, 2, 0]]) },
    ];
    let queues = siblings([1, 0, 0], [[4, 2, 0], [3, 0, 0]]);
    Trial::play(Setting::Tiers, &Scene { nodes: vec![NodePlan::of([4, 2, 0], 110)], queues, groups, lingers: 0 });
}

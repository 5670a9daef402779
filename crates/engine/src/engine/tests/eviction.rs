//! Preempt, fences and what comes of them.

use super::*;
use crate::config::{Argument, PluginConfig};
use crate::plan::Eviction;

fn plugin(name: &str) -> PluginConfig {
    PluginConfig { name: name.to_owned(), switches: Switches::default(), arguments: Default::default() }
}

/// Enqueue, allocate, preempt, backfill with the plugins that protect and order victims.
pub(super) fn config() -> Config {
    Config {
        actions: vec![Action::Enqueue, Action::Allocate, Action::Preempt, Action::Backfill],
        tiers: vec![
            ["conformance", "gang", "priority"].map(plugin).to_vec(),
            ["predicates", "nodeorder", "pdb", "cdp"].map(plugin).to_vec(),
        ],
        ..Config::default()
    }
}

impl Lab {
    /// A world with the priority classes low (10) and high (100).
    fn preempting(nodes: &[i64]) -> Self {
        let mut lab = Self::with(config(), nodes);
        for (name, value) in [("low", 10), ("high", 100)] {
            lab.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
        }
        lab
    }

    /// An admitted group without pods.
    pub(super) fn group_of(&mut self, name: &str, class: &str, min_member: u32) {
        let facts = GroupFacts { priority_class: class.to_owned(), ..group(name, min_member) };
        self.apply(Delta::GroupUpsert(Box::new(facts)));
    }

    fn running(&mut self, name: &str, index: u32, cpu_milli: i64, node: &str) {
        self.pod(PodFacts {
            node: Some(node.into()),
            phase: PodPhase::Running,
            started: Some(TimeMs(900_000)),
            ..pod(name, index, cpu_milli)
        });
    }

    /// What the API server does with evictions: the pods end.
    pub(super) fn end(&mut self, evictions: &[Eviction]) {
        for eviction in evictions {
            self.world.evict_result(&eviction.uid, Ok(()), self.now);
            self.apply(Delta::TaskRemove(eviction.uid.clone()));
        }
    }

    fn evicted(plan: &Plan) -> Vec<&str> {
        let mut names: Vec<&str> = plan.evictions.iter().map(|eviction| eviction.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

#[test]
fn room_is_freed_kept_and_taken() {
    let mut lab = Lab::preempting(&[2_000]);
    lab.group_of("low", "low", 1);
    lab.running("low", 0, 1_000, "n0");
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    let plan = lab.cycle();
    assert_eq!(plan.binds, []);
    let [eviction] = &plan.evictions[..] else { panic!("{:?}", plan.evictions) };
    assert_eq!(eviction.name, "low-1", "of equal pods the later one");
    assert_eq!(eviction.beneficiary.as_deref(), Some("ns/high"));
    assert_eq!((eviction.action.as_str(), eviction.running, eviction.lost_core_ms), ("preempt", true, 100_000));
    assert_eq!(plan.pipelined.len(), 1);
    assert!(lab.why("high").starts_with("room for 1 pod is being freed on n0"), "{}", lab.why("high"));

    // As long as the victim ends, nothing more happens; and the room is nobody else's.
    lab.group_of("late", "high", 1);
    lab.pod(pod("late", 0, 1_000));
    let waiting = lab.cycle();
    assert_eq!(Lab::evicted(&waiting), Vec::<&str>::new(), "the last one is its gang's minimum");
    assert_eq!(waiting.binds, []);

    lab.end(&plan.evictions);
    let bound = lab.cycle();
    assert_eq!(
        bound.binds.iter().map(|bind| (bind.name.as_str(), bind.node.as_str())).collect::<Vec<_>>(),
        [("high-0", "n0")]
    );
}

#[test]
fn a_fence_falls_and_the_room_is_everybodys() {
    let mut lab = Lab::preempting(&[2_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 2_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    let plan = lab.cycle();
    assert_eq!(Lab::evicted(&plan), ["low-0"]);
    // The victim has 30 s to end, and the pod 60 s to take the room; but the victim never ends.
    let falls = lab.now.plus_ms(90_000);
    lab.now = falls.plus_ms(-1);
    assert_eq!(lab.cycle().next_wakeup, Some(falls));
    lab.now = falls;
    let plan = lab.cycle();
    assert_eq!((plan.evictions.len(), plan.pipelined.len()), (0, 0));
    assert!(lab.why("high").contains("did not become free in time"), "{}", lab.why("high"));
    // A minute later it may try again, on the room that is still being freed.
    lab.now = lab.now.plus_ms(60_000);
    let plan = lab.cycle();
    assert_eq!((plan.evictions.len(), plan.pipelined.len()), (0, 1));
}

#[test]
fn a_gang_gets_all_its_room_or_nobody_leaves() {
    for (min_member, expected) in [(3, vec!["low-0", "low-1", "low-2"]), (4, vec![])] {
        let mut lab = Lab::preempting(&[1_000, 1_000, 1_000]);
        lab.group_of("low", "low", 0);
        for index in 0..3 {
            lab.running("low", index, 1_000, &format!("n{index}"));
        }
        lab.cycle();
        lab.group_of("high", "high", min_member);
        for index in 0..min_member {
            lab.pod(pod("high", index, 1_000));
        }
        let before = lab.world.digest();
        let plan = lab.cycle();
        assert_eq!(Lab::evicted(&plan), expected, "{min_member}");
        if expected.is_empty() {
            assert_eq!(lab.world.digest(), before);
            continue;
        }
        // Two of three have ended: the gang does not start, and its room is kept.
        lab.end(&plan.evictions[..2]);
        lab.group_of("single", "low", 1);
        lab.pod(pod("single", 0, 1_000));
        assert_eq!(lab.cycle().binds, []);
        lab.end(&plan.evictions[2..]);
        assert_eq!(lab.binds(), ["high-0", "high-1", "high-2"]);
    }
}

#[test]
fn room_that_is_being_freed_anyway_costs_nobody() {
    let mut lab = Lab::preempting(&[2_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 1_000, "n0");
    lab.pod(PodFacts { terminating: true, node: Some("n0".into()), phase: PodPhase::Running, ..pod("low", 1, 1_000) });
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    let plan = lab.cycle();
    assert_eq!((Lab::evicted(&plan), plan.pipelined.len()), (vec![], 1));
    lab.apply(Delta::TaskRemove("uid-low-1".into()));
    assert_eq!(lab.binds(), ["high-0"]);
}

#[test]
fn pods_that_do_not_run_yet_leave_first() {
    let mut lab = Lab::preempting(&[2_000]);
    lab.group_of("low", "low", 0);
    // The later pod of the group would leave first, but it runs.
    lab.pod(PodFacts { node: Some("n0".into()), ..pod("low", 0, 1_000) });
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    let plan = lab.cycle();
    let [eviction] = &plan.evictions[..] else { panic!("{:?}", plan.evictions) };
    assert_eq!((eviction.name.as_str(), eviction.running, eviction.lost_core_ms), ("low-0", false, 0));
}

#[test]
fn nobody_leaves_in_vain() {
    // The host port is held by the second victim in order; the first one's leaving would be of no use.
    let port = HostPort { ip: String::new(), protocol: "TCP".to_owned(), port: 80 };
    let mut lab = Lab::preempting(&[4_000]);
    lab.group_of("low", "low", 0);
    let mut holder = pod("low", 0, 1_000);
    holder.template.host_ports.push(port.clone());
    lab.pod(PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..holder });
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    let mut wants = pod("high", 0, 1_000);
    wants.template.host_ports.push(port);
    lab.pod(wants);
    assert_eq!(Lab::evicted(&lab.cycle()), ["low-0"]);

    // Where the holder may not leave, nobody does.
    let mut lab = Lab::preempting(&[4_000]);
    lab.group_of("low", "low", 0);
    let mut holder = pod("low", 0, 1_000);
    holder.template.host_ports.push(HostPort { ip: String::new(), protocol: "TCP".to_owned(), port: 80 });
    let wants = PodFacts { template: holder.template.clone(), ..pod("high", 0, 1_000) };
    lab.pod(PodFacts { node: Some("n0".into()), preemptable: Some(false), phase: PodPhase::Running, ..holder });
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(wants);
    assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new());
}

#[test]
fn a_small_victim_is_spared_where_the_large_one_is_needed() {
    let mut lab = Lab::preempting(&[4_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 3_000, "n0");
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 3_000));
    assert_eq!(Lab::evicted(&lab.cycle()), ["low-0"]);
}

#[test]
fn a_failed_eviction_is_taken_back_with_the_fence() {
    let mut lab = Lab::preempting(&[1_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 1_000, "n0");
    lab.cycle();
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    let before = lab.world.digest();
    let plan = lab.cycle();
    assert_eq!(Lab::evicted(&plan), ["low-0"]);
    // The pod's next version does not show the eviction yet.
    lab.running("low", 0, 1_000, "n0");
    assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new());
    lab.world.evict_result(&"uid-low-0".into(), Err("too many requests"), lab.now);
    assert_eq!(lab.world.digest(), before);
    assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new(), "it is let alone for a while");
    lab.now = lab.now.plus_ms(10_001);
    assert_eq!(Lab::evicted(&lab.cycle()), ["low-0"]);
}

#[test]
fn a_pod_that_never_preempts_waits() {
    let mut lab = Lab::preempting(&[1_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(PodFacts { never_preempts: true, ..pod("high", 0, 1_000) });
    assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new());
}

#[test]
fn what_is_not_ours_or_needed_by_the_cluster_stays() {
    type Change = fn(&mut PodFacts);
    let changes: [(&str, Change); 4] = [
        ("another scheduler's", |pod| pod.mine = false),
        ("a DaemonSet's", |pod| pod.of_daemon_set = true),
        ("critical", |pod| pod.pod_priority_class = "system-node-critical".to_owned()),
        ("not preemptable", |pod| pod.preemptable = Some(false)),
    ];
    for (what, change) in changes {
        let mut lab = Lab::preempting(&[1_000]);
        lab.group_of("low", "low", 0);
        let mut facts = PodFacts { node: Some("n0".into()), phase: PodPhase::Running, ..pod("low", 0, 1_000) };
        change(&mut facts);
        lab.pod(facts);
        lab.group_of("high", "high", 1);
        lab.pod(pod("high", 0, 1_000));
        assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new(), "{what}");
    }
}

#[test]
fn the_cheapest_victims_where_topology_awareness_asks_for_them() {
    let mut config = config();
    let on = [
        ("enableTopologyAwarePreemption".to_owned(), Argument::Bool(true)),
        ("minCandidateNodesAbsolute".to_owned(), Argument::Int(3)),
    ];
    config.configurations.insert("preempt".to_owned(), on.into());
    let mut lab = Lab::with(config, &[4_000, 2_000, 2_000]);
    lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 100, global_default: false });
    lab.group_of("low", "", 0);
    let mut run = |index: u32, priority: i32, started: i64, node: &str| {
        let mut facts = pod("low", index, if node == "n0" { 4_000 } else { 2_000 });
        facts.template.priority = priority;
        lab.pod(PodFacts {
            node: Some(node.into()),
            phase: PodPhase::Running,
            started: Some(TimeMs(started)),
            ..facts
        });
    };
    run(0, 7, 100, "n0");
    run(1, 5, 200, "n1");
    run(2, 5, 300, "n2");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 2_000));
    assert_eq!(Lab::evicted(&lab.cycle()), ["low-2"], "the lowest priority, then who started last");
}

#[test]
fn a_queue_at_its_limit_frees_in_itself_no_more_than_it_may_hold() {
    let mut lab = Lab::preempting(&[10_000]);
    lab.queue("default", &[("cpu", 3_000)]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 1_000, "n0");
    lab.running("low", 1, 1_000, "n0");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 4_000));
    assert_eq!(Lab::evicted(&lab.cycle()), Vec::<&str>::new(), "it would not fit an empty queue");
    lab.pod(pod("high", 0, 2_500));
    let plan = lab.cycle();
    assert_eq!(Lab::evicted(&plan), ["low-0", "low-1"]);
    assert_eq!(lab.cycle().binds, [], "the queue still holds those that are leaving");
    lab.end(&plan.evictions);
    assert_eq!(lab.binds(), ["high-0"]);
}

#[test]
fn a_fenced_pod_starts_where_room_is_first() {
    let mut lab = Lab::preempting(&[1_000, 1_000]);
    lab.group_of("low", "low", 0);
    lab.running("low", 0, 1_000, "n0");
    lab.group_of("other", "high", 1);
    lab.running("other", 0, 1_000, "n1");
    lab.group_of("high", "high", 1);
    lab.pod(pod("high", 0, 1_000));
    assert_eq!(Lab::evicted(&lab.cycle()), ["low-0"]);
    lab.apply(Delta::TaskRemove("uid-other-0".into()));
    let plan = lab.cycle();
    assert_eq!(plan.binds[0].node, "n1");
}

#[test]
fn half_a_gang_is_taken_back_when_its_window_is_over() {
    // A DaemonSet's pods are nobody's victims, but a gang of them takes back its own.
    for of_daemon_set in [false, true] {
        let mut lab = Lab::with(config(), &[1_000, 1_000]);
        lab.group_of("gang", "", 2);
        (0..2).for_each(|index| lab.pod(PodFacts { of_daemon_set, ..pod("gang", index, 1_000) }));
        assert_eq!(lab.binds(), ["gang-0", "gang-1"]);
        lab.world.bind_result(&"uid-gang-0".into(), Ok(()), lab.now);
        lab.world.bind_result(&"uid-gang-1".into(), Err("no"), lab.now);
        // Its node is gone, so that it can't be finished.
        lab.apply(Delta::NodeRemove("n1".into()));
        lab.now = lab.now.plus_ms(1_000);
        let plan = lab.cycle();
        assert_eq!(plan.evictions, []);
        lab.now = lab.now.plus_ms(29_999);
        assert_eq!(lab.cycle().evictions, []);
        lab.now = lab.now.plus_ms(1);
        let plan = lab.cycle();
        assert_eq!(Lab::evicted(&plan), ["gang-0"]);
        assert_eq!(plan.evictions[0].beneficiary, None);
    }
}

#[test]
fn a_gang_of_which_any_pod_runs_is_not_taken_back() {
    let mut lab = Lab::with(config(), &[1_000]);
    lab.group_of("gang", "", 2);
    lab.running("gang", 0, 500, "n0");
    lab.pod(PodFacts { node: Some("n0".into()), ..pod("gang", 1, 500) });
    lab.apply(Delta::TaskRemove("uid-gang-0".into()));
    lab.running("gang", 2, 500, "n0");
    lab.apply(Delta::GroupUpsert(Box::new(group("gang", 3))));
    for _ in 0..3 {
        lab.now = lab.now.plus_ms(60_000);
        assert_eq!(lab.cycle().evictions, []);
    }
}

#[test]
fn a_node_with_enough_pods_on_their_way_is_passed_over() {
    let mut config = config();
    let two = [("maxBindingPerNode".to_owned(), Argument::Int(2))];
    config.configurations.insert("allocate".to_owned(), two.into());
    let mut lab = Lab::with(config, &[10_000]);
    for name in ["a", "b", "c"] {
        lab.gang(name, 1, 1, 1_000);
    }
    assert_eq!(lab.binds(), ["a-0", "b-0"]);
    assert!(lab.why("c").contains("on their way"), "{}", lab.why("c"));
    lab.world.bind_result(&"uid-a-0".into(), Ok(()), lab.now);
    assert_eq!(lab.binds(), ["c-0"]);
    lab.world.bind_result(&"uid-b-0".into(), Ok(()), lab.now);
    lab.world.bind_result(&"uid-c-0".into(), Ok(()), lab.now);
    lab.gang("gang", 4, 4, 1_000);
    assert_eq!(lab.binds().len(), 4, "members of a gang come together");
}

#[test]
fn a_pod_that_the_kubelet_refused_has_never_been() {
    let mut lab = Lab::with(config(), &[1_000]);
    lab.gang("g", 1, 1, 1_000);
    assert_eq!(lab.binds(), ["g-0"]);
    let refused = PodFacts { node: Some("n0".into()), phase: PodPhase::Failed, refused: true, ..pod("g", 0, 1_000) };
    lab.pod(refused);
    lab.pod(pod("g", 1, 1_000));
    assert_eq!(lab.binds(), ["g-1"]);
    let phase = lab.world.groups().find(|group| group.name == "g").map(|group| group.phase);
    assert_eq!(phase, Some(GroupPhase::Inqueue), "a refusal is no end");
}

/// Otherwise it would never have pods to preempt for.
#[test]
fn a_group_that_outranks_what_runs_is_admitted_to_a_full_queue() {
    for (priority, admitted) in [("high", vec!["ns/asks"]), ("", Vec::new())] {
        let mut lab = Lab::with(Config::default(), &[4_000]);
        lab.apply(Delta::PriorityClassUpsert { name: "high".to_owned(), value: 10, global_default: false });
        lab.gang("runs", 4, 4, 1_000);
        assert_eq!(lab.binds().len(), 4);
        lab.apply(Delta::GroupUpsert(Box::new(GroupFacts {
            priority_class: priority.to_owned(),
            min_resources: Some(resources(2_000)),
            status: GroupStatus::default(),
            ..group("asks", 2)
        })));
        assert_eq!(lab.cycle().admitted, admitted, "priority class {priority:?}");
    }
}

/// However many of its pods are there already.
#[test]
fn queues_give_back_what_a_group_needs_to_start_and_no_more() {
    let config =
        "actions: allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: capacity\n";
    for pods in [2, 3, 20] {
        let mut lab = Lab::of(config, &[20_000, 20_000]);
        for name in ["holder", "owner"] {
            let facts = QueueFacts { name: name.to_owned(), deserved: resources(20_000), ..QueueFacts::default() };
            lab.apply(Delta::QueueUpsert(facts));
        }
        for (name, queue, min_member) in [("held", "holder", 1), ("group", "owner", 2)] {
            let facts = GroupFacts { queue: queue.to_owned(), ..group(name, min_member) };
            lab.apply(Delta::GroupUpsert(Box::new(facts)));
        }
        (0..40).for_each(|index| lab.running("held", index, 1_000, ["n0", "n1"][index as usize / 20]));
        (0..pods).for_each(|index| lab.pod(pod("group", index, 1_000)));
        let plan = lab.cycle();
        assert_eq!((plan.evictions.len(), plan.pipelined.len()), (2, 2), "{pods} pods");
    }
}

/// What lies idle is nobody's loss, however much of it a queue holds.
#[test]
fn a_queue_that_holds_much_idle_cpu_gets_its_gpus_back() {
    let config =
        "actions: allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: capacity\n";
    let gpus = |cpu_milli: i64, gpus: i64| -> Resources {
        [("cpu".to_owned(), cpu_milli), ("nvidia.com/gpu".to_owned(), gpus)].into()
    };
    for (cpu_milli, victims) in [(100_000, 4), (28_000, 0)] {
        let mut lab = Lab::of(config, &[]);
        let mut facts = node("n0", cpu_milli);
        facts.allocatable.insert("nvidia.com/gpu".to_owned(), 8);
        lab.apply(Delta::NodeUpsert(facts));
        for (name, deserved) in [("a", gpus(10_000, 4)), ("b", gpus(40_000, 4))] {
            lab.apply(Delta::QueueUpsert(QueueFacts { name: name.to_owned(), deserved, ..QueueFacts::default() }));
        }
        for (name, queue, min_member) in [("batch", "a", 1), ("wants", "a", 1), ("holds", "b", 0)] {
            let facts = GroupFacts { queue: queue.to_owned(), ..group(name, min_member) };
            lab.apply(Delta::GroupUpsert(Box::new(facts)));
        }
        (0..20).for_each(|index| lab.running("batch", index, 1_000, "n0"));
        let with_gpus = |name: &str, index, count| {
            let requests = gpus(1_000, count);
            PodFacts { template: PodTemplate { requests, ..PodTemplate::default() }.into(), ..pod(name, index, 0) }
        };
        for index in 0..8 {
            let node = Some("n0".into());
            lab.pod(PodFacts { node, phase: PodPhase::Running, ..with_gpus("holds", index, 1) });
        }
        lab.pod(with_gpus("wants", 0, 4));
        assert_eq!(lab.cycle().evictions.len(), victims, "{cpu_milli}");
    }
}

/// What one queue could not make use of another one gets, where the first's trial had shown that nobody leaves.
#[test]
fn a_trial_that_is_taken_back_hides_no_victims() {
    let config =
        "actions: allocate, reclaim\ntiers:\n- plugins:\n  - name: gang\n  - name: predicates\n  - name: capacity\n";
    let mut lab = Lab::of(config, &[]);
    for name in ["n0", "n1"] {
        let labels = [("name".to_owned(), name.to_owned())].into();
        lab.apply(Delta::NodeUpsert(NodeFacts { labels, ..node(name, 2_000) }));
    }
    for (name, cpu_milli) in [("a", 3_000), ("b", 1_000), ("holder", 2_000)] {
        let deserved = [("cpu".to_owned(), cpu_milli)].into();
        let facts = QueueFacts { name: name.to_owned(), uid: name.to_owned(), deserved, ..QueueFacts::default() };
        lab.apply(Delta::QueueUpsert(facts));
    }
    let mut made = |name: &str, queue: &str, min_member| {
        let facts = GroupFacts { queue: queue.to_owned(), ..group(name, min_member) };
        lab.apply(Delta::GroupUpsert(Box::new(facts)));
    };
    made("held", "holder", 0);
    made("gang", "a", 3);
    made("single", "b", 1);
    for index in 0..4 {
        lab.running("held", index, 1_000, ["n0", "n1"][index as usize / 2]);
    }
    (0..3).for_each(|index| lab.pod(pod("gang", index, 1_000)));
    let mut single = pod("single", 0, 1_000);
    single.template.node_selector.insert("name".to_owned(), "n1".to_owned());
    lab.pod(single);
    let plan = lab.cycle();
    let [eviction] = &plan.evictions[..] else { panic!("{:?}", plan.evictions) };
    assert_eq!((eviction.node.as_str(), eviction.beneficiary.as_deref()), ("n1", Some("ns/single")));
}

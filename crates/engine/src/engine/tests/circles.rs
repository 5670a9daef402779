//! Nobody goes in circles: on every small world repeated cycles with evictions that happen at once come to rest, and
//! nobody is evicted twice for the same group.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::config::PluginConfig;

const CYCLES_MAX: usize = 24;

/// A pod as it is made again after an eviction.
#[derive(Debug, Clone)]
struct Made {
    group: String,
    cpu_milli: i64,
    memory: i64,
}

struct Circle {
    lab: Lab,
    pods: BTreeMap<String, Made>,
    serial: u32,
    /// Victim's group and index, and who got its room.
    seen: BTreeSet<(ObjectName, ObjectName)>,
}

fn with(dividing: &str, actions: Vec<Action>) -> Config {
    let plugin = |name: &str| PluginConfig {
        name: name.to_owned(),
        switches: Switches::default(),
        arguments: Default::default(),
    };
    Config {
        actions,
        tiers: vec![
            ["conformance", "gang", "priority"].map(plugin).to_vec(),
            ["predicates", dividing].map(plugin).to_vec(),
        ],
        ..Config::default()
    }
}

impl Circle {
    fn new(config: Config, nodes: &[(i64, i64)]) -> Self {
        let mut lab = Lab::with(config, &[]);
        for (index, (cpu, memory)) in nodes.iter().enumerate() {
            let mut facts = node(&format!("n{index}"), *cpu);
            facts.allocatable.insert("memory".to_owned(), *memory);
            lab.apply(Delta::NodeUpsert(facts));
        }
        Self { lab, pods: BTreeMap::new(), serial: 0, seen: BTreeSet::new() }
    }

    fn queue(&mut self, name: &str, deserved: &[(&str, i64)]) {
        self.lab.apply(Delta::QueueUpsert(QueueFacts {
            name: name.to_owned(),
            uid: name.to_owned(),
            weight: 1,
            deserved: deserved.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect(),
            ..QueueFacts::default()
        }));
    }

    fn group(&mut self, name: &str, queue: &str, min_member: u32, pods: &[(i64, i64)]) {
        self.lab.apply(Delta::GroupUpsert(Box::new(GroupFacts { queue: queue.to_owned(), ..group(name, min_member) })));
        for (cpu_milli, memory) in pods {
            self.make(Made { group: name.to_owned(), cpu_milli: *cpu_milli, memory: *memory });
        }
    }

    fn facts(&self, name: &str) -> PodFacts {
        let made = &self.pods[name];
        let mut facts = pod(&made.group, 0, made.cpu_milli);
        facts.uid = format!("uid-{name}").into();
        facts.name = name.to_owned();
        facts.template.requests.insert("memory".to_owned(), made.memory);
        facts
    }

    fn make(&mut self, made: Made) {
        self.serial += 1;
        let name = format!("{}-{}", made.group, self.serial);
        self.pods.insert(name.clone(), made);
        self.lab.pod(self.facts(&name));
    }

    /// One cycle, and all that comes of it at once. False if nothing was evicted or bound.
    fn step(&mut self) -> bool {
        let plan = self.lab.cycle();
        for bind in &plan.binds {
            self.lab.world.bind_result(&bind.uid, Ok(()), self.lab.now);
            let facts = PodFacts { node: Some(bind.node.clone()), phase: PodPhase::Running, ..self.facts(&bind.name) };
            self.lab.pod(facts);
        }
        self.lab.end(&plan.evictions);
        for eviction in &plan.evictions {
            let made = self.pods.remove(&eviction.name).expect("only pods that were made are evicted");
            let beneficiary = eviction.beneficiary.clone().expect("somebody gets the room");
            assert_ne!(beneficiary, eviction.group, "no group makes room for itself here");
            self.make(made);
        }
        for pair in
            plan.evictions.iter().map(|eviction| (eviction.group.clone(), eviction.beneficiary.clone().unwrap()))
        {
            let back = (pair.1.clone(), pair.0.clone());
            assert!(!self.seen.contains(&back), "{pair:?} took from each other");
            self.seen.insert(pair);
        }
        self.lab.now = self.lab.now.plus_ms(1_000);
        !plan.evictions.is_empty() || !plan.binds.is_empty() || !plan.pipelined.is_empty()
    }

    fn comes_to_rest(&mut self, what: &dyn std::fmt::Debug) {
        for _ in 0..CYCLES_MAX {
            if !self.step() {
                return;
            }
        }
        panic!("{what:?}: still moving after {CYCLES_MAX} cycles");
    }
}

/// All ways to give each queue one of the lists of pods.
fn worlds(queues: usize, lists: &[&'static [(i64, i64)]]) -> Vec<Vec<&'static [(i64, i64)]>> {
    let mut all = vec![Vec::new()];
    for _ in 0..queues {
        let longer =
            |world: &Vec<_>| lists.iter().map(|list| [world.clone(), vec![*list]].concat()).collect::<Vec<_>>();
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// Pods of cpu and memory, in parts of a node of 8 and 8.
const LISTS: &[&[(i64, i64)]] = &[
    &[],
    &[(2_000, 6), (2_000, 1)],
    &[(6_000, 2)],
    &[(1_000, 1), (1_000, 1), (1_000, 1), (1_000, 1), (1_000, 1), (1_000, 1)],
    &[(4_000, 4), (4_000, 4)],
    &[(3_000, 1), (1_000, 3), (1_000, 5)],
];

// INV-23
#[test]
fn queues_never_take_the_same_room_in_turns() {
    let shares: &[(&str, &[(&str, i64)])] =
        &[("proportion", &[]), ("capacity", &[("cpu", 4_000), ("memory", 4)]), ("capacity", &[("cpu", 3_000)])];
    // With much more cpu than is wanted, or little on each node, one dimension is short where another is not.
    let clusters: &[&[(i64, i64)]] = &[&[(8_000, 8)], &[(32_000, 8)], &[(6_000, 4), (6_000, 8)]];
    for ((dividing, deserved), nodes) in
        shares.iter().flat_map(|share| clusters.iter().map(move |nodes| (share, nodes)))
    {
        for actions in [
            vec![Action::Enqueue, Action::Allocate, Action::Reclaim],
            vec![Action::Enqueue, Action::Reclaim, Action::Allocate],
        ] {
            for world in worlds(3, LISTS) {
                let mut circle = Circle::new(with(dividing, actions.clone()), nodes);
                // Each queue's work comes when the others' already runs.
                for (index, pods) in world.iter().enumerate() {
                    circle.queue(&format!("q{index}"), deserved);
                    circle.group(&format!("g{index}"), &format!("q{index}"), 0, pods);
                    circle.step_until_quiet(&(dividing, deserved, nodes, &world));
                }
            }
        }
    }
}

impl Circle {
    fn step_until_quiet(&mut self, what: &dyn std::fmt::Debug) {
        // What was taken while fewer wanted room may rightly be taken back when more do.
        self.seen.clear();
        self.comes_to_rest(what);
    }
}

#[test]
fn the_two_queues_that_would_swap_for_ever_stop() {
    // By Volcano's rules a (2 cpu, 6 memory) and b (6 cpu, 2 memory) evict each other in every cycle.
    let actions = vec![Action::Enqueue, Action::Allocate, Action::Reclaim];
    let mut circle = Circle::new(with("capacity", actions), &[(8_000, 8)]);
    for queue in ["a", "b"] {
        circle.queue(queue, &[("cpu", 4_000), ("memory", 4)]);
    }
    circle.group("a", "a", 0, &[(2_000, 6)]);
    circle.group("b", "b", 0, &[(6_000, 2)]);
    circle.comes_to_rest(&"two queues that fit together");
    circle.group("c", "a", 0, &[(2_000, 1)]);
    circle.comes_to_rest(&"and one pod more");
}

// INV-23
#[test]
fn priorities_never_go_in_circles() {
    let actions = vec![Action::Enqueue, Action::Allocate, Action::Preempt];
    for world in worlds(3, LISTS) {
        let mut circle = Circle::new(with("nodeorder", actions.clone()), &[(8_000, 8)]);
        for (name, value) in [("p0", 1), ("p1", 2), ("p2", 3)] {
            circle.lab.apply(Delta::PriorityClassUpsert { name: name.to_owned(), value, global_default: false });
        }
        for (index, pods) in world.iter().enumerate() {
            let name = format!("g{index}");
            let facts = GroupFacts { priority_class: format!("p{index}"), ..group(&name, u32::from(index == 2)) };
            circle.lab.apply(Delta::GroupUpsert(Box::new(facts)));
            for (cpu_milli, memory) in *pods {
                circle.make(Made { group: name.clone(), cpu_milli: *cpu_milli, memory: *memory });
            }
            circle.step_until_quiet(&world);
        }
    }
}

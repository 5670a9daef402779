//! Armada's tables A and D (its own benchmarks): the same nodes, pods and outcomes, and what they cost it on a machine
//! like this one, CPU time, another day. Small pods ask for 1 cpu and 4Gi; a node holds 32.

use pumice_bench::figures::Figures;
use pumice_engine::{Delta, PodFacts, PodPhase, QueueFacts};

use crate::cost;
use crate::worlds::{Builder, Group, NOW, resources, template};

const POLICY: &str = "actions: allocate
tiers:
- plugins:
  - name: gang
  - name: drf
  - name: predicates
  - name: nodeorder
";

/// Name, nodes, pods of the gang, how many fit, Armada's milliseconds of CPU.
const GANGS: &[(&str, usize, u32, bool, f64)] = &[
    ("a/10x320", 1, 320, false, 0.65),
    ("a/100x3200", 100, 3_200, true, 69.0),
    ("a/100x6400", 100, 6_400, false, 79.0),
    ("a/1000x32000", 1_000, 32_000, true, 765.0),
    ("a/1000x64000", 1_000, 64_000, false, 725.0),
];

/// Name, nodes: 31 of 32 cpu are taken on each, and so many pods are placed.
const ONE_LEFT: &[(&str, usize, f64)] =
    &[("a/100_one_left", 100, 2.7), ("a/1000_one_left", 1_000, 36.9), ("a/10000_one_left", 10_000, 519.0)];

/// Nodes, pods in ten queues, Armada's milliseconds for the first round and for one with nothing to do.
const ROUNDS: &[(usize, u32, f64, f64)] =
    &[(10, 3_200, 21.0, 28.0), (100, 32_000, 340.0, 460.0), (1_000, 320_000, 4_200.0, 7_400.0)];

fn small(name: String, min: u32, pods: u32) -> Group {
    Group::new(name, min, pods, template(1_000, 4 << 10))
}

fn roomy(builder: &mut Builder, nodes: usize) {
    for index in 0..nodes {
        let mut facts = crate::worlds::node(index);
        facts.allocatable.insert("pods".to_owned(), 1_000);
        builder.apply(Delta::NodeUpsert(facts));
    }
}

pub fn tables(figures: &mut Figures) {
    for (name, nodes, pods, fits, theirs) in GANGS {
        let mut builder = Builder::new(POLICY, 0);
        roomy(&mut builder, *nodes);
        builder.group(&small("gang".to_owned(), *pods, *pods));
        let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
        assert_eq!(plan.binds.len(), if *fits { *pods as usize } else { 0 });
        compare(figures, name, cost.cpu, *theirs);
    }
    for (name, nodes, theirs) in ONE_LEFT {
        let mut builder = Builder::new(POLICY, 0);
        roomy(&mut builder, *nodes);
        for node in 0..*nodes {
            builder.apply(Delta::TaskUpsert(Box::new(PodFacts {
                uid: format!("other-{node}").into(),
                namespace: "ns".to_owned(),
                name: format!("other-{node}"),
                node: Some(format!("n{node:05}").into()),
                phase: PodPhase::Running,
                template: pumice_engine::PodTemplate { requests: resources(31_000, 0, 0), ..Default::default() }.into(),
                ..PodFacts::default()
            })));
        }
        let pods = u32::try_from(*nodes).unwrap_or(u32::MAX);
        builder.group(&small("gang".to_owned(), 1, pods));
        let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
        assert_eq!(plan.binds.len(), *nodes);
        compare(figures, name, cost.cpu, *theirs);
    }
    for (nodes, pods, fill, steady) in ROUNDS {
        let mut builder = Builder::new(POLICY, 0);
        roomy(&mut builder, *nodes);
        for queue in 0..10 {
            let name = format!("q{queue}");
            builder.apply(Delta::QueueUpsert(QueueFacts { name: name.clone(), weight: 1, ..QueueFacts::default() }));
            for group in 0..10 {
                let mut group = small(format!("{name}-{group}"), 1, pods / 100);
                group.queue.clone_from(&name);
                builder.group(&group);
            }
        }
        let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
        assert_eq!(plan.binds.len(), nodes * 32);
        compare(figures, &format!("d/{nodes}_fill"), cost.cpu, *fill);
        let (plan, cost) = cost::of(|| builder.world.cycle(NOW));
        assert!(plan.binds.is_empty() && plan.evictions.is_empty());
        compare(figures, &format!("d/{nodes}_steady"), cost.cpu, *steady);
    }
}

fn compare(figures: &mut Figures, name: &str, cpu: f64, theirs_ms: f64) {
    figures.add(&format!("armada/{name}/cpu"), cpu * 1e3, "ms", 1);
    figures.add(&format!("armada/{name}/less_cpu"), theirs_ms / (cpu * 1e3), "x", 1);
}

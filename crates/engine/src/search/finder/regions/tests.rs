//! The search among regions finds what a scan finds, whatever happens to the nodes between two questions.

use std::cmp::Reverse;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::facts::{Delta, NodeFacts, NodeName, PodFacts, PodPhase, QueueFacts, Taint, TaintEffect};
use crate::ids::{ClassId, NodeId, TaskId};
use crate::plugin::Registry;
use crate::policy::Policy;
use crate::search::finder::{Finder, Search};
use crate::world::tables::Tables;
use crate::world::tasks::TaskState;
use crate::{Config, Resources};

const GI: i64 = 1 << 30;

/// Which scores, and how much they count.
const SCORES: &[&str] = &[
    "  - name: nodeorder",
    "  - name: nodeorder\n    arguments: {leastrequested.weight: 0, mostrequested.weight: 3}",
    "  - name: nodeorder\n    arguments: {leastrequested.weight: 0, balancedresource.weight: 5}",
    "  - name: binpack\n    arguments: {binpack.resources: nvidia.com/gpu, binpack.resources.nvidia.com/gpu: 4}",
    "  - name: nodeorder\n    arguments: {balancedresource.weight: 0}\n  - name: binpack\n    arguments: {binpack.weight: 2}",
    "  - name: nodeorder\n    arguments: {leastrequested.weight: 0}\n  - name: binpack\n    arguments: {binpack.spared: nvidia.com/gpu}",
    "  - name: conformance",
];

#[derive(Debug, Clone)]
enum Step {
    /// A pending pod is given the best node, or any, for a time.
    Place(Index, Option<Index>),
    TakeBack(Index),
    /// A node changes: as a new one would be.
    Node(Index, NodeFacts),
    RemoveNode(Index),
}

fn resources(cpu: i64, memory: i64, gpu: i64) -> Resources {
    let amounts = [("cpu", cpu), ("memory", memory), ("nvidia.com/gpu", gpu)];
    amounts.into_iter().filter(|(_, amount)| *amount > 0).map(|(name, amount)| (name.to_owned(), amount)).collect()
}

fn some_node() -> impl Strategy<Value = NodeFacts> {
    let size = prop_oneof![
        6 => Just((32_000, 256 * GI, 0)),
        3 => Just((64_000, 512 * GI, 8)),
        1 => (0..5_000_i64, 0..8 * GI, 0..3_i64),
    ];
    (size, prop_oneof![9 => Just(110), 1 => 0..3_i64], 0..20_u32, 0..8_u32).prop_map(
        |((cpu, memory, gpu), pods, taint, image)| {
            let mut facts = NodeFacts { allocatable: resources(cpu, memory, gpu), ..NodeFacts::default() };
            facts.allocatable.insert("pods".to_owned(), pods);
            let effect = [TaintEffect::NoSchedule, TaintEffect::NoExecute].get(taint as usize).copied();
            facts.taints.extend(effect.map(|effect| Taint {
                key: "dedicated".to_owned(),
                value: String::new(),
                effect,
            }));
            if image > 0 {
                facts.images.insert("model:1".to_owned(), i64::from(image) * (100 << 20));
            }
            facts
        },
    )
}

fn some_template() -> impl Strategy<Value = PodFacts> {
    let memory = prop_oneof![Just(0), (0..64_i64).prop_map(|gib| gib * GI), 0..9 * GI];
    let cpu = prop_oneof![1 => Just(0), 4 => 0..9_000_i64, 1 => Just(40_000)];
    (cpu, memory, prop_oneof![4 => Just(0), 1 => 0..5_i64], any::<bool>()).prop_map(|(cpu, memory, gpu, image)| {
        let mut facts = PodFacts::default();
        facts.template.requests = resources(cpu, memory, gpu);
        if image {
            facts.template.images.push("model:1".to_owned());
        }
        facts
    })
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (any::<Index>(), proptest::option::weighted(0.4, any::<Index>())).prop_map(|(pod, on)| Step::Place(pod, on)),
        4 => any::<Index>().prop_map(Step::TakeBack),
        1 => (any::<Index>(), some_node()).prop_map(|(which, facts)| Step::Node(which, facts)),
        1 => any::<Index>().prop_map(Step::RemoveNode),
    ]
}

/// What questions are asked of.
struct Lab {
    tables: Tables,
    policy: Policy,
    finder: Finder,
}

fn lab(scores: &str, nodes: &[NodeFacts], pods: &[PodFacts], running: &[(Index, Index)]) -> Lab {
    let text = format!("actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n{scores}\n");
    let (config, _) = Config::parse(&text).unwrap();
    let mut tables = Tables::new("default");
    let policy = Policy::new(&config, &Registry::default());
    tables.apply(&Delta::QueueUpsert(QueueFacts { name: "default".into(), weight: 1, ..QueueFacts::default() }));
    for (index, facts) in nodes.iter().enumerate() {
        tables.apply(&Delta::NodeUpsert(NodeFacts { name: format!("n{index}").into(), ..facts.clone() }));
    }
    let mut add = |uid: String, facts: &PodFacts, node: Option<NodeName>| {
        let phase = if node.is_some() { PodPhase::Running } else { PodPhase::Pending };
        let (name, namespace) = (uid.clone(), "ns".to_owned());
        tables.apply(&Delta::TaskUpsert(Box::new(PodFacts {
            uid: uid.into(),
            name,
            namespace,
            node,
            phase,
            mine: true,
            ..facts.clone()
        })));
    };
    for (index, facts) in pods.iter().enumerate() {
        add(format!("p{index}"), facts, None);
    }
    for (index, (pod, on)) in running.iter().enumerate() {
        add(format!("r{index}"), pod.get(pods), Some(format!("n{}", on.index(nodes.len())).into()));
    }
    Lab { tables, policy, finder: Finder::default() }
}

/// The best node by the index that all classes share.
fn among_regions(finder: &mut Finder, tables: &Tables, policy: &Policy, class: ClassId) -> Option<Option<NodeId>> {
    finder.note(tables, class);
    finder.search_regions(tables, policy, class, true)
}

/// The best node by looking at all.
fn scan(tables: &Tables, policy: &Policy, class: ClassId) -> Option<NodeId> {
    let row = tables.classes.row(class);
    let fits = |node: &NodeId| {
        policy.check_facts(tables, row, *node).is_none()
            && tables.nodes.fits(*node, &row.demand)
            && policy.check_use(tables, row, *node).is_none()
    };
    let nodes: Vec<NodeId> = tables.nodes.ids().filter(fits).collect();
    let mut scores = vec![0; nodes.len()];
    policy.score_nodes(tables, row, &nodes, &mut scores);
    nodes.into_iter().zip(scores).max_by_key(|(node, score)| (*score, Reverse(*node))).map(|(node, _)| node)
}

fn step(tables: &mut Tables, step: &Step, best: impl FnOnce(&Tables, TaskId) -> Option<NodeId>) {
    let tasks = |tables: &Tables, placed: bool| -> Vec<TaskId> {
        let tasks = tables.tasks.iter().filter(|(_, task)| (task.state == TaskState::Allocated) == placed);
        tasks.filter(|(_, task)| task.uid.starts_with('p')).map(|(id, _)| id).collect()
    };
    let nodes: Vec<NodeId> = tables.nodes.ids().collect();
    match step {
        Step::Place(pod, on) => {
            let pending = tasks(tables, false);
            if pending.is_empty() {
                return;
            }
            let task = pending[pod.index(pending.len())];
            let node = match on {
                Some(on) if !nodes.is_empty() => Some(nodes[on.index(nodes.len())]),
                _ => best(tables, task),
            };
            if let Some(node) = node {
                tables.assign(task, node);
            }
        }
        Step::TakeBack(pod) => {
            let placed = tasks(tables, true);
            if !placed.is_empty() {
                tables.move_task(placed[pod.index(placed.len())], TaskState::Pending, None);
            }
        }
        Step::Node(which, facts) => {
            let name = format!("n{}", which.index(nodes.len() + 2)).into();
            tables.apply(&Delta::NodeUpsert(NodeFacts { name, ..facts.clone() }));
        }
        Step::RemoveNode(which) => {
            if !nodes.is_empty() {
                let name = tables.node_name(nodes[which.index(nodes.len())]).into();
                tables.apply(&Delta::NodeRemove(name));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn regions_find_what_a_scan_finds(
        scores in proptest::sample::select(SCORES),
        nodes in proptest::collection::vec(some_node(), 1..300),
        pods in proptest::collection::vec(some_template(), 1..40),
        running in proptest::collection::vec((any::<Index>(), any::<Index>()), 0..600),
        steps in proptest::collection::vec(some_step(), 0..80),
    ) {
        let Lab { mut tables, policy, mut finder } = lab(scores, &nodes, &pods, &running);
        for event in &steps {
            step(&mut tables, event, |tables, task| {
                let class = tables.task(task).class;
                let found = among_regions(&mut finder, tables, &policy, class);
                let scanned = scan(tables, &policy, class);
                assert_eq!(found, Some(scanned));
                let again = [(); 2].map(|()| finder.best(tables, &policy, Search::of_class(class)));
                assert_eq!(again, [scanned; 2]);
                assert_eq!(among_regions(&mut Finder::default(), tables, &policy, class), Some(scanned));
                scanned
            });
        }
    }
}

/// Many classes in turns, more changes than the tree follows: the index is built again on the way.
#[test]
fn rebuilding_changes_no_answer() {
    let mut node = NodeFacts { allocatable: resources(32_000, 256 * GI, 0), ..NodeFacts::default() };
    node.allocatable.insert("pods".to_owned(), 110);
    let pods: Vec<PodFacts> = (0..900_i64)
        .map(|index| {
            let mut facts = PodFacts::default();
            facts.template.requests = resources(100 + 37 * (index * 7_919 % 61), (64 + index * 31 % 997) << 20, 0);
            facts
        })
        .collect();
    let Lab { mut tables, policy, mut finder } = lab(SCORES[0], &vec![node; 300], &pods, &[]);
    let tasks: Vec<TaskId> = tables.tasks.iter().map(|(id, _)| id).collect();
    for task in tasks {
        let class = tables.task(task).class;
        let scanned = scan(&tables, &policy, class);
        assert_eq!(among_regions(&mut finder, &tables, &policy, class), Some(scanned));
        tables.assign(task, scanned.expect("there is room"));
    }
}

/// Whether a group fits is asked before its pod is placed: what is known is not searched for twice.
#[test]
fn an_answer_is_good_until_a_node_changes() {
    let mut node = NodeFacts { allocatable: resources(4_000, 8 * GI, 0), ..NodeFacts::default() };
    node.allocatable.insert("pods".to_owned(), 110);
    let mut pod = PodFacts::default();
    pod.template.requests = resources(1_000, GI, 0);
    let nodes = vec![node; 2];
    let Lab { mut tables, policy, mut finder } = lab(SCORES[0], &nodes, &[pod], &[]);
    let task = tables.tasks.iter().next().map(|(id, _)| id).unwrap();
    let class = tables.task(task).class;
    let best = finder.best(&tables, &policy, Search::of_class(class));
    assert!(best.is_some());
    let known = |finder: &mut Finder, tables: &Tables| finder.note(tables, class).answer(tables);
    assert_eq!(known(&mut finder, &tables), Some(best));
    tables.assign(task, best.unwrap());
    assert_eq!(known(&mut finder, &tables), None, "its use has changed");
    finder.best(&tables, &policy, Search::of_class(class));
    assert!(known(&mut finder, &tables).is_some());
    tables.apply(&Delta::NodeUpsert(NodeFacts { name: "n0".into(), unschedulable: true, ..nodes[0].clone() }));
    assert_eq!(known(&mut finder, &tables), None, "its facts have changed");
}

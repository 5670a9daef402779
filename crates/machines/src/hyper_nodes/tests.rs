//! Networks told by labels, and counts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use pumice_api::topology::{HyperNode, MemberType};
use serde_json::{Value, json};

use super::{Discovery, HyperNodeEffect, Labels, NetworkView, pattern, step};

const TWO_TIERS: &str = "
networkTopologyDiscovery:
- source: roce
  enabled: false
- source: label
  enabled: true
  config:
    networkTopologyTypes:
      Net-A:
      - nodeLabel: spine
      - nodeLabel: leaf
      - nodeLabel: kubernetes.io/hostname
";

/// Nodes, HyperNodes, and an API server that does what is asked.
#[derive(Default)]
struct World {
    discovery: Discovery,
    nodes: BTreeMap<String, Labels>,
    hyper_nodes: BTreeMap<String, HyperNode>,
    made: u32,
}

impl World {
    fn new(configuration: &str) -> Self {
        let (discovery, problems) = Discovery::parse(configuration).unwrap();
        assert_eq!(problems, Vec::<String>::new());
        Self { discovery, ..Self::default() }
    }

    fn node(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.nodes.insert(name.to_owned(), labels);
    }

    fn by_hand(&mut self, name: &str, spec: Value) {
        let hyper_node = json!({"metadata": {"name": name}, "spec": spec});
        self.hyper_nodes.insert(name.to_owned(), serde_json::from_value(hyper_node).unwrap());
    }

    fn step(&self) -> Vec<HyperNodeEffect> {
        let hyper_nodes = self.hyper_nodes.iter().map(|(name, hyper_node)| (name.clone(), hyper_node)).collect();
        step(&NetworkView { discovery: &self.discovery, nodes: &self.nodes, hyper_nodes: &hyper_nodes })
    }

    fn apply(&mut self, effect: HyperNodeEffect) {
        match effect {
            HyperNodeEffect::Create(mut hyper_node) => {
                self.made += 1;
                hyper_node.metadata.uid = Some(format!("u{}", self.made));
                let name = hyper_node.metadata.name.clone().unwrap();
                assert_eq!(self.hyper_nodes.insert(name, *hyper_node), None, "it was there");
            }
            HyperNodeEffect::Update(hyper_node) => {
                let held = self.hyper_nodes.get_mut(hyper_node.metadata.name.as_deref().unwrap()).unwrap();
                held.spec = hyper_node.spec;
                held.metadata.labels.get_or_insert_default().extend(hyper_node.metadata.labels.unwrap());
            }
            HyperNodeEffect::Delete { name, uid } => {
                assert_eq!(self.hyper_nodes.remove(&name).unwrap().metadata.uid.unwrap_or_default(), uid);
            }
            HyperNodeEffect::WriteCount { name, count } => {
                self.hyper_nodes.get_mut(&name).unwrap().status.node_count = count;
            }
        }
    }

    /// Steps until nothing is left to do, twice at most.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.step().into_iter().for_each(|effect| self.apply(effect));
        }
        assert_eq!(self.step(), Vec::new());
    }

    /// Each HyperNode that was discovered.
    fn network(&self) -> Vec<Line> {
        let told = |hyper_node: &HyperNode| Line {
            tier: hyper_node.spec.tier,
            value: hyper_node.metadata.labels.as_ref().unwrap()[&hyper_node.spec.tier_name].clone(),
            members: hyper_node.spec.members.iter().map(|member| self.told(member)).collect(),
            count: hyper_node.status.node_count,
        };
        let discovered = self.hyper_nodes.iter().filter(|(name, _)| name.starts_with("hypernode-neta-tier"));
        let mut network: Vec<_> = discovered.map(|(_, hyper_node)| told(hyper_node)).collect();
        network.sort();
        network
    }

    /// A node's name, or the value that a HyperNode stands for.
    fn told(&self, member: &pumice_api::topology::Member) -> String {
        let name = &member.selector.exact_match.as_ref().unwrap().name;
        if member.type_ == Some(MemberType::Node) {
            return name.clone();
        }
        let below = &self.hyper_nodes[name];
        below.metadata.labels.as_ref().unwrap()[&below.spec.tier_name].clone()
    }
}

/// What a HyperNode says.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    tier: i64,
    /// Of the label of the tier.
    value: String,
    members: Vec<String>,
    count: i64,
}

fn line(tier: i64, value: &str, members: &[&str]) -> Line {
    let members: Vec<String> = members.iter().map(|member| (*member).to_owned()).collect();
    Line { tier, value: value.to_owned(), count: members.len() as i64, members }
}

#[test]
fn nodes_of_equal_labels_are_one_part_of_the_network() {
    let mut world = World::new(TWO_TIERS);
    world.node("n1", &[("leaf", "l1"), ("spine", "s1")]);
    world.node("n2", &[("leaf", "l1"), ("spine", "s1"), ("other", "x")]);
    world.node("n3", &[("leaf", "l2"), ("spine", "s1")]);
    world.node("n4", &[("leaf", "l3")]);
    world.node("n5", &[("spine", "s1")]);
    world.settle();
    let network = [line(1, "l1", &["n1", "n2"]), line(1, "l2", &["n3"]), line(1, "l3", &["n4"])];
    assert_eq!(world.network()[..3], network);
    let spine = &world.network()[3];
    assert_eq!((spine.tier, spine.value.as_str(), spine.members.len(), spine.count), (2, "s1", 2, 2));

    // A node moves, another goes: names stay, and what nothing stands behind goes.
    let names: Vec<String> = world.hyper_nodes.keys().cloned().collect();
    world.node("n3", &[("leaf", "l1"), ("spine", "s1")]);
    world.nodes.remove("n4");
    world.settle();
    assert_eq!(world.network(), [line(1, "l1", &["n1", "n2", "n3"]), line(2, "s1", &["l1"])]);
    assert!(world.hyper_nodes.keys().all(|name| names.contains(name)));
}

#[test]
fn what_people_made_is_counted_and_left_alone() {
    let mut world = World::new(TWO_TIERS);
    world.node("gpu-1", &[("rack", "a")]);
    world.node("gpu-2", &[("rack", "b")]);
    world.node("cpu-1", &[("rack", "a")]);
    let member = |type_: &str, selector: Value| json!({"type": type_, "selector": selector});
    let exact = |name: &str| json!({"exactMatch": {"name": name}});
    let cases = [
        (json!([member("Node", exact("gone")), member("Node", exact("gpu-1")), member("Node", exact("gpu-1"))]), 2),
        (json!([member("Node", json!({"regexMatch": {"pattern": "^gpu-"}})), member("Node", exact("gpu-1"))]), 2),
        (json!([member("Node", json!({"regexMatch": {"pattern": "("}}))]), 0),
        (json!([member("Node", json!({"labelMatch": {"matchLabels": {"rack": "a"}}}))]), 2),
        (
            json!([member(
                "Node",
                json!({"labelMatch": {"matchExpressions": [{"key": "rack", "operator": "Maybe"}]}})
            )]),
            0,
        ),
        (json!([member("HyperNode", json!({"regexMatch": {"pattern": "^hand-[0-2]$"}}))]), 3),
    ];
    for (index, (members, _)) in cases.iter().enumerate() {
        world.by_hand(&format!("hand-{index}"), json!({"tier": 1, "members": members}));
    }
    let specs: Vec<_> = world.hyper_nodes.values().map(|hyper_node| hyper_node.spec.clone()).collect();
    world.settle();
    let told: Vec<i64> = world.hyper_nodes.values().map(|hyper_node| hyper_node.status.node_count).collect();
    assert_eq!(told, cases.map(|(_, count)| count));
    assert_eq!(world.hyper_nodes.values().map(|hyper_node| hyper_node.spec.clone()).collect::<Vec<_>>(), specs);
    // Nodes that come are counted without anything happening to the HyperNode.
    world.node("gpu-3", &[("rack", "a")]);
    world.settle();
    let count = |name: &str| world.hyper_nodes[name].status.node_count;
    assert_eq!((count("hand-0"), count("hand-1"), count("hand-3")), (2, 3, 3));
}

#[test]
fn discovered_ones_are_repaired_and_keep_foreign_labels() {
    let mut world = World::new(TWO_TIERS);
    world.node("n1", &[("leaf", "l1")]);
    world.settle();
    let name = world.hyper_nodes.keys().next().unwrap().clone();
    let held = world.hyper_nodes.get_mut(&name).unwrap();
    held.spec.members.clear();
    held.metadata.labels.get_or_insert_default().insert("mine".into(), "yes".into());
    world.settle();
    assert_eq!(world.network(), [line(1, "l1", &["n1"])]);
    assert_eq!(world.hyper_nodes[&name].metadata.labels.as_ref().unwrap()["mine"], "yes");
    // A name that somebody else has is not taken.
    world.hyper_nodes.remove(&name);
    world.by_hand(&name, json!({"tier": 7, "members": [{"type": "Node", "selector": {"exactMatch": {"name": "x"}}}]}));
    world.settle();
    assert_eq!(world.hyper_nodes.len(), 2);
    assert_eq!(world.hyper_nodes[&name].spec.tier, 7);
}

#[test]
fn networks_that_can_not_be_read_are_left_as_they_are() {
    let mut world = World::new(TWO_TIERS);
    world.node("n1", &[("leaf", "l1")]);
    world.settle();
    let (broken, problems) = Discovery::parse(&TWO_TIERS.replace("spine", "leaf")).unwrap();
    assert_eq!(problems, ["network \"Net-A\" is ignored: label \"leaf\" is there twice"]);
    world.discovery = broken;
    assert_eq!(world.step(), Vec::new());
    world.discovery = Discovery::default();
    assert_eq!(world.step(), Vec::new(), "a source that is off deletes nothing");
    world.discovery = Discovery::parse(&TWO_TIERS.replace("Net-A", "b")).unwrap().0;
    world.settle();
    assert!(world.hyper_nodes.keys().all(|name| name.starts_with("hypernode-b-tier1-")), "a network that is gone");
}

#[test]
fn configurations_are_read_as_volcano_reads_them() {
    let types = |text: &str| Discovery::parse(text).map(|(discovery, problems)| (discovery.label, problems));
    let source = |types: &str| {
        format!(
            "networkTopologyDiscovery: [{{source: label, enabled: true, config: {{networkTopologyTypes: {types}}}}}]"
        )
    };
    assert_eq!(types("").unwrap(), (None, Vec::new()));
    assert_eq!(types("other: 1").unwrap(), (None, Vec::new()));
    let cases = [
        ("{topologyA2: [{nodeLabel: volcano.sh/tor}, {nodeLabel: kubernetes.io/hostname}]}", Some("topologya2"), None),
        ("{alone: [{nodeLabel: kubernetes.io/hostname}]}", Some("alone"), None),
        ("{abcdefghijklmnopqrstu: [{nodeLabel: a}, {nodeLabel: b}]}", None, Some("longer than 20")),
        ("{x: [{nodeLabel: a b}, {nodeLabel: b}]}", None, Some("label \"a b\": ")),
        ("{'--': [{nodeLabel: a}, {nodeLabel: b}]}", None, Some("needs letters or digits")),
    ];
    for (given, name, problem) in cases {
        let (label, problems) = types(&source(given)).unwrap();
        let label = label.unwrap();
        assert_eq!(label.types.keys().next().map(String::as_str), name, "{given}");
        assert_eq!(problems.is_empty(), problem.is_none(), "{problems:?}");
        assert!(problem.is_none_or(|problem| problems[0].contains(problem)), "{problems:?}");
    }
    let off = source("{}").replace("true", "false");
    assert_eq!(types(&off).unwrap().0, None);
    let ufm = source("{}").replace("source: label", "source: ufm");
    assert_eq!(types(&ufm).unwrap(), (None, vec!["source \"ufm\" is not supported; use label".to_owned()]));
    assert!(types("networkTopologyDiscovery: 7").unwrap_err().to_string().contains("can't be read"));
}

#[test]
fn patterns_take_linear_time_and_say_what_is_wrong() {
    assert!(pattern("^a+$").unwrap().is_match(&"a".repeat(10_000)));
    assert!(pattern("(a+)+$").unwrap().is_match(&"a".repeat(10_000)));
    let cases = [
        ("", "is required"),
        ("(", "error parsing regexp: unclosed group"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("(((a{100}){100}){100}){100}", "exceeds size limit"),
    ];
    for (text, wanted) in cases {
        let error = pattern(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    assert!(pattern(&"a".repeat(1025)).unwrap_err().to_string().contains("1025 bytes"));
}

proptest! {
    #[test]
    fn every_look_comes_to_the_same_network(
        nodes in prop::collection::btree_map("n[0-9]{1,2}", (prop::option::of("[a-c]"), prop::option::of("[x-z]")), 0..20),
        left in prop::collection::vec(any::<bool>(), 20),
    ) {
        let labels = |(leaf, spine): &(Option<String>, Option<String>)| -> Labels {
            let both = [("leaf", leaf), ("spine", spine)];
            both.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value.clone()?))).collect()
        };
        let mut world = World::new(TWO_TIERS);
        world.nodes = nodes.iter().map(|(name, given)| (name.clone(), labels(given))).collect();
        // A first look that was cut short after any of its effects.
        for (effect, goes) in world.step().into_iter().zip(&left) {
            if *goes && !matches!(effect, HyperNodeEffect::WriteCount { .. }) {
                world.apply(effect);
            }
        }
        world.settle();
        let mut other = World::new(TWO_TIERS);
        other.nodes = world.nodes.clone();
        other.settle();
        prop_assert_eq!(world.network(), other.network());
        prop_assert_eq!(world.hyper_nodes.keys().collect::<Vec<_>>(), other.hyper_nodes.keys().collect::<Vec<_>>());
        let network = world.network();
        for (name, (leaf, _)) in &nodes {
            let of: Vec<&str> = network.iter().filter(|line| line.tier == 1 && line.members.contains(name)).map(|line| line.value.as_str()).collect();
            prop_assert_eq!(of, leaf.as_deref().into_iter().collect::<Vec<_>>());
        }
    }
}

//! The tree, its sets, and what is left out of it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::facts::{HyperNodeMember, MemberKind, NodeFacts, Operator, Requirement};
use crate::resource_dims::Dims;

struct Net {
    hyper: HyperNodes,
    facts: Versioned<HyperNodeFacts>,
    nodes: Nodes,
    dims: Dims,
}

fn exact(hyper_node: bool, names: &[&str]) -> Vec<HyperNodeMember> {
    let member = |name: &&str| HyperNodeMember { hyper_node, which: MemberKind::Exact((*name).to_owned()) };
    names.iter().map(member).collect()
}

fn facts(name: &str, tier: u32, members: Vec<HyperNodeMember>) -> HyperNodeFacts {
    HyperNodeFacts { name: name.to_owned(), tier, members, ..HyperNodeFacts::default() }
}

impl Net {
    fn new(nodes: &[&str], hypers: Vec<HyperNodeFacts>) -> Self {
        let mut net =
            Self { hyper: HyperNodes::new(), facts: Versioned::default(), nodes: Nodes::new(), dims: Dims::new() };
        nodes.iter().for_each(|name| net.node(name, &[]));
        for facts in hypers {
            net.facts.upsert(facts.name.clone(), &facts);
        }
        net.refresh();
        net
    }

    fn refresh(&mut self) {
        self.hyper.refresh(&self.facts, &self.nodes);
    }

    fn node(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let facts = NodeFacts { name: name.into(), labels, ..NodeFacts::default() };
        self.nodes.upsert(&facts, &mut self.dims);
    }

    fn id(&self, name: &str) -> HyperId {
        self.hyper.find(name).unwrap()
    }

    fn names(&self, hyper: HyperId) -> Vec<String> {
        let row = self.hyper.row(hyper);
        let mut names: Vec<String> =
            row.nodes.ones().map(|node| self.nodes.row(node.into()).name.to_string()).collect();
        assert_eq!(names.len(), row.count as usize);
        names.sort();
        names
    }

    fn of(&self, name: &str) -> Vec<String> {
        self.names(self.id(name))
    }

    fn node_id(&self, name: &str) -> NodeId {
        self.nodes.table.find(name).unwrap()
    }
}

fn two_tiers() -> Net {
    let hypers = vec![
        facts("s2", 2, exact(true, &["s0", "s1"])),
        facts("s0", 1, exact(false, &["n1", "n2"])),
        facts("s1", 1, exact(false, &["n3", "n4"])),
    ];
    Net::new(&["n1", "n2", "n3", "n4", "lonely"], hypers)
}

#[test]
fn sets_roll_up_to_a_root_that_holds_every_node() {
    let net = two_tiers();
    assert_eq!(net.of("s0"), ["n1", "n2"]);
    assert_eq!(net.of("s2"), ["n1", "n2", "n3", "n4"]);
    let root = net.hyper.root();
    assert_eq!((net.hyper.root_tier(), net.names(root).len()), (3, 5));
    assert_eq!(net.hyper.row(net.id("s2")).parent, Some(root));
    assert_eq!(net.hyper.problems(), []);
    let empty = Net::new(&["n1"], vec![]);
    assert_eq!((empty.hyper.root_tier(), empty.names(empty.hyper.root()).len()), (1, 1));
}

#[test]
fn the_lowest_that_holds_nodes_and_the_lowest_above_two() {
    let net = two_tiers();
    let lowest = |names: &[&str]| {
        let hyper = net.hyper.lowest_with(names.iter().map(|name| net.node_id(name)));
        hyper.map(|hyper| net.hyper.row(hyper).name.to_string())
    };
    assert_eq!(lowest(&["n1"]).as_deref(), Some("s0"));
    assert_eq!(lowest(&["n1", "n2"]).as_deref(), Some("s0"));
    assert_eq!(lowest(&["n1", "n4"]).as_deref(), Some("s2"));
    assert_eq!(lowest(&["n1", "lonely"]).as_deref(), Some(ROOT_NAME));
    assert_eq!(lowest(&[]), None);
    let (s0, s1, s2, root) = (net.id("s0"), net.id("s1"), net.id("s2"), net.hyper.root());
    assert_eq!(net.hyper.common(s0, s1), s2);
    assert_eq!(net.hyper.common(s0, s0), s0);
    assert_eq!(net.hyper.common(s2, s0), s2);
    assert_eq!(net.hyper.highest_within(s0, 2), Some(s2));
    assert_eq!(net.hyper.highest_within(s0, 9), Some(root));
    assert_eq!(net.hyper.highest_within(s2, 1), None);
    let below = net.hyper.below(root, 2);
    assert_eq!(below, BTreeMap::from([(1, vec![s0, s1]), (2, vec![s2])]));
    assert_eq!(net.hyper.below(s0, 2), BTreeMap::from([(1, vec![s0])]));
}

#[test]
fn members_by_pattern_and_by_label_follow_the_nodes() {
    let labels = vec![Requirement { key: "rack".into(), operator: Operator::In, values: vec!["a".into()] }];
    let by_label = HyperNodeMember { hyper_node: false, which: MemberKind::Labels(labels) };
    let by_pattern = HyperNodeMember { hyper_node: false, which: MemberKind::Pattern("^gpu-[0-9]+$".into()) };
    let parents = HyperNodeMember { hyper_node: true, which: MemberKind::Pattern("rack".into()) };
    let hypers = vec![
        facts("rack-a", 1, vec![by_label]),
        facts("rack-gpu", 1, vec![by_pattern]),
        facts("rack-all", 2, vec![parents]),
    ];
    let mut net = Net::new(&["gpu-1", "gpu-x", "n1"], hypers);
    assert_eq!(net.of("rack-gpu"), ["gpu-1"]);
    assert_eq!(net.of("rack-a"), Vec::<String>::new());
    let version = net.hyper.version;
    net.refresh();
    assert_eq!(net.hyper.version, version, "nothing changed");
    net.node("n1", &[("rack", "a")]);
    net.node("gpu-2", &[]);
    net.refresh();
    assert_eq!(net.of("rack-a"), ["n1"]);
    assert_eq!(net.of("rack-all"), ["gpu-1", "gpu-2", "n1"]);
    net.nodes.remove("gpu-1");
    net.node("n1", &[]);
    net.refresh();
    assert_eq!(net.of("rack-all"), ["gpu-2"]);
    assert_eq!(net.names(net.hyper.root()), ["gpu-2", "gpu-x", "n1"]);
    net.facts.remove("rack-gpu");
    net.refresh();
    assert_eq!(net.of("rack-all"), Vec::<String>::new());
}

#[test]
fn what_breaks_the_tree_is_left_out_and_reported() {
    let bad = HyperNodeMember { hyper_node: false, which: MemberKind::Pattern("(".into()) };
    let labels = HyperNodeMember { hyper_node: true, which: MemberKind::Labels(vec![]) };
    let hypers = vec![
        facts("a", 2, exact(true, &["b", "gone", "leaf"])),
        facts("b", 2, exact(true, &["a"])),
        facts("c", 3, [exact(true, &["leaf", "c"]), vec![labels]].concat()),
        facts("leaf", 1, [exact(false, &["n1"]), vec![bad]].concat()),
    ];
    let net = Net::new(&["n1"], hypers);
    assert_eq!(net.of("a"), ["n1"]);
    assert_eq!(net.of("c"), Vec::<String>::new());
    let texts: Vec<String> = net.hyper.problems().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "HyperNode a: member HyperNode gone does not exist",
            "HyperNode a of tier 2: member b must have a lower tier, not 2",
            "HyperNode b of tier 2: member a must have a lower tier, not 2",
            "HyperNode c of tier 3: member c must have a lower tier, not 3",
            "HyperNode c: member leaf belongs to a already",
            "HyperNode c: member HyperNodes can't be selected by labels, name them",
            "HyperNode leaf: pattern \"(\" is not usable",
        ]
    );
}

#[test]
fn a_tier_has_the_name_of_its_hyper_nodes() {
    let named = HyperNodeFacts { tier_name: "rack".to_owned(), ..facts("s0", 1, exact(false, &["n1"])) };
    let net = Net::new(&["n1"], vec![named]);
    assert_eq!(
        (net.hyper.tier_named("rack"), net.hyper.tier_named("row"), net.hyper.tier_named("")),
        (Some(1), None, None)
    );
}

proptest! {
    /// Whatever is said, in whatever steps: the tree is the one that is built of the last facts at once.
    #[test]
    fn a_tree_repaired_equals_a_tree_built(
        steps in prop::collection::vec((0_u8..6, 0_u8..6, 0_u32..4, prop::collection::vec((any::<bool>(), 0_u8..6), 0..4)), 1..30),
    ) {
        let mut net = Net::new(&[], vec![]);
        for (kind, which, tier, members) in steps {
            let name = format!("h{which}");
            match kind {
                0 => { net.facts.remove(&name); }
                1 => net.nodes.remove(&format!("n{which}")),
                2 => net.node(&format!("n{which}"), &[]),
                _ => {
                    let members = members.iter().map(|(hyper_node, which)| HyperNodeMember {
                        hyper_node: *hyper_node,
                        which: MemberKind::Exact(format!("{}{which}", if *hyper_node { "h" } else { "n" })),
                    });
                    net.facts.upsert(name.clone(), &facts(&name, tier, members.collect()));
                }
            }
            net.refresh();
        }
        let mut fresh = HyperNodes::new();
        fresh.refresh(&net.facts, &net.nodes);
        for hyper in fresh.ids() {
            let (one, other) = (net.hyper.row(hyper), fresh.row(hyper));
            prop_assert_eq!((&one.name, one.parent, one.count), (&other.name, other.parent, other.count));
            prop_assert_eq!(one.nodes.ones().collect::<Vec<_>>(), other.nodes.ones().collect::<Vec<_>>());
            prop_assert_eq!(one.nodes.count_ones(..), one.count as usize);
            for child in &one.children {
                prop_assert!(net.hyper.row(*child).tier < one.tier);
                prop_assert!(net.hyper.row(*child).nodes.is_subset(&one.nodes));
            }
        }
    }
}

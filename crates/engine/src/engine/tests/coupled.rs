//! Pods that say something of other pods, through whole cycles.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn labelled(name: &str, zone: &str) -> NodeFacts {
    let labels = [("kubernetes.io/hostname", name), ("zone", zone)];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    NodeFacts { labels, ..node(name, 10_000) }
}

fn term(app: &str, key: &str) -> PodTerm {
    let requirement = Requirement { key: "app".into(), operator: Operator::In, values: vec![app.to_owned()] };
    PodTerm {
        pods: PodSelector {
            namespaces: vec!["ns".to_owned()],
            namespace_selector: None,
            labels: Some(LabelSelector { requirements: vec![requirement] }),
        },
        topology_key: key.to_owned(),
    }
}

fn lab(nodes: &[(&str, &str)]) -> Lab {
    let mut lab = Lab::new(&[]);
    for (name, zone) in nodes {
        lab.apply(Delta::NodeUpsert(labelled(name, zone)));
    }
    lab
}

fn gang_of(lab: &mut Lab, name: &str, pods: u32, inter_pod: &InterPodConstraints) {
    lab.apply(Delta::GroupUpsert(Box::new(group(name, pods))));
    for index in 0..pods {
        let mut facts = pod(name, index, 1_000);
        facts.labels = [("app".to_owned(), name.to_owned()), ("index".to_owned(), index.to_string())].into();
        facts.template.inter_pod = inter_pod.clone();
        lab.pod(facts);
    }
}

fn by_node(plan: &Plan) -> BTreeMap<&str, usize> {
    let mut nodes = BTreeMap::new();
    for bind in &plan.binds {
        *nodes.entry(bind.node.as_str()).or_default() += 1;
    }
    nodes
}

#[test]
fn a_gang_that_shuns_itself_takes_a_node_each() {
    let apart = InterPodConstraints {
        anti_affinity: vec![term("j", "kubernetes.io/hostname")],
        ..InterPodConstraints::default()
    };
    let mut lab = lab(&[("n0", "a"), ("n1", "a"), ("n2", "b")]);
    gang_of(&mut lab, "j", 3, &apart);
    let plan = lab.cycle();
    assert_eq!(by_node(&plan), BTreeMap::from([("n0", 1), ("n1", 1), ("n2", 1)]));
    // One more than there are nodes: nothing of it starts, and it says why.
    let mut small = self::lab(&[("n0", "a"), ("n1", "a")]);
    gang_of(&mut small, "j", 3, &apart);
    assert_eq!(small.binds(), [""; 0]);
    let told = "2 with a pod that its anti-affinity shuns in the same kubernetes.io/hostname";
    assert!(small.why("j").contains(told), "{}", small.why("j"));
    // A pod that shuns nobody is shunned all the same.
    gang_of(
        &mut lab,
        "k",
        1,
        &InterPodConstraints { affinity: vec![term("j", "zone")], ..InterPodConstraints::default() },
    );
    let mut shunned = pod("l", 0, 1_000);
    shunned.labels.insert("app".to_owned(), "j".to_owned());
    lab.apply(Delta::GroupUpsert(Box::new(group("l", 1))));
    lab.pod(shunned);
    assert_eq!(lab.binds(), ["k-0"]);
    assert!(lab.why("l").contains("3 with a pod that shuns it in the same kubernetes.io/hostname"), "{}", lab.why("l"));
}

#[test]
fn the_first_of_a_series_finds_a_place_and_the_others_follow() {
    let near = InterPodConstraints { affinity: vec![term("j", "zone")], ..InterPodConstraints::default() };
    let mut lab = lab(&[("n0", "a"), ("n1", "b"), ("n2", "b")]);
    gang_of(&mut lab, "j", 12, &near);
    let plan = lab.cycle();
    let zones: BTreeSet<bool> = plan.binds.iter().map(|bind| bind.node == "n0").collect();
    // The first went to n0, where 10 fit: the gang does not fit one zone from there.
    assert_eq!((plan.binds.len(), zones.len()), (0, 0));
    let mut lab = self::lab(&[("n0", "a"), ("n1", "b"), ("n2", "b")]);
    gang_of(
        &mut lab,
        "i",
        4,
        &InterPodConstraints { affinity: vec![term("i", "zone")], ..InterPodConstraints::default() },
    );
    let plan = lab.cycle();
    assert_eq!(by_node(&plan), BTreeMap::from([("n0", 4)]));
}

#[test]
fn a_gang_spreads_over_zones() {
    let spread = |max_skew| SpreadConstraint {
        term: term("j", "zone"),
        max_skew,
        hard: true,
        honors_affinity: true,
        ..SpreadConstraint::default()
    };
    let mut lab = lab(&[("n0", "a"), ("n1", "a"), ("n2", "b")]);
    gang_of(&mut lab, "j", 6, &InterPodConstraints { spread: vec![spread(1)], ..InterPodConstraints::default() });
    let plan = lab.cycle();
    assert_eq!(by_node(&plan)["n2"], 3);
    assert_eq!(plan.binds.len(), 6);
}

#[test]
fn what_is_preferred_decides_among_equals() {
    let prefer = |weight| {
        let preferred = vec![PreferredPodTerm { weight, term: term("j", "kubernetes.io/hostname") }];
        InterPodConstraints { preferred, ..InterPodConstraints::default() }
    };
    for (weight, nodes) in [(100, 1), (-100, 3)] {
        let mut lab = lab(&[("n0", "a"), ("n1", "a"), ("n2", "b")]);
        gang_of(&mut lab, "j", 3, &prefer(weight));
        assert_eq!(by_node(&lab.cycle()).len(), nodes, "weight {weight}");
    }
}

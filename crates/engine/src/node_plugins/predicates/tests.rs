//! Cases of the predicates.

use std::collections::BTreeMap;

use super::*;
use crate::config::Switches;
use crate::facts::{Operator, PreferredTerm, Requirement};

fn node(labels: &[(&str, &str)], taints: &[(&str, &str, TaintEffect)]) -> NodeRow {
    NodeRow {
        name: "n1".into(),
        known: true,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: taints
            .iter()
            .map(|(key, value, effect)| Taint { key: (*key).to_owned(), value: (*value).to_owned(), effect: *effect })
            .collect(),
        unschedulable: false,
        ports: Vec::new(),
        annotations: BTreeMap::new(),
        images: BTreeMap::new(),
        usage: None,
        capacity: BTreeMap::new(),
        in_flight: 0,
        tasks: Vec::new(),
    }
}

fn plugin(arguments: &[(&str, bool)]) -> Predicates {
    let arguments = arguments.iter().map(|(key, on)| ((*key).to_owned(), crate::Argument::Bool(*on))).collect();
    Predicates::new(&PluginConfig { name: "predicates".to_owned(), switches: Switches::default(), arguments })
}

fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
    Requirement { key: key.to_owned(), operator, values: values.iter().map(|value| (*value).to_owned()).collect() }
}

fn toleration(key: &str, exists: bool, value: &str, effect: Option<TaintEffect>) -> Toleration {
    Toleration { key: key.to_owned(), exists, value: value.to_owned(), effect }
}

#[test]
fn requirements_compare_as_in_kubernetes() {
    use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    let node = node(&[("zone", "a"), ("cores", "16")], &[]);
    for (key, operator, values, expected) in [
        ("zone", In, &["a", "b"][..], true),
        ("zone", In, &["b"], false),
        ("rack", In, &["a"], false),
        ("zone", NotIn, &["b"], true),
        ("zone", NotIn, &["a"], false),
        ("rack", NotIn, &["a"], true),
        ("zone", Exists, &[], true),
        ("rack", Exists, &[], false),
        ("zone", DoesNotExist, &[], false),
        ("rack", DoesNotExist, &[], true),
        ("cores", Gt, &["8"], true),
        ("cores", Gt, &["16"], false),
        ("cores", Lt, &["32"], true),
        ("zone", Gt, &["8"], false),
        ("cores", Gt, &["x"], false),
        ("rack", Lt, &["8"], false),
    ] {
        let term = NodeTerm { expressions: vec![requirement(key, operator, values)], fields: Vec::new() };
        assert_eq!(matches_term(&term, &node), expected, "{key} {operator:?} {values:?}");
    }
}

#[test]
fn terms_combine_as_in_kubernetes() {
    let node = node(&[("zone", "a")], &[]);
    let yes = NodeTerm { expressions: vec![requirement("zone", Operator::Exists, &[])], fields: Vec::new() };
    let no = NodeTerm { expressions: vec![requirement("rack", Operator::Exists, &[])], fields: Vec::new() };
    let named =
        |name| NodeTerm { expressions: Vec::new(), fields: vec![requirement("metadata.name", Operator::In, &[name])] };
    for (name, terms, expected) in [
        ("any term suffices", Some(vec![no.clone(), yes.clone()]), true),
        ("none holds", Some(vec![no.clone()]), false),
        ("no terms match nothing", Some(vec![]), false),
        ("an empty term matches nothing", Some(vec![NodeTerm::default()]), false),
        ("no affinity", None, true),
        ("the name is a field", Some(vec![named("n1")]), true),
        ("another name", Some(vec![named("n2")]), false),
    ] {
        let template = PodTemplate { required_terms: terms, ..PodTemplate::default() };
        assert_eq!(plugin(&[]).facts_of(&template, &node).is_none(), expected, "{name}");
    }
    let both = PodTemplate {
        node_selector: BTreeMap::from([("zone".to_owned(), "b".to_owned())]),
        required_terms: Some(vec![yes.clone()]),
        ..PodTemplate::default()
    };
    assert_eq!(plugin(&[]).facts_of(&both, &node), Some(Check::NodeAffinity));
    assert_eq!(plugin(&[("predicate.NodeAffinityEnable", false)]).facts_of(&both, &node), None);
    let preferred = PodTemplate {
        preferred_terms: vec![PreferredTerm { weight: 30, term: yes }, PreferredTerm { weight: 5, term: no }],
        ..PodTemplate::default()
    };
    assert_eq!(preferred_weight(&preferred, &node), 30);
}

#[test]
fn taints_and_cordons_are_tolerated_as_in_kubernetes() {
    use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};
    let gpu = node(&[], &[("gpu", "yes", NoSchedule)]);
    for (name, tolerations, expected) in [
        ("none", vec![], false),
        ("equal", vec![toleration("gpu", false, "yes", Some(NoSchedule))], true),
        ("other value", vec![toleration("gpu", false, "no", None)], false),
        ("exists", vec![toleration("gpu", true, "", None)], true),
        ("other effect", vec![toleration("gpu", true, "", Some(NoExecute))], false),
        ("everything", vec![toleration("", true, "", None)], true),
        ("empty key needs exists", vec![toleration("", false, "yes", None)], false),
    ] {
        let template = PodTemplate { tolerations, ..PodTemplate::default() };
        assert_eq!(plugin(&[]).facts_of(&template, &gpu).is_none(), expected, "{name}");
    }
    let soft = node(&[], &[("slow", "", PreferNoSchedule)]);
    assert_eq!(plugin(&[]).facts_of(&PodTemplate::default(), &soft), None);
    assert_eq!(soft_taints(&PodTemplate::default(), &soft), 1);
    let cordoned = NodeRow { unschedulable: true, ..node(&[], &[]) };
    assert_eq!(plugin(&[]).facts_of(&PodTemplate::default(), &cordoned), Some(Check::Unschedulable));
    let daemon =
        PodTemplate { tolerations: vec![toleration(UNSCHEDULABLE_TAINT, true, "", None)], ..PodTemplate::default() };
    assert_eq!(plugin(&[]).facts_of(&daemon, &cordoned), None);
}

#[test]
fn host_ports_conflict_by_address() {
    let port = |ip: &str, protocol: &str, port| HostPort { ip: ip.to_owned(), protocol: protocol.to_owned(), port };
    let row = NodeRow { ports: vec![(port("10.0.0.1", "TCP", 80), 1)], ..node(&[], &[]) };
    for (wanted, free) in [
        (port("", "TCP", 80), false),
        (port("0.0.0.0", "TCP", 80), false),
        (port("10.0.0.1", "TCP", 80), false),
        (port("10.0.0.2", "TCP", 80), true),
        (port("", "UDP", 80), true),
        (port("", "TCP", 81), true),
    ] {
        let template = PodTemplate { host_ports: vec![wanted.clone()], ..PodTemplate::default() };
        assert_eq!(plugin(&[]).use_of(&template, &row).is_none(), free, "{wanted:?}");
    }
}

#[test]
fn constraints_of_later_versions_are_not_ignored() {
    let template = PodTemplate { unsupported: vec!["resourceClaims".to_owned()], ..PodTemplate::default() };
    assert_eq!(plugin(&[]).facts_of(&template, &node(&[], &[])), Some(Check::Unsupported));
}

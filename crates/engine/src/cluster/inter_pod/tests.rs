//! Couplings against a plain reading of Kubernetes' rules, over random clusters and changes.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::{InterPod, Rules, When};
use crate::facts::{
    Delta, InterPodConstraints, LabelSelector, NodeFacts, NodeName, Operator, PodFacts, PodPhase, PodSelector,
    PodTemplate, PodTerm, PodUid, PreferredPodTerm, Requirement, SpreadConstraint, Taint, TaintEffect,
};
use crate::ids::NodeId;
use crate::reasons::Check;
use crate::world::tables::Tables;

const RULES: Rules = Rules { affinity: true, spread: true };

type Map = BTreeMap<String, String>;

/// The cluster as plain facts.
#[derive(Debug, Default)]
struct Plain {
    nodes: BTreeMap<NodeName, NodeFacts>,
    pods: BTreeMap<PodUid, PodFacts>,
    namespaces: BTreeMap<String, Map>,
}

fn selects(selector: &LabelSelector, labels: &Map) -> bool {
    selector.requirements.iter().all(|requirement| {
        let value = labels.get(&requirement.key);
        let listed = value.is_some_and(|value| requirement.values.contains(value));
        match requirement.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            _ => value.is_none(),
        }
    })
}

fn placed(pod: &PodFacts) -> bool {
    pod.node.is_some() && matches!(pod.phase, PodPhase::Running | PodPhase::Pending)
}

impl Plain {
    fn matches(&self, selector: &PodSelector, pod: &PodFacts) -> bool {
        let none = Map::new();
        let namespace = self.namespaces.get(&pod.namespace).unwrap_or(&none);
        let inside = selector.namespaces.contains(&pod.namespace)
            || selector.namespace_selector.as_ref().is_some_and(|selector| selects(selector, namespace));
        inside && selector.labels.as_ref().is_some_and(|labels| selects(labels, &pod.labels))
    }

    fn label(&self, node: &str, key: &str) -> Option<&String> {
        self.nodes.get(node)?.labels.get(key)
    }

    /// Placed pods other than `pod` in the domain of `node`, or anywhere that has the key.
    fn others<'a>(&'a self, pod: &'a PodFacts, key: &'a str) -> impl Iterator<Item = (&'a PodFacts, &'a String)> {
        self.pods
            .values()
            .filter(|other| other.uid != pod.uid && placed(other))
            .filter_map(move |other| Some((other, self.label(other.node.as_deref()?, key)?)))
    }

    fn check(&self, pod: &PodFacts, node: &str) -> Option<Check> {
        let facts = &pod.template.inter_pod;
        if !self.affinity(pod, node) {
            return Some(Check::PodAffinity);
        }
        let here = |key: &str, value: &String| self.label(node, key) == Some(value);
        for term in &facts.anti_affinity {
            let key = &term.topology_key;
            if self.others(pod, key).any(|(other, value)| here(key, value) && self.matches(&term.pods, other)) {
                return Some(Check::PodAntiAffinity);
            }
        }
        for other in self.pods.values().filter(|other| other.uid != pod.uid && placed(other)) {
            for term in &other.template.inter_pod.anti_affinity {
                let there = other.node.as_deref().and_then(|node| self.label(node, &term.topology_key));
                if there.is_some_and(|value| here(&term.topology_key, value)) && self.matches(&term.pods, pod) {
                    return Some(Check::OtherAntiAffinity);
                }
            }
        }
        self.spread(pod, node)
    }

    fn affinity(&self, pod: &PodFacts, node: &str) -> bool {
        let terms = &pod.template.inter_pod.affinity;
        let all = |other: &PodFacts| terms.iter().all(|term| self.matches(&term.pods, other));
        let satisfied = terms.iter().all(|term| {
            let own = self.label(node, &term.topology_key);
            own.is_some() && self.others(pod, &term.topology_key).any(|(other, value)| own == Some(value) && all(other))
        });
        let labelled = terms.iter().all(|term| self.label(node, &term.topology_key).is_some());
        let nobody = terms.iter().all(|term| !self.others(pod, &term.topology_key).any(|(other, _)| all(other)));
        satisfied || labelled && nobody && all(pod)
    }

    fn eligible(&self, pod: &PodFacts, constraint: &SpreadConstraint, keys: &[&str], node: &NodeFacts) -> bool {
        let tolerated = node.taints.is_empty() || !constraint.honors_taints;
        let selector = &pod.template.node_selector;
        keys.iter().all(|key| node.labels.contains_key(*key))
            && tolerated
            && (!constraint.honors_affinity || selector.iter().all(|(key, value)| node.labels.get(key) == Some(value)))
    }

    /// Pods by domain, on eligible nodes.
    fn domains(&self, pod: &PodFacts, constraint: &SpreadConstraint, keys: &[&str]) -> BTreeMap<&String, i64> {
        let mut domains = BTreeMap::new();
        let empty = constraint.term.pods.labels.as_ref().is_some_and(|labels| labels.requirements.is_empty());
        for node in self.nodes.values().filter(|node| self.eligible(pod, constraint, keys, node)) {
            let count = domains.entry(&node.labels[&constraint.term.topology_key]).or_insert(0);
            let on_it = self.pods.values().filter(|other| {
                other.uid != pod.uid && placed(other) && !other.terminating && other.node.as_ref() == Some(&node.name)
            });
            *count += on_it.filter(|other| !empty && self.matches(&constraint.term.pods, other)).count() as i64;
        }
        domains
    }

    fn spread(&self, pod: &PodFacts, node: &str) -> Option<Check> {
        let hard: Vec<_> = pod.template.inter_pod.spread.iter().filter(|constraint| constraint.hard).collect();
        let keys: Vec<&str> = hard.iter().map(|constraint| constraint.term.topology_key.as_str()).collect();
        for constraint in hard {
            let Some(value) = self.label(node, &constraint.term.topology_key) else { return Some(Check::SpreadLabel) };
            let domains = self.domains(pod, constraint, &keys);
            let few = (domains.len() as u32) < constraint.min_domains;
            let least = if few { 0 } else { domains.values().min().copied().unwrap_or(0) };
            let own = i64::from(self.matches(&constraint.term.pods, pod));
            let here = domains.get(value).copied().unwrap_or(0);
            if here + own - least > i64::from(constraint.max_skew) {
                return Some(Check::Spread);
            }
        }
        None
    }

    fn affinity_scores(&self, pod: &PodFacts, nodes: &[&str]) -> Vec<i64> {
        let mut by_pair: BTreeMap<(&str, &String), i64> = BTreeMap::new();
        for other in self.pods.values().filter(|other| other.uid != pod.uid && placed(other)) {
            let label = |key: &str| other.node.as_deref().and_then(|node| self.label(node, key));
            let own = &pod.template.inter_pod;
            let theirs = &other.template.inter_pod;
            let required = theirs.affinity.iter().map(|term| (term, 1));
            let preferred = theirs.preferred.iter().map(|preferred| (&preferred.term, i64::from(preferred.weight)));
            for (term, weight) in required.chain(preferred) {
                if let (Some(value), true) = (label(&term.topology_key), self.matches(&term.pods, pod)) {
                    *by_pair.entry((&term.topology_key, value)).or_default() += weight;
                }
            }
            for preferred in &own.preferred {
                let term = &preferred.term;
                if let (Some(value), true) = (label(&term.topology_key), self.matches(&term.pods, other)) {
                    *by_pair.entry((&term.topology_key, value)).or_default() += i64::from(preferred.weight);
                }
            }
        }
        let raw = |node: &&str| -> i64 {
            by_pair.iter().filter(|((key, value), _)| self.label(node, key) == Some(*value)).map(|(_, sum)| sum).sum()
        };
        let raw: Vec<i64> = nodes.iter().map(raw).collect();
        let (least, most) = (raw.iter().min().copied().unwrap_or(0), raw.iter().max().copied().unwrap_or(0));
        let scaled = |raw: i64| (100.0 * ((raw - least) as f64 / (most - least) as f64)) as i64;
        raw.into_iter().map(|raw| if most > least { scaled(raw) } else { 0 }).collect()
    }

    fn spread_scores(&self, pod: &PodFacts, nodes: &[&str]) -> Vec<i64> {
        let soft: Vec<_> = pod.template.inter_pod.spread.iter().filter(|constraint| !constraint.hard).collect();
        let keys: Vec<&str> = soft.iter().map(|constraint| constraint.term.topology_key.as_str()).collect();
        let counted: Vec<&&str> =
            nodes.iter().filter(|node| keys.iter().all(|key| self.label(node, key).is_some())).collect();
        let raw = |node: &str| -> i64 {
            let part = |constraint: &&SpreadConstraint| {
                let key = constraint.term.topology_key.as_str();
                let mut values: Vec<_> = counted.iter().map(|node| self.label(node, key)).collect();
                values.sort();
                values.dedup();
                let size = if key == "kubernetes.io/hostname" { counted.len() } else { values.len() };
                let pods = self.domains(pod, constraint, &keys).get(self.label(node, key).unwrap()).copied();
                pods.unwrap_or(0) as f64 * ((size + 2) as f64).ln() + f64::from(constraint.max_skew - 1)
            };
            soft.iter().map(part).sum::<f64>().round() as i64
        };
        let raws: Vec<i64> = counted.iter().map(|node| raw(node)).collect();
        let (least, most) = (raws.iter().min().copied().unwrap_or(0), raws.iter().max().copied().unwrap_or(0));
        let score = |node: &&str| {
            if soft.is_empty() || !counted.contains(&node) {
                0
            } else if most == 0 {
                100
            } else {
                100 * (most + least - raw(node)) / most
            }
        };
        nodes.iter().map(score).collect()
    }
}

/// Profiles, selections, keys, terms, spreads.
fn rows(inter_pod: &InterPod) -> [usize; 5] {
    [
        inter_pod.profiles.iter().count(),
        inter_pod.selections.iter().count(),
        inter_pod.keys.iter().count(),
        inter_pod.terms.iter().count(),
        inter_pod.spreads.iter().count(),
    ]
}

/// The tables and the plain facts side by side.
struct Pair {
    tables: Tables,
    plain: Plain,
}

impl Pair {
    fn new() -> Self {
        Self { tables: Tables::new("default"), plain: Plain::default() }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Node(node) => {
                self.plain.nodes.insert(node.name.clone(), node.clone());
                self.tables.apply(&Delta::NodeUpsert(node.clone()));
            }
            Change::NoNode(name) => {
                self.plain.nodes.remove(name);
                self.tables.apply(&Delta::NodeRemove(name.clone()));
            }
            Change::Pod(pod) => {
                self.plain.pods.insert(pod.uid.clone(), (**pod).clone());
                self.tables.apply(&Delta::TaskUpsert(pod.clone()));
            }
            Change::NoPod(uid) => {
                self.plain.pods.remove(uid);
                self.tables.apply(&Delta::TaskRemove(uid.clone()));
            }
            Change::Namespace(name, labels) => {
                self.plain.namespaces.insert(name.clone(), labels.clone());
                let labels = labels.clone();
                self.tables.apply(&Delta::NamespaceUpsert { name: name.clone(), weight: 1, labels, queue: None });
            }
        }
    }

    /// All pods without a node are asked about all nodes.
    fn compare(&mut self) {
        self.tables.begin();
        for pod in self.plain.pods.values().filter(|pod| pod.node.is_none()) {
            let row = self.tables.task(self.tables.tasks.find(&pod.uid).unwrap());
            let inter_pod = &self.tables.inter_pod;
            let probe = inter_pod.probe(row.profile, row.class, When::Now, RULES);
            let names: Vec<&str> = self.plain.nodes.keys().map(NodeName::as_str).collect();
            let ids: Vec<NodeId> = names.iter().map(|name| self.tables.nodes.table.find(name).unwrap()).collect();
            for (name, id) in names.iter().zip(&ids) {
                let expected = self.plain.check(pod, name);
                assert_eq!(probe.check(*id), expected, "{} on {name}", pod.uid);
                assert!(expected.is_none() || inter_pod.restricts(row.profile, row.class, RULES));
                if let Some(check) = expected {
                    assert_ne!(inter_pod.topology_key(&probe, check, *id), "", "{check:?}");
                }
            }
            let mut scores = vec![0; ids.len()];
            inter_pod.score_affinity(row.profile, row.class, 1, &ids, &mut scores);
            assert_eq!(scores, self.plain.affinity_scores(pod, &names), "affinity of {}", pod.uid);
            let prefers = inter_pod.prefers(row.profile, row.class);
            assert!(prefers || scores.iter().all(|score| *score == 0));
            scores.fill(0);
            inter_pod.score_spread(row.class, 1, &ids, &mut scores);
            assert_eq!(scores, self.plain.spread_scores(pod, &names), "spread of {}", pod.uid);
            assert!(prefers || scores.iter().all(|score| *score == 0));
        }
        self.tables.commit();
    }

    /// A waiting pod is tried on a node and taken back; meanwhile everything counts it.
    fn trial(&mut self, uid: &str, node: &str) {
        let Some(task) = self.tables.tasks.find(uid) else { return };
        if self.plain.pods.get(uid).is_none_or(|pod| pod.node.is_some()) {
            return;
        }
        let Some(id) = self.tables.nodes.table.find(node) else { return };
        self.tables.begin();
        self.tables.assign(task, id);
        self.tables.commit();
        let pod = self.plain.pods.get_mut(uid).unwrap();
        pod.node = Some(node.into());
        self.compare();
        self.tables.begin();
        self.tables.move_task(task, crate::world::tasks::TaskState::Pending, None);
        self.plain.pods.get_mut(uid).unwrap().node = None;
        self.tables.commit();
    }
}

#[derive(Debug, Clone)]
enum Change {
    Node(NodeFacts),
    NoNode(NodeName),
    Pod(Box<PodFacts>),
    NoPod(PodUid),
    Namespace(String, Map),
}

fn map(pairs: &[(&str, Option<&str>)]) -> Map {
    pairs.iter().filter_map(|(key, value)| Some(((*key).to_owned(), (*value)?.to_owned()))).collect()
}

fn some_node() -> impl Strategy<Value = Change> {
    let zone = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    (0..5_u32, zone, 0..5_u32, any::<bool>(), any::<bool>()).prop_map(|(number, zone, host, disk, taint)| {
        let name = format!("n{number}");
        let host = (host > 0).then_some(name.as_str());
        let pairs = [("zone", zone), ("kubernetes.io/hostname", host), ("disk", disk.then_some("ssd"))];
        let mut facts = NodeFacts { labels: map(&pairs), name: name.as_str().into(), ..NodeFacts::default() };
        if taint {
            facts.taints.push(Taint { key: "t".into(), value: String::new(), effect: TaintEffect::NoSchedule });
        }
        Change::Node(facts)
    })
}

fn some_selector() -> impl Strategy<Value = Option<LabelSelector>> {
    let requirement = |key: &str, operator, values: &[&str]| Requirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    let of = |requirements| Just(Some(LabelSelector { requirements }));
    prop_oneof![
        1 => Just(None),
        1 => of(vec![]),
        4 => of(vec![requirement("app", Operator::In, &["a"])]),
        2 => of(vec![requirement("app", Operator::In, &["a", "b"]), requirement("tier", Operator::Exists, &[])]),
        1 => of(vec![requirement("tier", Operator::NotIn, &["1"])]),
        1 => of(vec![requirement("tier", Operator::DoesNotExist, &[])]),
    ]
}

fn some_term() -> impl Strategy<Value = PodTerm> {
    let red = Requirement { key: "team".into(), operator: Operator::In, values: vec!["red".into()] };
    let wide = prop_oneof![
        6 => Just(None),
        1 => Just(Some(LabelSelector::default())),
        2 => Just(Some(LabelSelector { requirements: vec![red] })),
    ];
    let namespaces = prop_oneof![Just(vec!["x".to_owned()]), Just(vec!["x".to_owned(), "y".to_owned()])];
    let key = prop_oneof![Just("zone"), Just("kubernetes.io/hostname")];
    (some_selector(), namespaces, wide, key).prop_map(|(labels, namespaces, namespace_selector, key)| PodTerm {
        pods: PodSelector { namespaces, namespace_selector, labels },
        topology_key: key.to_owned(),
    })
}

fn some_couplings() -> impl Strategy<Value = InterPodConstraints> {
    let spread = (some_term(), 1..3_i32, any::<bool>(), 0..4_u32, any::<bool>(), any::<bool>()).prop_map(
        |(term, max_skew, hard, min_domains, honors_affinity, honors_taints)| SpreadConstraint {
            term: PodTerm { pods: PodSelector { namespace_selector: None, ..term.pods }, ..term },
            max_skew,
            hard,
            min_domains,
            honors_affinity,
            honors_taints,
        },
    );
    let preferred = (some_term(), -100..101_i32).prop_map(|(term, weight)| PreferredPodTerm { weight, term });
    (vec(some_term(), 0..3), vec(some_term(), 0..2), vec(preferred, 0..3), vec(spread, 0..3)).prop_map(
        |(affinity, anti_affinity, preferred, spread)| InterPodConstraints {
            affinity,
            anti_affinity,
            preferred,
            spread,
        },
    )
}

fn some_pod() -> impl Strategy<Value = Change> {
    let app = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let tier = prop_oneof![Just(None), Just(Some("1")), Just(Some("2"))];
    let inter_pod = prop_oneof![2 => Just(InterPodConstraints::default()), 3 => some_couplings()];
    let standing = (proptest::option::of(0..5_u32), 0..8_u32, any::<bool>());
    (0..9_u32, app, tier, 0..2_usize, inter_pod, standing).prop_map(|(number, app, tier, namespace, inter_pod, at)| {
        let (node, phase, selects) = at;
        let name = format!("p{number}");
        let mut template = PodTemplate { inter_pod, ..PodTemplate::default() };
        if selects {
            template.node_selector = map(&[("disk", Some("ssd"))]);
        }
        let phase_of = |placed| match (phase, placed) {
            (0, true) => PodPhase::Succeeded,
            (1.., true) => PodPhase::Running,
            _ => PodPhase::Pending,
        };
        Change::Pod(Box::new(PodFacts {
            uid: name.clone().into(),
            name,
            namespace: ["x", "y"][namespace].to_owned(),
            mine: true,
            labels: map(&[("app", app), ("tier", tier), ("own", Some("1"))]),
            phase: phase_of(node.is_some()),
            terminating: phase == 7 && node.is_some(),
            node: node.map(|number| format!("n{number}").into()),
            template: template.into(),
            ..PodFacts::default()
        }))
    })
}

fn some_change() -> impl Strategy<Value = Change> {
    let team = prop_oneof![Just(None), Just(Some("red")), Just(Some("blue"))];
    let namespace = (0..2_usize, team)
        .prop_map(|(which, team)| Change::Namespace(["x", "y"][which].to_owned(), map(&[("team", team)])));
    prop_oneof![
        4 => some_node(),
        10 => some_pod(),
        1 => (0..5_u32).prop_map(|number| Change::NoNode(format!("n{number}").into())),
        2 => (0..9_u32).prop_map(|number| Change::NoPod(format!("p{number}").into())),
        1 => namespace,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn verdicts_and_scores_are_those_of_kubernetes(
        changes in vec(some_change(), 1..40),
        every in 1..6_usize,
        trials in vec((0..9_u32, 0..5_u32), 0..6),
    ) {
        let mut pair = Pair::new();
        for (number, change) in changes.iter().enumerate() {
            pair.apply(change);
            if number % every == 0 {
                pair.compare();
            }
        }
        pair.compare();
        for (pod, node) in trials {
            pair.trial(&format!("p{pod}"), &format!("n{node}"));
            pair.compare();
        }
        for number in 0..9 {
            pair.apply(&Change::NoPod(format!("p{number}").into()));
        }
        prop_assert_eq!(rows(&pair.tables.inter_pod), [0; 5], "what nobody names is forgotten");
    }
}

//! Constrained classes: the terms that a class of pods names, resolved to rows that count.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::InterPod;
use super::spreads::{Eligible, SpreadKey};
use super::tally::Change;
use crate::cluster::nodes::Nodes;
use crate::facts::{PodSelector, PodTemplate, PodTerm, SpreadConstraint};
use crate::ids::{ClassId, NodeId};

/// Weight of an existing pod's required affinity when others are scored, as Kubernetes' default has it.
const HARD_AFFINITY_WEIGHT: i64 = 1;

/// Whether a pod counts for its own spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnPod {
    /// If it belongs to the selection.
    Selected,
    /// Always: an empty selector matches it, though it counts nobody (as in Kubernetes).
    Always,
}

/// A spread constraint of a class.
#[derive(Debug)]
pub(crate) struct ClassSpread {
    /// Row of the spread, which counts.
    pub(crate) spread: u32,
    pub(crate) key: u32,
    pub(crate) selection: u32,
    pub(crate) own: OwnPod,
    pub(crate) max_skew: i64,
    pub(crate) min_domains: u32,
}

#[derive(Debug, Default)]
pub(crate) struct CoupledClass {
    /// Required affinity: pods that match every term, counted by each term's key.
    pub(crate) affinity: Option<(u32, Vec<u32>)>,
    pub(crate) anti: Vec<u32>,
    /// Preferred terms with their weight.
    pub(crate) preferred: Vec<(u32, i64)>,
    /// What its placed pods pull others by: preferred terms, and required affinity.
    pub(crate) pulls: Vec<(u32, i64)>,
    pub(crate) hard: Vec<ClassSpread>,
    pub(crate) soft: Vec<ClassSpread>,
    /// Its pods, by node.
    pub(super) placed: FxHashMap<NodeId, Change>,
}

impl InterPod {
    /// Takes in a new class. Nothing of it is placed yet.
    pub(crate) fn add_class(&mut self, class: ClassId, template: &PodTemplate, nodes: &Nodes) {
        let facts = &template.inter_pod;
        if facts.is_empty() {
            return;
        }
        self.activate();
        let mut coupled = CoupledClass::default();
        if !facts.affinity.is_empty() {
            let pods: Vec<PodSelector> = facts.affinity.iter().map(|term| term.pods.clone()).collect();
            let terms = facts.affinity.iter().map(|term| self.acquire_term(&pods, &term.topology_key, nodes));
            let terms: Vec<u32> = terms.collect();
            coupled.affinity = Some((self.terms.key(terms[0]).0, terms));
        }
        let own_affinity = facts.affinity.iter().map(|term| (term, HARD_AFFINITY_WEIGHT));
        let preferred = facts.preferred.iter().map(|preferred| (&preferred.term, i64::from(preferred.weight)));
        let single = |inter_pod: &mut Self, term: &PodTerm| {
            inter_pod.acquire_term(std::slice::from_ref(&term.pods), &term.topology_key, nodes)
        };
        for term in &facts.anti_affinity {
            coupled.anti.push(single(self, term));
        }
        for (term, weight) in preferred.clone() {
            coupled.preferred.push((single(self, term), weight));
        }
        for (term, weight) in own_affinity.chain(preferred) {
            coupled.pulls.push((single(self, term), weight));
        }
        for hard in [true, false] {
            let of_kind: Vec<&SpreadConstraint> = facts.spread.iter().filter(|spread| spread.hard == hard).collect();
            let mut keys: Vec<String> = of_kind.iter().map(|spread| spread.term.topology_key.clone()).collect();
            keys.sort();
            keys.dedup();
            let resolved = of_kind.iter().map(|spread| self.resolve_spread(template, spread, &keys, nodes)).collect();
            *(if hard { &mut coupled.hard } else { &mut coupled.soft }) = resolved;
        }
        if self.classes.len() <= class.index() {
            self.classes.resize_with(class.index() + 1, || None);
        }
        self.classes[class.index()] = Some(Box::new(coupled));
    }

    fn resolve_spread(
        &mut self,
        template: &PodTemplate,
        constraint: &SpreadConstraint,
        keys: &[String],
        nodes: &Nodes,
    ) -> ClassSpread {
        let mut pods = constraint.term.pods.clone();
        let matches_all = pods.labels.as_ref().is_some_and(|labels| labels.requirements.is_empty());
        if matches_all {
            pods.labels = None;
        }
        let eligible = Eligible::new(template, constraint, keys);
        let spread = self.acquire_spread(&[pods], &constraint.term.topology_key, eligible, nodes);
        let SpreadKey { selection, key, .. } = *self.spreads.key(spread);
        ClassSpread {
            spread,
            key,
            selection,
            own: if matches_all { OwnPod::Always } else { OwnPod::Selected },
            max_skew: i64::from(constraint.max_skew.max(1)),
            min_domains: constraint.min_domains,
        }
    }

    /// A class that no pod has any more.
    pub(crate) fn remove_class(&mut self, class: ClassId) {
        let Some(coupled) = self.classes.get_mut(class.index()).and_then(Option::take) else { return };
        let pairs = coupled.preferred.iter().chain(&coupled.pulls).map(|(term, _)| *term);
        let affinity = coupled.affinity.iter().flat_map(|(_, terms)| terms.iter().copied());
        let all: SmallVec<[u32; 8]> = pairs.chain(affinity).chain(coupled.anti.iter().copied()).collect();
        all.into_iter().for_each(|term| self.release_term(term));
        for spread in coupled.hard.iter().chain(&coupled.soft) {
            self.release_spread(spread.spread);
        }
    }

    pub(crate) fn class(&self, class: ClassId) -> Option<&CoupledClass> {
        self.classes.get(class.index())?.as_deref()
    }

    /// Counts a pod of a constrained class for the terms that it names itself.
    pub(super) fn count_owner(&mut self, class: ClassId, node: NodeId, change: Change) {
        let Some(coupled) = self.classes.get_mut(class.index()).and_then(Option::as_deref_mut) else { return };
        let placed = coupled.placed.entry(node).or_default();
        placed.present += change.present;
        placed.future += change.future;
        if placed.is_none() {
            coupled.placed.remove(&node);
        }
        self.own(class, node, change);
    }

    /// Adds what the class's pods on `node` mean for others.
    pub(super) fn own(&mut self, class: ClassId, node: NodeId, change: Change) {
        let Some(coupled) = self.classes.get(class.index()).and_then(Option::as_deref) else { return };
        for term in &coupled.anti {
            let domain = self.keys.row(self.terms.key(*term).1).domain(node);
            self.terms.row_mut(*term).owners.add(domain, change);
        }
        for (term, weight) in &coupled.pulls {
            let domain = self.keys.row(self.terms.key(*term).1).domain(node);
            self.terms.row_mut(*term).pull(domain, weight * i64::from(change.present));
        }
    }
}

crate::save::saved! {
    ClassSpread { spread, key, selection, own, max_skew, min_domains };
    CoupledClass { affinity, anti, preferred, pulls, hard, soft, placed };
}

crate::save::saved_enum!(OwnPod { Selected, Always });

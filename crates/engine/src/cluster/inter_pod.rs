//! Constraints between pods: what (anti-)affinity and topology spread need to know of where pods are.
//!
//! Pods are grouped by *profile*: namespace and those of their labels that some selection reads. A *term* is a
//! selection of pods and a topology key; it counts the pods of the selection by domain, and those that name the term
//! themselves. Invariant: after `refresh` every count is the sum over the tasks' places. Nothing is counted before the
//! first constrained class is seen. Called by `Tables` only; read through `Probe`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::cluster::interned::Interned;
use crate::cluster::nodes::Nodes;
use crate::facts::PodSelector;
use crate::ids::{ClassId, NodeId};

mod changes;
mod classes;
mod domains;
mod labels;
mod probe;
mod score;
mod selections;
mod spreads;
mod tally;

pub(crate) use changes::Placed;
pub(crate) use labels::Labels;
pub(crate) use probe::{Rules, When};
pub(crate) use tally::Change;

use classes::CoupledClass;
use domains::{KeyColumn, NONE};
use labels::{Word, Words};
use selections::Selection;
use spreads::{Eligible, EligibleNodes, SpreadKey, SpreadRow};
use tally::Tally;

/// A profile that a task has; absent before any pod constrains others.
pub(crate) type Profile = Option<u32>;

/// Label keys read by selections are kept this much beyond those in use before profiles are made anew without them.
const KEYS_KEPT: usize = 64;

/// Pods of one namespace with equal labels, as far as selections read them.
#[derive(Debug, Default)]
struct ProfileRow {
    /// Selections they belong to.
    matched: SmallVec<[u32; 2]>,
    placed: FxHashMap<NodeId, Change>,
}

type ProfileKey = (Word, Labels);

/// How many pods by domain concern one term: a selection of pods and a topology key.
#[derive(Debug, Default)]
struct TermRow {
    /// Pods of the selection.
    matching: Tally,
    /// Pods that name the term as required anti-affinity.
    owners: Tally,
    /// Sum of the weights by which placed pods pull others, by domain.
    pulls: Vec<i64>,
    /// Domains with any pull.
    pulling: u32,
}

impl TermRow {
    fn pull(&mut self, domain: u32, weight: i64) {
        if domain == NONE || weight == 0 {
            return;
        }
        let at = domain as usize;
        if self.pulls.len() <= at {
            self.pulls.resize(at + 1, 0);
        }
        let was = self.pulls[at] != 0;
        self.pulls[at] += weight;
        let is = self.pulls[at] != 0;
        self.pulling = tally::shifted(self.pulling, i32::from(is) - i32::from(was));
    }
}

/// What pods ask of other pods near them, counted by domain. The module says what holds.
#[derive(Debug, Default)]
pub(crate) struct InterPod {
    words: Words,
    /// A constrained class was seen.
    active: bool,
    /// Profiles are to be made anew: a selection reads a label that they lack.
    stale: bool,
    /// Label keys that profiles keep.
    read: FxHashMap<Word, ()>,
    profiles: Interned<ProfileKey, ProfileRow>,
    by_namespace: FxHashMap<Word, Vec<u32>>,
    selections: Interned<Vec<PodSelector>, Selection>,
    keys: Interned<String, KeyColumn>,
    terms: Interned<(u32, u32), TermRow>,
    eligible: Interned<Eligible, EligibleNodes>,
    spreads: Interned<SpreadKey, SpreadRow>,
    classes: Vec<Option<Box<CoupledClass>>>,
    namespaces: FxHashMap<Word, BTreeMap<String, String>>,
    /// Placements that wait for room (counted in the future only).
    coming: i64,
}

impl InterPod {
    /// The value of a pod's label.
    pub(crate) fn label(&self, labels: &Labels, key: &str) -> Option<&str> {
        self.words.value(labels, key)
    }

    pub(crate) fn labels(&mut self, labels: &BTreeMap<String, String>) -> Labels {
        self.words.labels(labels)
    }

    pub(crate) fn release_labels(&mut self, labels: &Labels) {
        self.words.release_labels(labels);
    }

    fn activate(&mut self) {
        if !self.active {
            self.active = true;
            self.stale = true;
        }
    }

    /// The profile of a new task. Nothing before any pod constrains others, or while profiles wait to be made anew.
    pub(crate) fn acquire_profile(&mut self, namespace: &str, labels: &Labels) -> Profile {
        if !self.active || self.stale {
            return None;
        }
        Some(self.profile(namespace, labels))
    }

    fn profile(&mut self, namespace: &str, labels: &Labels) -> u32 {
        let namespace = self.words.acquire(namespace);
        let kept: Labels = labels.iter().copied().filter(|(key, _)| self.read.contains_key(key)).collect();
        let (id, new) = self.profiles.acquire((namespace, kept.clone()), ProfileRow::default);
        if !new {
            self.words.release(namespace);
            return id;
        }
        // The profile may outlive the labels it was made from: another task's are equal, but hold the words themselves.
        for (key, value) in &kept {
            self.words.hold(*key);
            self.words.hold(*value);
        }
        self.by_namespace.entry(namespace).or_default().push(id);
        let own = self.namespaces.get(&namespace);
        let matching = self.selections.iter().filter(|(_, _, selection)| selection.matches(namespace, own, &kept));
        let matched: SmallVec<[u32; 2]> = matching.map(|(selection, _, _)| selection).collect();
        for selection in &matched {
            self.selections.row_mut(*selection).profiles.push(id);
        }
        self.profiles.row_mut(id).matched = matched;
        id
    }

    pub(crate) fn release_profile(&mut self, profile: Profile) {
        let Some(id) = profile else { return };
        let Some(((namespace, labels), row)) = self.profiles.release(id) else { return };
        debug_assert!(row.placed.is_empty(), "a task leaves its place before its profile");
        for selection in row.matched {
            self.selections.row_mut(selection).profiles.retain(|other| *other != id);
        }
        if let Some(all) = self.by_namespace.get_mut(&namespace) {
            all.retain(|other| *other != id);
            if all.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
        self.words.release(namespace);
        self.words.release_labels(&labels);
    }

    /// Counts a task's place. O(terms that its pod matches or names).
    pub(crate) fn count(&mut self, profile: Profile, class: ClassId, node: NodeId, change: Change) {
        if !self.active || change.is_none() {
            return;
        }
        if change.present == 0 {
            self.coming += i64::from(change.future);
        }
        if let Some(profile) = profile {
            let row = self.profiles.row_mut(profile);
            let placed = row.placed.entry(node).or_default();
            placed.present += change.present;
            placed.future += change.future;
            if placed.is_none() {
                row.placed.remove(&node);
            }
            let matched = row.matched.clone();
            matched.into_iter().for_each(|selection| self.contribute(selection, node, change));
        }
        self.count_owner(class, node, change);
    }

    /// Adds pods of a selection on `node` to all that counts them.
    fn contribute(&mut self, selection: u32, node: NodeId, change: Change) {
        let row = self.selections.row(selection);
        for term in &row.terms {
            let domain = self.keys.row(self.terms.key(*term).1).domain(node);
            self.terms.row_mut(*term).matching.add(domain, change);
        }
        for spread in &row.spreads {
            let SpreadKey { key, eligible, .. } = *self.spreads.key(*spread);
            if self.eligible.row(eligible).has(node) {
                let domain = self.keys.row(key).domain(node);
                self.spreads.row_mut(*spread).add(domain, change);
            }
        }
    }

    fn acquire_selection(&mut self, pods: &[PodSelector]) -> u32 {
        let words = &mut self.words;
        let (id, new) = self.selections.acquire(pods.to_vec(), || Selection::new(pods, words));
        if new {
            let keys: SmallVec<[Word; 4]> = self.selections.row(id).keys().collect();
            for key in keys {
                if self.read.insert(key, ()).is_none() {
                    self.words.hold(key);
                    self.stale = true;
                }
            }
            let selection = self.selections.row(id);
            let fits = |(profile, key, _): (u32, &ProfileKey, &ProfileRow)| {
                selection.matches(key.0, self.namespaces.get(&key.0), &key.1).then_some(profile)
            };
            let profiles: Vec<u32> = self.profiles.iter().filter_map(fits).collect();
            for profile in &profiles {
                self.profiles.row_mut(*profile).matched.push(id);
            }
            self.selections.row_mut(id).profiles = profiles;
        }
        id
    }

    fn release_selection(&mut self, id: u32) {
        let Some((_, selection)) = self.selections.release(id) else { return };
        for profile in &selection.profiles {
            self.profiles.row_mut(*profile).matched.retain(|other| *other != id);
        }
        selection.release(&mut self.words);
    }

    fn acquire_key(&mut self, key: &str, nodes: &Nodes) -> u32 {
        let (id, new) = self.keys.acquire(key.to_owned(), KeyColumn::default);
        if new {
            let column = self.keys.row_mut(id);
            nodes.table.iter().for_each(|(node, row)| column.set_node(key, node, Some(row)));
        }
        id
    }

    /// The term of these pods and key; it counts from now on.
    fn acquire_term(&mut self, pods: &[PodSelector], key: &str, nodes: &Nodes) -> u32 {
        let pair = (self.acquire_selection(pods), self.acquire_key(key, nodes));
        let (id, new) = self.terms.acquire(pair, TermRow::default);
        if !new {
            self.release_selection(pair.0);
            drop(self.keys.release(pair.1));
            return id;
        }
        let column = self.keys.row(pair.1);
        let tally = &mut self.terms.row_mut(id).matching;
        for profile in &self.selections.row(pair.0).profiles {
            for (node, change) in &self.profiles.row(*profile).placed {
                tally.add(column.domain(*node), *change);
            }
        }
        self.selections.row_mut(pair.0).terms.push(id);
        id
    }

    fn release_term(&mut self, id: u32) {
        let Some(((selection, key), _)) = self.terms.release(id) else { return };
        self.selections.row_mut(selection).terms.retain(|other| *other != id);
        self.release_selection(selection);
        drop(self.keys.release(key));
    }

    fn acquire_spread(&mut self, pods: &[PodSelector], key: &str, rule: Eligible, nodes: &Nodes) -> u32 {
        let (selection, key) = (self.acquire_selection(pods), self.acquire_key(key, nodes));
        let (eligible, new_rule) = self.eligible.acquire(rule.clone(), EligibleNodes::default);
        if new_rule {
            let set = self.eligible.row_mut(eligible);
            nodes.table.iter().for_each(|(node, row)| set.set(node, rule.admits(Some(row))));
        }
        let parts = SpreadKey { selection, key, eligible };
        let (id, new) = self.spreads.acquire(parts, SpreadRow::default);
        if !new {
            self.release_parts(parts);
            return id;
        }
        let (column, eligible) = (self.keys.row(key), self.eligible.row(eligible));
        let spread = self.spreads.row_mut(id);
        for (node, _) in nodes.table.iter().filter(|(node, _)| eligible.has(*node)) {
            spread.count_node(column.domain(node), true);
        }
        for profile in &self.selections.row(selection).profiles {
            for (node, change) in self.profiles.row(*profile).placed.iter().filter(|(node, _)| eligible.has(**node)) {
                spread.add(column.domain(*node), *change);
            }
        }
        self.selections.row_mut(selection).spreads.push(id);
        id
    }

    fn release_spread(&mut self, id: u32) {
        let Some((parts, _)) = self.spreads.release(id) else { return };
        self.selections.row_mut(parts.selection).spreads.retain(|other| *other != id);
        self.release_parts(parts);
    }

    fn release_parts(&mut self, SpreadKey { selection, key, eligible }: SpreadKey) {
        self.release_selection(selection);
        drop(self.keys.release(key));
        drop(self.eligible.release(eligible));
    }
}

crate::save::saved! {
    ProfileRow { matched, placed };
    TermRow { matching, owners, pulls, pulling };
    InterPod as "Couplings" { words, active, stale, read, profiles, by_namespace, selections, keys, terms, eligible, spreads, classes, namespaces, coming };
}

#[cfg(test)]
mod tests;

//! What changes between cycles under these constraints: nodes' labels and taints, namespaces' labels, and the label keys
//! that profiles must keep.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::labels::Word;
use super::tally::{Change, Tally};
use super::{InterPod, KEYS_KEPT, Labels, Profile, ProfileRow, SpreadRow};
use crate::cluster::nodes::{NodeRow, Nodes};
use crate::ids::{ClassId, NodeId};

/// What making profiles anew needs of a task.
pub(crate) struct Placed<'t> {
    pub(crate) namespace: &'t str,
    pub(crate) labels: &'t Labels,
    pub(crate) profile: &'t mut Profile,
    pub(crate) presence: Option<(NodeId, Change)>,
}

impl InterPod {
    /// Whether `refresh` has to see the tasks.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Makes all profiles anew, with the labels that selections read now. O(tasks).
    pub(crate) fn refresh<'t>(&mut self, tasks: impl Iterator<Item = Placed<'t>>, nodes: &Nodes) {
        self.forget_profiles(nodes);
        for task in tasks {
            let profile = self.profile(task.namespace, task.labels);
            *task.profile = Some(profile);
            if let Some((node, change)) = task.presence.filter(|(_, change)| !change.is_none()) {
                let row = self.profiles.row_mut(profile);
                let placed = row.placed.entry(node).or_default();
                placed.present += change.present;
                placed.future += change.future;
            }
        }
        let profiles: Vec<u32> = self.profiles.iter().map(|(id, _, _)| id).collect();
        for profile in profiles {
            for selection in self.profiles.row(profile).matched.clone() {
                self.contribute_all(profile, selection, 1);
            }
        }
    }

    fn forget_profiles(&mut self, nodes: &Nodes) {
        self.stale = false;
        for (_, (namespace, labels), _) in std::mem::take(&mut self.profiles).iter() {
            self.words.release(*namespace);
            self.words.release_labels(labels);
        }
        self.by_namespace.clear();
        let mut used: FxHashMap<Word, ()> = FxHashMap::default();
        for (_, _, selection) in self.selections.iter_mut() {
            selection.profiles.clear();
            used.extend(selection.keys().map(|key| (key, ())));
        }
        if self.read.len() > used.len() + KEYS_KEPT {
            used.keys().for_each(|key| self.words.hold(*key));
            let old = std::mem::replace(&mut self.read, used);
            old.keys().for_each(|key| self.words.release(*key));
        }
        for (_, _, term) in self.terms.iter_mut() {
            term.matching = Tally::default();
        }
        for (_, parts, spread) in self.spreads.iter_mut() {
            *spread = SpreadRow::default();
            let (column, eligible) = (self.keys.row(parts.key), self.eligible.row(parts.eligible));
            for (node, _) in nodes.table.iter().filter(|(node, _)| eligible.has(*node)) {
                spread.count_node(column.domain(node), true);
            }
        }
    }

    fn contribute_all(&mut self, profile: u32, selection: u32, times: i32) {
        let placed: Vec<(NodeId, Change)> =
            self.profiles.row(profile).placed.iter().map(|(node, change)| (*node, *change)).collect();
        for (node, change) in placed {
            self.contribute(selection, node, change.times(times));
        }
    }

    /// A node's facts may have changed, or it is gone. O(keys), and where something moved O(profiles + classes).
    pub(crate) fn node_changed(&mut self, nodes: &Nodes, node: NodeId) {
        if !self.active {
            return;
        }
        let row = nodes.table.get(node.index());
        let moves = self.keys.iter().any(|(_, key, column)| column.would_move(key, node, row))
            || self.eligible.iter().any(|(_, rule, set)| rule.admits(row) != set.has(node));
        if !moves {
            return;
        }
        self.toggle(node, -1);
        self.count_node(node, false);
        self.place_node(node, row);
        self.count_node(node, true);
        self.toggle(node, 1);
    }

    fn place_node(&mut self, node: NodeId, row: Option<&NodeRow>) {
        for (_, key, column) in self.keys.iter_mut() {
            column.set_node(key, node, row);
        }
        for (_, rule, set) in self.eligible.iter_mut() {
            let admitted = rule.admits(row);
            set.set(node, admitted);
        }
    }

    fn count_node(&mut self, node: NodeId, there: bool) {
        for (_, parts, spread) in self.spreads.iter_mut() {
            if self.eligible.row(parts.eligible).has(node) {
                spread.count_node(self.keys.row(parts.key).domain(node), there);
            }
        }
    }

    /// Takes away (-1) or adds (1) all that the tasks on a node count for.
    fn toggle(&mut self, node: NodeId, times: i32) {
        let on_node = |(_, _, row): (u32, _, &ProfileRow)| {
            let change = row.placed.get(&node)?.times(times);
            Some((row.matched.clone(), change))
        };
        let contributions: Vec<_> = self.profiles.iter().filter_map(on_node).collect();
        for (matched, change) in contributions {
            matched.into_iter().for_each(|selection| self.contribute(selection, node, change));
        }
        for class in (0..self.classes.len()).map(ClassId::from) {
            let change = self.class(class).and_then(|coupled| coupled.placed.get(&node)).map(|c| c.times(times));
            if let Some(change) = change {
                self.own(class, node, change);
            }
        }
    }

    /// A namespace's labels as they are now; none where it is gone.
    pub(crate) fn namespace_changed(&mut self, name: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        let labels = labels.filter(|labels| !labels.is_empty());
        let known = self.words.find(name).filter(|word| self.namespaces.contains_key(word));
        let same = known.and_then(|word| self.namespaces.get(&word)) == labels;
        if same {
            return false;
        }
        let word = self.words.acquire(name);
        let matched = |inter_pod: &Self| -> Vec<(u32, u32)> {
            let profiles = inter_pod.by_namespace.get(&word).into_iter().flatten().copied();
            let own = inter_pod.namespaces.get(&word);
            let wide: Vec<_> = inter_pod.selections.iter().filter(|(_, _, row)| row.reads_namespaces()).collect();
            let pairs = profiles.flat_map(|profile| wide.iter().map(move |(id, _, row)| (profile, *id, *row)));
            pairs
                .filter(|(profile, _, row)| row.matches(word, own, &inter_pod.profiles.key(*profile).1))
                .map(|(profile, selection, _)| (profile, selection))
                .collect()
        };
        let before = matched(self);
        match labels {
            Some(labels) => {
                if self.namespaces.insert(word, labels.clone()).is_none() {
                    self.words.hold(word);
                }
            }
            None => {
                if self.namespaces.remove(&word).is_some() {
                    self.words.release(word);
                }
            }
        }
        let after = matched(self);
        for (profile, selection) in before.iter().filter(|pair| !after.contains(pair)) {
            self.contribute_all(*profile, *selection, -1);
            self.profiles.row_mut(*profile).matched.retain(|other| other != selection);
            self.selections.row_mut(*selection).profiles.retain(|other| other != profile);
        }
        for (profile, selection) in after.iter().filter(|pair| !before.contains(pair)) {
            self.profiles.row_mut(*profile).matched.push(*selection);
            self.selections.row_mut(*selection).profiles.push(*profile);
            self.contribute_all(*profile, *selection, 1);
        }
        self.words.release(word);
        true
    }
}

//! Selections: sets of pods that terms are about, and which profiles of pods belong to them.
//!
//! A selection is a conjunction of pod selectors: required affinity counts only pods that match all of its terms.
//! Invariant: `profiles` are those that match, and each of them names the selection in its `matched`.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::labels::{Matcher, Word, Words};
use crate::cluster::node_matching::holds;
use crate::facts::{LabelSelector, PodSelector};

/// One pod selector, compiled.
#[derive(Debug)]
struct Part {
    namespaces: SmallVec<[Word; 1]>,
    namespace_selector: Option<LabelSelector>,
    labels: Option<Matcher>,
}

#[derive(Debug)]
pub(crate) struct Selection {
    parts: Vec<Part>,
    pub(crate) profiles: Vec<u32>,
    /// Terms that count its pods by domain.
    pub(crate) terms: SmallVec<[u32; 2]>,
    pub(crate) spreads: SmallVec<[u32; 2]>,
}

impl Selection {
    pub(crate) fn new(selectors: &[PodSelector], words: &mut Words) -> Self {
        let compile = |selector: &PodSelector| Part {
            namespaces: selector.namespaces.iter().map(|name| words.acquire(name)).collect(),
            namespace_selector: selector.namespace_selector.clone(),
            labels: selector.labels.as_ref().map(|labels| Matcher::new(labels, words)),
        };
        let parts = selectors.iter().map(compile).collect();
        Self { parts, profiles: Vec::new(), terms: SmallVec::new(), spreads: SmallVec::new() }
    }

    pub(crate) fn release(&self, words: &mut Words) {
        for part in &self.parts {
            part.namespaces.iter().for_each(|name| words.release(*name));
            if let Some(labels) = &part.labels {
                labels.release(words);
            }
        }
    }

    /// Label keys that it reads.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Word> + '_ {
        self.parts.iter().filter_map(|part| part.labels.as_ref()).flat_map(Matcher::keys)
    }

    /// Labels of namespaces decide.
    pub(crate) fn reads_namespaces(&self) -> bool {
        self.parts.iter().any(|part| part.namespace_selector.is_some())
    }

    /// Whether pods of `namespace` (with these labels of its own) and with `labels` belong to it.
    pub(crate) fn matches(
        &self,
        namespace: Word,
        namespace_labels: Option<&BTreeMap<String, String>>,
        labels: &[(Word, Word)],
    ) -> bool {
        self.parts.iter().all(|part| {
            let in_namespace = part.namespaces.contains(&namespace)
                || part.namespace_selector.as_ref().is_some_and(|selector| selects(selector, namespace_labels));
            in_namespace && part.labels.as_ref().is_some_and(|matcher| matcher.matches(labels))
        })
    }
}

/// A namespace that was not seen has no labels.
fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    selector.requirements.iter().all(|requirement| {
        holds(requirement, labels.and_then(|labels| labels.get(&requirement.key)).map(String::as_str))
    })
}

crate::save::saved! {
    Part { namespaces, namespace_selector, labels };
    Selection { parts, profiles, terms, spreads };
}

//! Labels of pods and selectors over them, as small integers.
//!
//! Invariant: a word lives while labels or a selector name it. Every pod keeps its full labels in this form (8 bytes
//! each), since a selector that comes later may ask for any of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::interned::Interned;
use crate::facts::{LabelSelector, Operator};

pub(crate) type Word = u32;

/// Key and value, sorted by key.
pub(crate) type Labels = Box<[(Word, Word)]>;

#[derive(Debug, Default)]
pub(crate) struct Words(Interned<Arc<str>, ()>);

impl Words {
    pub(crate) fn acquire(&mut self, text: &str) -> Word {
        if let Some(id) = self.0.find(text) {
            self.0.hold(id);
            return id;
        }
        self.0.acquire(text.into(), || ()).0
    }

    pub(crate) fn release(&mut self, word: Word) {
        drop(self.0.release(word));
    }

    pub(crate) fn hold(&mut self, word: Word) {
        self.0.hold(word);
    }

    pub(crate) fn find(&self, text: &str) -> Option<Word> {
        self.0.find(text)
    }

    /// The value of a label.
    pub(crate) fn value(&self, labels: &[(Word, Word)], key: &str) -> Option<&str> {
        let key = self.find(key)?;
        let at = labels.binary_search_by_key(&key, |(key, _)| *key).ok()?;
        Some(self.0.key(labels[at].1))
    }

    pub(crate) fn labels(&mut self, labels: &BTreeMap<String, String>) -> Labels {
        let mut pairs: Vec<(Word, Word)> =
            labels.iter().map(|(key, value)| (self.acquire(key), self.acquire(value))).collect();
        pairs.sort_unstable();
        pairs.into()
    }

    pub(crate) fn release_labels(&mut self, labels: &[(Word, Word)]) {
        for (key, value) in labels {
            self.release(*key);
            self.release(*value);
        }
    }
}

/// How one label is compared.
#[derive(Debug)]
struct Comparison {
    key: Word,
    operator: Operator,
    values: SmallVec<[Word; 2]>,
}

/// A compiled selector over pods' labels.
#[derive(Debug)]
pub(crate) struct Matcher(Vec<Comparison>);

impl Matcher {
    pub(crate) fn new(selector: &LabelSelector, words: &mut Words) -> Self {
        let compile = |requirement: &crate::facts::Requirement| Comparison {
            key: words.acquire(&requirement.key),
            operator: requirement.operator,
            values: requirement.values.iter().map(|value| words.acquire(value)).collect(),
        };
        Self(selector.requirements.iter().map(compile).collect())
    }

    pub(crate) fn release(&self, words: &mut Words) {
        for comparison in &self.0 {
            words.release(comparison.key);
            comparison.values.iter().for_each(|value| words.release(*value));
        }
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = Word> + '_ {
        self.0.iter().map(|comparison| comparison.key)
    }

    pub(crate) fn matches(&self, labels: &[(Word, Word)]) -> bool {
        self.0.iter().all(|comparison| {
            let found = labels.binary_search_by_key(&comparison.key, |(key, _)| *key);
            let actual = found.ok().map(|at| labels[at].1);
            let listed = actual.is_some_and(|value| comparison.values.contains(&value));
            match comparison.operator {
                Operator::In => listed,
                Operator::NotIn => !listed,
                Operator::Exists => actual.is_some(),
                Operator::DoesNotExist => actual.is_none(),
                Operator::Gt | Operator::Lt => false,
            }
        })
    }
}

crate::save::saved! {
    Comparison { key, operator, values };
}

crate::save::saved_inside!(Words, Matcher);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Requirement;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let mut words = Words::default();
        let labels = words.labels(&[("app".to_owned(), "web".to_owned()), ("tier".to_owned(), "x".to_owned())].into());
        let cases = [
            ("app", Operator::In, vec!["web", "db"], true),
            ("app", Operator::In, vec!["db"], false),
            ("app", Operator::NotIn, vec!["db"], true),
            ("none", Operator::NotIn, vec!["db"], true),
            ("app", Operator::Exists, vec![], true),
            ("none", Operator::Exists, vec![], false),
            ("none", Operator::DoesNotExist, vec![], true),
            ("app", Operator::DoesNotExist, vec![], false),
            ("app", Operator::Gt, vec!["1"], false),
        ];
        for (key, operator, values, expected) in cases {
            let values = values.into_iter().map(str::to_owned).collect();
            let requirement = Requirement { key: key.to_owned(), operator, values };
            let matcher = Matcher::new(&LabelSelector { requirements: vec![requirement.clone()] }, &mut words);
            assert_eq!(matcher.matches(&labels), expected, "{requirement:?}");
            matcher.release(&mut words);
        }
        assert!(Matcher(Vec::new()).matches(&labels), "no requirement matches everything");
        words.release_labels(&labels);
        assert_eq!(words.find("app"), None, "nothing names it any more");
    }
}

//! Label and field selectors: `a in (x,y),!b,c!=d` and `metadata.name=x,spec.nodeName!=`.
//!
//! Invariant: a selector that parsed holds only legal keys and values; matching never fails and
//! allocates nothing. Called by the API server for lists and watches, by admission and the engine's
//! shells for affinity terms.

mod field;
mod label;

pub use field::{FieldRequirement, FieldSelector, Operator};
pub use label::{LabelOperator, LabelRequirement, LabelSelector};

use crate::names::NameError;

/// Longest selector text looked at; URLs are shorter.
const TEXT_LEN_MAX: usize = 64 * 1024;

/// Why a text or object is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Something stands where something else should.
    #[error("unable to parse requirement: found '{found}', expected: {expected}")]
    Unexpected {
        /// The word found; empty at the end of the text.
        found: String,
        /// What could have stood there.
        expected: &'static str,
    },
    /// A label key is malformed.
    #[error("unable to parse requirement: key: Invalid value: {key:?}: {source}")]
    Key {
        /// The key as given.
        key: String,
        /// The rule it breaks.
        #[source]
        source: NameError,
    },
    /// A label value is malformed.
    #[error("unable to parse requirement: values[0][{key}]: Invalid value: {value:?}: {source}")]
    Value {
        /// The key it stands beside.
        key: String,
        /// The value as given.
        value: String,
        /// The rule it breaks.
        #[source]
        source: NameError,
    },
    /// `in` or `notin` without values, or an existence test with some.
    #[error("unable to parse requirement: values: Invalid value: {count}: {rule}")]
    ValueCount {
        /// How many values were given.
        count: usize,
        rule: &'static str,
    },
    /// `>` or `<` beside something that is no integer.
    #[error(
        "unable to parse requirement: values[0]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
    )]
    NotInteger {
        /// The value as given.
        value: String,
    },
    /// An operator of `matchExpressions` that does not exist.
    #[error("{operator:?} is not a valid label selector operator")]
    Operator {
        /// The operator as given.
        operator: String,
    },
    /// A selector object of the wrong shape.
    #[error("label selector has a malformed member {member}, write {expected}")]
    Malformed {
        member: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// A field selector term without an operator.
    #[error("invalid selector: '{text}'; can't understand '{term}'")]
    Term {
        /// The whole text.
        text: String,
        /// The term as given.
        term: String,
    },
    /// A backslash in a field selector before something that needs none.
    #[error("invalid selector: '{text}'; invalid field selector: invalid escape sequence: {value}")]
    Escape {
        /// The whole text.
        text: String,
        /// The value with the escape.
        value: String,
    },
    /// A text longer than any URL.
    #[error("selector has {len} bytes, at most 65536 are allowed")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
}

fn check_len(text: &str) -> Result<(), SelectorError> {
    if text.len() <= TEXT_LEN_MAX { Ok(()) } else { Err(SelectorError::TooLong { len: text.len() }) }
}

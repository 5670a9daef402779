//! Field selectors: comma-joined `path=value`, `path==value`, `path!=value`, with `\` escapes.
//!
//! Which paths a resource offers is the caller's to check, through [`FieldSelector::requirements`].

use super::{SelectorError, check_len};

/// How a field compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// The field has the value; an absent field has the empty value.
    Equals,
    /// The field has another value.
    NotEquals,
}

/// One term of a field selector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldRequirement {
    /// The field, like `spec.nodeName`.
    pub path: String,
    pub operator: Operator,
    /// The value compared with, unescaped.
    pub value: String,
}

/// A conjunction of requirements on fields; without any it matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// The selector that matches every object.
    pub const fn everything() -> Self {
        Self { requirements: Vec::new() }
    }

    /// Reads the query string's form; empty terms are skipped, as upstream does.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_len(text)?;
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let Term { path, operator, value } =
                split_term(term).ok_or_else(|| SelectorError::Term { text: text.to_owned(), term: term.to_owned() })?;
            let value = unescape(value)
                .ok_or_else(|| SelectorError::Escape { text: text.to_owned(), value: value.to_owned() })?;
            requirements.push(FieldRequirement { path: path.to_owned(), operator, value });
        }
        Ok(Self { requirements })
    }

    /// The terms in the order in which they were written; all of them must hold.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object matches whose fields `get` looks up; `None` counts as empty.
    pub fn matches<T: AsRef<str>>(&self, get: impl Fn(&str) -> Option<T>) -> bool {
        self.requirements.iter().all(|requirement| {
            let field = get(&requirement.path);
            let field = field.as_ref().map_or("", AsRef::as_ref);
            (field == requirement.value) == (requirement.operator == Operator::Equals)
        })
    }

    /// The value that `path` must have, where the selector says so: lets a list go straight to
    /// one object or one index entry.
    pub fn exact(&self, path: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|requirement| requirement.path == path && requirement.operator == Operator::Equals)
            .map(|requirement| requirement.value.as_str())
    }
}

/// Cuts at commas that no backslash stands before.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b',' => {
                terms.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// A term as it is written: the value may have escapes.
struct Term<'a> {
    path: &'a str,
    operator: Operator,
    value: &'a str,
}

fn split_term(term: &str) -> Option<Term<'_>> {
    let at = term.find(['=', '!'])?;
    let (path, rest) = term.split_at(at);
    if let Some(value) = rest.strip_prefix("!=") {
        return Some(Term { path, operator: Operator::NotEquals, value });
    }
    let value = rest.strip_prefix("==").or_else(|| rest.strip_prefix('='))?;
    Some(Term { path, operator: Operator::Equals, value })
}

/// `\\`, `\,` and `\=` stand for the character; a bare `,` or `=` may not be in a value.
fn unescape(value: &str) -> Option<String> {
    let mut text = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => text.push(escaped),
                _ => return None,
            },
            ',' | '=' => return None,
            c => text.push(c),
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(path: &str) -> Option<&'static str> {
        match path {
            "metadata.name" => Some("x"),
            "spec.nodeName" => Some(""),
            "odd" => Some("a,b=c\\d"),
            _ => None,
        }
    }

    #[test]
    fn texts_match_as_upstream() {
        for (text, matches) in [
            ("", true),
            ("metadata.name=x", true),
            ("metadata.name==x", true),
            ("metadata.name!=x", false),
            ("metadata.name=x,spec.nodeName=", true),
            ("spec.nodeName!=", false),
            ("missing=", true),
            ("missing!=y", true),
            (",metadata.name=x,", true),
            ("odd=a\\,b\\=c\\\\d", true),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(get), matches, "{text}");
        }
        let selector = FieldSelector::parse("spec.nodeName=n1,a!=b").unwrap();
        assert_eq!(selector.exact("spec.nodeName"), Some("n1"));
        assert_eq!(selector.exact("a"), None);
        assert_eq!(selector.requirements().len(), 2);
    }

    #[test]
    fn malformed_texts_are_refused() {
        for (text, message) in [
            ("a", "invalid selector: 'a'; can't understand 'a'"),
            ("a=b,c", "invalid selector: 'a=b,c'; can't understand 'c'"),
            ("a!b", "invalid selector: 'a!b'; can't understand 'a!b'"),
            ("a=b\\x", "invalid selector: 'a=b\\x'; invalid field selector: invalid escape sequence: b\\x"),
            ("a=b=c", "invalid selector: 'a=b=c'; invalid field selector: invalid escape sequence: b=c"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-c=!,\\\\.]{0,20}|\\PC{0,20}") {
            if let Ok(selector) = FieldSelector::parse(&text) {
                selector.matches(get);
            }
        }
    }
}

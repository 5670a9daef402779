//! Names, label keys and label values: what Kubernetes accepts, in its words.
//!
//! Invariant: every check is a linear scan of the text without allocation unless it fails. Called
//! by metadata validation, selectors, admission and the name generator of the API server.

/// Longest DNS label, name part of a label key, and label value.
pub const LABEL_LEN_MAX: usize = 63;
/// Longest DNS subdomain; the limit of most object names.
pub const SUBDOMAIN_LEN_MAX: usize = 253;
/// Length of the random part of a generated name.
pub const SUFFIX_LEN: usize = 5;
/// Letters of the random part: no vowels, so no words.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const LABEL_SHAPE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_SHAPE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_SHAPE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_PART_SHAPE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED_SHAPE: &str = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE_SHAPE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Why a text is not a name of the wanted kind; the message is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The text has characters, or an order of them, that are not allowed.
    #[error("{rule}")]
    Shape {
        /// The rule that is broken.
        rule: &'static str,
    },
    /// The text, or the named part of it, is too long.
    #[error("{part}must be no more than {len_max} bytes")]
    TooLong {
        /// `""`, `"name part "` or `"prefix part "`.
        part: &'static str,
        /// The most bytes allowed.
        len_max: usize,
    },
    /// The named part is empty.
    #[error("{part}must be non-empty")]
    Empty {
        /// `"name part "` or `"prefix part "`.
        part: &'static str,
    },
    /// The prefix of a qualified name is no DNS subdomain.
    #[error("prefix part {rule}")]
    Prefix {
        /// The rule that is broken.
        rule: &'static str,
    },
    /// The text may not stand in a URL path.
    #[error("may not {rule}")]
    PathSegment {
        /// The rule that is broken.
        rule: &'static str,
    },
}

/// The rule that names of a resource follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum NameRule {
    /// DNS-1123 subdomain: most kinds.
    #[default]
    Subdomain,
    /// DNS-1123 label: namespaces and what becomes part of a host name.
    Label,
    /// DNS-1035 label: services.
    Label1035,
    /// Anything that fits a URL path segment: RBAC kinds.
    PathSegment,
}

impl NameRule {
    /// Checks `name` against the rule.
    pub fn check(self, name: &str) -> Result<(), NameError> {
        match self {
            Self::Subdomain => check_dns1123_subdomain(name),
            Self::Label => check_dns1123_label(name),
            Self::Label1035 => check_dns1035_label(name),
            Self::PathSegment => check_path_segment(name),
        }
    }
}

/// Whether `text` is a DNS-1123 label: lower case letters, digits and inner dashes, at most 63.
pub fn check_dns1123_label(text: &str) -> Result<(), NameError> {
    check_len(text, LABEL_LEN_MAX, "")?;
    shape(is_dns_label(text), LABEL_SHAPE)
}

/// Whether `text` is a DNS-1035 label: as DNS-1123, but starting with a letter.
pub fn check_dns1035_label(text: &str) -> Result<(), NameError> {
    check_len(text, LABEL_LEN_MAX, "")?;
    let starts_with_letter = text.starts_with(|c: char| c.is_ascii_lowercase());
    shape(starts_with_letter && is_dns_label(text), LABEL_1035_SHAPE)
}

/// Whether `text` is a DNS-1123 subdomain: labels joined by dots, at most 253.
pub fn check_dns1123_subdomain(text: &str) -> Result<(), NameError> {
    check_len(text, SUBDOMAIN_LEN_MAX, "")?;
    shape(text.split('.').all(is_dns_label), SUBDOMAIN_SHAPE)
}

/// Whether `text` may stand as one segment of a URL path.
pub fn check_path_segment(text: &str) -> Result<(), NameError> {
    let rule = match text {
        "." => "be '.'",
        ".." => "be '..'",
        text if text.contains('/') => "contain '/'",
        text if text.contains('%') => "contain '%'",
        _ => return Ok(()),
    };
    Err(NameError::PathSegment { rule })
}

/// Whether `key` is a label or annotation key: an optional subdomain and `/`, then a name.
pub fn check_qualified_name(key: &str) -> Result<(), NameError> {
    let mut parts = key.split('/');
    let (prefix, name) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => (None, name),
        (Some(prefix), Some(name), None) => (Some(prefix), name),
        _ => {
            return Err(NameError::Shape { rule: QUALIFIED_SHAPE });
        }
    };
    if let Some(prefix) = prefix {
        if prefix.is_empty() {
            return Err(NameError::Empty { part: "prefix part " });
        }
        check_len(prefix, SUBDOMAIN_LEN_MAX, "prefix part ")?;
        if !prefix.split('.').all(is_dns_label) {
            return Err(NameError::Prefix { rule: SUBDOMAIN_SHAPE });
        }
    }
    if name.is_empty() {
        return Err(NameError::Empty { part: "name part " });
    }
    check_len(name, LABEL_LEN_MAX, "name part ")?;
    shape(is_label_text(name), NAME_PART_SHAPE)
}

/// Whether `value` is a label value: empty, or letters, digits and inner `-_.`, at most 63.
pub fn check_label_value(value: &str) -> Result<(), NameError> {
    check_len(value, LABEL_LEN_MAX, "")?;
    shape(value.is_empty() || is_label_text(value), LABEL_VALUE_SHAPE)
}

/// A name from `base` (`metadata.generateName`) and a random `suffix`, cut so that a base made of
/// ASCII gives at most 63 bytes.
pub fn generate_name(base: &str, suffix: &str) -> String {
    let room = LABEL_LEN_MAX.saturating_sub(suffix.len());
    let mut end = base.len().min(room);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{suffix}", &base[..end])
}

/// The five letters of a generated name for the random number `seed`.
pub fn suffix(seed: u64) -> String {
    let mut rest = seed;
    (0..SUFFIX_LEN)
        .map(|_| {
            let letter = SUFFIX_ALPHABET[(rest % SUFFIX_ALPHABET.len() as u64) as usize];
            rest /= SUFFIX_ALPHABET.len() as u64;
            char::from(letter)
        })
        .collect()
}

fn shape(holds: bool, rule: &'static str) -> Result<(), NameError> {
    if holds { Ok(()) } else { Err(NameError::Shape { rule }) }
}

fn check_len(text: &str, len_max: usize, part: &'static str) -> Result<(), NameError> {
    if text.len() <= len_max { Ok(()) } else { Err(NameError::TooLong { part, len_max }) }
}

fn is_dns_label(text: &str) -> bool {
    let is_alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    is_wrapped(text, is_alphanumeric, |byte| is_alphanumeric(byte) || *byte == b'-')
}

fn is_label_text(text: &str) -> bool {
    is_wrapped(text, u8::is_ascii_alphanumeric, |byte| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
    })
}

/// Whether `text` is not empty, its ends are `edge` and the rest is `inner`.
fn is_wrapped(text: &str, edge: impl Fn(&u8) -> bool, inner: impl Fn(&u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(&edge) && bytes.last().is_some_and(&edge) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_subdomains() {
        let long_label = "a".repeat(64);
        let long_domain = "a.".repeat(127);
        for (text, label, label_1035, subdomain) in [
            ("a", true, true, true),
            ("0a", true, false, true),
            ("a-b", true, true, true),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("", false, false, false),
            ("A", false, false, false),
            ("a.b", false, false, true),
            ("a..b", false, false, false),
            ("a_b", false, false, false),
            ("é", false, false, false),
            (&long_label[..63], true, true, true),
            (&long_label, false, false, true),
            (&long_domain[..253], false, false, true),
            (&long_domain, false, false, false),
        ] {
            assert_eq!(check_dns1123_label(text).is_ok(), label, "{text}");
            assert_eq!(check_dns1035_label(text).is_ok(), label_1035, "{text}");
            assert_eq!(check_dns1123_subdomain(text).is_ok(), subdomain, "{text}");
        }
    }

    #[test]
    fn qualified_names_and_label_values() {
        for (key, message) in [
            ("app", None),
            ("volcano.sh/job-name", None),
            ("a.b/C_d.e", None),
            ("/a", Some("prefix part must be non-empty")),
            ("a/", Some("name part must be non-empty")),
            ("a/b/c", Some(QUALIFIED_SHAPE)),
            ("A/b", Some("prefix part a lowercase RFC 1123 subdomain")),
            ("-a", Some(NAME_PART_SHAPE)),
        ] {
            match (check_qualified_name(key), message) {
                (Ok(()), None) => {}
                (Err(error), Some(start)) => {
                    assert!(error.to_string().starts_with(start), "{key}: {error}");
                }
                (outcome, _) => panic!("{key}: {outcome:?}"),
            }
        }
        assert_eq!(
            check_qualified_name(&"a".repeat(64)).unwrap_err().to_string(),
            "name part must be no more than 63 bytes"
        );
        for (value, holds) in [("", true), ("a", true), ("A.b_c-1", true), ("a b", false), ("-", false)] {
            assert_eq!(check_label_value(value).is_ok(), holds, "{value}");
        }
    }

    #[test]
    fn path_segments() {
        for (text, holds) in [("system:node", true), (".", false), ("..", false), ("a/b", false), ("a%b", false)] {
            assert_eq!(check_path_segment(text).is_ok(), holds, "{text}");
        }
    }

    #[test]
    fn generated_names_fit_a_label() {
        assert_eq!(generate_name("job-", "abcde"), "job-abcde");
        assert_eq!(generate_name(&"a".repeat(80), "abcde").len(), 63);
        assert_eq!(generate_name(&"é".repeat(40), "abcde").chars().count(), 34);
        assert_eq!(suffix(0), "bbbbb");
        assert_eq!(suffix(26), "9bbbb");
        assert_ne!(suffix(1), suffix(2));
        assert!(check_dns1123_label(&suffix(u64::MAX)).is_ok());
    }
}

//! The query parameters of a request, parsed once and typed.
//!
//! Invariant: an unknown parameter is ignored, a known one with a bad value is an error that names it.
//! Called by the pipeline before a verb runs.

use pumice_objects::selector::{FieldSelector, LabelSelector};
use pumice_objects::status::Status;

use crate::http::request::percent_decode;

/// Most parameters of one query that are looked at.
const PARAMETERS_MAX: usize = 256;
/// Longest query, in bytes.
const QUERY_BYTES_MAX: usize = 64 * 1024;

/// Why a query can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    #[error("the query is longer than {QUERY_BYTES_MAX} bytes or has more than {PARAMETERS_MAX} parameters")]
    TooLong,
    #[error("the query has a broken percent-encoding or is not UTF-8")]
    Encoding,
    #[error("invalid value {value:?} for query parameter {name:?}: want {wanted}")]
    Value { name: &'static str, value: String, wanted: &'static str },
    #[error("unable to parse {name} {value:?}: {cause}")]
    Selector { name: &'static str, value: String, cause: String },
}

/// Decoded parameters in their order.
#[derive(Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryError::TooLong);
        }
        let mut pairs = Vec::new();
        for part in text.split('&').filter(|part| !part.is_empty()) {
            if pairs.len() == PARAMETERS_MAX {
                return Err(QueryError::TooLong);
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let decode = |text| percent_decode(text, true).ok_or(QueryError::Encoding);
            pairs.push((decode(name)?, decode(value)?));
        }
        Ok(Self { pairs })
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Every value of a parameter, in their order.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first non-empty value of a parameter.
    pub(crate) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// Go's `strconv.ParseBool`; a bare `?watch` counts as true.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, QueryError> {
        match self.get(name) {
            None => Ok(None),
            Some("" | "1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(other) => Err(QueryError::Value { name, value: other.to_owned(), wanted: "true or false" }),
        }
    }

    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, QueryError> {
        self.filled(name)
            .map(|text| {
                text.parse().map_err(|_| QueryError::Value {
                    name,
                    value: text.to_owned(),
                    wanted: "a whole number that is not negative",
                })
            })
            .transpose()
    }

    /// `limit`; as upstream, none and what is below mean no limit.
    fn limit(&self) -> Result<Option<usize>, QueryError> {
        let limit = self.integer("limit")?;
        Ok(limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0))
    }

    /// A number that may be negative, of 64 bits.
    pub(crate) fn integer(&self, name: &'static str) -> Result<Option<i64>, QueryError> {
        let wrong = |text: &str| QueryError::Value { name, value: text.to_owned(), wanted: "a whole number" };
        self.filled(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
    }
}

/// What a `resourceVersion` parameter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionWish {
    /// Unset: the latest.
    Latest,
    /// `0`: whatever is there.
    Any,
    At(u64),
}

/// `resourceVersionMatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    /// Serve the snapshot of exactly this revision.
    Exact,
    /// Serve any snapshot that is not older.
    NotOlderThan,
}

/// Parameters of get, list, watch and deletecollection.
#[derive(Debug)]
pub(crate) struct ReadOptions {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    pub(crate) revision: RevisionWish,
    pub(crate) revision_match: Option<RevisionMatch>,
    /// Most objects of a page.
    pub(crate) limit: Option<usize>,
    /// The token of the page before.
    pub(crate) continues: Option<String>,
    pub(crate) bookmarks: bool,
    pub(crate) initial_events: Option<bool>,
    pub(crate) timeout_seconds: Option<u64>,
}

impl ReadOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, QueryError> {
        let labels = query.get("labelSelector").unwrap_or_default();
        let fields = query.get("fieldSelector").unwrap_or_default();
        let broken = |name, value: &str, cause: String| QueryError::Selector { name, value: value.to_owned(), cause };
        Ok(Self {
            labels: LabelSelector::parse(labels).map_err(|e| broken("labelSelector", labels, e.to_string()))?,
            fields: FieldSelector::parse(fields).map_err(|e| broken("fieldSelector", fields, e.to_string()))?,
            revision: match query.number("resourceVersion")? {
                None => RevisionWish::Latest,
                Some(0) => RevisionWish::Any,
                Some(number) => RevisionWish::At(number),
            },
            revision_match: match query.filled("resourceVersionMatch") {
                None => None,
                Some("Exact") => Some(RevisionMatch::Exact),
                Some("NotOlderThan") => Some(RevisionMatch::NotOlderThan),
                Some(other) => {
                    return Err(QueryError::Value {
                        name: "resourceVersionMatch",
                        value: other.to_owned(),
                        wanted: "Exact or NotOlderThan",
                    });
                }
            },
            limit: query.limit()?,
            continues: query.filled("continue").map(str::to_owned),
            bookmarks: query.flag("allowWatchBookmarks")?.unwrap_or(false),
            initial_events: query.flag("sendInitialEvents")?,
            timeout_seconds: query.number("timeoutSeconds")?,
        })
    }
}

/// What happens to unknown and duplicate fields of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    /// Drop them and say so in `Warning` headers.
    Warn,
    Strict,
}

/// Parameters of requests that change something.
#[derive(Clone, Debug)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Who owns the fields that are written, if the client says so.
    pub(crate) field_manager: Option<String>,
    /// Whether an apply may take fields from others.
    pub(crate) force: bool,
}

/// Longest name of a field manager, in bytes.
pub(crate) const FIELD_MANAGER_BYTES_MAX: usize = 128;

impl WriteOptions {
    pub(crate) fn parse(query: &Query) -> Result<Self, QueryError> {
        let dry_run = match query.filled("dryRun") {
            None => false,
            Some("All") => true,
            Some(other) => {
                return Err(QueryError::Value { name: "dryRun", value: other.to_owned(), wanted: "All" });
            }
        };
        let field_validation = match query.filled("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Ignore") => FieldValidation::Ignore,
            Some("Strict") => FieldValidation::Strict,
            Some(other) => {
                return Err(QueryError::Value {
                    name: "fieldValidation",
                    value: other.to_owned(),
                    wanted: "Ignore, Warn or Strict",
                });
            }
        };
        let field_manager = query.filled("fieldManager");
        let is_name = |name: &str| name.len() <= FIELD_MANAGER_BYTES_MAX && !name.contains(char::is_control);
        if let Some(name) = field_manager.filter(|name| !is_name(name)) {
            return Err(QueryError::Value {
                name: "fieldManager",
                value: name.chars().take(40).collect(),
                wanted: "at most 128 printable characters",
            });
        }
        let force = query.flag("force")?.unwrap_or(false);
        Ok(Self { dry_run, field_validation, field_manager: field_manager.map(str::to_owned), force })
    }
}

impl From<QueryError> for Status {
    fn from(error: QueryError) -> Self {
        Self::bad_request(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=1&labelSelector=x%3Dy&b=c+d&watch").expect("parses");
        assert_eq!(query.get("labelSelector"), Some("x=y"));
        assert_eq!(query.get("b"), Some("c d"));
        assert_eq!(query.flag("watch").expect("flag"), Some(true));
        assert_eq!(query.flag("none").expect("flag"), None);
    }

    #[test]
    fn bad_values_name_their_parameter() {
        for text in [
            "resourceVersion=abc",
            "resourceVersionMatch=x",
            "timeoutSeconds=-1",
            "limit=1.5",
            "allowWatchBookmarks=maybe",
            "labelSelector=%3D%3D%3D",
        ] {
            let query = Query::parse(text).expect("parses");
            let error = ReadOptions::parse(&query).expect_err(text).to_string();
            let name = text.split('=').next().expect("name");
            assert!(error.contains(name), "{error}");
        }
        let long = format!("fieldManager={}", "x".repeat(129));
        for text in ["dryRun=x", "fieldValidation=y", "force=maybe", "fieldManager=a%07", long.as_str()] {
            assert!(WriteOptions::parse(&Query::parse(text).expect("parses")).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn no_query_panics(text in "\\PC{0,120}") {
            if let Ok(query) = Query::parse(&text) {
                let _ = ReadOptions::parse(&query);
                let _ = WriteOptions::parse(&query);
            }
        }
    }
}

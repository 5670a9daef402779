//! Lists in pages: `limit`, `continue` and the revision that a list is of.
//!
//! Invariant: the pages of one list are together what matched at the revision of its first page, and name that revision.
//! Where the store has forgotten it, the client gets 410 with a token that goes on in what is there now. Called by list
//! and deletecollection.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use pumice_objects::status::Status;
use pumice_store::{Object, Range, Store, WatchError};
use serde::{Deserialize, Serialize};

use crate::context::Call;
use crate::handlers::selectors::Matcher;
use crate::handlers::verbs::read;
use crate::http::query::{ReadOptions, RevisionMatch, RevisionWish};

/// Longest token that is looked at, in bytes: a key and room.
const TOKEN_BYTES_MAX: usize = 4096;
/// What tokens of this form begin with.
const VERSION: &str = "pumice.sh/v1";
/// Most objects that are taken from the store at a time to be matched.
const TAKEN_MAX: usize = 10_000;

/// One page of a list.
pub(crate) struct Page {
    /// The revision of the whole list.
    pub(crate) revision: u64,
    pub(crate) items: Vec<Arc<Object>>,
    /// The token for the next page; none at the end.
    pub(crate) next: Option<String>,
    /// How many objects follow, where it is known.
    pub(crate) remaining: Option<usize>,
}

/// Where a list goes on. Clients see it as one opaque word.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    /// The revision of the list; none goes on in what is there now.
    #[serde(rename = "rv", default, skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    /// Namespace and name of the last object of the page before.
    after: (String, String),
    /// How many objects follow, where it is known.
    #[serde(rename = "left", default, skip_serializing_if = "Option::is_none")]
    left: Option<usize>,
}

impl Token {
    fn parse(text: &str, namespace: Option<&str>) -> Result<Self, Status> {
        let broken =
            |cause: &str| Status::bad_request(format!("invalid continue token: continue key is not valid{cause}"));
        if text.len() > TOKEN_BYTES_MAX {
            return Err(broken(": it is too long"));
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| broken(&format!(": {error}")))?;
        let token: Self = serde_json::from_slice(&bytes).map_err(|error| broken(&format!(": {error}")))?;
        if token.version != VERSION {
            return Err(broken(&format!(": server does not recognize this encoded version {}", token.version)));
        }
        if token.after.1.is_empty() {
            return Err(broken(&format!(": encoded start key empty (version {VERSION})")));
        }
        if namespace.is_some_and(|namespace| namespace != token.after.0) {
            return Err(broken(": it is of another namespace"));
        }
        Ok(token)
    }

    fn new(revision: Option<u64>, namespace: &str, name: &str, left: Option<usize>) -> Self {
        Self { version: VERSION.to_owned(), revision, after: (namespace.to_owned(), name.to_owned()), left }
    }

    fn text(&self) -> String {
        // Text and numbers have a JSON form.
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn after(&self) -> (&str, &str) {
        (&self.after.0, &self.after.1)
    }
}

/// The page that a request asks for: everything that matches, or the first `limit` of it.
pub(crate) fn page(call: &Call, options: &ReadOptions, matcher: &Matcher) -> Result<Page, Status> {
    check(options)?;
    let token = options.continues.as_deref().map(|text| Token::parse(text, call.namespace())).transpose()?;
    if token.is_some() && matches!(options.revision, RevisionWish::At(_)) {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    // As upstream: who takes any state gets all of it.
    let limit = if options.revision == RevisionWish::Any && token.is_none() { None } else { options.limit };
    let revision = match (&token, options.revision) {
        (Some(token), _) => token.revision,
        (None, RevisionWish::At(wanted)) if is_exact(options) => Some(wanted),
        (None, RevisionWish::At(wanted)) => {
            read::not_ahead(wanted, call.store().revision())?;
            None
        }
        (None, RevisionWish::Latest | RevisionWish::Any) => None,
    };
    let range = Range { namespace: call.namespace(), after: token.as_ref().map(Token::after), revision };
    let part = take(call.store(), &call.descriptor.storage, range, limit.unwrap_or(usize::MAX), matcher)
        .map_err(|error| refusal(&error, token.as_ref()))?;
    Ok(part.page(matcher.is_everything(), token.and_then(|token| token.left)))
}

/// The rules of parameters that go together, or do not.
fn check(options: &ReadOptions) -> Result<(), Status> {
    let forbidden = match (options.initial_events, options.revision_match, options.revision) {
        (Some(_), _, _) => "sendInitialEvents is forbidden for list",
        (_, Some(_), _) if options.continues.is_some() => "resourceVersionMatch is forbidden when continue is provided",
        (_, Some(_), RevisionWish::Latest) => "resourceVersionMatch is forbidden unless resourceVersion is provided",
        (_, Some(RevisionMatch::Exact), RevisionWish::Any) => {
            "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
        }
        _ => return Ok(()),
    };
    Err(Status::bad_request(forbidden))
}

/// Whether the list must be of exactly the revision that is named. A limit alone says so, as upstream.
fn is_exact(options: &ReadOptions) -> bool {
    match options.revision_match {
        Some(RevisionMatch::Exact) => true,
        Some(RevisionMatch::NotOlderThan) => false,
        None => options.limit.is_some(),
    }
}

/// What was taken from the store.
struct Part {
    revision: u64,
    items: Vec<Arc<Object>>,
    /// The last object that was looked at, if it is not the last of the items.
    passed: Option<Arc<Object>>,
    more: bool,
    total: Option<usize>,
}

/// The first `limit` objects of a range that match. They are matched without the store's lock.
fn take(store: &Store, resource: &str, range: Range<'_>, limit: usize, matcher: &Matcher) -> Result<Part, WatchError> {
    let at_a_time = if matcher.is_everything() || limit == usize::MAX { limit } else { TAKEN_MAX };
    let found = store.page(resource, range, at_a_time)?;
    let mut part =
        Part { revision: found.revision, items: Vec::new(), passed: None, more: found.more, total: found.total };
    part.add(found.items, limit, matcher);
    while part.more && part.items.len() < limit {
        let rest = Range { after: part.last(), revision: Some(part.revision), ..range };
        let found = store.page(resource, rest, at_a_time)?;
        part.more = found.more;
        part.add(found.items, limit, matcher);
    }
    Ok(part)
}

impl Part {
    fn add(&mut self, objects: Vec<Arc<Object>>, limit: usize, matcher: &Matcher) {
        if matcher.is_everything() {
            self.items = objects;
            return;
        }
        for object in objects {
            if self.items.len() == limit {
                self.more = true;
                return;
            }
            if matcher.matches(&object) {
                self.items.push(object);
                self.passed = None;
            } else {
                self.passed = Some(object);
            }
        }
    }

    fn last(&self) -> Option<(&str, &str)> {
        let last = self.passed.as_ref().or(self.items.last())?;
        Some((&last.key.namespace, &last.key.name))
    }

    /// `left` is how many objects this and later pages were to have.
    fn page(self, counts: bool, left: Option<usize>) -> Page {
        let next = if self.more { self.last() } else { None };
        let remaining = if counts && next.is_some() { left.or(self.total) } else { None };
        let remaining = remaining.map(|left| left.saturating_sub(self.items.len()));
        let next = next.map(|(namespace, name)| Token::new(Some(self.revision), namespace, name, remaining).text());
        Page { revision: self.revision, items: self.items, next, remaining }
    }
}

/// What a client is told when there is no such list, or no longer.
fn refusal(error: &WatchError, token: Option<&Token>) -> Status {
    match (error, token) {
        (WatchError::Expired { .. }, Some(token)) => Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list \
             without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
             results. Continuing with the provided token results in an inconsistent list - objects that were created, \
             modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        )
        .with_continue(Token::new(None, &token.after.0, &token.after.1, None).text()),
        _ => read::watch_status(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_back_as_they_went() {
        for (revision, after, left) in [(Some(7), ("ns", "a"), Some(3)), (None, ("", "n/\u{fffd}"), None)] {
            let token = Token::parse(&Token::new(revision, after.0, after.1, left).text(), None).expect("token");
            assert_eq!((token.revision, token.after(), token.left), (revision, after, left));
        }
        let token = Token::new(Some(1), "ns", "a", None).text();
        assert!(Token::parse(&token, Some("ns")).is_ok());
        assert!(Token::parse(&token, Some("other")).is_err());
    }

    #[test]
    fn broken_tokens_are_refused() {
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        for text in [
            "%".to_owned(),
            encode("{"),
            encode("{}"),
            encode(r#"{"v":"meta.k8s.io/v1","rv":1,"after":["a","b"]}"#),
            encode(r#"{"v":"pumice.sh/v1","rv":1,"after":["a",""]}"#),
            encode(r#"{"v":"pumice.sh/v1","rv":-1,"after":["a","b"]}"#),
            "A".repeat(TOKEN_BYTES_MAX + 4),
        ] {
            let status = Token::parse(&text, None).expect_err("broken");
            assert_eq!(status.code, 400);
            assert!(status.message.starts_with("invalid continue token: continue key is not valid"), "{status}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_token_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80), text in "\\PC{0,40}") {
            let _ = (Token::parse(&text, None), Token::parse(&BASE64_URL_SAFE_NO_PAD.encode(bytes), Some("a")));
        }
    }
}

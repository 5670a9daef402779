//! What a request asks for, read from its method, path and query alone.
//!
//! Owns the URL grammar of Kubernetes (`/api/v1/...`, `/apis/G/V/...`). Invariant: parsing never looks at the
//! registry and never fails on strange input; what is no resource path is [`Target::Other`]. Called by the pipeline.

use std::fmt;

use http::Method;

/// Longest path that is parsed at all, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 4096;

/// What a request does, in the words of RBAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    Get,
    List,
    Watch,
    /// Make a new object.
    Create,
    Update,
    /// Change parts of an object.
    Patch,
    Delete,
    /// Delete what a selector names.
    DeleteCollection,
}

impl Verb {
    /// The lower-case name that RBAC rules and discovery use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request for an API resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourceRequest {
    pub(crate) verb: Verb,
    /// `""` for the core group.
    pub(crate) group: String,
    pub(crate) version: String,
    /// `""` when the path names no namespace.
    pub(crate) namespace: String,
    pub(crate) resource: String,
    /// `""` for collections.
    pub(crate) name: String,
    /// `""` for the main resource.
    pub(crate) subresource: String,
    /// Path segments beyond the subresource (proxy paths).
    pub(crate) rest: Vec<String>,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Resource(ResourceRequest),
    /// Anything else: discovery, health, OpenAPI, unknown paths. Segments are decoded.
    Other(Vec<String>),
}

/// Why a path can't be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum PathError {
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
    #[error("the path has a broken percent-encoding or is not UTF-8")]
    Encoding,
    #[error("the path segment {0:?} may not contain '/', '%' or control characters, nor be '.' or '..'")]
    Segment(String),
}

/// Parses method and path. `watching` is whether the query asks for a watch.
pub(crate) fn parse(method: &Method, path: &str, watching: bool) -> Result<Target, PathError> {
    let segments = segments(path)?;
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
        _ => return Ok(Target::Other(segments)),
    };
    let (namespace, rest) = split_namespace(rest);
    let at = |index: usize| rest.get(index).copied().unwrap_or_default().to_owned();
    let name = at(1);
    let Some(verb) = verb(method, name.is_empty(), watching) else {
        return Ok(Target::Other(segments));
    };
    Ok(Target::Resource(ResourceRequest {
        verb,
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: at(0),
        name,
        subresource: at(2),
        rest: rest.iter().skip(3).map(|part| (*part).to_owned()).collect(),
    }))
}

/// `namespaces/x/pods/...` lives in `x`; `namespaces/x`, `/status` and `/finalize` are the namespace itself.
fn split_namespace<'a, 'b>(rest: &'b [&'a str]) -> (&'a str, &'b [&'a str]) {
    match rest {
        ["namespaces", name] => (name, rest),
        ["namespaces", name, "status" | "finalize"] => (name, rest),
        ["namespaces", name, tail @ ..] if !tail.is_empty() => (name, tail),
        _ => ("", rest),
    }
}

fn verb(method: &Method, collection: bool, watching: bool) -> Option<Verb> {
    Some(match (method.as_str(), collection) {
        ("GET", _) if watching => Verb::Watch,
        ("GET" | "HEAD", true) => Verb::List,
        ("GET" | "HEAD", false) => Verb::Get,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::DeleteCollection,
        ("DELETE", false) => Verb::Delete,
        _ => return None,
    })
}

fn segments(path: &str) -> Result<Vec<String>, PathError> {
    if path.len() > PATH_BYTES_MAX {
        return Err(PathError::TooLong);
    }
    path.split('/')
        .filter(|segment| !segment.is_empty())
        .map(|segment| {
            let decoded = percent_decode(segment, false).ok_or(PathError::Encoding)?;
            let bad = decoded.contains(['/', '%']) || decoded.chars().any(char::is_control);
            if bad || decoded == "." || decoded == ".." {
                return Err(PathError::Segment(decoded));
            }
            Ok(decoded)
        })
        .collect()
}

/// Decodes `%xx`, and `+` as a space where `plus` says so. `None` for broken encodings and bad UTF-8.
pub(crate) fn percent_decode(text: &str, plus: bool) -> Option<String> {
    if !text.contains(['%', '+']) {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let high = char::from(rest.next()?).to_digit(16)?;
                let low = char::from(rest.next()?).to_digit(16)?;
                u8::try_from(high * 16 + low).ok()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: Method, path: &str, watching: bool) -> String {
        match parse(&method, path, watching).expect("parses") {
            Target::Other(parts) => format!("other {}", parts.join("/")),
            Target::Resource(r) => format!(
                "{} {:?} {} ns={} {} {} {} {}",
                r.verb,
                r.group,
                r.version,
                r.namespace,
                r.resource,
                r.name,
                r.subresource,
                r.rest.join("/")
            )
            .trim_end()
            .to_owned(),
        }
    }

    #[test]
    fn paths_are_read_as_upstream_does() {
        let cases = [
            (Method::GET, "/api/v1/pods", false, "list \"\" v1 ns= pods"),
            (Method::GET, "/api/v1/pods", true, "watch \"\" v1 ns= pods"),
            (Method::GET, "/api/v1/namespaces", false, "list \"\" v1 ns= namespaces"),
            (Method::GET, "/api/v1/namespaces/a", false, "get \"\" v1 ns=a namespaces a"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", false, "update \"\" v1 ns=a namespaces a finalize"),
            (Method::POST, "/api/v1/namespaces/a/pods", false, "create \"\" v1 ns=a pods"),
            (Method::GET, "/api/v1/namespaces/a/pods/p/log", false, "get \"\" v1 ns=a pods p log"),
            (Method::DELETE, "/apis/b.io/v1/namespaces/a/jobs", false, "deletecollection \"b.io\" v1 ns=a jobs"),
            (Method::PATCH, "/apis/b.io/v1/queues/q/status", false, "patch \"b.io\" v1 ns= queues q status"),
            (Method::GET, "/api/v1/namespaces/a/services/s/proxy/x/y", false, "get \"\" v1 ns=a services s proxy x/y"),
            (Method::GET, "/apis/b.io/v1", false, "other apis/b.io/v1"),
            (Method::GET, "//healthz/", false, "other healthz"),
            (Method::OPTIONS, "/api/v1/pods", false, "other api/v1/pods"),
            (Method::GET, "/api/v1/pods/a%20b", false, "get \"\" v1 ns= pods a b"),
        ];
        for (method, path, watching, wanted) in cases {
            assert_eq!(resource(method, path, watching), wanted, "{path}");
        }
    }

    #[test]
    fn broken_paths_are_errors() {
        for path in ["/api/v1/pods/%zz", "/api/v1/pods/%2e%2e", "/api/%2f/pods", "/api/v1/pods/%ff", "/a%00"] {
            assert!(parse(&Method::GET, path, false).is_err(), "{path}");
        }
        assert_eq!(parse(&Method::GET, &"/a".repeat(3000), false), Err(PathError::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn no_path_panics(path in "\\PC{0,80}", watching: bool) {
            let _ = parse(&Method::GET, &path, watching);
        }
    }
}

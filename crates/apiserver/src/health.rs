//! `/livez`, `/readyz` and `/healthz`: whether the server lives, and whether its platform can take work.
//!
//! Invariant: a look costs no more than its checks, and none of them waits. Anybody may ask; why a check fails is told to
//! those who show who they are, as it may name things of the machine. Formats and parameters are upstream's.

use std::fmt::Write as _;

use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use pumice_auth::{AUTHENTICATED, Identity};
use pumice_objects::status::Status;
use pumice_store::{DiskSpace, Store};

use crate::http::body::Body;
use crate::http::query::Query;
use crate::http::respond::Answer;

/// What a check finds: nothing, or why its part isn't well.
type Look = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// One thing that must be well.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) look: Look,
    pub(crate) weight: Weight,
}

/// What hangs on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// A server without it can be helped by nothing but a restart.
    Vital,
    /// Without it no work can be taken.
    Needed,
    /// Work goes on without it; it is only told.
    Informational,
}

/// Everything that must be well.
pub(crate) struct Health(Vec<Check>);

impl Health {
    /// The server's own checks, and `more` that say whether work can be taken. `warn_bytes` is what should be free on the
    /// store's disk.
    pub(crate) fn new(store: &Store, warn_bytes: u64, more: Vec<Check>) -> Self {
        let check = |name, weight, look| Check { name, look, weight };
        let (open, writes, grows) = (store.clone(), store.clone(), store.clone());
        let mut checks = vec![
            check("ping", Weight::Vital, Box::new(|| Ok(())) as Look),
            check("store", Weight::Vital, Box::new(move || well(!open.stats().closed, "the store has closed"))),
            check(
                "store-writes",
                Weight::Needed,
                Box::new(move || well(!writes.stats().failing, "the last commit failed")),
            ),
            check("store-room", Weight::Informational, Box::new(move || short_of_room(&grows, warn_bytes))),
        ];
        checks.extend(more);
        Self(checks)
    }

    /// Answers one of the paths, without its leading slash.
    pub(crate) fn answer(&self, parts: &[&str], query: &Query, identity: &Identity) -> Answer {
        let (of, one) = match parts {
            [of] => (*of, None),
            [of, name] => (*of, Some(*name)),
            _ => return Err(Status::unknown_path()),
        };
        let mut checks = self.0.iter().filter(|check| of != "livez" || check.weight == Weight::Vital);
        let told = identity.is_in(AUTHENTICATED);
        if let Some(name) = one {
            let check = checks.find(|check| check.name == name).ok_or_else(Status::unknown_path)?;
            return Ok(match (check.look)() {
                Ok(()) => text(StatusCode::OK, "ok".to_owned()),
                Err(why) => {
                    let why = if told { why } else { "reason withheld".to_owned() };
                    text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            });
        }
        let checks: Vec<&Check> = checks.collect();
        let verbose = query.get("verbose").is_some();
        Ok(all(of, &checks, query, verbose, told))
    }
}

fn all(of: &str, checks: &[&Check], query: &Query, verbose: bool, told: bool) -> Response<Body> {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let (mut page, mut failed) = (String::new(), Vec::new());
    for Check { name, look, weight } in checks {
        // Writing to a String can't fail.
        let _ = if excluded.contains(name) {
            writeln!(page, "[+]{name} excluded: ok")
        } else {
            match look() {
                Ok(()) => writeln!(page, "[+]{name} ok"),
                Err(why) => {
                    failed.extend((*weight != Weight::Informational).then_some(*name));
                    writeln!(page, "[-]{name} failed: {}", if told { why.as_str() } else { "reason withheld" })
                }
            }
        };
    }
    let unknown: Vec<String> = excluded
        .iter()
        .filter(|name| checks.iter().all(|c| c.name != **name))
        .map(|name| format!("{name:?}"))
        .collect();
    if !unknown.is_empty() {
        let _ = writeln!(page, "warn: some health checks cannot be excluded: no matches for {}", unknown.join(", "));
    }
    if !failed.is_empty() {
        tracing::warn!(check = of, failed = failed.join(","), "not well");
        let _ = writeln!(page, "{of} check failed");
        return text(StatusCode::INTERNAL_SERVER_ERROR, page);
    }
    if !verbose {
        return text(StatusCode::OK, "ok".to_owned());
    }
    let _ = writeln!(page, "{of} check passed");
    text(StatusCode::OK, page)
}

/// Says that the disk is nearly full, before a commit fails.
fn short_of_room(store: &Store, warn_bytes: u64) -> Result<(), String> {
    match store.disk_space().filter(|space| space.is_short(warn_bytes)) {
        None => Ok(()),
        Some(DiskSpace { free_bytes, total_bytes }) => Err(format!(
            "{} MB of {} MB are free on the disk of the store; when it is full, writes are refused until there is room",
            free_bytes >> 20,
            total_bytes >> 20
        )),
    }
}

fn well(is: bool, else_why: &str) -> Result<(), String> {
    if is { Ok(()) } else { Err(else_why.to_owned()) }
}

fn text(code: StatusCode, page: String) -> Response<Body> {
    let mut response = Response::new(Body::from(page));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

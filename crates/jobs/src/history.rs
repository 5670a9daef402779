//! What became of jobs, also of those whose objects are gone: asked of `history.pumice.sh`.
//!
//! Invariant: answers are read page by page and no further than was asked for. What is shown is made elsewhere, pure: tables and
//! one job's story in `text`, rows of plain values in `sheet`. Called by `jobctl history` and by Python's `pumice.history`.

mod error;
pub mod parquet;
pub mod sheet;
pub mod text;

pub use error::HistoryError;

use jiff::{SignedDuration, Timestamp};
use pumice_api::history::{GROUP, GroupRecord, JobRecord, Page, VERSION};
use pumice_units::GoDuration;
use serde::Deserialize;

use crate::error::Error;
use crate::platform::call::{self, CallCause, CallError, FailureClass, Pages};
use crate::platform::connection::Connection;

/// Rows shown unless said otherwise.
pub const LIMIT: usize = 1_000;
/// Groups that the server answers with at most.
const GROUPS_MAX: usize = 1_000;

/// Which jobs; what is not named leaves nothing out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// Of this namespace; of all where there is none.
    pub namespace: Option<String>,
    /// Of this name; `*` stands for anything.
    pub name: Option<String>,
    /// Submitted by this user.
    pub user: Option<String>,
    pub queue: Option<String>,
    /// With a pod on this node.
    pub node: Option<String>,
    /// In any of these phases, in any case.
    pub states: Vec<String>,
    /// Not over before this moment.
    pub since: Option<Timestamp>,
    /// Submitted before this moment.
    pub until: Option<Timestamp>,
}

/// What jobs can be put together by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupBy {
    User,
    Queue,
    Namespace,
    /// The day of their submission, UTC.
    Day,
    Name,
    Phase,
    /// Their name without what differs from run to run.
    Profile,
    /// The nodes of their pods.
    Node,
}

impl GroupBy {
    /// All of them and their words.
    pub const WORDS: [(&'static str, GroupBy); 8] = [
        ("user", GroupBy::User),
        ("queue", GroupBy::Queue),
        ("namespace", GroupBy::Namespace),
        ("day", GroupBy::Day),
        ("name", GroupBy::Name),
        ("phase", GroupBy::Phase),
        ("profile", GroupBy::Profile),
        ("node", GroupBy::Node),
    ];

    /// The word that `--group-by` and the history server know it by.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, by)| *by == self).map_or("", |(word, _)| word)
    }
}

/// A word that jobs can't be put together by.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such group; known are {}", GroupBy::WORDS.map(|(word, _)| word).join(", "))]
pub struct UnknownGroup;

impl std::str::FromStr for GroupBy {
    type Err = UnknownGroup;

    fn from_str(text: &str) -> Result<Self, UnknownGroup> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, by)| *by).ok_or(UnknownGroup)
    }
}

impl Ask {
    fn path(&self) -> String {
        path(self.namespace.as_deref())
    }

    /// As a query string that goes on another one.
    fn query(&self) -> String {
        let Ask { namespace: _, name, user, queue, node, states, since, until } = self;
        let states = (!states.is_empty()).then(|| states.join(","));
        let [since, until] = [since, until].map(|time| time.map(|time| time.to_string()));
        let parameters = [
            ("name", name),
            ("user", user),
            ("queue", queue),
            ("node", node),
            ("phase", &states),
            ("since", &since),
            ("until", &until),
        ];
        let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.map(|(name, value)| format!("&{name}={}", call::query_value(value))).collect()
    }
}

fn path(namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("/apis/{GROUP}/{VERSION}/namespaces/{}/jobs", call::query_value(namespace)),
        None => format!("/apis/{GROUP}/{VERSION}/jobs"),
    }
}

/// The jobs that are meant, the last submitted first, at most `limit`; and whether there are more.
pub async fn jobs(connection: &Connection, ask: &Ask, limit: usize) -> Result<(Vec<JobRecord>, bool), Error> {
    let mut pages = Pages::new(connection, &ask.path(), &ask.query(), "read the history");
    let mut jobs: Vec<JobRecord> = Vec::new();
    while jobs.len() <= limit {
        match pages.next_items().await {
            Ok(Some(page)) => jobs.extend(page),
            Ok(None) => break,
            Err(error) => return Err(failed(connection, error)),
        }
    }
    let more = jobs.len() > limit;
    jobs.truncate(limit);
    Ok((jobs, more))
}

/// Sums over the jobs that are meant, by what they have in common.
pub async fn groups(connection: &Connection, ask: &Ask, by: GroupBy) -> Result<Vec<GroupRecord>, Error> {
    let path = format!("{}?limit={GROUPS_MAX}&groupBy={}{}", ask.path(), by.word(), ask.query());
    let doing = "read the history";
    let answer = call::get(connection, &path, doing).await.map_err(|error| failed(connection, error))?;
    let page = Page::<GroupRecord>::deserialize(&answer);
    Ok(page.map_err(|error| CallError::unreadable(doing, connection.url(), error))?.items)
}

/// All of one job: the last one of that name, or the one of that uid.
pub async fn one(connection: &Connection, namespace: &str, name: &str, uid: Option<&str>) -> Result<JobRecord, Error> {
    let which = uid.map(|uid| format!("?uid={}", call::query_value(uid))).unwrap_or_default();
    let path = format!("{}/{}{which}", path(Some(namespace)), call::query_value(name));
    let doing = format!("read the history of job {name}");
    let answer = call::get(connection, &path, &doing).await.map_err(|error| match &error.cause {
        CallCause::Refused { message, .. } if message.starts_with(&format!("jobs.{GROUP} ")) => {
            HistoryError::NoPast { name: name.to_owned(), namespace: namespace.to_owned() }.into()
        }
        _ => failed(connection, error),
    })?;
    Ok(JobRecord::deserialize(&answer).map_err(|error| CallError::unreadable(&doing, connection.url(), error))?)
}

/// A server that does not know the path has no history.
fn failed(connection: &Connection, error: CallError) -> Error {
    match error.class() {
        FailureClass::NotFound => HistoryError::NoHistory { url: connection.url().to_owned() }.into(),
        _ => error.into(),
    }
}

/// A text that is no moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no time; try 2h, 7d, 2026-01-31 or 2026-01-31T08:00:00Z")]
pub struct NoMoment(String);

/// Reads a moment: so long ago, the beginning of a day (UTC), or a time.
///
/// # Errors
/// When it is none of these, or too long ago to be one.
pub fn moment(text: &str, now: Timestamp) -> Result<Timestamp, NoMoment> {
    let wrong = || NoMoment(text.chars().take(64).collect());
    let ago = match text.strip_suffix('d').map(str::parse::<i64>) {
        Some(Ok(days)) => days.checked_mul(24 * 3_600_000),
        _ => text.parse::<GoDuration>().ok().map(|duration| duration.as_millis()),
    };
    match ago {
        Some(ago) if ago < 0 => Err(wrong()),
        Some(ago) => now.checked_sub(SignedDuration::from_millis(ago)).map_err(|_| wrong()),
        None => text.parse().or_else(|_| format!("{text}T00:00:00Z").parse()).map_err(|_| wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_a_path_and_a_query() {
        assert_eq!(
            (Ask::default().path(), Ask::default().query()),
            ("/apis/history.pumice.sh/v1alpha1/jobs".to_owned(), String::new())
        );
        let ask = Ask {
            namespace: Some("ns".into()),
            name: Some("a-*".into()),
            user: Some("pumice:administrator".into()),
            states: vec!["failed".into(), "deleted".into()],
            since: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            ..Ask::default()
        };
        assert_eq!(ask.path(), "/apis/history.pumice.sh/v1alpha1/namespaces/ns/jobs");
        assert_eq!(
            ask.query(),
            "&name=a-%2A&user=pumice%3Aadministrator&phase=failed%2Cdeleted&since=2026-01-02T03%3A04%3A05Z"
        );
    }

    #[test]
    fn groups_have_words() {
        for (word, by) in GroupBy::WORDS {
            assert_eq!((word.parse(), by.word()), (Ok(by), word));
        }
        assert!("colour".parse::<GroupBy>().unwrap_err().to_string().contains("user, queue"));
    }

    #[test]
    fn moments() {
        let now: Timestamp = "2026-02-03T12:00:00Z".parse().unwrap();
        for (text, expected) in [
            ("2h", "2026-02-03T10:00:00Z"),
            ("1h30m", "2026-02-03T10:30:00Z"),
            ("7d", "2026-01-27T12:00:00Z"),
            ("0d", "2026-02-03T12:00:00Z"),
            ("2026-01-31", "2026-01-31T00:00:00Z"),
            ("2026-01-31T08:00:00+02:00", "2026-01-31T06:00:00Z"),
        ] {
            assert_eq!(moment(text, now).map(|time| time.to_string()), Ok(expected.to_owned()), "{text}");
        }
        for wrong in ["", "yesterday", "-1d", "-2h", "99999999999999d", "2026-02-30", "d"] {
            assert!(moment(wrong, now).unwrap_err().to_string().contains("try 2h"), "{wrong}");
        }
    }
}

//! The parameters of a question, parsed once.

use jiff::Timestamp;
use pumice_api::history::JobRecord;

use super::{GroupBy, QueryError, Question};

/// Parameters of one query that are looked at.
const PARAMETERS_MAX: usize = 64;
/// Longest value, in bytes.
const VALUE_MAX: usize = 512;

/// Reads the query string of a request; parameters that are not known are passed over.
///
/// # Errors
/// When a known one has a value that makes no sense.
pub fn parse(query: &str, namespace: Option<&str>) -> Result<Question, QueryError> {
    let mut question = Question { namespace: namespace.map(str::to_owned), ..Question::default() };
    for (name, value) in form_urlencoded::parse(query.as_bytes()).take(PARAMETERS_MAX) {
        let wrong = |name, wanted| QueryError::Parameter { name, value: value.chars().take(64).collect(), wanted };
        if value.is_empty() {
            continue;
        }
        if value.len() > VALUE_MAX {
            return Err(wrong("of any name", "at most 512 bytes"));
        }
        let text = Some(value.to_string());
        let time = |name| {
            let parsed: Result<Timestamp, _> = value.parse();
            parsed
                .map(|time| Some(time.as_millisecond()))
                .map_err(|_| wrong(name, "a time such as 2026-01-31T08:00:00Z"))
        };
        match name.as_ref() {
            "name" => question.name = text,
            "user" => question.user = text,
            "queue" => question.queue = text,
            "profile" => question.profile = text,
            "node" => question.node = text,
            "phase" => question.phases.extend(value.split(',').map(str::to_owned)),
            "since" => question.since = time("since")?,
            "until" => question.until = time("until")?,
            "limit" => {
                let limit = value.parse::<i64>().ok().filter(|limit| *limit > 0);
                question.limit = limit.ok_or_else(|| wrong("limit", "a number above 0"))?;
            }
            "continue" => {
                let token = value.split_once('.').and_then(|(time, uid)| Some((time.parse().ok()?, uid.to_owned())));
                question.after = Some(token.ok_or_else(|| wrong("continue", "what the last answer said"))?);
            }
            "groupBy" => {
                let by = GroupBy::WORDS.into_iter().find(|(word, _)| *word == value).map(|(_, by)| by);
                question.group =
                    Some(by.ok_or_else(|| {
                        wrong("groupBy", "user, queue, namespace, day, name, phase, profile or node")
                    })?);
            }
            _ => {}
        }
    }
    Ok(question)
}

/// Where an answer that ends with this job goes on.
pub(super) fn token(last: &JobRecord) -> String {
    format!("{}.{}", last.submitted.map_or(0, Timestamp::as_millisecond), last.metadata.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read() {
        let query = "user=pumice%3Aadministrator&phase=failed,Completed&since=2026-01-01T00:00:00Z&limit=7&continue=12.u-1&groupBy=day&fieldSelector=x&name=";
        let question = parse(query, Some("ns")).unwrap();
        let expected = Question {
            namespace: Some("ns".into()),
            user: Some("pumice:administrator".into()),
            phases: vec!["failed".into(), "Completed".into()],
            since: Some(1_767_225_600_000),
            limit: 7,
            after: Some((12, "u-1".into())),
            group: Some(GroupBy::Day),
            ..Question::default()
        };
        assert_eq!(question, expected);
    }

    #[test]
    fn nonsense_is_named() {
        let long = format!("user={}", "x".repeat(VALUE_MAX + 1));
        let cases = [
            "since=yesterday",
            "until=1",
            "limit=0",
            "limit=-1",
            "limit=x",
            "continue=x",
            "continue=x.y",
            "groupBy=colour",
            &long,
        ];
        for query in cases {
            let refused = parse(query, None).unwrap_err();
            assert!(refused.to_string().contains("want "), "{query}: {refused}");
        }
    }
}

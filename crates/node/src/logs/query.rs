//! The query of a request for logs.

use jiff::{SignedDuration, Timestamp};
use pumice_clock as clock;

use pumice_shim::logs::Stream;

/// What part of a log is wanted, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LogQuery {
    /// Go on until the container ends.
    pub follow: bool,
    /// Of the run before this one.
    pub previous: bool,
    /// With the time before each line.
    pub timestamps: bool,
    /// Only so many last lines.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only lines from then on.
    pub since: Option<Timestamp>,
    /// Only this stream.
    pub stream: Option<Stream>,
}

impl LogQuery {
    /// Reads a query string; unknown names are ignored, as the kubelet does.
    pub(crate) fn parse(text: &str) -> Result<LogQuery, String> {
        let mut query = LogQuery::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decoded(value);
            match name {
                "follow" => query.follow = flag(&value),
                "previous" => query.previous = flag(&value),
                "timestamps" => query.timestamps = flag(&value),
                "tailLines" => query.tail_lines = Some(number(name, &value)?),
                "limitBytes" => query.limit_bytes = Some(number(name, &value)?),
                "sinceSeconds" => {
                    let seconds = i64::try_from(number(name, &value)?).unwrap_or(i64::MAX);
                    query.since = clock::now().checked_sub(SignedDuration::from_secs(seconds)).ok();
                }
                "stream" => query.stream = stream(&value)?,
                "sinceTime" => {
                    let time = value.parse().map_err(|_| "sinceTime must be a time as in RFC 3339".to_owned())?;
                    query.since = Some(time);
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

fn flag(value: &str) -> bool {
    matches!(value, "" | "1" | "t" | "T" | "true" | "True" | "TRUE")
}

/// As Kubernetes spells them.
fn stream(value: &str) -> Result<Option<Stream>, String> {
    match value {
        "" | "All" => Ok(None),
        "Stdout" => Ok(Some(Stream::Stdout)),
        "Stderr" => Ok(Some(Stream::Stderr)),
        _ => Err("stream must be All, Stdout or Stderr".to_owned()),
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} must be a whole number that is not negative"))
}

/// Percent-decoding; a plus stands for itself in times.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match escaped(&bytes[at..]) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The byte that `%` and two hexadecimal digits at the start of `text` stand for.
fn escaped(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"%")?.get(..2)?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_kubectl_writes_them() {
        let query =
            LogQuery::parse("container=c&follow=true&tailLines=10&sinceTime=2023-11-14T22%3A13%3A20Z&x").unwrap();
        assert!(query.follow && !query.previous);
        assert_eq!(query.tail_lines, Some(10));
        assert_eq!(query.since.map(|at| at.as_second()), Some(1_700_000_000));
        assert_eq!(LogQuery::parse("").unwrap(), LogQuery::default());
        assert!(LogQuery::parse("limitBytes=x").is_err());
        for (text, stream) in
            [("stream=Stderr", Some(Stream::Stderr)), ("stream=Stdout", Some(Stream::Stdout)), ("stream=All", None)]
        {
            assert_eq!(LogQuery::parse(text).unwrap().stream, stream, "{text}");
        }
        assert_eq!(LogQuery::parse("stream=stderr").unwrap_err(), "stream must be All, Stdout or Stderr");
    }
}

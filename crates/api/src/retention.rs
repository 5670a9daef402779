//! How long finished work stays: a platform's settings, and what annotations of a namespace say otherwise.
//!
//! Invariant: one grammar for flags and annotations: a time is `7d` or a duration such as `12h`, a number is a number, and `off`
//! takes a bound away. `0` is no special word: it keeps nothing. Read by the controllers, the API server and the command line.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use pumice_units::GoDuration;

use crate::names::{FINISHED_JOBS_MAX, FINISHED_PODS_MAX, FINISHED_TTL};

/// How long finished work stays unless said otherwise.
const TTL: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Finished Jobs of each kind that stay in a namespace unless said otherwise.
const JOBS_MAX: usize = 10_000;
/// Finished pods that stay in a namespace unless said otherwise; the number of Kubernetes' `--terminated-pod-gc-threshold`.
const PODS_MAX: usize = 12_500;
/// The word for no bound.
const OFF: &str = "off";
/// Longest time that is read, a hundred years.
const DAYS_MAX: u32 = 36_500;
/// Characters of a text that are repeated in an error.
const TEXT_MAX: usize = 64;
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// A time after which finished work leaves; none = it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBound(pub Option<Duration>);

/// A number beyond which the oldest finished work leaves; none = all of it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberBound(pub Option<usize>);

/// The bounds of finished work, each for one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long finished Jobs, JobFlows, and pods without an owner stay.
    pub ttl: TimeBound,
    /// Most finished Jobs of each kind, and JobFlows.
    pub jobs_max: NumberBound,
    /// Most finished pods: so many without an owner, and so many that belong to what has ended or to others.
    pub pods_max: NumberBound,
}

/// What is wrong with a bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoundError {
    #[error("{0:?} is no time; try 7d, 12h or off")]
    Time(String),
    #[error("{0:?} is no number; try 1000 or off")]
    Number(String),
}

/// An annotation of a namespace that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation}: {error}")]
pub struct AnnotationError {
    pub annotation: &'static str,
    /// What is wrong with it.
    pub error: BoundError,
}

impl FromStr for TimeBound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        if text == OFF {
            return Ok(Self(None));
        }
        match span(text).filter(|span| *span <= DAY * DAYS_MAX) {
            Some(span) => Ok(Self(Some(span))),
            None => Err(BoundError::Time(text.chars().take(TEXT_MAX).collect())),
        }
    }
}

impl FromStr for NumberBound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        if text == OFF {
            return Ok(Self(None));
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = if is_number { text.parse::<u32>().ok() } else { None };
        let number = number.ok_or_else(|| BoundError::Number(text.chars().take(TEXT_MAX).collect()))?;
        Ok(Self(Some(number as usize)))
    }
}

impl Default for Retention {
    /// Seven days, 10,000 Jobs of each kind, 12,500 pods.
    fn default() -> Self {
        Self { ttl: TimeBound(Some(TTL)), jobs_max: NumberBound(Some(JOBS_MAX)), pods_max: NumberBound(Some(PODS_MAX)) }
    }
}

impl Retention {
    /// No bounds: all stays.
    pub const OFF: Self = Self { ttl: TimeBound(None), jobs_max: NumberBound(None), pods_max: NumberBound(None) };

    /// The bounds of a namespace with these annotations, and what is wrong with those that can't be read, which count as absent.
    pub fn of_namespace(mut self, annotations: &BTreeMap<String, String>) -> (Self, Vec<AnnotationError>) {
        let mut errors = Vec::new();
        read(annotations, FINISHED_TTL, &mut self.ttl, &mut errors);
        read(annotations, FINISHED_JOBS_MAX, &mut self.jobs_max, &mut errors);
        read(annotations, FINISHED_PODS_MAX, &mut self.pods_max, &mut errors);
        (self, errors)
    }
}

/// A number of days, or a duration as Go writes it.
fn span(text: &str) -> Option<Duration> {
    if let Some(days) = text.strip_suffix('d') {
        let is_number = days.bytes().all(|byte| byte.is_ascii_digit());
        return if is_number { DAY.checked_mul(days.parse().ok()?) } else { None };
    }
    let span: GoDuration = text.parse().ok()?;
    u64::try_from(span.as_millis()).ok().map(Duration::from_millis)
}

fn read<B: FromStr<Err = BoundError>>(
    annotations: &BTreeMap<String, String>,
    annotation: &'static str,
    bound: &mut B,
    errors: &mut Vec<AnnotationError>,
) {
    match annotations.get(annotation).map(|text| text.parse()) {
        None => {}
        Some(Ok(said)) => *bound = said,
        Some(Err(error)) => errors.push(AnnotationError { annotation, error }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hours(hours: u64) -> TimeBound {
        TimeBound(Some(Duration::from_secs(hours * 3_600)))
    }

    #[test]
    fn times_and_numbers_are_read_strictly() {
        for (text, expected) in [
            ("7d", hours(168)),
            ("0d", hours(0)),
            ("36500d", hours(876_000)),
            ("12h", hours(12)),
            ("1h60m", hours(2)),
            ("0", hours(0)),
            ("off", TimeBound(None)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "d",
            "+7d",
            "-7d",
            "-1h",
            "7",
            "7 d",
            "7D",
            "36501d",
            "99999999999999999999d",
            "900000h",
            "never",
            "OFF",
        ] {
            assert_eq!(text.parse::<TimeBound>(), Err(BoundError::Time(text.to_owned())), "{text}");
        }
        for (text, expected) in
            [("0", Some(0)), ("10000", Some(10_000)), ("4294967295", Some(4_294_967_295)), ("off", None)]
        {
            assert_eq!(text.parse(), Ok(NumberBound(expected)), "{text}");
        }
        for text in ["", "+1", "-1", "1.5", "1e3", "1 ", "4294967296", "ten"] {
            assert_eq!(text.parse::<NumberBound>(), Err(BoundError::Number(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_namespace_says_what_differs_and_nonsense_counts_as_absent() {
        let of = |all: &[(&str, &str)]| {
            let annotations = all.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
            Retention::default().of_namespace(&annotations)
        };
        assert_eq!(of(&[("a", "b")]), (Retention::default(), vec![]));
        let (said, errors) = of(&[(FINISHED_TTL, "off"), (FINISHED_JOBS_MAX, "5"), (FINISHED_PODS_MAX, "lots")]);
        let expected = Retention { ttl: TimeBound(None), jobs_max: NumberBound(Some(5)), ..Retention::default() };
        assert_eq!(said, expected);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["annotation pumice.sh/finished-pods-max: \"lots\" is no number; try 1000 or off"]);
    }
}

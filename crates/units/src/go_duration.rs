//! `GoDuration`: a span of time in the text form of Go's `time.Duration`.
//!
//! Invariant: a signed count of nanoseconds in an `i64`, read by Go's grammar and printed as Go
//! prints it. Called wherever an object or a configuration carries a duration (`timeout: 1h30m`).

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// Longest text looked at; Go prints at most 25 bytes.
const TEXT_LEN_MAX: usize = 256;

/// A signed span of time in nanoseconds, written like `1h30m0s`; at most about 292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration {
    nanos: i64,
}

/// Why a text is not a duration; the messages are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// The text does not have the shape of a duration, or the span overflows.
    #[error("time: invalid duration {text:?}")]
    Invalid {
        /// The text as given, cut at 256 bytes.
        text: String,
    },
    /// A number has no unit behind it.
    #[error("time: missing unit in duration {text:?}")]
    MissingUnit {
        /// The text as given.
        text: String,
    },
    /// A unit is none of `ns us µs ms s m h`.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit as given.
        unit: String,
        /// The text as given.
        text: String,
    },
}

impl GoDuration {
    /// No time at all; prints as `0s`.
    pub const ZERO: Self = Self { nanos: 0 };

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// A span of `millis` milliseconds, saturating.
    pub const fn from_millis(millis: i64) -> Self {
        Self { nanos: millis.saturating_mul(MILLISECOND as i64) }
    }

    /// A span of `seconds` seconds, saturating.
    pub const fn from_secs(seconds: i64) -> Self {
        Self { nanos: seconds.saturating_mul(SECOND as i64) }
    }

    /// The whole of it, in nanoseconds; below zero for a span that goes back.
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// Whole milliseconds, cut towards zero.
    pub const fn as_millis(self) -> i64 {
        self.nanos / MILLISECOND as i64
    }

    /// Whole seconds, cut towards zero.
    pub const fn as_secs(self) -> i64 {
        self.nanos / SECOND as i64
    }

    /// Whether the span is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }
}

impl FromStr for GoDuration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || ParseDurationError::Invalid { text: text.chars().take(TEXT_LEN_MAX).collect() };
        if text.len() > TEXT_LEN_MAX {
            return Err(invalid());
        }
        let (negative, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total = 0_u128;
        while !rest.is_empty() {
            let (span, tail) = read_term(text, rest)?;
            total += span;
            // The most negative span has one nanosecond more than the most positive.
            if total > 1 << 63 {
                return Err(invalid());
            }
            rest = tail;
        }
        let total = total as i128;
        let nanos = i64::try_from(if negative { -total } else { total }).map_err(|_| invalid())?;
        Ok(Self { nanos })
    }
}

/// One `<number><unit>` at the start of `rest`: its nanoseconds and what follows.
fn read_term<'a>(text: &str, rest: &'a str) -> Result<(u128, &'a str), ParseDurationError> {
    let invalid = || ParseDurationError::Invalid { text: text.into() };
    let (whole, rest) = split_at_first(rest, |c| !c.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_at_first(rest, |c| !c.is_ascii_digit()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(invalid());
    }
    let (unit, rest) = split_at_first(rest, |c| c == '.' || c.is_ascii_digit());
    let unit = match unit {
        "" => return Err(ParseDurationError::MissingUnit { text: text.into() }),
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => {
            return Err(ParseDurationError::UnknownUnit { unit: unit.into(), text: text.into() });
        }
    };
    let unit = u128::from(unit);
    let whole = match whole {
        "" => 0,
        digits => digits.parse::<u64>().map_err(|_| invalid())?,
    };
    // Long division from the last digit: exact, and never above ten units.
    let below_one = fraction.bytes().rev().fold(0, |acc, digit| (u128::from(digit - b'0') * unit + acc) / 10);
    Ok((u128::from(whole) * unit + below_one, rest))
}

fn split_at_first(text: &str, stop: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stop).unwrap_or(text.len()))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.nanos.unsigned_abs();
        let sign = if self.is_negative() { "-" } else { "" };
        let text = match span {
            0 => "0s".to_owned(),
            1..MICROSECOND => format!("{sign}{span}ns"),
            MICROSECOND..MILLISECOND => format!("{sign}{}\u{b5}s", decimal(span, MICROSECOND)),
            MILLISECOND..SECOND => format!("{sign}{}ms", decimal(span, MILLISECOND)),
            SECOND..MINUTE => format!("{sign}{}s", decimal(span, SECOND)),
            _ => {
                let seconds = decimal(span % MINUTE, SECOND);
                let minutes = span / MINUTE % 60;
                match span / HOUR {
                    0 => format!("{sign}{minutes}m{seconds}s"),
                    hours => format!("{sign}{hours}h{minutes}m{seconds}s"),
                }
            }
        };
        formatter.pad(&text)
    }
}

/// `span` in units of `unit` (a power of ten), without trailing zeros.
fn decimal(span: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let text = format!("{}.{:0digits$}", span / unit, span % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(DurationVisitor)
    }
}

struct DurationVisitor;

impl Visitor<'_> for DurationVisitor {
    type Value = GoDuration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"1h30m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{GoDuration, ParseDurationError};

    #[test]
    fn texts_read_and_print_as_in_go() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("+0", 0, "0s"),
            ("0s", 0, "0s"),
            ("5s", 5_000_000_000, "5s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("-5.6s", -5_600_000_000, "-5.6s"),
            (".5s", 500_000_000, "500ms"),
            ("1.s", 1_000_000_000, "1s"),
            ("10ns", 10, "10ns"),
            ("11us", 11_000, "11\u{b5}s"),
            ("12\u{b5}s", 12_000, "12\u{b5}s"),
            ("12\u{3bc}s", 12_000, "12\u{b5}s"),
            ("1100us", 1_100_000, "1.1ms"),
            ("3h30m5.5s", 12_605_500_000_000, "3h30m5.5s"),
            ("100h", 360_000_000_000_000, "100h0m0s"),
            ("1m", 60_000_000_000, "1m0s"),
            ("39h9m14.425s", 140_954_425_000_000, "39h9m14.425s"),
            ("0.3333333333333333333h", 1_199_999_999_999, "19m59.999999999s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            let duration: GoDuration = text.parse().unwrap();
            assert_eq!(duration.as_nanos(), nanos, "{text}");
            assert_eq!(duration.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn malformed_texts_are_refused_with_the_words_of_go() {
        for (text, message) in [
            ("", "time: invalid duration \"\""),
            ("3", "time: missing unit in duration \"3\""),
            ("-", "time: invalid duration \"-\""),
            ("s", "time: invalid duration \"s\""),
            (".", "time: invalid duration \".\""),
            (".s", "time: invalid duration \".s\""),
            ("+.s", "time: invalid duration \"+.s\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("1 h", "time: unknown unit \" h\" in duration \"1 h\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
        ] {
            let error = text.parse::<GoDuration>().unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
        assert!(matches!("1s".repeat(200).parse::<GoDuration>(), Err(ParseDurationError::Invalid { .. })));
    }

    #[test]
    fn readings_cut_towards_zero() {
        assert_eq!(GoDuration::from_nanos(1_999_999).as_millis(), 1);
        assert_eq!(GoDuration::from_nanos(-1_999_999).as_millis(), -1);
        assert_eq!(GoDuration::from_millis(2_500).as_secs(), 2);
        assert_eq!(GoDuration::from_secs(i64::MAX).as_nanos(), i64::MAX);
    }

    #[test]
    fn json_is_a_string() {
        let duration: GoDuration = serde_json::from_str("\"90s\"").unwrap();
        assert_eq!(serde_json::to_string(&duration).unwrap(), "\"1m30s\"");
        assert!(serde_json::from_str::<GoDuration>("5").is_err());
    }

    proptest! {
        #[test]
        fn printing_and_parsing_are_inverse(nanos: i64) {
            let duration = GoDuration::from_nanos(nanos);
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<GoDuration>();
        }
    }
}

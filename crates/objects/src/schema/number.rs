//! Whole numbers: how they may be written, and the ranges of fields that no format states.
//!
//! Invariant: where a schema says `integer`, what comes out of a walk is an integer or an error. Readers ask for an `i64` and
//! may take its absence for "not given".

use serde_json::{Number, Value};

use super::walk::{Path, Walker};
use crate::field::FieldError;

/// What a whole number may be, and what is said of one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The least.
    pub minimum: i64,
    /// The most.
    pub maximum: i64,
    /// What is said of one below.
    pub too_small: &'static str,
    /// What is said of one above.
    pub too_large: &'static str,
}

impl Range {
    /// From `minimum` to `maximum`, both included.
    pub const fn between(minimum: i64, maximum: i64, detail: &'static str) -> Self {
        Self { minimum, maximum, too_small: detail, too_large: detail }
    }

    /// A range without an upper end: `minimum` or more. `detail` is told of what is below.
    pub const fn at_least(minimum: i64, detail: &'static str) -> Self {
        Self::between(minimum, i64::MAX, detail)
    }

    /// What is wrong with a number; nothing if it is in range.
    pub fn problem(&self, number: i64) -> Option<&'static str> {
        if number < self.minimum {
            Some(self.too_small)
        } else if number > self.maximum {
            Some(self.too_large)
        } else {
            None
        }
    }
}

/// The range of a member (second) of a component (first), if it has one.
pub type RangeOf = fn(&str, &str) -> Option<Range>;

/// Reports a value, or those of a list, that are out of range. Texts are names of something else: a port may have one.
pub(super) fn check_range(walker: &mut Walker<'_>, range: &Range, value: &Value, path: &Path<'_>) {
    match value {
        Value::Number(number) => {
            if let Some(detail) = number.as_i64().and_then(|number| range.problem(number)) {
                walker.report(FieldError::invalid(path.to_string(), Value::Number(number.clone()), detail));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check_range(walker, range, item, &Path::Index(path, index));
            }
        }
        _ => {}
    }
}

/// The integer that a number with a fraction or an exponent stands for, such as 3.0 and 1e3.
pub(super) fn as_integer(number: &Number) -> Option<i64> {
    // The first double that is too large. Every whole double below is an `i64`.
    const END: f64 = 9_223_372_036_854_775_808.0;
    let value = number.as_f64().filter(|value| value.fract() == 0.0 && (-END..END).contains(value))?;
    Some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_an_integer_however_it_is_written() {
        for (text, integer) in [
            ("3.0", Some(3)),
            ("1e3", Some(1000)),
            ("-0", Some(0)),
            ("-0.0", Some(0)),
            ("-2147483648.0", Some(-2_147_483_648)),
            ("-9223372036854775808.0", Some(i64::MIN)),
            ("9223372036854775808.0", None),
            ("1e300", None),
            ("0.5", None),
        ] {
            assert_eq!(as_integer(&serde_json::from_str(text).unwrap()), integer, "{text}");
        }
    }

    #[test]
    fn each_end_of_a_range_has_its_words() {
        let range = Range { minimum: 1, maximum: 3, too_small: "small", too_large: "large" };
        let said = [i64::MIN, 0, 1, 3, 4, i64::MAX].map(|number| range.problem(number));
        assert_eq!(said, [Some("small"), Some("small"), None, None, Some("large"), Some("large")]);
    }
}

//! Reading a quantity: `<sign><digits>[.<digits>]<suffix or exponent>`.
//!
//! Invariant: never loses precision above nano, rounds finer amounts away from zero, and answers
//! overflow with an error. Called through `FromStr` only.

use std::str::FromStr;

use super::{Format, NANOS_PER_UNIT, Quantity};

/// Longest text looked at; the longest canonical text is under 50 bytes.
const TEXT_LEN_MAX: usize = 256;
/// No `i128` has more decimal digits than this.
const DIGITS_MAX: usize = 39;
/// Upstream caps amounts with binary suffixes at the largest `i64`.
const BINARY_UNITS_MAX: i128 = i64::MAX as i128;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// The text does not have the shape of a quantity.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Shape,
    /// There is no digit before the suffix.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// The suffix is none of `n u m k M G T P E Ki Mi Gi Ti Pi Ei` or an exponent.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// The amount does not fit; the largest is about 1.7e29.
    #[error("quantity is too large, the largest amount is 1.7e29")]
    Overflow,
    /// The text is longer than any quantity.
    #[error("quantity has {len} characters, at most 256 are allowed")]
    TooLong {
        /// Bytes in the text.
        len: usize,
    },
}

/// What a suffix says: powers of two and ten, and the family.
struct Scale {
    binary_exponent: u32,
    decimal_exponent: i64,
    format: Format,
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > TEXT_LEN_MAX {
            return Err(ParseQuantityError::TooLong { len: text.len() });
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(ParseQuantityError::Shape),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        check_suffix_shape(suffix)?;
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseQuantityError::Number);
        }
        let scale = read_suffix(suffix)?;
        let mut nanos = magnitude(whole, fraction, &scale)?;
        let mut format = scale.format;
        if format == Format::BinarySi {
            nanos = nanos.min(BINARY_UNITS_MAX * NANOS_PER_UNIT);
            if nanos < NANOS_PER_UNIT && nanos > 0 {
                format = Format::DecimalSi;
            }
        }
        let nanos = if negative { -nanos } else { nanos };
        Ok(Quantity { nanos, format })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// The suffix is letters of the grammar, then an optional signed number.
fn check_suffix_shape(suffix: &str) -> Result<(), ParseQuantityError> {
    let number = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let number = number.strip_prefix(['+', '-']).unwrap_or(number);
    if number.bytes().all(|byte| byte.is_ascii_digit()) { Ok(()) } else { Err(ParseQuantityError::Shape) }
}

fn read_suffix(suffix: &str) -> Result<Scale, ParseQuantityError> {
    let decimal = |decimal_exponent| Scale { binary_exponent: 0, decimal_exponent, format: Format::DecimalSi };
    let binary = |binary_exponent| Scale { binary_exponent, decimal_exponent: 0, format: Format::BinarySi };
    Ok(match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(ParseQuantityError::Suffix)?;
            Scale {
                binary_exponent: 0,
                decimal_exponent: exponent.parse().map_err(|_| ParseQuantityError::Suffix)?,
                format: Format::DecimalExponent,
            }
        }
    })
}

/// Nano-units of `whole.fraction` scaled, rounded up.
fn magnitude(whole: &str, fraction: &str, scale: &Scale) -> Result<i128, ParseQuantityError> {
    let mut digits: Vec<i128> = whole.bytes().chain(fraction.bytes()).map(|byte| i128::from(byte - b'0')).collect();
    let leading_zeros = digits.iter().take_while(|digit| **digit == 0).count();
    digits.drain(..leading_zeros);
    if digits.is_empty() {
        return Ok(0);
    }
    // Where the decimal point stands among the digits, after the exponent moved it. All lengths are
    // at most TEXT_LEN_MAX, so only the exponent can saturate.
    let point = (whole.len() as i64 - leading_zeros as i64).saturating_add(scale.decimal_exponent);
    if point > DIGITS_MAX as i64 {
        return Err(ParseQuantityError::Overflow);
    }
    let unit = NANOS_PER_UNIT << scale.binary_exponent;
    if point < -(DIGITS_MAX as i64) {
        // Below any nano-unit: an amount that was asked for never becomes zero.
        return Ok(1);
    }
    let whole_count = point.max(0) as usize;
    let whole_units = (0..whole_count)
        .try_fold(0_i128, |units, index| units.checked_mul(10)?.checked_add(digits.get(index).copied().unwrap_or(0)));
    let whole_nanos = whole_units.and_then(|units| units.checked_mul(unit)).ok_or(ParseQuantityError::Overflow)?;
    let (fraction_nanos, is_inexact) =
        fraction_of(unit, digits.get(whole_count..).unwrap_or(&[]), (-point).max(0) as usize);
    whole_nanos.checked_add(fraction_nanos + i128::from(is_inexact)).ok_or(ParseQuantityError::Overflow)
}

/// `unit` times the fraction `0.(zeros)(digits)`: the floor, and whether something was cut off.
/// Long division from the last digit keeps every intermediate below `10 * unit`, under 1.2e28.
fn fraction_of(unit: i128, digits: &[i128], zeros: usize) -> (i128, bool) {
    let mut acc = 0_i128;
    let mut is_inexact = false;
    let leading = std::iter::repeat_n(0, zeros);
    for digit in digits.iter().rev().copied().chain(leading) {
        let sum = digit * unit + acc;
        acc = sum / 10;
        is_inexact |= sum % 10 != 0;
    }
    (acc, is_inexact)
}

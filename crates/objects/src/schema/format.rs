//! The string and number formats that are checked.

use std::net::{Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use jiff::civil::Date;
use pumice_units::GoDuration;
use serde_json::Number;

use super::node::Format;
use super::number::as_integer;

/// Whether a text has the format; formats of numbers say nothing about texts.
pub(super) fn matches_format(format: Format, text: &str) -> bool {
    match format {
        Format::Int32 | Format::Int64 => true,
        Format::DateTime => is_date_time(text),
        Format::Date => text.len() == 10 && text.parse::<Date>().is_ok(),
        Format::Duration => is_duration(text),
        Format::Byte => is_base64(text),
        Format::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
        Format::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
        Format::Cidr => is_cidr(text),
        Format::Uuid => is_uuid(text),
    }
}

/// Whether a number fits the format.
pub(super) fn is_in_range(format: Format, number: &Number) -> bool {
    let integer = || number.as_i64().or_else(|| as_integer(number));
    match format {
        Format::Int32 => integer().is_some_and(|integer| i32::try_from(integer).is_ok()),
        Format::Int64 => integer().is_some(),
        _ => true,
    }
}

/// RFC 3339: a date, `T`, a time to the second at least, and an offset; nothing else, though jiff reads more.
fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let Some((head, tail)) = bytes.split_at_checked(19) else { return false };
    let fraction = tail.strip_prefix(b".").map_or(0, |digits| 1 + leading_digits(digits));
    let offset = &tail[fraction..];
    is_shaped(head, b"dddd-dd-ddTdd:dd:dd")
        && fraction != 1
        && (matches!(offset, b"Z" | b"z") || is_shaped(offset, b"+dd:dd") || is_shaped(offset, b"-dd:dd"))
        && text.parse::<Timestamp>().is_ok()
}

fn leading_digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Whether the bytes are those of `shape`, in which `d` stands for a digit; letters in either case.
fn is_shaped(bytes: &[u8], shape: &[u8]) -> bool {
    bytes.len() == shape.len()
        && bytes.iter().zip(shape).all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            shape => byte.eq_ignore_ascii_case(shape),
        })
}

/// A duration of Go, or numbers with units up to weeks, spaces allowed between: `2 days 3h`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 24] = [
        "ns",
        "nano",
        "us",
        "\u{b5}s",
        "micro",
        "ms",
        "milli",
        "s",
        "sec",
        "second",
        "m",
        "min",
        "minute",
        "h",
        "hr",
        "hour",
        "d",
        "day",
        "w",
        "wk",
        "week",
        "nanosecond",
        "microsecond",
        "millisecond",
    ];
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = leading_digits(rest.as_bytes());
        let unit = rest[digits..].trim_start();
        let len = unit.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(unit.len());
        let word = &unit[..len];
        let is_known = UNITS.iter().any(|known| word == *known || word.strip_suffix('s') == Some(*known));
        if digits == 0 || !is_known {
            return text.parse::<GoDuration>().is_ok();
        }
        rest = unit[len..].trim_start();
    }
    !text.is_empty()
}

/// Standard alphabet with padding, as Go's encoder writes it; line breaks are passed over.
fn is_base64(text: &str) -> bool {
    let bytes: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    let padding = bytes.iter().rev().take_while(|byte| **byte == b'=').count();
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    bytes.len().is_multiple_of(4) && padding <= 2 && bytes[..bytes.len() - padding].iter().all(is_letter)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32) || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

/// Hexadecimal digits in groups of 8-4-4-4-12; the dashes may be missing.
fn is_uuid(text: &str) -> bool {
    let lens: Vec<usize> = text.split('-').map(str::len).collect();
    let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_hexadecimal && (lens == [8, 4, 4, 4, 12] || lens == [32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_format_or_not() {
        for (format, text, holds) in [
            (Format::DateTime, "2026-01-02T03:04:05Z", true),
            (Format::DateTime, "2026-01-02T03:04:05.123456+02:00", true),
            (Format::DateTime, "2026-01-02t03:04:05z", true),
            (Format::DateTime, "2026-01-02", false),
            (Format::DateTime, "2026-01-02T03:04:05", false),
            (Format::DateTime, "2026-01-02T03:04:05.Z", false),
            (Format::DateTime, "2026-01-02T03:04:05-05", false),
            (Format::DateTime, "2026-01-02T03:04:05-05:00[America/New_York]", false),
            (Format::DateTime, "2026-01-02T03:04Z", false),
            (Format::DateTime, "2026-13-02T03:04:05Z", false),
            (Format::DateTime, "yesterday", false),
            (Format::DateTime, "é26-01-02T03:04:05Z", false),
            (Format::Date, "2026-02-28", true),
            (Format::Date, "2026-02-30", false),
            (Format::Duration, "1h30m", true),
            (Format::Duration, "-1.5h", true),
            (Format::Duration, "1d", true),
            (Format::Duration, "2 weeks 3 hrs", true),
            (Format::Duration, "1 fortnight", false),
            (Format::Duration, "é", false),
            (Format::Duration, "", false),
            (Format::Byte, "", true),
            (Format::Byte, "aGVsbG8=", true),
            (Format::Byte, "aGVsbG8", false),
            (Format::Byte, "a===", false),
            (Format::Byte, "a b=", false),
            (Format::Ipv4, "10.0.0.1", true),
            (Format::Ipv4, "10.0.0.256", false),
            (Format::Ipv6, "::1", true),
            (Format::Cidr, "10.0.0.0/8", true),
            (Format::Cidr, "10.0.0.0/33", false),
            (Format::Cidr, "fd00::/64", true),
            (Format::Uuid, "123e4567-e89b-12d3-a456-426614174000", true),
            (Format::Uuid, "123e4567", false),
            (Format::Int32, "any", true),
        ] {
            assert_eq!(matches_format(format, text), holds, "{format:?} {text}");
        }
    }

    #[test]
    fn numbers_fit_their_format_or_not() {
        let number = |text: &str| serde_json::from_str::<Number>(text).unwrap();
        for (format, text, holds) in [
            (Format::Int32, "2147483647", true),
            (Format::Int32, "2147483648", false),
            (Format::Int32, "18446744073709551615", false),
            (Format::Int32, "3.0", true),
            (Format::Int32, "3e10", false),
            (Format::Int64, "9223372036854775807", true),
            (Format::Int64, "9223372036854775808", false),
            (Format::Int64, "1e300", false),
            (Format::Int32, "-2147483648.0", true),
            (Format::Int64, "9223372036854775808.0", false),
        ] {
            assert_eq!(is_in_range(format, &number(text)), holds, "{format:?} {text}");
        }
    }
}

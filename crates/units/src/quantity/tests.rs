//! Upstream's vectors as tables, and the laws every quantity obeys.

use proptest::prelude::*;

use super::{ParseQuantityError, Quantity};

fn parse(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[test]
fn canonical_form_is_that_of_apimachinery() {
    let cases = [
        ("0", "0"),
        ("0n", "0"),
        ("0Ki", "0"),
        ("-0", "0"),
        ("0e5", "0"),
        ("1Ki", "1Ki"),
        ("8Ki", "8Ki"),
        ("7Mi", "7Mi"),
        ("6Gi", "6Gi"),
        ("5Ti", "5Ti"),
        ("4Pi", "4Pi"),
        ("3Ei", "3Ei"),
        ("10n", "10n"),
        ("10u", "10u"),
        ("10m", "10m"),
        ("10", "10"),
        ("10k", "10k"),
        ("50E", "50E"),
        ("10e3", "10e3"),
        ("10E3", "10e3"),
        ("1E+3", "1e3"),
        ("1e0", "1"),
        ("5e-3", "5e-3"),
        ("1e4", "10e3"),
        ("1024Mi", "1Gi"),
        ("1000Ki", "1000Ki"),
        ("1.5Gi", "1536Mi"),
        (".001Ki", "1024m"),
        ("0.001Ki", "1024m"),
        ("1023Ki", "1023Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("0.1", "100m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1000000", "1M"),
        ("1001", "1001"),
        ("100", "100"),
        ("1000000001u", "1000000001u"),
        ("+1Gi", "1Gi"),
        ("-1Gi", "-1Gi"),
        ("-1500m", "-1500m"),
        ("0001", "1"),
        ("1000E", "1000E"),
        ("9Ei", "9223372036854775807"),
        ("1e21", "1e21"),
    ];
    for (text, canonical) in cases {
        assert_eq!(parse(text).to_string(), canonical, "{text}");
    }
}

#[test]
fn finer_than_nano_rounds_away_from_zero() {
    for (text, nanos) in [
        ("0.1n", 1),
        ("1.1n", 2),
        ("-0.1n", -1),
        ("-1.5n", -2),
        ("1e-10", 1),
        ("1e-9000", 1),
        ("1e-9223372036854775808", 1),
        ("0.0000000001Ki", 103),
        ("9.0000000001n", 10),
    ] {
        assert_eq!(parse(text).nanos(), nanos, "{text}");
    }
}

#[test]
fn malformed_texts_are_refused() {
    use ParseQuantityError::{Number, Overflow, Shape, Suffix};
    for (text, error) in [
        ("", Shape),
        ("+", Number),
        (".", Number),
        ("m", Number),
        ("Ki", Number),
        ("1.1.M", Shape),
        ("1+1.0M", Shape),
        ("0.1mi", Suffix),
        ("0.1am", Shape),
        ("aoeu", Shape),
        (".5i", Suffix),
        ("1i", Suffix),
        ("-3.01i", Suffix),
        ("-3.01e-", Suffix),
        ("1e", Suffix),
        ("1K", Suffix),
        ("1KI", Shape),
        (" 1", Shape),
        ("1 ", Shape),
        ("1e99999999999999999999", Suffix),
        ("1e30", Overflow),
        ("1e9223372036854775807", Overflow),
        ("999999999999E", Overflow),
        ("1\u{0661}", Shape),
    ] {
        assert_eq!(text.parse::<Quantity>(), Err(error), "{text}");
    }
    let long = "1".repeat(257);
    assert_eq!(long.parse::<Quantity>(), Err(ParseQuantityError::TooLong { len: 257 }));
}

#[test]
fn readings_round_away_from_zero_and_saturate() {
    for (text, milli, units) in [
        ("1500m", 1500, 2),
        ("1n", 1, 1),
        ("-1n", -1, -1),
        ("1001u", 2, 1),
        ("2Gi", 2_147_483_648_000, 2_147_483_648),
        ("1e28", i64::MAX, i64::MAX),
        ("-1e28", i64::MIN, i64::MIN),
        ("0", 0, 0),
    ] {
        assert_eq!(parse(text).cpu_milli(), milli, "{text}");
        assert_eq!(parse(text).value(), units, "{text}");
    }
}

#[test]
fn arithmetic_keeps_the_left_form_unless_it_is_zero() {
    let sum = parse("1Gi").checked_add(parse("1024M")).unwrap();
    assert_eq!(sum.to_string(), "2048576Ki");
    assert_eq!(sum.value(), 1_073_741_824 + 1_024_000_000);
    let from_zero = Quantity::ZERO.checked_add(parse("2Gi")).unwrap();
    assert_eq!(from_zero.to_string(), "2Gi");
    let less = parse("1").checked_sub(parse("1500m")).unwrap();
    assert_eq!(less.to_string(), "-500m");
    assert_eq!(parse("250m").checked_mul(6).unwrap().to_string(), "1500m");
    assert_eq!(parse("1e29").checked_mul(i64::MAX), None);
    assert_eq!(parse("1.5e29").checked_add(parse("1.5e29")), None);
    assert_eq!(Quantity::from_bytes(3 << 20).to_string(), "3Mi");
    assert_eq!(Quantity::from_milli(-2500).to_string(), "-2500m");
}

#[test]
fn json_takes_strings_and_numbers() {
    for (json, canonical) in [
        ("\"1500m\"", "1500m"),
        ("\" 1Gi \"", "1Gi"),
        ("4", "4"),
        ("-3", "-3"),
        ("18446744073709551615", "18446744073709551615"),
        ("0.1", "100m"),
        ("null", "0"),
    ] {
        let quantity: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), format!("\"{canonical}\""));
    }
    for json in ["true", "[]", "{}", "\"x\"", "1e300"] {
        assert!(serde_json::from_str::<Quantity>(json).is_err(), "{json}");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let suffix = prop::sample::select(vec![
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "e3", "E-5", "e+7",
    ]);
    ("-?", "[0-9]{1,6}", "(\\.[0-9]{0,6})?", suffix)
        .prop_map(|(sign, whole, fraction, suffix)| format!("{sign}{whole}{fraction}{suffix}"))
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(text in any_text()) {
        let quantity = parse(&text);
        let printed = quantity.to_string();
        let again = parse(&printed);
        prop_assert_eq!(again, quantity);
        prop_assert_eq!(again.to_string(), printed);
    }

    #[test]
    fn order_is_that_of_the_amount(left in any_text(), right in any_text()) {
        let (left, right) = (parse(&left), parse(&right));
        prop_assert_eq!(left.cmp(&right), left.nanos().cmp(&right.nanos()));
        let difference = left.checked_sub(right).unwrap();
        prop_assert_eq!(difference.is_negative(), left < right);
        prop_assert_eq!(difference.checked_add(right).unwrap(), left);
        if left <= right {
            prop_assert!(left.cpu_milli() <= right.cpu_milli());
            prop_assert!(left.value() <= right.value());
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<Quantity>();
    }
}

//! Printing a quantity in the canonical form of Kubernetes' apimachinery.
//!
//! Invariant: the text parses back to the same amount and prints the same again; no fraction is
//! ever printed, the exponent is the largest multiple of three (or ten binary) that keeps the
//! number whole. Called through `Display` only.

use std::fmt;

use super::{Format, NANOS_PER_UNIT, Quantity};

const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return formatter.pad("0");
        }
        let units = self.nanos / NANOS_PER_UNIT;
        let text = match self.format {
            // Small or broken amounts lose nothing in decimal form; binary could not hold them.
            Format::BinarySi if self.is_whole() && units.unsigned_abs() >= 1024 => binary(units),
            Format::BinarySi | Format::DecimalSi => {
                let (number, thousands) = decimal(self.nanos, DECIMAL_SUFFIXES.len() - 1);
                format!("{number}{}", DECIMAL_SUFFIXES[thousands])
            }
            Format::DecimalExponent => match decimal(self.nanos, usize::MAX) {
                (number, 3) => number.to_string(),
                (number, thousands) => format!("{number}e{}", thousands as i64 * 3 - 9),
            },
        };
        formatter.pad(&text)
    }
}

fn binary(units: i128) -> String {
    let mut number = units;
    let mut power = 0;
    while number % 1024 == 0 && power < BINARY_SUFFIXES.len() - 1 {
        number /= 1024;
        power += 1;
    }
    format!("{number}{}", BINARY_SUFFIXES[power])
}

/// Divides by 1000 while nothing is lost, at most `thousands_max` times; `nanos` is not zero.
fn decimal(nanos: i128, thousands_max: usize) -> (i128, usize) {
    let mut number = nanos;
    let mut thousands = 0;
    while number % 1000 == 0 && thousands < thousands_max {
        number /= 1000;
        thousands += 1;
    }
    (number, thousands)
}

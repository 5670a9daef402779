//! `Quantity`: an exact resource amount with the suffix family it was written in.
//!
//! Invariant: the amount is a whole number of nano-units in an `i128`, so every text Kubernetes
//! accepts up to about 1.7e29 units is held without rounding (finer than nano rounds away from
//! zero, as upstream). Equality, order and hash look at the amount only: `1Gi == 1024Mi`.
//! Called by admission, the engine's shells, schema validation and table printing.

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use parse::ParseQuantityError;

/// Nano-units in one unit.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Nano-units in one milli-unit.
const NANOS_PER_MILLI: i128 = 1_000_000;
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The suffix family a quantity was written in; it only steers printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Format {
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `n u m "" k M G T P E`.
    #[default]
    DecimalSi,
    /// `e3`, `E-6`.
    DecimalExponent,
}

/// An exact amount of some resource: cores, bytes or a count.
///
/// Parsed from and printed to Kubernetes' grammar (`"1500m".parse()`, canonical `Display`);
/// serialised as a string, deserialised from a string, a number or null (zero).
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// No amount at all; prints as `0`.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// `milli` thousandths of a unit, printed with decimal suffixes.
    pub const fn from_milli(milli: i64) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format: Format::DecimalSi }
    }

    /// `units` whole units, printed with decimal suffixes.
    pub const fn from_units(units: i64) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format: Format::DecimalSi }
    }

    /// `bytes` whole units, printed with binary suffixes (`Mi`, `Gi`).
    pub const fn from_bytes(bytes: i64) -> Self {
        Self { nanos: bytes as i128 * NANOS_PER_UNIT, format: Format::BinarySi }
    }

    /// Thousandths of a unit, rounded away from zero, saturating at the ends of `i64`.
    pub const fn cpu_milli(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANOS_PER_MILLI))
    }

    /// Whole units (bytes, cores), rounded away from zero, saturating at the ends of `i64`.
    pub const fn value(self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANOS_PER_UNIT))
    }

    /// The exact amount in nano-units.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether the amount is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether the amount is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount has no fraction of a unit.
    pub const fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// The sum, or `None` on overflow. Printed like `self`, or like `other` where `self` is zero.
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.nanos.checked_add(other.nanos).map(|nanos| self.with_nanos_beside(nanos, other))
    }

    /// The difference, or `None` on overflow. Printed like `self`, or like `other` where `self` is
    /// zero.
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.nanos.checked_sub(other.nanos).map(|nanos| self.with_nanos_beside(nanos, other))
    }

    /// `self` taken `factor` times, or `None` on overflow.
    pub fn checked_mul(self, factor: i64) -> Option<Self> {
        self.nanos.checked_mul(i128::from(factor)).map(|nanos| Self { nanos, ..self })
    }

    fn with_nanos_beside(self, nanos: i128, other: Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nanos, format }
    }
}

const fn divide_away_from_zero(nanos: i128, divisor: i128) -> i128 {
    let quotient = nanos / divisor;
    match nanos % divisor {
        0 => quotient,
        1.. => quotient + 1,
        _ => quotient - 1,
    }
}

const fn saturate(value: i128) -> i64 {
    if value > i64::MAX as i128 {
        i64::MAX
    } else if value < i64::MIN as i128 {
        i64::MIN
    } else {
        value as i64
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

/// The canonical form of Kubernetes' apimachinery. It parses back to the same amount and prints the same again: no fraction is ever
/// printed, the exponent is the largest multiple of three (or ten binary) that keeps the number whole.
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

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(QuantityVisitor)
    }
}

struct QuantityVisitor;

impl Visitor<'_> for QuantityVisitor {
    type Value = Quantity;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a quantity as a string or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(units))
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(Quantity { nanos: i128::from(units) * NANOS_PER_UNIT, format: Format::DecimalSi })
    }

    fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
        // The shortest text of the float is what the document said; the amount stays exact.
        units.to_string().parse().map_err(E::custom)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Quantity, E> {
        Ok(Quantity::ZERO)
    }
}

#[cfg(test)]
mod tests;

//! Amounts of processors and memory as people read them: short in tables (`64Mi`), in words in sentences (`64 MiB`).
//!
//! Pure. Called by what prints tables of nodes and of usage, and by sentences about a job's end.

use pumice_units::Quantity;

/// An amount of memory for people: in the largest unit that it is a whole number of.
pub fn in_words(memory: &str) -> String {
    let Some(bytes) = memory.parse::<Quantity>().ok().map(Quantity::value).filter(|bytes| *bytes > 0) else {
        return memory.to_owned();
    };
    let units = [("GiB", 1_i64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes % unit == 0) {
        Some((word, unit)) => format!("{} {word}", bytes / unit),
        None => format!("{bytes} bytes"),
    }
}

/// `1.5` cores, at most two decimals.
pub fn cores(milli: i64) -> String {
    let text = format!("{:.2}", milli as f64 / 1000.0);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `12.5Gi`, at most one decimal.
pub fn bytes(bytes: i64) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut amount, mut unit) = (bytes as f64, 0);
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let text = format!("{amount:.1}");
    format!("{}{}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short() {
        for (milli, text) in [(0, "0"), (1500, "1.5"), (1234, "1.23"), (32_000, "32")] {
            assert_eq!(cores(milli), text);
        }
        for (amount, text) in [(0, "0"), (1023, "1023"), (1536, "1.5Ki"), (1 << 30, "1Gi"), (i64::MAX, "8192Pi")] {
            assert_eq!(bytes(amount), text);
        }
    }
}

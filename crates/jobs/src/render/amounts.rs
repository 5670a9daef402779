//! Amounts of processors and memory that a pod asks for.
//!
//! Kubernetes reads a number without a unit as bytes, and `m` as thousandths. Nobody means so little memory, so it is refused with
//! what was probably meant.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::RenderError;

/// The least memory that can be meant.
const MEMORY_BYTES_MIN: i64 = 1 << 20;

/// The text as it is, if it is a number of processors above zero.
pub(super) fn cpu(flag: &'static str, text: &str) -> Result<Quantity, RenderError> {
    positive(text)
        .map(|_| Quantity(text.to_owned()))
        .ok_or_else(|| RenderError::text(flag, text, "is no number of processors such as 2 or 500m"))
}

/// Memory of a MiB or more.
pub(super) fn memory(flag: &'static str, text: &str) -> Result<Quantity, RenderError> {
    parse_memory(text).map(|_| Quantity(text.to_owned())).map_err(|problem| RenderError::text(flag, text, problem))
}

/// Reads memory of a MiB or more.
///
/// # Errors
/// What is wrong, as the rest of a sentence, and what was probably meant.
pub fn parse_memory(text: &str) -> Result<pumice_units::Quantity, String> {
    let amount = positive(text).ok_or("is no amount of memory such as 512Mi or 4Gi")?;
    if amount.value() >= MEMORY_BYTES_MIN {
        return Ok(amount);
    }
    let shown = if amount.nanos() < pumice_units::Quantity::from_units(1).nanos() {
        "less than a byte".to_owned()
    } else {
        bytes(amount.value())
    };
    let meant = match text.strip_suffix('m').unwrap_or(text).parse::<u64>() {
        Ok(number) if number < 1024 => format!("{number}Mi or {number}Gi"),
        Ok(number) => format!("{number}Mi"),
        Err(_) => "1Mi or more".to_owned(),
    };
    Err(format!("is {shown}; say {meant}"))
}

fn positive(text: &str) -> Option<pumice_units::Quantity> {
    text.parse::<pumice_units::Quantity>().ok().filter(|amount| !amount.is_negative() && !amount.is_zero())
}

/// A count of bytes for people, such as `4,000 bytes`.
fn bytes(count: i64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} {}", if count == 1 { "byte" } else { "bytes" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_what_was_meant() {
        let mut table = String::new();
        for text in [
            "512Mi", "1Mi", "1048576", "4G", "1e9", "4000", "4", "1", "100m", "500k", "1023Ki", "0", "-1", "lots",
            "4GB", "",
        ] {
            let told = memory("--memory", text).map_or_else(|error| error.to_string(), |quantity| quantity.0);
            table.push_str(&format!("{text:?} -> {told}\n"));
        }
        for text in ["2", "500m", "0", "-1", "two"] {
            let told = cpu("--cpu", text).map_or_else(|error| error.to_string(), |quantity| quantity.0);
            table.push_str(&format!("{text:?} -> {told}\n"));
        }
        insta::assert_snapshot!(table);
    }
}

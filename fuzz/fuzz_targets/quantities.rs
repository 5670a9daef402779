//! Any text as a quantity or a duration: what is read is printed and read again as the same, and counting never panics.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_units::{GoDuration, Quantity};

fuzz_target!(|text: &str| {
    let (left, right) = text.split_once('|').unwrap_or((text, "1"));
    if let Ok(quantity) = left.parse::<Quantity>() {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().expect("what is printed can be read");
        assert_eq!(again, quantity, "{printed}");
        assert_eq!(again.to_string(), printed);
        let _ = (quantity.cpu_milli(), quantity.value());
        if let Ok(other) = right.parse::<Quantity>() {
            if let Some(sum) = quantity.checked_add(other) {
                assert_eq!(sum.checked_sub(other), Some(quantity));
            }
            assert_eq!(quantity.cmp(&other), other.cmp(&quantity).reverse());
        }
    }
    if let Ok(duration) = left.parse::<GoDuration>() {
        let printed = duration.to_string();
        let again: GoDuration = printed.parse().expect("what is printed can be read");
        assert_eq!(again.as_millis(), duration.as_millis(), "{printed}");
    }
});

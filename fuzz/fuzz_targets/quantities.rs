//! Any text as a quantity or a duration: what is read is printed and read again as the same, and counting never panics.
//!
//! The text itself may change once more: of `62.5Ki` Kubernetes prints `64000`, which no longer says that it counted by 1024,
//! and of that `64k`. Then it stays.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_units::{GoDuration, Quantity};

fuzz_target!(|text: &str| {
    let (left, right) = text.split_once('|').unwrap_or((text, "1"));
    if let Ok(quantity) = left.parse::<Quantity>() {
        let printed = quantity.to_string();
        let again: Quantity = printed.parse().expect("what is printed can be read");
        assert_eq!(again, quantity, "{printed}");
        let settled = again.to_string();
        let last: Quantity = settled.parse().expect("what is printed can be read");
        assert_eq!(last, quantity, "{printed}, {settled}");
        assert_eq!(last.to_string(), settled, "{printed}");
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

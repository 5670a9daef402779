//! Any text as a label or field selector, and any JSON as the selector of an object: what is read prints itself, is read again
//! as the same, and selects the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_fuzz::{Bytes, kinds};
use pumice_objects::selector::{FieldSelector, LabelRequirement, LabelSelector};

const LABELS: [(&str, &str); 4] = [("a", "b"), ("a", ""), ("x.io/y", "5"), ("b", "-1")];

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    match choice & 3 {
        0 => {
            let selector = kinds::FIELDS.any(&mut Bytes::new(rest), 4);
            let _ = LabelRequirement::from_json(&selector);
            if let Ok(selector) = LabelSelector::from_json(&selector) {
                selects(&selector);
            }
        }
        1 => {
            if let Ok(selector) = serde_json::from_slice(rest)
                && let Ok(selector) = LabelSelector::from_json(&selector)
            {
                selects(&selector);
            }
        }
        2 => {
            let Ok(text) = str::from_utf8(rest) else { return };
            let Ok(selector) = LabelSelector::parse(text) else { return };
            let printed = selector.to_string();
            let again = LabelSelector::parse(&printed).unwrap_or_else(|error| panic!("{printed:?}: {error}"));
            assert_eq!(again.to_string(), printed);
            assert_eq!(selects(&again), selects(&selector), "{printed}");
        }
        _ => {
            let Ok(text) = str::from_utf8(rest) else { return };
            let Ok(selector) = FieldSelector::parse(text) else { return };
            for requirement in selector.requirements() {
                let _ = selector.exact(&requirement.path);
            }
            let found = selector.matches(|path| (path == "metadata.name").then_some("x"));
            assert!(found || !selector.is_everything());
        }
    }
});

/// Which of the labels are selected, alone and together.
fn selects(selector: &LabelSelector) -> Vec<bool> {
    let alone = LABELS.map(|(key, value)| selector.matches(|wanted| (wanted == key).then_some(value)));
    let none = selector.matches(|_| None);
    alone.into_iter().chain([none]).collect()
}

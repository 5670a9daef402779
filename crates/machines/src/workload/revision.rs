//! Telling templates apart.
//!
//! Invariant: two templates are the same if they say the same, whatever label a controller has put on one of them.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use pumice_units::stable_hash;
use serde_json::Value;

/// Letters of a hash: none that could make a word.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const LETTERS_IN_HASH: usize = 10;

/// A template as JSON without the label that tells its revision.
fn bare(template: &PodTemplateSpec, label: &str) -> Value {
    let mut template = serde_json::to_value(template).unwrap_or_default();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(label);
    }
    template
}

/// Whether two templates say the same, but for this label.
pub(crate) fn is_same_template(one: &PodTemplateSpec, other: &PodTemplateSpec, label: &str) -> bool {
    one.spec == other.spec && bare(one, label) == bare(other, label)
}

/// Ten letters for a template and for how often they were taken by another one.
pub(crate) fn template_hash(template: &PodTemplateSpec, label: &str, collisions: Option<i32>) -> String {
    // Members of JSON objects are in order.
    let text = bare(template, label).to_string();
    let salt = collisions.unwrap_or(0).to_le_bytes();
    let mut hash = stable_hash(text.bytes().chain(salt));
    let letters = (0..LETTERS_IN_HASH).filter_map(|_| {
        let letter = LETTERS.get((hash % LETTERS.len() as u64) as usize).copied();
        hash /= LETTERS.len() as u64;
        letter
    });
    letters.map(char::from).collect()
}

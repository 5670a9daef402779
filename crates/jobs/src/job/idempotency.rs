//! One job for one key: submitting the same again gives the job that is there.
//!
//! Invariant: the Job's name follows from the key alone, so of two that submit at once the server refuses one, which then
//! reads what the other made. Whether it is the same is told by a hash of all that was asked for. Pure; called by
//! `render`, which notes the key, and by `submit`, which compares.

use pumice_units::stable_hash;
use serde_json::Value;

use crate::json::text_at;
use crate::names;

/// The key that a Job was submitted with; annotation.
pub const KEY: &str = "pumice.sh/idempotency-key";
/// Hash of what was submitted with it; annotation.
pub const SPEC: &str = "pumice.sh/idempotency-spec";
/// Longest key in bytes; the message that refuses a longer one says this number, too.
const KEY_MAX: usize = 128;
/// Characters of the key that are readable in the name.
const STEM_MAX: usize = 24;

/// Says what is wrong with a key, as the rest of a sentence.
pub fn check(key: &str) -> Result<(), &'static str> {
    if key.is_empty() || key.len() > KEY_MAX || key.chars().any(char::is_control) {
        return Err("is no key: use 1 to 128 bytes of text without control characters");
    }
    Ok(())
}

/// Sixteen digits that stand for a key.
pub fn tag(key: &str) -> String {
    format!("{:016x}", stable_hash(key.bytes()))
}

/// Whether a Job carries a key.
pub fn key(job: &Value) -> Option<&str> {
    annotation(job, KEY)
}

/// Whether `found` was submitted with the same key and asks for the same as `wanted`.
pub fn is_same(wanted: &Value, found: &Value) -> bool {
    [KEY, SPEC].into_iter().all(|name| annotation(wanted, name) == annotation(found, name))
}

/// The name of a job with this key.
pub(crate) fn name(key: &str) -> String {
    // A Service has the job's name, which begins with a letter.
    format!("key-{}-{}", names::from_text(key, STEM_MAX), tag(key))
}

fn annotation<'a>(job: &'a Value, name: &str) -> Option<&'a str> {
    // '/' in a JSON pointer is '~1'.
    let pointer = format!("/metadata/annotations/{}", name.replace('/', "~1"));
    Some(text_at(job, &pointer)).filter(|text| !text.is_empty())
}

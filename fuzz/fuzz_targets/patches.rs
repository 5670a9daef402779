//! Any patch on any object, by each of the four ways to patch: a result or an error, never a panic; and what says the same
//! twice changes nothing the second time.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pumice_fuzz::{Bytes, kinds};
use pumice_objects::apply::{By, apply, update};
use pumice_objects::patch::{apply_json_patch, apply_merge_patch, apply_strategic_merge_patch};
use pumice_objects::schema::Schema;
use serde_json::Value;

fuzz_target!(|bytes: &[u8]| {
    let [choice, rest @ ..] = bytes else { return };
    let kind = usize::from(choice & 3);
    let schema = &kinds::PATCHED[kind];
    if choice & 4 == 0 {
        // Two texts, whole.
        let Some(end) = rest.iter().position(|byte| *byte == 0) else { return };
        let (object, patch) = (serde_json::from_slice(&rest[..end]), serde_json::from_slice(&rest[end + 1..]));
        if let (Ok(object), Ok(patch)) = (object, patch) {
            all(&object, &patch, schema);
        }
        return;
    }
    let mut bytes = Bytes::new(rest);
    let mut object = kinds::object(&mut bytes, kind);
    for _ in 0..=bytes.below(6) {
        let patch = match bytes.below(4) {
            0 => kinds::operations(&mut bytes),
            1 => kinds::FIELDS.any(&mut bytes, 5),
            _ => kinds::object(&mut bytes, kind),
        };
        object = all(&object, &patch, schema).unwrap_or(object);
    }
});

/// Patches in every way. Gives what came of the server's apply, or else of the strategic merge.
fn all(object: &Value, patch: &Value, schema: &Schema) -> Option<Value> {
    if let Ok(patched) = apply_json_patch(object, patch) {
        let mut recorded = patched.clone();
        update(object, &mut recorded, schema, &by("json"));
    }
    let mut merged = object.clone();
    if apply_merge_patch(&mut merged, patch).is_ok() {
        let once = merged.clone();
        apply_merge_patch(&mut merged, patch).expect("what could be merged can be merged again");
        assert_eq!(merged, once);
    }
    let strategic = apply_strategic_merge_patch(object, patch, schema).ok();
    if let Some(patched) = &strategic {
        let mut recorded = patched.clone();
        update(object, &mut recorded, schema, &by("strategic"));
    }
    let applied = apply(Some(object), patch, schema, &by("apply"), false)
        .or_else(|_| apply(Some(object), patch, schema, &by("apply"), true));
    if let Ok(applied) = &applied {
        let again = apply(Some(applied), patch, schema, &by("apply"), false).expect("who owns may apply");
        assert_eq!(&again, applied, "{patch}");
        let _ = apply(None, patch, schema, &by("apply"), false);
    }
    applied.ok().or(strategic)
}

fn by(manager: &str) -> By<'_> {
    By { manager, api_version: "v1", subresource: "", now: "2026-01-01T00:00:00Z" }
}

//! Reading single fields of JSON objects. Pure. Called by everything that handles objects without their types.

use serde_json::Value;

/// The text at a JSON pointer, `""` if there is none.
pub fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

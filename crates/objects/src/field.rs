//! Field errors: what is wrong with one field of an object, in upstream's words.
//!
//! Invariant: `Display` is what kube-apiserver prints for the same error, and [`FieldError::body`]
//! is the part after the path. Made by schema validation, name and metadata checks and admission;
//! turned into `Status` causes by [`crate::status::Status::invalid`].

use std::fmt;

use serde_json::Value;

use crate::quote::Quoted;

/// The class of a field error; upstream's `field.ErrorType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// A value is missing.
    Required,
    /// A value is malformed or out of range.
    Invalid,
    /// A value is none of a known set.
    NotSupported,
    /// A value appears twice where it must be unique.
    Duplicate,
    /// A value is not allowed here.
    Forbidden,
    /// A text is too long.
    TooLong,
    /// A list or map has too many items.
    TooMany,
    /// A value has the wrong type.
    TypeInvalid,
    /// A value refers to something that does not exist.
    NotFound,
    /// The check itself failed.
    Internal,
}

impl FieldErrorKind {
    /// The words upstream prints for the class.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// The machine-readable reason in `details.causes[].reason`.
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::Internal => "InternalError",
        }
    }

    const fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::Internal)
    }
}

/// One wrong field of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The field, like `spec.tasks[0].replicas`; empty for the whole object.
    pub path: String,
    /// The class of the error.
    pub kind: FieldErrorKind,
    /// The value found, where the class shows one.
    pub bad_value: Option<Value>,
    /// What is wrong with it; may be empty.
    pub detail: String,
}

impl FieldError {
    /// A value is missing.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Required, None, detail)
    }

    /// A value is malformed or out of range.
    pub fn invalid(path: impl Into<String>, bad_value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Invalid, Some(bad_value.into()), detail)
    }

    /// A value has the wrong type.
    pub fn type_invalid(path: impl Into<String>, bad_value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::TypeInvalid, Some(bad_value.into()), detail)
    }

    /// A value is none of `supported`.
    pub fn not_supported<'a>(
        path: impl Into<String>,
        bad_value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let quoted: Vec<String> = supported.into_iter().map(|value| Quoted(value).to_string()).collect();
        let detail = if quoted.is_empty() { String::new() } else { format!("supported values: {}", quoted.join(", ")) };
        Self::new(path, FieldErrorKind::NotSupported, Some(bad_value.into()), detail)
    }

    /// A value appears twice where it must be unique.
    pub fn duplicate(path: impl Into<String>, bad_value: impl Into<Value>) -> Self {
        Self::new(path, FieldErrorKind::Duplicate, Some(bad_value.into()), "")
    }

    /// A value is not allowed here.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(path, FieldErrorKind::Forbidden, None, detail)
    }

    /// A text is longer than `bytes_max`.
    pub fn too_long(path: impl Into<String>, bytes_max: u64) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        Self::new(path, FieldErrorKind::TooLong, None, format!("may not be more than {bytes_max} {unit}"))
    }

    /// A list or map has `actual` items, more than `items_max`.
    pub fn too_many(path: impl Into<String>, actual: u64, items_max: u64) -> Self {
        let unit = if items_max == 1 { "item" } else { "items" };
        Self::new(path, FieldErrorKind::TooMany, Some(actual.into()), format!("must have at most {items_max} {unit}"))
    }

    /// A value refers to something that does not exist.
    pub fn not_found(path: impl Into<String>, bad_value: impl Into<Value>) -> Self {
        Self::new(path, FieldErrorKind::NotFound, Some(bad_value.into()), "")
    }

    fn new(path: impl Into<String>, kind: FieldErrorKind, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        Self { path: path.into(), kind, bad_value, detail: detail.into() }
    }

    /// The message without the path.
    pub fn body(&self) -> String {
        let mut body = self.kind.title().to_owned();
        if self.kind.shows_value()
            && let Some(value) = self.bad_value.as_ref()
        {
            body.push_str(": ");
            body.push_str(&match value {
                Value::Null => "\"null\"".to_owned(),
                Value::String(text) => Quoted(text).to_string(),
                other => other.to_string(),
            });
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "<nil>" } else { &self.path };
        write!(formatter, "{path}: {}", self.body())
    }
}

impl std::error::Error for FieldError {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::FieldError;

    #[test]
    fn texts_are_those_of_upstream() {
        for (error, text) in [
            (FieldError::required("a.b", ""), "a.b: Required value"),
            (
                FieldError::required("a", "name or generateName is required"),
                "a: Required value: name or generateName is required",
            ),
            (FieldError::invalid("a", -1, "must be positive"), "a: Invalid value: -1: must be positive"),
            (FieldError::invalid("a", "x\"y", "no"), "a: Invalid value: \"x\\\"y\": no"),
            (FieldError::type_invalid("a", json!(null), ""), "a: Invalid value: \"null\""),
            (
                FieldError::not_supported("mode", "warm", ["hard", "soft"]),
                "mode: Unsupported value: \"warm\": supported values: \"hard\", \"soft\"",
            ),
            (FieldError::duplicate("l[1]", json!({"name": "a"})), "l[1]: Duplicate value: {\"name\":\"a\"}"),
            (FieldError::forbidden("spec", "is immutable"), "spec: Forbidden: is immutable"),
            (FieldError::too_long("n", 63), "n: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("l", 3, 1), "l: Too many: 3: must have at most 1 item"),
            (FieldError::not_found("q", "x"), "q: Not found: \"x\""),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}

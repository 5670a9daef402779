//! Collects field errors in upstream's words.

use pumice_objects::field::FieldError;
use pumice_objects::names;
use serde_json::Value;

/// Most errors that one object gets; the rest is cut.
const ERRORS_MAX: usize = 64;

/// A list of field errors that grows to a limit.
#[derive(Default)]
pub(crate) struct Problems {
    errors: Vec<FieldError>,
}

impl Problems {
    pub(crate) fn required(&mut self, path: &str, detail: &str) {
        self.add(FieldError::required(path, detail));
    }

    pub(crate) fn invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.add(FieldError::invalid(path, value.clone(), detail));
    }

    pub(crate) fn duplicate(&mut self, path: &str, value: &str) {
        self.add(FieldError::duplicate(path, value));
    }

    pub(crate) fn not_found(&mut self, path: &str, value: &str) {
        self.add(FieldError::not_found(path, value));
    }

    pub(crate) fn forbidden(&mut self, path: &str, detail: &str) {
        self.add(FieldError::forbidden(path, detail));
    }

    pub(crate) fn too_long(&mut self, path: &str, bytes_max: usize) {
        self.add(FieldError::too_long(path, bytes_max as u64));
    }

    pub(crate) fn not_supported(&mut self, path: &str, value: &str, allowed: &[&str]) {
        self.add(FieldError::not_supported(path, value, allowed.iter().copied()));
    }

    /// Says that a field may not change, when it did.
    pub(crate) fn immutable(&mut self, path: &str, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// Checks a name that must be a DNS-1123 label.
    pub(crate) fn dns_label(&mut self, path: &str, name: &str) {
        if name.is_empty() {
            self.required(path, "");
        } else if let Err(error) = names::check_dns1123_label(name) {
            self.invalid(path, &name.into(), &error.to_string());
        }
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors
    }

    fn add(&mut self, error: FieldError) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(error);
        }
    }
}

/// What is wrong with a change of an object whose specification may not change.
pub(crate) fn immutable_spec(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut problems = Problems::default();
    problems.immutable("spec", &new["spec"], &old["spec"]);
    problems.into_errors()
}

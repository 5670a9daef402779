//! Rules that the kinds which make pods share: defaults and checks of their template, their selector and their counts.
//!
//! Invariant: what a template is given here its pods would be given anyway, so that equal manifests give equal templates:
//! controllers tell revisions apart by comparing them. Called by the strategies of those kinds.

use pumice_objects::field::FieldError;
use pumice_objects::meta;
use pumice_objects::names;
use pumice_objects::selector::LabelSelector;
use serde_json::{Map, Value, json};

use super::pod::{template_defaults, validate_template_rules};
use crate::problems::Problems;

/// Sets a field that is not there.
pub(super) fn fill(object: &mut Map<String, Value>, field: &str, value: Value) {
    if object.get(field).is_none_or(Value::is_null) {
        object.insert(field.to_owned(), value);
    }
}

/// The specification of an object, if it has one.
pub(super) fn spec_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("spec").and_then(Value::as_object_mut)
}

/// Fills the template below a specification.
pub(super) fn fill_template(spec: &mut Map<String, Value>) {
    if let Some(template) = spec.get_mut("template") {
        template_defaults(template);
    }
}

/// Whether a change of the template or anything else of the specification counts for controllers is decided by
/// `metadata.generation`; here only what may not change is told.
pub(super) fn immutable(problems: &mut Problems, new: &Value, old: &Value, fields: &[&str]) {
    for field in fields {
        problems.immutable(&format!("spec.{field}"), &new["spec"][*field], &old["spec"][*field]);
    }
}

/// Checks that a number, if there is one, is not negative.
pub(super) fn not_negative(problems: &mut Problems, spec: &Value, path: &str, fields: &[&str]) {
    for field in fields {
        let number = &spec[*field];
        if number.as_i64().is_some_and(|number| number < 0) {
            problems.invalid(&format!("{path}.{field}"), number, "must be greater than or equal to 0");
        }
    }
}

/// Checks that a word, if there is one, is one of these.
pub(super) fn one_of(problems: &mut Problems, path: &str, word: &Value, allowed: &[&str]) {
    if let Some(word) = word.as_str()
        && !allowed.contains(&word)
    {
        problems.not_supported(path, word, allowed);
    }
}

/// Checks selector and template of a kind whose pods run for ever.
pub(super) fn lasting(problems: &mut Problems, spec: &Value, kind: &str) {
    selector(problems, spec, kind);
    let pod = &spec["template"]["spec"];
    one_of(problems, "spec.template.spec.restartPolicy", &pod["restartPolicy"], &["Always"]);
    if pod["activeDeadlineSeconds"].is_i64() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        problems.forbidden("spec.template.spec.activeDeadlineSeconds", &detail);
    }
}

fn selector(problems: &mut Problems, spec: &Value, kind: &str) {
    let selector = &spec["selector"];
    if selector.is_null() {
        problems.required("spec.selector", "");
        return;
    }
    let Some(read) = read_selector(problems, selector) else { return };
    if read.is_everything() {
        problems.invalid("spec.selector", selector, &format!("empty selector is invalid for {kind}"));
        return;
    }
    labels_match(problems, &read, &spec["template"]["metadata"]["labels"]);
}

/// Reads a selector, or says what is wrong with it.
pub(super) fn read_selector(problems: &mut Problems, selector: &Value) -> Option<LabelSelector> {
    match LabelSelector::from_json(selector) {
        Ok(read) => Some(read),
        Err(error) => {
            problems.invalid("spec.selector", selector, &error.to_string());
            None
        }
    }
}

/// Checks that a selector matches the labels of the template.
pub(super) fn labels_match(problems: &mut Problems, selector: &LabelSelector, labels: &Value) {
    if !selector.matches(|key| labels[key].as_str()) {
        problems.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
}

/// What is wrong with the template below `path`.
pub(super) fn template_errors(template: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = validate_template_rules(template);
    for error in &mut errors {
        error.path = format!("{path}.{}", error.path);
    }
    errors
}

/// A number of pods, or a share of them in percent, rounded up or down. Nothing for anything else.
pub(super) fn absolute_or_share(value: &Value, total: i64, up: bool) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => {
            let percent: i64 = text.strip_suffix('%')?.parse().ok()?;
            let parts = percent.checked_mul(total)?;
            Some(if up { parts.saturating_add(99).div_euclid(100) } else { parts.div_euclid(100) })
        }
        _ => None,
    }
}

/// Checks a number or share of pods.
pub(super) fn number_or_share(problems: &mut Problems, path: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::String(text) => {
            let is_percent = text.strip_suffix('%').is_some_and(|number| {
                !number.is_empty() && number.len() < 9 && number.bytes().all(|byte| byte.is_ascii_digit())
            });
            if !is_percent {
                let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%', \
                              or '93%', regex used for validation is '[0-9]+%')";
                problems.invalid(path, value, detail);
            }
        }
        Value::Number(number) if number.as_i64().is_some_and(|number| number >= 0) => {}
        _ => problems.invalid(path, value, "must be greater than or equal to 0"),
    }
}

/// Whether a name leaves room for what is appended to it.
pub(super) fn short_name(problems: &mut Problems, object: &Value, bytes_max: usize) {
    let name = meta::name(object);
    if name.len() > bytes_max {
        problems.invalid("metadata.name", &json!(name), &format!("must be no more than {bytes_max} characters"));
    }
}

/// Checks that a name can be part of host names.
pub(super) fn label_name(problems: &mut Problems, object: &Value) {
    let name = meta::name(object);
    if let Err(error) = names::check_dns1123_label(name) {
        problems.invalid("metadata.name", &json!(name), &error.to_string());
    }
}

//! Checks of one value by itself: enum, format, text and number rules.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::format::{is_in_range, matches_format};
use super::node::{Node, NumberRules, TextRules};
use super::walk::{Path, Walker};
use crate::field::FieldError;
use crate::quote::Quoted;

pub(super) fn check(walker: &mut Walker<'_>, node: &Node, value: &Value, path: &Path<'_>) {
    if let Some(allowed) = &node.allowed
        && !allowed.iter().any(|allowed| is_same(allowed, value))
    {
        walker.report(not_allowed(allowed, value, path));
    }
    match value {
        Value::String(text) => check_text(walker, node, text, path),
        Value::Number(number) => check_number(walker, node, number, path),
        _ => {}
    }
}

/// Equality of JSON, in which 1 and 1.0 are the same.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare(left, right) == Some(Ordering::Equal),
        _ => left == right,
    }
}

fn not_allowed(allowed: &[Value], value: &Value, path: &Path<'_>) -> FieldError {
    let supported: Vec<String> =
        allowed.iter().map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned)).collect();
    FieldError::not_supported(path.to_string(), value.clone(), supported.iter().map(String::as_str))
}

fn check_text(walker: &mut Walker<'_>, node: &Node, text: &str, path: &Path<'_>) {
    if let Some(rules) = &node.text {
        check_text_rules(walker, rules, text, path);
    }
    if let Some(format) = node.format
        && !matches_format(format, text)
    {
        let detail = format!("{path} in body must be of type {}: {}", format.name(), Quoted(text));
        walker.report(FieldError::type_invalid(path.to_string(), text, detail));
    }
}

fn check_text_rules(walker: &mut Walker<'_>, rules: &TextRules, text: &str, path: &Path<'_>) {
    // Bytes bound characters from above: most texts need no count.
    let is_longer = |len_max: &u64| text.len() as u64 > *len_max && text.chars().count() as u64 > *len_max;
    if let Some(len_max) = rules.len_max.filter(is_longer) {
        walker.report(FieldError::too_long(path.to_string(), len_max));
    }
    if let Some(len_min) = rules.len_min.filter(|len_min| (text.chars().count() as u64) < *len_min) {
        let detail = format!("{path} in body should be at least {len_min} chars long");
        walker.report(FieldError::invalid(path.to_string(), text, detail));
    }
    if let Some(pattern) = rules.pattern {
        let pattern = &walker.arena.patterns[pattern as usize];
        if !pattern.is_match(text) {
            let detail = format!("{path} in body should match '{pattern}'");
            walker.report(FieldError::invalid(path.to_string(), text, detail));
        }
    }
}

fn check_number(walker: &mut Walker<'_>, node: &Node, number: &Number, path: &Path<'_>) {
    if let Some(format) = node.format
        && !is_in_range(format, number)
    {
        // Upstream leaves the field out of this error; naming it costs no client anything.
        let detail = format!("Checked value must be of type integer with format {} in {path}", format.name());
        walker.report(FieldError::invalid(path.to_string(), Value::Number(number.clone()), detail));
    }
    let Some(rules) = &node.number else { return };
    for detail in broken_number_rules(rules, number) {
        let detail = format!("{path} in body should be {detail}");
        walker.report(FieldError::invalid(path.to_string(), Value::Number(number.clone()), detail));
    }
}

fn broken_number_rules(rules: &NumberRules, number: &Number) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(minimum) = &rules.minimum {
        match (compare(number, minimum), rules.is_minimum_exclusive) {
            (Some(Ordering::Less | Ordering::Equal), true) => broken.push(format!("greater than {minimum}")),
            (Some(Ordering::Less), false) => broken.push(format!("greater than or equal to {minimum}")),
            _ => {}
        }
    }
    if let Some(maximum) = &rules.maximum {
        match (compare(number, maximum), rules.is_maximum_exclusive) {
            (Some(Ordering::Greater | Ordering::Equal), true) => broken.push(format!("less than {maximum}")),
            (Some(Ordering::Greater), false) => broken.push(format!("less than or equal to {maximum}")),
            _ => {}
        }
    }
    if let Some(factor) = &rules.multiple_of
        && !is_multiple(number, factor)
    {
        broken.push(format!("a multiple of {factor}"));
    }
    broken
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// Exact for integers, by nearest double otherwise.
fn compare(left: &Number, right: &Number) -> Option<Ordering> {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => Some(left.cmp(&right)),
        _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
    }
}

fn is_multiple(number: &Number, factor: &Number) -> bool {
    match (integer(number), integer(factor)) {
        (_, Some(0)) => false,
        (Some(number), Some(factor)) => number % factor == 0,
        _ => match (number.as_f64(), factor.as_f64()) {
            (Some(number), Some(factor)) => (number / factor).fract() == 0.0,
            _ => false,
        },
    }
}

//! Validating policies and match conditions as they are written: their bounds, names and expressions.
//!
//! Invariant: an expression that is stored was compiled once, with the variables that it sees. Called when one is written;
//! `admission::dynamic` compiles it again with the same scope.

use std::collections::BTreeSet;

use pumice_objects::status::StatusReason;
use serde_json::Value;

use super::matching::problems_of_match;
use crate::cel::{Expression, Scope, Variable, Wanted};
use crate::problems::Problems;

/// Most match conditions, as upstream.
const CONDITIONS_MAX: usize = 64;

/// Most variables, and most validations, of one policy.
pub(crate) const EXPRESSIONS_MAX: usize = 256;

/// Why a validation refuses, as it names it, and how that is answered.
pub(crate) struct Reason {
    pub(crate) name: &'static str,
    pub(crate) status: StatusReason,
    pub(crate) code: u16,
}

/// All that a validation may name. One that names none has the first.
pub(crate) const REASONS: [Reason; 4] = [
    Reason { name: "Invalid", status: StatusReason::Invalid, code: 422 },
    Reason { name: "Forbidden", status: StatusReason::Forbidden, code: 403 },
    Reason { name: "Unauthorized", status: StatusReason::Unauthorized, code: 401 },
    Reason { name: "RequestEntityTooLarge", status: StatusReason::RequestEntityTooLarge, code: 413 },
];

/// The variables that expressions about requests see.
pub(crate) fn scope(variables: &[String], has_params: bool) -> Scope<'static> {
    let json = ["object", "oldObject", "request", "namespaceObject"].map(|name| Variable::json(name, None));
    let mut all = Vec::from(json);
    all.push(Variable::with_field("authorizer", "requestResource"));
    all.push(Variable::computed("variables", variables.to_vec()));
    if has_params {
        all.push(Variable::json("params", None));
    }
    Scope(all)
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn listed<'a>(declared: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    declared[field].as_array().into_iter().flatten()
}

/// Checks match conditions of a webhook (`has_params` is none), or of a policy with or without parameters.
pub(crate) fn problems_of_conditions(declared: &Value, has_params: Option<bool>, path: &str, problems: &mut Problems) {
    let conditions = declared.as_array().map_or(&[][..], Vec::as_slice);
    if conditions.len() > CONDITIONS_MAX {
        let detail = format!("must have at most {CONDITIONS_MAX} items");
        problems.invalid(path, &conditions.len().into(), &detail);
        return;
    }
    let scope = scope(&[], has_params == Some(true));
    let mut seen = BTreeSet::new();
    for (index, one) in conditions.iter().enumerate() {
        let (name, at) = (text(&one["name"]), format!("{path}[{index}]"));
        if name.is_empty() {
            problems.required(&format!("{at}.name"), "");
        } else if !seen.insert(name.clone()) {
            problems.duplicate(&format!("{at}.name"), &name);
        }
        problems_of_expression(&one["expression"], &scope, Wanted::Bool, &format!("{at}.expression"), problems);
    }
}

fn problems_of_expression(source: &Value, scope: &Scope<'_>, wanted: Wanted, path: &str, problems: &mut Problems) {
    match source.as_str().map(str::trim) {
        None | Some("") => problems.required(path, ""),
        Some(text) => {
            if let Err(error) = Expression::compile(text, scope, wanted) {
                problems.invalid(path, source, &error.to_string());
            }
        }
    }
}

/// Checks a policy as it is written.
pub(crate) fn check(policy: &Value, problems: &mut Problems) {
    let spec = &policy["spec"];
    let has_params = spec["paramKind"].is_object();
    if has_params {
        for field in ["apiVersion", "kind"] {
            if spec["paramKind"][field].as_str().is_none_or(str::is_empty) {
                problems.required(&format!("spec.paramKind.{field}"), "");
            }
        }
    }
    if listed(&spec["matchConstraints"], "resourceRules").next().is_none() {
        problems.required("spec.matchConstraints.resourceRules", "");
    }
    problems_of_match(&spec["matchConstraints"], "resourceRules", "spec.matchConstraints", problems);
    problems_of_conditions(&spec["matchConditions"], Some(has_params), "spec.matchConditions", problems);
    for field in ["variables", "validations", "auditAnnotations"] {
        if spec[field].as_array().is_some_and(|list| list.len() > EXPRESSIONS_MAX) {
            problems.forbidden(&format!("spec.{field}"), &format!("at most {EXPRESSIONS_MAX} items are allowed"));
            return;
        }
    }
    let mut names: Vec<String> = Vec::new();
    for (index, one) in listed(spec, "variables").enumerate() {
        let (name, at) = (text(&one["name"]), format!("spec.variables[{index}]"));
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !is_name {
            problems.invalid(&format!("{at}.name"), &one["name"], "name is not a valid CEL identifier");
        } else if names.contains(&name) {
            problems.duplicate(&format!("{at}.name"), &name);
        }
        let scope = scope(&names, has_params);
        problems_of_expression(&one["expression"], &scope, Wanted::Any, &format!("{at}.expression"), problems);
        names.push(name);
    }
    let scope = scope(&names, has_params);
    let judges = listed(spec, "validations").next().is_some() || listed(spec, "auditAnnotations").next().is_some();
    if !judges {
        problems.required("spec.validations", "validations or auditAnnotations must contain at least one item");
    }
    for (index, one) in listed(spec, "validations").enumerate() {
        let at = format!("spec.validations[{index}]");
        problems_of_expression(&one["expression"], &scope, Wanted::Bool, &format!("{at}.expression"), problems);
        if !one["messageExpression"].is_null() {
            let at = format!("{at}.messageExpression");
            problems_of_expression(&one["messageExpression"], &scope, Wanted::Text, &at, problems);
        }
        if let Some(message) = one["message"].as_str() {
            let is_blank = message.trim().is_empty();
            if is_blank || message.contains('\n') {
                let detail = if is_blank {
                    "message must be non-empty if specified"
                } else {
                    "message must not contain line breaks"
                };
                problems.invalid(&format!("{at}.message"), &one["message"], detail);
            }
        }
        if let Some(reason) = one["reason"].as_str().filter(|one| !REASONS.iter().any(|reason| reason.name == *one)) {
            problems.not_supported(&format!("{at}.reason"), reason, &REASONS.map(|reason| reason.name));
        }
    }
    for (index, one) in listed(spec, "auditAnnotations").enumerate() {
        let at = format!("spec.auditAnnotations[{index}]");
        if one["key"].as_str().is_none_or(str::is_empty) {
            problems.required(&format!("{at}.key"), "");
        }
        problems_of_expression(
            &one["valueExpression"],
            &scope,
            Wanted::Any,
            &format!("{at}.valueExpression"),
            problems,
        );
    }
}

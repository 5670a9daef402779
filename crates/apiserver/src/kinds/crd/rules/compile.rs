//! From `x-kubernetes-validations` in a schema to rules.
//!
//! Invariant: a definition whose rules all compile is accepted; any other is refused with the place of each mistake.

use pumice_objects::field::FieldErrorKind;
use pumice_objects::schema::{Cursor, DEPTH_MAX, Member, Schema};
use serde::Deserialize;
use serde_json::Value;

use super::{Node, Rule, Rules};
use crate::cel::{CompileError, Expression, Scope, Variable, Wanted};
use crate::problems::Problems;

const RULES: &str = "x-kubernetes-validations";
/// Most rules of one version of a definition.
const RULES_MAX: usize = 500;
/// Longest message that a rule declares, in bytes.
const MESSAGE_BYTES_MAX: usize = 2048;
const REASONS: [(&str, FieldErrorKind); 4] = [
    ("FieldValueInvalid", FieldErrorKind::Invalid),
    ("FieldValueForbidden", FieldErrorKind::Forbidden),
    ("FieldValueRequired", FieldErrorKind::Required),
    ("FieldValueDuplicate", FieldErrorKind::Duplicate),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Declared {
    rule: String,
    message: Option<String>,
    message_expression: Option<String>,
    reason: Option<String>,
    field_path: Option<String>,
    #[serde(default)]
    optional_old_self: Option<bool>,
}

/// Compiles the rules of a schema as declared; `None` where there are none. Mistakes go to `problems`, under `path`.
pub(crate) fn compile(declared: &Value, schema: &Schema, path: &str, problems: &mut Problems) -> Option<Rules> {
    let mut compiler = Compiler { problems, count: 0 };
    let root = compiler.node(declared, schema.root(), path, 0)?;
    Some(Rules { root })
}

struct Compiler<'p> {
    problems: &'p mut Problems,
    count: usize,
}

impl Compiler<'_> {
    fn node(&mut self, declared: &Value, place: Cursor<'_>, path: &str, depth: usize) -> Option<Node> {
        if depth > DEPTH_MAX {
            return None;
        }
        for junctor in ["allOf", "anyOf", "oneOf"] {
            for (index, branch) in declared[junctor].as_array().into_iter().flatten().enumerate() {
                self.refuse_within(branch, &format!("{path}.{junctor}[{index}]"), depth + 1);
            }
        }
        self.refuse_within(&declared["not"], &format!("{path}.not"), depth + 1);
        let mut node = Node { type_name: type_name(declared), ..Node::default() };
        for (index, rule) in declared[RULES].as_array().into_iter().flatten().enumerate() {
            node.rules.extend(self.rule(rule, declared, place, depth == 0, &format!("{path}.{RULES}[{index}]")));
        }
        for (name, below) in declared["properties"].as_object().into_iter().flatten() {
            let Member::Declared(place) = place.of(name) else { continue };
            // The metadata of an object is the same for all kinds.
            if depth == 0 && ["metadata", "apiVersion", "kind"].contains(&name.as_str()) {
                continue;
            }
            if let Some(below) = self.node(below, place, &format!("{path}.properties[{name}]"), depth + 1) {
                node.fields.insert(name.clone(), below);
            }
        }
        if let (below @ Value::Object(_), Member::Additional(place)) =
            (&declared["additionalProperties"], place.of("\u{0}"))
        {
            node.additional = self.node(below, place, &format!("{path}.additionalProperties"), depth + 1).map(Box::new);
        }
        if let (below @ Value::Object(_), Some(place)) = (&declared["items"], place.items()) {
            node.items = self.node(below, place, &format!("{path}.items"), depth + 1).map(Box::new);
        }
        let leads = !node.fields.is_empty() || node.additional.is_some() || node.items.is_some();
        (leads || !node.rules.is_empty()).then_some(node)
    }

    /// Rules can't stand where a schema is only tried.
    fn refuse_within(&mut self, schema: &Value, path: &str, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        match schema {
            Value::Object(fields) => {
                for (name, below) in fields {
                    let path = format!("{path}.{name}");
                    if name == RULES {
                        self.problems.forbidden(&path, "must be empty to be structural");
                    } else {
                        self.refuse_within(below, &path, depth + 1);
                    }
                }
            }
            Value::Array(items) => {
                for (index, below) in items.iter().enumerate() {
                    self.refuse_within(below, &format!("{path}[{index}]"), depth + 1);
                }
            }
            _ => {}
        }
    }

    fn rule(&mut self, rule: &Value, at: &Value, place: Cursor<'_>, is_root: bool, path: &str) -> Option<Rule> {
        self.count += 1;
        if self.count > RULES_MAX {
            if self.count == RULES_MAX + 1 {
                self.problems.forbidden(path, &format!("a version may have at most {RULES_MAX} rules"));
            }
            return None;
        }
        let declared = match Declared::deserialize(rule) {
            Ok(declared) => declared,
            Err(error) => {
                self.problems.invalid(path, rule, &error.to_string());
                return None;
            }
        };
        let variable = |name| Variable { hides_metadata: is_root, ..Variable::json(name, Some(place)) };
        let old_is_optional = declared.optional_old_self == Some(true);
        let old = if old_is_optional { Variable::value("oldSelf") } else { variable("oldSelf") };
        let scope = Scope(vec![variable("self"), old]);
        let holds = self.expression(&declared.rule, &scope, Wanted::Bool, &format!("{path}.rule"));
        let says = match &declared.message_expression {
            Some(source) => {
                Some(self.expression(source, &scope, Wanted::Text, &format!("{path}.messageExpression"))?)
            }
            None => None,
        };
        let message = self.message(&declared, path);
        let reason = self.reason(declared.reason.as_deref(), path)?;
        let field = self.field(declared.field_path.as_deref(), at, path)?;
        let holds = holds?;
        let is_transition =
            holds.reads("oldSelf") || says.as_ref().is_some_and(|says: &Expression| says.reads("oldSelf"));
        if old_is_optional && !is_transition {
            let detail = "may not be set if oldSelf is not used in rule";
            self.problems.invalid(&format!("{path}.optionalOldSelf"), &Value::Bool(true), detail);
        }
        Some(Rule { source: declared.rule, holds, message, says, reason, field, is_transition, old_is_optional })
    }

    fn expression(&mut self, source: &str, scope: &Scope<'_>, wanted: Wanted, path: &str) -> Option<Expression> {
        if source.trim().is_empty() {
            self.problems.required(path, "");
            return None;
        }
        match Expression::compile(source, scope, wanted) {
            Ok(expression) => Some(expression),
            Err(error @ CompileError(_)) => {
                self.problems.invalid(path, &source.into(), &error.to_string());
                None
            }
        }
    }

    fn message(&mut self, declared: &Declared, path: &str) -> Option<String> {
        let message = declared.message.as_deref()?;
        let path = format!("{path}.message");
        if message.trim().is_empty() {
            self.problems.invalid(&path, &message.into(), "message must be non-empty if specified");
        } else if message.contains(['\n', '\r']) {
            self.problems.invalid(&path, &message.into(), "message must not contain line breaks");
        } else if message.len() > MESSAGE_BYTES_MAX {
            let shown: String = message.chars().take(40).collect();
            let detail = format!("message must have a maximum length of {MESSAGE_BYTES_MAX} characters");
            self.problems.invalid(&path, &shown.into(), &detail);
        }
        Some(message.to_owned())
    }

    fn reason(&mut self, reason: Option<&str>, path: &str) -> Option<FieldErrorKind> {
        let Some(reason) = reason else { return Some(FieldErrorKind::Invalid) };
        let known = REASONS.iter().find(|(name, _)| *name == reason);
        if known.is_none() {
            let names = REASONS.map(|(name, _)| name);
            self.problems.not_supported(&format!("{path}.reason"), reason, &names);
        }
        known.map(|(_, kind)| *kind)
    }

    /// The suffix of an error's path: `.a.b['c']` must lead along declared fields.
    fn field(&mut self, field_path: Option<&str>, at: &Value, path: &str) -> Option<String> {
        let Some(given) = field_path else { return Some(String::new()) };
        match field_suffix(given, at) {
            Ok(suffix) => Some(suffix),
            Err(cause) => {
                self.problems.invalid(&format!("{path}.fieldPath"), &given.into(), &cause);
                None
            }
        }
    }
}

/// The path that a `fieldPath` means, in the form of errors.
fn field_suffix(given: &str, at: &Value) -> Result<String, String> {
    let (mut rest, mut schema, mut suffix) = (given, at, String::new());
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix("['") {
            let (name, after) = after.split_once("']").ok_or("fieldPath must be a valid path: unterminated ['")?;
            rest = after;
            name
        } else if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            rest = &after[end..];
            &after[..end]
        } else {
            return Err(format!("expected [' or . but got: {}", rest.chars().next().unwrap_or_default()));
        };
        if let Some(below) = schema["properties"].get(name) {
            suffix.push('.');
            suffix.push_str(name);
            schema = below;
        } else if schema["additionalProperties"].is_object() {
            suffix.push_str(&format!("[{name}]"));
            schema = &schema["additionalProperties"];
        } else {
            return Err(format!("fieldPath must be a valid path: does not refer to a valid field: {name:?}"));
        }
    }
    if suffix.is_empty() { Err("fieldPath must be non-empty if specified".to_owned()) } else { Ok(suffix) }
}

/// What errors show in place of a value.
fn type_name(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer".to_owned();
    }
    schema["type"].as_str().unwrap_or("object").to_owned()
}

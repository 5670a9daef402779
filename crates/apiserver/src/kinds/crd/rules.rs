//! Rules of definitions: `x-kubernetes-validations`, compiled when a definition is taken, asked on every write of its objects.
//!
//! Invariant: rules see objects that their schema admits; a rule that needs what was before is asked only where a part
//! has a before; a part that is as it was is not judged again. What all rules of one write cost together is bounded. A kind
//! without rules has none of this. Called by `strategy::crd`, `registry::custom` and the write verbs.

mod compile;

use std::collections::{BTreeMap, HashMap};

use pumice_objects::field::{FieldError, FieldErrorKind};
use pumice_objects::schema::{Cursor, ListKind, Member, Schema};
use serde_json::Value;

use crate::cel::{Binding, Bindings, Budget, EvaluateError, Expression};
pub(crate) use compile::compile;

/// Most errors of one object.
const ERRORS_MAX: usize = 32;
/// Longest message that an expression may make.
const MESSAGE_BYTES_MAX: usize = 5120;

/// The rules of one version of a definition.
#[derive(Debug)]
pub(crate) struct Rules {
    root: Node,
}

/// The rules of one place, and of those below it. Only places that lead to rules have one.
#[derive(Debug, Default)]
struct Node {
    rules: Vec<Rule>,
    /// The name of its type, which errors show in place of the value.
    type_name: String,
    fields: BTreeMap<String, Node>,
    additional: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Rule {
    source: String,
    holds: Expression,
    message: Option<String>,
    says: Option<Expression>,
    reason: FieldErrorKind,
    /// What is appended to the path of the part.
    field: String,
    /// Whether it compares with what was before.
    is_transition: bool,
    /// Whether it is asked of new parts too, though it compares.
    old_is_optional: bool,
}

/// A part of an object with what it was, where that can be told.
#[derive(Clone, Copy)]
struct Part<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    cursor: Cursor<'a>,
}

impl Rules {
    /// The rules that an object breaks.
    pub(crate) fn validate(&self, schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut asking = Asking { budget: Budget::new(), errors: Vec::new(), is_over: false };
        asking.visit(&self.root, Part { new, old, cursor: schema.root() }, "");
        asking.errors
    }
}

struct Asking {
    budget: Budget,
    errors: Vec<FieldError>,
    is_over: bool,
}

impl Asking {
    fn visit(&mut self, node: &Node, part: Part<'_>, path: &str) {
        if self.is_over || part.new.is_null() {
            return;
        }
        self.budget.take(1);
        // What was accepted as it is stays accepted.
        let unchanged = !node.rules.is_empty() && part.old == Some(part.new);
        for rule in &node.rules {
            if unchanged && !rule.is_transition {
                continue;
            }
            self.ask(node, rule, part, path);
        }
        match part.new {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let (below, cursor) = match (node.fields.get(name), part.cursor.of(name)) {
                        (Some(below), Member::Declared(cursor)) => (below, cursor),
                        (None, Member::Additional(cursor)) => match &node.additional {
                            Some(below) => (below.as_ref(), cursor),
                            None => continue,
                        },
                        _ => continue,
                    };
                    let old = part.old.and_then(|old| old.get(name));
                    let path = match (path, part.cursor.of(name)) {
                        (_, Member::Additional(_)) => format!("{path}[{name}]"),
                        ("", _) => name.clone(),
                        _ => format!("{path}.{name}"),
                    };
                    self.visit(below, Part { new: field, old, cursor }, &path);
                }
            }
            Value::Array(items) => {
                let (Some(below), Some(cursor)) = (&node.items, part.cursor.items()) else { return };
                let before = keyed(part.cursor, part.old);
                for (index, item) in items.iter().enumerate() {
                    let old = if before.is_empty() { None } else { before.get(&key(part.cursor, item)).copied() };
                    self.visit(below, Part { new: item, old, cursor }, &format!("{path}[{index}]"));
                }
            }
            _ => {}
        }
    }

    fn ask(&mut self, node: &Node, rule: &Rule, part: Part<'_>, path: &str) {
        if self.is_over || rule.is_transition && part.old.is_none() && !rule.old_is_optional {
            return;
        }
        let cursor = Some(part.cursor);
        let mut bindings = Bindings::default().with("self", Binding::Json(part.new, cursor));
        if rule.old_is_optional {
            bindings.set("oldSelf", Binding::Optional(part.old, cursor));
        } else if let Some(old) = part.old {
            bindings.set("oldSelf", Binding::Json(old, cursor));
        }
        let path = if rule.field.is_empty() { path.to_owned() } else { format!("{path}{}", rule.field) };
        let path = path.trim_start_matches('.').to_owned();
        let kind = node.type_name.as_str();
        match rule.holds.holds(&bindings, &mut self.budget) {
            Ok(true) => {}
            Ok(false) => {
                let message = self.message(rule, &bindings);
                self.report(rule.error(path, kind, message));
            }
            Err(EvaluateError::Spent) => {
                self.is_over = true;
                let detail =
                    "validation failed due to running out of cost budget, no further validation rules will be run";
                self.errors.push(FieldError::invalid(path, kind, detail));
            }
            Err(EvaluateError::Failed(cause)) => {
                let detail = format!("{cause} evaluating rule: {}", rule.message());
                self.report(FieldError::invalid(path, kind, detail));
            }
        }
    }

    /// What a broken rule says: what its expression makes, if that is one line of text.
    fn message(&mut self, rule: &Rule, bindings: &Bindings<'_>) -> String {
        let made = rule.says.as_ref().and_then(|says| says.text(bindings, &mut self.budget).ok());
        let fits = |text: &String| !text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains(['\n', '\r']);
        made.filter(fits).unwrap_or_else(|| rule.message())
    }

    fn report(&mut self, error: FieldError) {
        self.errors.push(error);
        self.is_over |= self.errors.len() >= ERRORS_MAX;
    }
}

impl Rule {
    fn message(&self) -> String {
        self.message.clone().unwrap_or_else(|| format!("failed rule: {}", self.source))
    }

    fn error(&self, path: String, type_name: &str, message: String) -> FieldError {
        match self.reason {
            FieldErrorKind::Forbidden => FieldError::forbidden(path, message),
            FieldErrorKind::Required => FieldError::required(path, message),
            FieldErrorKind::Duplicate => FieldError { detail: message, ..FieldError::duplicate(path, type_name) },
            _ => FieldError::invalid(path, type_name, message),
        }
    }
}

/// The items of an old list by their keys, if the items have such: then it can be told what an item was.
fn keyed<'a>(list: Cursor<'_>, old: Option<&'a Value>) -> HashMap<String, &'a Value> {
    match list.list_kind() {
        ListKind::Map(_) => {
            let items = old.and_then(Value::as_array).into_iter().flatten();
            items.map(|item| (key(list, item), item)).collect()
        }
        _ => HashMap::new(),
    }
}

/// The keys of an item as text. A key that is left out is its default.
fn key(list: Cursor<'_>, item: &Value) -> String {
    let ListKind::Map(keys) = list.list_kind() else { return String::new() };
    let of_item = list.items();
    let value = |name: &str| item.get(name).or_else(|| of_item.and_then(|cursor| cursor.default(name)));
    keys.iter().map(|name| format!("{}\n", value(name).unwrap_or(&Value::Null))).collect()
}

#[cfg(test)]
mod tests;

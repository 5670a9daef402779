//! The walk over an object along its schema.
//!
//! Invariant: each value is visited once, its parent before it: pruned, completed, then validated,
//! so that defaults are seen by the checks as if they had been written. Paths are kept on the
//! stack and written out only for a finding.

use std::collections::HashSet;
use std::fmt;

use pumice_units::Quantity;
use serde_json::{Map, Value};

use super::node::{Additional, Arena, ListRules, ListType, Node, NodeId, Property, type_name};
use super::{DEPTH_MAX, Findings, REPORTS_MAX, VALUES_MAX, junctor, leaf, number};
use crate::field::FieldError;
use crate::quote::Quoted;

/// What a walk does at each value.
#[derive(Clone, Copy, Default)]
pub(super) struct Steps {
    /// Remove and report unknown fields.
    pub(super) prune: bool,
    /// Drop nulls, fill in defaults, write quantities canonically.
    pub(super) complete: bool,
    pub(super) validate: bool,
    /// Report numbers that are out of their ranges.
    pub(super) ranges: bool,
}

/// Where a value stands, as a list of steps from it back to the root.
#[derive(Clone, Copy)]
pub(super) enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => formatter.write_str(name),
            Self::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Index(parent, index) => write!(formatter, "{parent}[{index}]"),
        }
    }
}

pub(super) struct Walker<'s> {
    pub(super) arena: &'s Arena,
    steps: Steps,
    values_left: usize,
    findings: Findings,
}

impl<'s> Walker<'s> {
    pub(super) fn new(arena: &'s Arena, steps: Steps) -> Self {
        Self { arena, steps, values_left: VALUES_MAX, findings: Findings::default() }
    }

    pub(super) fn run(mut self, root: NodeId, object: &mut Value) -> Findings {
        self.visit(root, false, object, &Path::Root, 0);
        self.findings
    }

    /// Checks `value` against `id` on the side: the errors it would get. A walk that only validates
    /// changes nothing, so the value needs no clone.
    pub(super) fn try_out(&mut self, id: NodeId, value: &mut Value, path: &Path<'_>, depth: usize) -> Vec<FieldError> {
        let mut walker = Walker {
            arena: self.arena,
            steps: Steps { validate: true, ranges: true, ..Steps::default() },
            values_left: self.values_left,
            findings: Findings::default(),
        };
        walker.visit(id, false, value, path, depth + 1);
        self.values_left = walker.values_left;
        walker.findings.errors
    }

    pub(super) fn report(&mut self, error: FieldError) {
        if self.findings.errors.len() < REPORTS_MAX {
            self.findings.errors.push(error);
        }
    }

    fn visit(&mut self, id: NodeId, is_nullable: bool, value: &mut Value, path: &Path<'_>, depth: usize) {
        if depth > DEPTH_MAX || self.values_left == 0 {
            return self.refuse(path, depth);
        }
        self.values_left -= 1;
        let node = self.arena.node(id);
        if value.is_null() && (is_nullable || node.is_nullable) {
            return;
        }
        if let Value::Number(number) = value
            && number.is_f64()
            && node.types.is_integer()
            && !self.visit_integer(value, path)
        {
            return;
        }
        if !node.types.admits(value) {
            if self.steps.validate {
                self.report(wrong_type(node, value, path));
            }
            return;
        }
        if node.is_quantity {
            return self.visit_quantity(value, path);
        }
        match value {
            Value::Object(members) => self.visit_object(node, members, path, depth),
            Value::Array(items) => self.visit_list(node, items, path, depth),
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => {}
        }
        if self.steps.validate {
            leaf::check(self, node, value, path);
            if let Some(junctors) = &node.junctors {
                junctor::check(self, junctors, value, path, depth);
            }
        }
    }

    /// An object beyond the limits is refused whole, with one error.
    fn refuse(&mut self, path: &Path<'_>, depth: usize) {
        let detail = if depth > DEPTH_MAX {
            format!("must not be nested deeper than {DEPTH_MAX} levels")
        } else {
            format!("object must not have more than {VALUES_MAX} values")
        };
        let is_told = self.findings.errors.iter().any(|error| error.detail == detail);
        if !is_told {
            self.report(FieldError::forbidden(path.to_string(), detail));
        }
    }

    /// An integer that was not written as one becomes one, or is told. Whether there is more to say of it.
    fn visit_integer(&mut self, value: &mut Value, path: &Path<'_>) -> bool {
        let Some(integer) = value.as_number().and_then(number::as_integer) else { return true };
        if self.arena.writes_integers_plainly && integer != 0 {
            if self.steps.validate {
                let detail = format!("{path} in body must be of type integer: \"number\"");
                self.report(FieldError::invalid(path.to_string(), value.clone(), detail));
            }
            return false;
        }
        if self.steps.complete {
            *value = integer.into();
        }
        true
    }

    fn visit_quantity(&mut self, value: &mut Value, path: &Path<'_>) {
        match serde_json::from_value::<Quantity>(value.clone()) {
            Ok(quantity) if self.steps.complete => *value = quantity.to_string().into(),
            Ok(_) => {}
            Err(error) if self.steps.validate => {
                self.report(FieldError::invalid(path.to_string(), value.clone(), error.to_string()));
            }
            Err(_) => {}
        }
    }

    fn visit_list(&mut self, node: &'s Node, items: &mut [Value], path: &Path<'_>, depth: usize) {
        let Some(rules) = &node.list else { return };
        if let Some(id) = rules.items {
            for (index, item) in items.iter_mut().enumerate() {
                self.visit(id, false, item, &Path::Index(path, index), depth + 1);
            }
        }
        if self.steps.validate {
            check_list(self, rules, items, path);
        }
    }

    fn visit_object(&mut self, node: &'s Node, members: &mut Map<String, Value>, path: &Path<'_>, depth: usize) {
        if self.steps.prune && matches!(node.object.additional, Additional::Unknown) {
            self.drop_unknown(node, members, path);
        }
        if self.steps.complete {
            self.drop_nulls(node, members);
            for index in &node.object.defaulted {
                fill_in(&node.object.properties[*index as usize], members);
            }
        }
        if self.steps.validate {
            self.check_members(node, members, path);
        }
        for (name, member) in members {
            let path = Path::Field(path, name);
            match (node.object.property(name), &node.object.additional) {
                (Some(property), _) => {
                    self.visit(property.node, property.is_nullable, member, &path, depth + 1);
                    if self.steps.ranges
                        && let Some(range) = property.range.as_ref()
                    {
                        number::check_range(self, range, member, &path);
                    }
                }
                (None, Additional::Node(id)) => self.visit(*id, false, member, &path, depth + 1),
                (None, Additional::Preserved | Additional::Unknown) => {}
            }
        }
    }

    fn drop_unknown(&mut self, node: &Node, members: &mut Map<String, Value>, path: &Path<'_>) {
        let unknown = &mut self.findings.unknown_fields;
        members.retain(|name, _| {
            let is_known = node.object.property(name).is_some();
            if !is_known && unknown.len() < REPORTS_MAX {
                unknown.push(Path::Field(path, name).to_string());
            }
            is_known
        });
    }

    /// A null where none may be counts as absent, as it does for every typed client.
    fn drop_nulls(&self, node: &Node, members: &mut Map<String, Value>) {
        let keeps_null = |id: NodeId| {
            let node = self.arena.node(id);
            node.is_nullable || node.types.is_any()
        };
        members.retain(|name, member| {
            !member.is_null()
                || match (node.object.property(name), &node.object.additional) {
                    (Some(property), _) => property.is_nullable || keeps_null(property.node),
                    (None, Additional::Node(id)) => keeps_null(*id),
                    (None, Additional::Preserved | Additional::Unknown) => true,
                }
        });
    }

    fn check_members(&mut self, node: &Node, members: &Map<String, Value>, path: &Path<'_>) {
        let rules = &node.object;
        for name in &rules.required {
            if !members.contains_key(name.as_ref()) {
                self.report(FieldError::required(Path::Field(path, name).to_string(), ""));
            }
        }
        let len = members.len() as u64;
        if let Some(len_max) = rules.len_max.filter(|len_max| len > *len_max) {
            self.report(FieldError::too_many(path.to_string(), len, len_max));
        }
        if let Some(len_min) = rules.len_min.filter(|len_min| len < *len_min) {
            let detail = format!("{path} in body should have at least {len_min} properties");
            self.report(FieldError::invalid(path.to_string(), len, detail));
        }
    }
}

fn fill_in(property: &Property, members: &mut Map<String, Value>) {
    if let Some(default) = &property.default
        && !members.contains_key(property.name.as_ref())
    {
        members.insert(property.name.to_string(), default.clone());
    }
}

fn wrong_type(node: &Node, value: &Value, path: &Path<'_>) -> FieldError {
    let found = type_name(value);
    let detail = format!("{path} in body must be of type {}: {}", node.types.names(), Quoted(found));
    FieldError::type_invalid(path.to_string(), found, detail)
}

/// Checks a list as a whole: its length, and that sets and maps name nothing twice.
fn check_list(walker: &mut Walker<'_>, rules: &ListRules, items: &[Value], path: &Path<'_>) {
    let len = items.len() as u64;
    if let Some(len_max) = rules.len_max.filter(|len_max| len > *len_max) {
        walker.report(FieldError::too_many(path.to_string(), len, len_max));
    }
    if let Some(len_min) = rules.len_min.filter(|len_min| len < *len_min) {
        let detail = format!("{path} in body should have at least {len_min} items");
        walker.report(FieldError::invalid(path.to_string(), len, detail));
    }
    match &rules.kind {
        _ if !rules.is_unique => {}
        ListType::Atomic | ListType::Set => check_unique(walker, items.iter().cloned().map(Some), path),
        ListType::Map(keys) => {
            let identities = items.iter().map(|item| item.as_object().map(|item| identity(item, keys)));
            check_unique(walker, identities, path);
        }
    }
}

/// The members that tell the items of a map apart.
fn identity(item: &Map<String, Value>, keys: &[Box<str>]) -> Value {
    let members = keys.iter().filter_map(|key| Some((key.to_string(), item.get(key.as_ref())?.clone())));
    Value::Object(members.collect())
}

fn check_unique(walker: &mut Walker<'_>, identities: impl Iterator<Item = Option<Value>>, path: &Path<'_>) {
    let mut seen = HashSet::new();
    for (index, identity) in identities.enumerate() {
        // What is no object has been reported as a wrong type.
        if let Some(identity) = identity
            && !seen.insert(identity.to_string())
        {
            walker.report(FieldError::duplicate(Path::Index(path, index).to_string(), identity));
        }
    }
}

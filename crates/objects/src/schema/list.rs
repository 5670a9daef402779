//! Checks of a list as a whole: its length, and that sets and maps name nothing twice.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::node::{ListRules, ListType};
use super::walk::{Path, Walker};
use crate::field::FieldError;

pub(super) fn check(walker: &mut Walker<'_>, rules: &ListRules, items: &[Value], path: &Path<'_>) {
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

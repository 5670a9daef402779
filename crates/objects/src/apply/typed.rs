//! Objects along their schema: which fields they have, what differs, and how a configuration is merged into one.
//!
//! Invariant: depth is bounded by that of the objects, cost is linear in them. What the schema says nothing about is an object
//! whose members are apart, a list that is one, or a scalar. The rules are those of Kubernetes' structured merge.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::ApplyError;
use super::fields::{Fields, Step};
use crate::schema::{Cursor, ListKind};

type At<'s> = Option<Cursor<'s>>;

fn list_kind(at: At<'_>) -> ListKind<'_> {
    at.map_or(ListKind::Atomic, Cursor::list_kind)
}

/// The members of an object that are apart, and the items of a list that are told apart.
enum Parts<'v> {
    Members(&'v Map<String, Value>),
    Items(Vec<(Option<Step>, &'v Value)>),
    Whole,
}

fn parts<'v>(value: &'v Value, at: At<'_>) -> Parts<'v> {
    match (value, list_kind(at)) {
        (Value::Object(members), _) if !at.is_some_and(Cursor::is_atomic) => Parts::Members(members),
        (Value::Array(_), ListKind::Atomic) => Parts::Whole,
        (Value::Array(items), kind) => Parts::Items(items.iter().map(|item| (step_of(item, kind, at), item)).collect()),
        _ => Parts::Whole,
    }
}

/// What tells an item from the others; `None` if it lacks that.
fn step_of(item: &Value, kind: ListKind<'_>, at: At<'_>) -> Option<Step> {
    let ListKind::Map(keys) = kind else { return Some(Step::Value(item.to_string())) };
    let item = item.as_object()?;
    let below = at.and_then(Cursor::items);
    let mut found = Map::new();
    for key in keys {
        let value = item.get(key.as_ref()).or_else(|| below?.default(key));
        if let Some(value) = value.filter(|value| !value.is_null()) {
            found.insert(key.to_string(), value.clone());
        }
    }
    // Keys may be left out, but not all of them.
    if found.is_empty() {
        return None;
    }
    Some(Step::Key(Value::Object(found).to_string()))
}

fn member<'s>(at: At<'s>, name: &str) -> At<'s> {
    at.and_then(|place| place.member(name).0)
}

/// The fields that an object has.
pub(super) fn fields_of(value: &Value, at: At<'_>) -> Fields {
    collect(value, at, false)
}

/// The same, with all that only holds fields.
pub(super) fn all_of(value: &Value, at: At<'_>) -> Fields {
    collect(value, at, true)
}

fn collect(value: &Value, at: At<'_>, all: bool) -> Fields {
    let mut fields = Fields::default();
    fields.is_member = all;
    match parts(value, at) {
        Parts::Whole => fields.is_member = true,
        Parts::Members(members) => {
            for (name, value) in members {
                let mut below = collect(value, member(at, name), all);
                let is_bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                below.is_member |= is_bare || !at.is_some_and(|place| place.declares(name));
                fields.put(Step::Field(name.clone()), below);
            }
        }
        Parts::Items(items) => {
            for (step, item) in items {
                let Some(step) = step else { continue };
                let mut below = match &step {
                    Step::Key(_) => collect(item, at.and_then(Cursor::items), all),
                    _ => Fields::default(),
                };
                below.is_member = true;
                fields.put(step, below);
            }
        }
    }
    fields
}

/// Refuses a configuration whose items can't be told apart.
pub(super) fn check(value: &Value, at: At<'_>, path: &str) -> Result<(), ApplyError> {
    match parts(value, at) {
        Parts::Whole => {}
        Parts::Members(members) => {
            for (name, value) in members {
                check(value, member(at, name), &format!("{path}.{name}"))?;
            }
        }
        Parts::Items(items) => {
            let mut seen = HashSet::new();
            for (index, (step, item)) in items.into_iter().enumerate() {
                let path = format!("{path}[{index}]");
                let Some(step) = step else { return Err(ApplyError::NoKey { path }) };
                check(item, at.and_then(Cursor::items), &path)?;
                if !seen.insert(step) {
                    return Err(ApplyError::Duplicate { path });
                }
            }
        }
    }
    Ok(())
}

/// `config` merged into `live`: what it does not say stays.
pub(super) fn merge(live: &Value, config: &Value, at: At<'_>) -> Value {
    match (parts(live, at), parts(config, at)) {
        (Parts::Members(live), Parts::Members(config)) => {
            let kept = live.iter().map(|(name, value)| {
                let wanted = config.get(name).map(|wanted| merge(value, wanted, member(at, name)));
                (name.clone(), wanted.unwrap_or_else(|| value.clone()))
            });
            let new = config.iter().filter(|(name, _)| !live.contains_key(*name));
            Value::Object(kept.chain(new.map(|(name, value)| (name.clone(), value.clone()))).collect())
        }
        (Parts::Items(live), Parts::Items(config)) => Value::Array(merge_items(live, config, at)),
        _ => config.clone(),
    }
}

/// Items of the configuration stand in its order; those it does not name as near as they can to where they stood.
fn merge_items(live: Vec<(Option<Step>, &Value)>, config: Vec<(Option<Step>, &Value)>, at: At<'_>) -> Vec<Value> {
    let below = at.and_then(Cursor::items);
    let mut before: HashMap<&Step, &Value> = HashMap::new();
    for (step, item) in &live {
        if let Some(step) = step {
            before.entry(step).or_insert(item);
        }
    }
    let wanted: HashSet<&Step> = config.iter().filter_map(|(step, _)| step.as_ref()).collect();
    let mut done: HashSet<&Step> = HashSet::new();
    let mut merged = Vec::with_capacity(live.len() + config.len());
    let (mut live, mut config) = (live.iter().peekable(), config.iter());
    loop {
        match live.peek() {
            Some((Some(step), _)) if done.contains(step) => drop(live.next()),
            Some((step, item)) if step.as_ref().is_none_or(|step| !wanted.contains(step)) => {
                merged.push((*item).clone());
                live.next();
            }
            _ => {
                let Some((step, item)) = config.next() else { return merged };
                done.extend(step);
                merged.push(match step.as_ref().and_then(|step| before.get(step)) {
                    Some(live) => merge(live, item, below),
                    None => (*item).clone(),
                });
            }
        }
    }
}

/// Takes out what was in `last` and nobody keeps.
pub(super) fn remove(value: &mut Value, at: At<'_>, last: &Fields, kept: &Fields) {
    let nothing = Fields::default();
    let is_gone = |step: &Step| {
        let was = last.child(step).is_some_and(|below| !below.is_empty());
        was && kept.child(step).is_none_or(Fields::is_empty)
    };
    let kind = list_kind(at);
    match value {
        Value::Object(members) if !at.is_some_and(Cursor::is_atomic) => {
            members.retain(|name, value| {
                let step = Step::Field(name.clone());
                if let Some(last) = last.child(&step) {
                    if is_gone(&step) {
                        return false;
                    }
                    remove(value, member(at, name), last, kept.child(&step).unwrap_or(&nothing));
                }
                true
            });
        }
        Value::Array(items) if !matches!(kind, ListKind::Atomic) => {
            items.retain_mut(|item| {
                let Some(step) = step_of(item, kind, at) else { return true };
                if let Some(last) = last.child(&step) {
                    if is_gone(&step) {
                        return false;
                    }
                    remove(item, at.and_then(Cursor::items), last, kept.child(&step).unwrap_or(&nothing));
                }
                true
            });
        }
        _ => {}
    }
}

/// What differs between two objects.
pub(super) struct Changes {
    /// Fields that are new or have another value.
    pub(super) set: Fields,
    /// Fields that are gone.
    pub(super) removed: Fields,
}

/// What became of `old`.
pub(super) fn changes(old: &Value, new: &Value, at: At<'_>) -> Changes {
    let (before, after) = (fields_of(old, at), fields_of(new, at));
    let Both { modified, filled } = both(old, new, at);
    let mut set = after.clone();
    set.subtract(&before);
    set.subtract(&filled);
    set.add(&modified);
    let mut removed = before;
    removed.subtract(&after);
    removed.subtract(&filled);
    Changes { set, removed }
}

/// Fields that are in both of two objects.
#[derive(Default)]
struct Both {
    /// Those that have different values.
    modified: Fields,
    /// Objects that got their first member, or lost their last: such a one was there before and still is, and who owns it
    /// goes on to.
    filled: Fields,
}

impl Both {
    fn put(&mut self, step: &Step, below: Self) {
        self.modified.put(step.clone(), below.modified);
        self.filled.put(step.clone(), below.filled);
    }
}

fn both(old: &Value, new: &Value, at: At<'_>) -> Both {
    let mut found = Both::default();
    match (parts(old, at), parts(new, at)) {
        (Parts::Members(old), Parts::Members(new)) => {
            found.filled.is_member = old.is_empty() != new.is_empty();
            for (name, new) in new {
                if let Some(old) = old.get(name) {
                    found.put(&Step::Field(name.clone()), both(old, new, member(at, name)));
                }
            }
        }
        (Parts::Items(old), Parts::Items(new)) => {
            let before: HashMap<&Step, &Value> =
                old.iter().rev().filter_map(|(step, item)| Some((step.as_ref()?, *item))).collect();
            for (step, item) in new {
                if let Some((step, old)) = step.and_then(|step| before.get(&step).map(|old| (step, *old))) {
                    found.put(&step, both(old, item, at.and_then(Cursor::items)));
                }
            }
        }
        _ => found.modified.is_member = old != new,
    }
    found
}

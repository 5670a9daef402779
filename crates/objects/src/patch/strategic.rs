//! Strategic merge patches: merge patches that know which lists have keys, and may say in which order items stand.
//!
//! Invariant: the cost is linear in the object and the patch; nothing of a directive is left in the result. The rules are
//! those of Kubernetes' `strategicpatch`, its oddities included: a member that is `$patch: replace` where the object has
//! none is passed over.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{DEPTH_MAX, PatchError, measure};
use crate::schema::{Cursor, Merging, Schema};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

type Members = Map<String, Value>;

/// `object` after the strategic merge `patch`, by the merge keys of `schema`. Clones `object` once.
pub fn apply_strategic_merge_patch(object: &Value, patch: &Value, schema: &Schema) -> Result<Value, PatchError> {
    if measure(patch).depth > DEPTH_MAX {
        return Err(PatchError::TooDeep { operation: "merge" });
    }
    let (Value::Object(members), Value::Object(patch)) = (object, patch) else {
        return Err(PatchError::Format { what: "patch", expected: "an object" });
    };
    let mut members = members.clone();
    merge_object(&mut members, patch, Some(schema.root()))?;
    Ok(Value::Object(members))
}

fn merge_object(object: &mut Members, patch: &Members, place: Option<Cursor<'_>>) -> Result<(), PatchError> {
    match patch.get(DIRECTIVE).map(Value::as_str) {
        None => {}
        Some(Some("replace")) => {
            *object = fresh_members(patch);
            return Ok(());
        }
        Some(Some("delete")) => {
            object.clear();
            return Ok(());
        }
        Some(_) => return Err(unknown_directive(patch)),
    }
    retain_keys(object, patch)?;
    let mut ordered = HashSet::new();
    for (name, order) in directed(patch, ORDER) {
        let order = order.as_array().ok_or(PatchError::Format { what: "$setElementOrder", expected: "a list" })?;
        merge_ordered(object, name, patch.get(name), order, place)?;
        ordered.insert(name);
    }
    for (name, gone) in directed(patch, DELETE_FROM) {
        let gone =
            gone.as_array().ok_or(PatchError::Format { what: "$deleteFromPrimitiveList", expected: "a list" })?;
        if let Some(Value::Array(items)) = object.get_mut(name) {
            let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
            items.retain(|item| !gone.contains(&item.to_string()));
        }
    }
    for (name, wanted) in patch.iter().filter(|(name, _)| !is_directive(name) && !ordered.contains(name.as_str())) {
        merge_member(object, name, wanted, place)?;
    }
    Ok(())
}

fn merge_member(object: &mut Members, name: &str, wanted: &Value, place: Option<Cursor<'_>>) -> Result<(), PatchError> {
    let (below, merging) = place.map_or((None, None), |place| place.member(name));
    match (object.get_mut(name), wanted) {
        (_, Value::Null) => drop(object.remove(name)),
        (Some(Value::Object(members)), Value::Object(patch)) if merging != Some(&Merging::Replace) => {
            merge_object(members, patch, below)?;
        }
        (Some(Value::Array(items)), Value::Array(patch)) => match merging {
            Some(Merging::Merge { key }) => {
                *items = merge_list(std::mem::take(items), patch, key.as_deref(), below.and_then(Cursor::items))?;
            }
            _ => items.clone_from(patch),
        },
        _ => match fresh(wanted) {
            Some(fresh) => drop(object.insert(name.to_owned(), fresh)),
            None => drop(object.remove(name)),
        },
    }
    Ok(())
}

/// Merges a list whose order the patch states: items that it names stand in that order, the others as near as they can to
/// where they stood.
fn merge_ordered(
    object: &mut Members,
    name: &str,
    patch: Option<&Value>,
    order: &[Value],
    place: Option<Cursor<'_>>,
) -> Result<(), PatchError> {
    let not_a_list = PatchError::Format { what: "what $setElementOrder orders", expected: "a list" };
    let patch = match patch {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(_) => return Err(not_a_list),
    };
    let (below, merging) = place.map_or((None, None), |place| place.member(name));
    let Some(Merging::Merge { key }) = merging else {
        return patch.map_or(Ok(()), |patch| merge_member(object, name, &Value::Array(patch.clone()), place));
    };
    let live = match object.get_mut(name) {
        None if patch.is_none() => return Ok(()),
        None => Vec::new(),
        Some(Value::Array(items)) => std::mem::take(items),
        Some(_) => return Err(not_a_list),
    };
    let key = key.as_deref();
    let order = identities(order, key)?;
    let before = identities(&live, key)?;
    let mut items = live;
    if let Some(patch) = patch {
        check_order(patch, &order, key)?;
        items = merge_list(items, patch, key, below.and_then(Cursor::items))?;
    }
    object.insert(name.to_owned(), Value::Array(arrange(items, &order, &before, key)?));
    Ok(())
}

/// Merges lists whose items have a key, or are scalars that stand for themselves.
fn merge_list(
    live: Vec<Value>,
    patch: &[Value],
    key: Option<&str>,
    place: Option<Cursor<'_>>,
) -> Result<Vec<Value>, PatchError> {
    let objects = live.iter().chain(patch).filter(|item| item.is_object()).count();
    if live.iter().chain(patch).any(Value::is_array) {
        return Err(PatchError::ListOfLists);
    }
    if objects == 0 {
        return merge_scalars(live, patch);
    }
    if objects < live.len() + patch.len() {
        return Err(PatchError::MixedList);
    }
    let key = key.ok_or(PatchError::NoMergeKey)?;
    let (live, plain) = obey_directives(live, patch, key)?;
    let before = identities(&live, Some(key))?;
    let order = identities(plain.iter().copied(), Some(key))?;
    let mut found: HashMap<String, usize> = HashMap::new();
    for (index, identity) in before.iter().enumerate() {
        found.entry(identity.clone()).or_insert(index);
    }
    let mut items = live;
    for (item, identity) in plain.into_iter().zip(&order) {
        match (found.get(identity).and_then(|index| items.get_mut(*index)), item) {
            (Some(Value::Object(members)), Value::Object(patch)) => merge_object(members, patch, place)?,
            _ => {
                found.insert(identity.clone(), items.len());
                items.extend(fresh(item));
            }
        }
    }
    arrange(items, &order, &before, Some(key))
}

fn merge_scalars(live: Vec<Value>, patch: &[Value]) -> Result<Vec<Value>, PatchError> {
    let (before, order) = (identities(&live, None)?, identities(patch, None)?);
    let mut seen = HashSet::new();
    let mut items = live;
    items.extend_from_slice(patch);
    items.retain(|item| seen.insert(item.to_string()));
    arrange(items, &order, &before, None)
}

/// Carries out what items of the patch say of items or of the whole list. Gives what is left of both.
fn obey_directives<'p>(
    mut live: Vec<Value>,
    patch: &'p [Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<&'p Value>), PatchError> {
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replaces = false;
    for item in patch {
        match (item.get(DIRECTIVE).map(Value::as_str), item) {
            (None, _) => plain.push(item),
            (Some(Some("delete")), _) => drop(gone.insert(identity(item, Some(key))?)),
            (Some(Some("replace")), _) => replaces = true,
            (Some(_), Value::Object(members)) => return Err(unknown_directive(members)),
            (Some(_), _) => return Err(PatchError::MixedList),
        }
    }
    if replaces {
        return Ok((plain.into_iter().filter_map(fresh).collect(), Vec::new()));
    }
    if !gone.is_empty() {
        live.retain(|item| identity(item, Some(key)).is_ok_and(|identity| !gone.contains(&identity)));
    }
    Ok((live, plain))
}

/// Puts the items that `order` names in that order. Each of the others stands before the first of them that it stood before
/// in `before`.
fn arrange(
    items: Vec<Value>,
    order: &[String],
    before: &[String],
    key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let (ranks, places) = (first_indices(order), first_indices(before));
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in items {
        let identity = identity(&item, key)?;
        let place = places.get(identity.as_str()).copied();
        match ranks.get(identity.as_str()) {
            Some(rank) => named.push((*rank, place, item)),
            None => others.push((place, item)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, place, item) in named {
        while let Some((_, other)) = others.next_if(|(other, _)| other.is_some() && place.is_some() && *other < place) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others.map(|(_, item)| item));
    Ok(arranged)
}

fn first_indices(identities: &[String]) -> HashMap<&str, usize> {
    let mut indices = HashMap::with_capacity(identities.len());
    for (index, identity) in identities.iter().enumerate() {
        indices.entry(identity.as_str()).or_insert(index);
    }
    indices
}

/// What tells an item of a list from the others, as JSON text.
fn identity(item: &Value, key: Option<&str>) -> Result<String, PatchError> {
    match key {
        Some(key) if item.is_object() => {
            let value = item.get(key).ok_or_else(|| PatchError::MissingMergeKey { key: key.to_owned() })?;
            Ok(value.to_string())
        }
        _ => Ok(item.to_string()),
    }
}

fn identities<'i>(items: impl IntoIterator<Item = &'i Value>, key: Option<&str>) -> Result<Vec<String>, PatchError> {
    items.into_iter().map(|item| identity(item, key)).collect()
}

/// Items of the patch must stand in the order that it states, and all of them be there.
fn check_order(patch: &[Value], order: &[String], key: Option<&str>) -> Result<(), PatchError> {
    let mut rest = order.iter();
    for item in patch.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let identity = identity(item, key)?;
        if !order.is_empty() && !rest.any(|ordered| *ordered == identity) {
            return Err(PatchError::Order { item: identity });
        }
    }
    Ok(())
}

/// Drops the members that `$retainKeys` does not name.
fn retain_keys(object: &mut Members, patch: &Members) -> Result<(), PatchError> {
    let Some(keys) = patch.get(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or(PatchError::Format { what: "$retainKeys", expected: "a list" })?;
    let keys: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let mut given = patch.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    if given.any(|(name, _)| !keys.contains(name.as_str())) {
        return Err(PatchError::Format { what: "$retainKeys", expected: "a list of all fields beside it" });
    }
    object.retain(|name, _| keys.contains(name.as_str()));
    Ok(())
}

fn directed<'p>(patch: &'p Members, prefix: &'static str) -> impl Iterator<Item = (&'p str, &'p Value)> {
    patch.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value)))
}

fn is_directive(name: &str) -> bool {
    name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(ORDER) || name.starts_with(DELETE_FROM)
}

fn unknown_directive(patch: &Members) -> PatchError {
    PatchError::UnknownDirective { directive: patch[DIRECTIVE].to_string() }
}

/// A value as it stands in an object that had none: without nulls and directives.
fn fresh(value: &Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => None,
        Value::Object(members) => Some(Value::Object(fresh_members(members))),
        Value::Array(items) => Some(Value::Array(items.iter().filter_map(fresh).collect())),
        scalar => Some(scalar.clone()),
    }
}

fn fresh_members(members: &Members) -> Members {
    let given = members.iter().filter(|(name, value)| !value.is_null() && !is_directive(name));
    given.filter_map(|(name, value)| Some((name.clone(), fresh(value)?))).collect()
}

#[cfg(test)]
mod tests;

//! Server-side apply: a configuration merged into an object, with a record of who owns which fields.
//!
//! Invariant: who applies owns exactly what the configuration says; what it said before and nobody else owns goes. A value that
//! another owns is changed by force only. Objects that were never applied to have no record, and a write of them costs nothing
//! here: their fields go to [`BEFORE_FIRST_APPLY`] then. Pure; called by the API server's PATCH and after its other writes.
//!
//! The rules are those of Kubernetes' `managedfields` and `structured-merge-diff`.

mod fields;
mod managers;
mod typed;

use serde_json::{Map, Value};

use crate::schema::{Cursor, Schema};
use crate::status::{Status, StatusCause, StatusDetails, StatusReason};
use fields::Fields;
use managers::Manager;
use typed::Changes;

/// Who owns what was there before anybody applied.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Where `kubectl apply` on the client's side keeps what it applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Most conflicts that are told.
const CONFLICTS_MAX: usize = 100;

/// Who writes an object, and when: what `managedFields` says of the write.
#[derive(Clone, Copy, Debug)]
pub struct By<'a> {
    pub manager: &'a str,
    /// The version that it writes in.
    pub api_version: &'a str,
    /// The subresource that it writes; empty for none.
    pub subresource: &'a str,
    /// The time, RFC 3339 in seconds.
    pub now: &'a str,
}

/// How a manager came by its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Apply,
    Update,
}

/// A field that somebody else owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: String,
    /// The field's path, with a leading dot.
    pub field: String,
}

/// Why a configuration was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It or what is stored is no object.
    #[error("a configuration to apply must be an object")]
    NoObject,
    /// It brings a record of owners.
    #[error("metadata.managedFields must be nil")]
    ManagedFields,
    /// An item of a list lacks what tells it from the others.
    #[error("{path}: element of a list lacks all of its keys")]
    NoKey { path: String },
    /// Two items of a list are the same one.
    #[error("{path}: duplicate entries for key")]
    Duplicate {
        /// Where the second is.
        path: String,
    },
    #[error("{}", conflict_list(.conflicts))]
    Conflicts {
        /// Which, by manager.
        conflicts: Vec<Conflict>,
    },
}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Self {
        let reason = match &error {
            ApplyError::Conflicts { .. } => StatusReason::Conflict,
            _ => StatusReason::BadRequest,
        };
        let message = error.to_string();
        let ApplyError::Conflicts { conflicts } = error else { return Self::new(reason, message) };
        let causes = conflicts.into_iter().map(|Conflict { manager, field }| StatusCause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field,
        });
        Self::new(reason, message).with_details(StatusDetails { causes: causes.collect(), ..StatusDetails::default() })
    }
}

fn conflict_list(conflicts: &[Conflict]) -> String {
    if let [Conflict { manager, field }] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {manager}: {field}");
    }
    let mut text = format!("Apply failed with {} conflicts: ", conflicts.len());
    let mut last = "";
    for Conflict { manager, field } in conflicts {
        if manager != last {
            let gap = if last.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}conflicts with {manager}:"));
            last = manager;
        }
        text.push_str(&format!("\n- {field}"));
    }
    text
}

/// `live` after `config` was applied, or a new object where there is none. Equal to `live` where nothing changes.
///
/// With `force` fields that others own become the applier's.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: &Schema,
    by: &By<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    if !config.is_object() || live.is_some_and(|live| !live.is_object()) {
        return Err(ApplyError::NoObject);
    }
    if config["metadata"].get("managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(ApplyError::ManagedFields);
    }
    let at = Some(schema.root());
    typed::check(config, at, "")?;
    let mut base = live.cloned().unwrap_or_else(|| Value::Object(Map::new()));
    let mut managers = managers::take(&mut base);
    if live.is_some() && managers.is_empty() {
        let before = Manager::new(&By { manager: BEFORE_FIRST_APPLY, ..*by }, Operation::Update);
        let fields = managers::without_owner(typed::fields_of(&base, at));
        managers.push(Manager { fields, ..before });
    }
    let applier = Manager::new(by, Operation::Apply);
    let position = managers.iter().position(|manager| manager.is(&applier));
    let last = position.map(|position| managers.remove(position));
    let own = typed::fields_of(config, at);
    let mut new = typed::merge(&base, config, at);
    if let Some(last) = &last {
        let mut kept = typed::all_of(config, at);
        managers.iter().for_each(|manager| kept.add(&manager.fields));
        typed::remove(&mut new, at, &last.fields, &kept);
    }
    let changes = typed::changes(&base, &new, at);
    let conflicts = conflicts(&managers, &changes);
    if !force && !conflicts.is_empty() && !was_applied_by_client(&base, &managers, &changes, at, by) {
        return Err(ApplyError::Conflicts { conflicts });
    }
    yield_to(&mut managers, &changes);
    let fields = managers::without_owner(own);
    let is_same = new == base && last.as_ref().is_some_and(|last| last.fields == fields);
    let time = if is_same { last.and_then(|last| last.time) } else { applier.time.clone() };
    managers.push(Manager { fields, time, ..applier });
    managers::put(&mut new, managers);
    Ok(new)
}

/// Records in `new` that `by` made it of `old` by other means than apply. Nothing, where nobody has applied yet.
pub fn update(old: &Value, new: &mut Value, schema: &Schema, by: &By<'_>) {
    let is_tracked = old["metadata"]["managedFields"].as_array().is_some_and(|managers| !managers.is_empty());
    let forgets = new["metadata"]["managedFields"].as_array().is_some_and(|given| {
        // An empty list, or one of an empty entry, says that no record is wanted.
        given.iter().all(|entry| entry.as_object().is_none_or(Map::is_empty))
    });
    let given = managers::take(new);
    if !is_tracked || forgets {
        return;
    }
    let mut old = old.clone();
    let stored = managers::take(&mut old);
    // Who writes may change the record: kubectl does, when it turns from the client's apply to the server's.
    let mut managers = if given.is_empty() { stored } else { given };
    let at = Some(schema.root());
    let Changes { set, removed } = typed::changes(&old, new, at);
    let changes = Changes { set: managers::without_owner(set), removed };
    let writer = Manager::new(by, Operation::Update);
    let position = managers.iter().position(|manager| manager.is(&writer));
    let mut own = position.map_or_else(|| writer.clone(), |position| managers.remove(position));
    yield_to(&mut managers, &changes);
    let before = own.fields.clone();
    own.fields.add(&changes.set);
    own.fields.subtract(&changes.removed);
    if own.fields != before {
        own.time.clone_from(&writer.time);
    }
    managers.push(own);
    managers::put(new, managers);
}

/// What others own of what changes.
fn conflicts(managers: &[Manager], changes: &Changes) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for manager in managers {
        for field in manager.fields.intersection(&changes.set).paths() {
            conflicts.push(Conflict { manager: manager.to_string(), field });
        }
    }
    conflicts.sort_by(|one, other| (&one.manager, &one.field).cmp(&(&other.manager, &other.field)));
    conflicts.truncate(CONFLICTS_MAX);
    conflicts
}

/// Others lose what was changed or is gone.
fn yield_to(managers: &mut [Manager], changes: &Changes) {
    for manager in managers {
        manager.fields.subtract(&changes.set);
        manager.fields.subtract(&changes.removed);
    }
}

/// Whether `kubectl` changes only what it has applied before on the client's side: then it is the owner in truth.
fn was_applied_by_client(
    live: &Value,
    managers: &[Manager],
    changes: &Changes,
    at: Option<Cursor<'_>>,
    by: &By<'_>,
) -> bool {
    if by.manager != "kubectl" {
        return false;
    }
    let last = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let Some(last) = last.and_then(|last| serde_json::from_str::<Value>(last).ok()) else { return false };
    if last["apiVersion"] != by.api_version {
        return false;
    }
    // What others have changed since then is theirs.
    let since = typed::changes(&last, live, at);
    let mut theirs = typed::fields_of(&last, at);
    theirs.subtract(&since.set);
    theirs.subtract(&since.removed);
    let mut clash = Fields::default();
    managers.iter().for_each(|manager| clash.add(&manager.fields.intersection(&changes.set)));
    clash.subtract(&theirs);
    clash.is_empty()
}

#[cfg(test)]
mod tests;

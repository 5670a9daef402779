//! JSON Patch, JSON Merge Patch and strategic merge patch, with bounds on work and growth.
//!
//! Invariant: a patch either applies as a whole or leaves no trace; no patch can make an object
//! deeper than [`DEPTH_MAX`], copy more than [`COPY_BYTES_MAX`], or cost more than
//! [`WORK_MAX`] steps. Called by the API server's PATCH and by admission.

mod strategic;

use json_patch::jsonptr::Pointer;
use json_patch::{PatchErrorKind, PatchOperation};
use serde::Deserialize;
use serde_json::Value;

pub use strategic::apply_strategic_merge_patch;

use crate::status::{Status, StatusReason};

/// Most operations in one JSON Patch; upstream's limit.
pub const OPERATIONS_MAX: usize = 10_000;
/// Most bytes that `copy` operations of one patch may add; upstream's limit.
pub const COPY_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Deepest nesting of the result.
pub const DEPTH_MAX: usize = 128;
/// Most values touched while one patch is applied: keeps `move` and array inserts from adding up.
pub const WORK_MAX: usize = 50_000_000;

/// Why a patch was not applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// The patch is no list of operations.
    #[error("error decoding patch: {source}")]
    Decode {
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The patch has too many operations.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}")]
    TooManyOperations {
        /// How many it has.
        count: usize,
    },
    /// A `test` did not hold.
    #[error("testing value {path} failed: test failed")]
    TestFailed {
        /// The place looked at.
        path: String,
    },
    /// An operation's place, or the place it takes from, does not exist.
    #[error("{operation} operation does not apply: doc is missing path: {path:?}: missing value")]
    NotFound {
        /// `add`, `remove`, `replace`, `move`, `copy` or `test`.
        operation: &'static str,
        /// The place that is missing.
        path: String,
    },
    /// A value may not move into itself.
    #[error("move operation does not apply: {from:?} cannot move into itself")]
    MoveIntoItself {
        /// The place moved from.
        from: String,
    },
    /// `copy` operations added too much.
    #[error(
        "Unable to complete the copy, the accumulated size increase of copy is {bytes}, exceeding the limit {COPY_BYTES_MAX}"
    )]
    TooMuchCopied {
        /// Bytes copied so far.
        bytes: usize,
    },
    /// The result would be nested too deep.
    #[error("{operation} operation makes the object deeper than {DEPTH_MAX} levels")]
    TooDeep {
        /// The operation, or `merge`.
        operation: &'static str,
    },
    /// The operations together touch too many values.
    #[error("patch touches more than {WORK_MAX} values, split it")]
    TooMuchWork,
    /// A part of a strategic merge patch has the wrong shape.
    #[error("invalid patch format: {what} must be {expected}")]
    Format {
        what: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// `$patch` says something unknown.
    #[error("unknown patch type: {directive}; $patch must be \"delete\" or \"replace\"")]
    UnknownDirective {
        /// What it says, as JSON.
        directive: String,
    },
    /// An item of a merged list has no key.
    #[error("an item of a list does not contain declared merge key: {key}")]
    MissingMergeKey {
        /// The member that tells items apart.
        key: String,
    },
    /// Objects stand in a list whose items have no key.
    #[error("cannot merge lists without merge key")]
    NoMergeKey,
    /// Objects and other values stand in one merged list.
    #[error("list element types are not identical")]
    MixedList,
    /// A merged list has lists for items.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// The patch has items in another order than it says.
    #[error("the order in the patch list doesn't match its $setElementOrder list at {item}")]
    Order {
        /// The item, as JSON.
        item: String,
    },
}

impl From<PatchError> for Status {
    fn from(error: PatchError) -> Self {
        let reason = match error {
            PatchError::Decode { .. }
            | PatchError::TooDeep { .. }
            | PatchError::Format { .. }
            | PatchError::UnknownDirective { .. }
            | PatchError::Order { .. } => StatusReason::BadRequest,
            PatchError::TooManyOperations { .. } | PatchError::TooMuchCopied { .. } | PatchError::TooMuchWork => {
                StatusReason::RequestEntityTooLarge
            }
            PatchError::TestFailed { .. }
            | PatchError::NotFound { .. }
            | PatchError::MoveIntoItself { .. }
            | PatchError::MissingMergeKey { .. }
            | PatchError::NoMergeKey
            | PatchError::MixedList
            | PatchError::ListOfLists => StatusReason::Invalid,
        };
        Self::new(reason, error.to_string())
    }
}

/// `object` after the RFC 6902 `patch`; `object` must not be nested deeper than [`DEPTH_MAX`].
///
/// Clones `object` once.
pub fn apply_json_patch(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > OPERATIONS_MAX {
        return Err(PatchError::TooManyOperations { count });
    }
    let operations: Vec<PatchOperation> =
        Deserialize::deserialize(patch).map_err(|source| PatchError::Decode { source })?;
    let mut result = object.clone();
    let mut budget = Budget::default();
    for operation in operations {
        budget.charge(&result, &operation)?;
        json_patch::patch_unsafe(&mut result, std::slice::from_ref(&operation))
            .map_err(|error| refused(&operation, error.kind))?;
    }
    Ok(result)
}

/// Applies the RFC 7396 `patch` to `object`; on an error `object` is as before.
pub fn apply_merge_patch(object: &mut Value, patch: &Value) -> Result<(), PatchError> {
    if measure(patch).depth > DEPTH_MAX {
        return Err(PatchError::TooDeep { operation: "merge" });
    }
    json_patch::merge(object, patch);
    Ok(())
}

/// What the operations so far have cost.
#[derive(Default)]
struct Budget {
    copied_bytes: usize,
    work: usize,
}

impl Budget {
    fn charge(&mut self, object: &Value, operation: &PatchOperation) -> Result<(), PatchError> {
        let at = |pointer: &Pointer| object.pointer(pointer.as_str()).map(measure);
        let inserted = match operation {
            PatchOperation::Add(add) => measure(&add.value),
            PatchOperation::Replace(replace) => measure(&replace.value),
            // What is missing is refused when the operation runs.
            PatchOperation::Move(moved) => at(&moved.from).unwrap_or_default(),
            PatchOperation::Copy(copy) => at(&copy.from).unwrap_or_default(),
            PatchOperation::Test(test) => measure(&test.value),
            PatchOperation::Remove(_) => Measure::default(),
        };
        if let PatchOperation::Copy(_) = operation {
            self.copied_bytes = self.copied_bytes.saturating_add(inserted.bytes);
            if self.copied_bytes > COPY_BYTES_MAX {
                return Err(PatchError::TooMuchCopied { bytes: self.copied_bytes });
            }
        }
        if operation.path().count() + inserted.depth > DEPTH_MAX {
            return Err(PatchError::TooDeep { operation: name(operation) });
        }
        // Inserting into or removing from a list shifts what stands behind.
        let siblings = [Some(operation.path()), source(operation)]
            .into_iter()
            .flatten()
            .filter_map(Pointer::parent)
            .filter_map(|parent| object.pointer(parent.as_str())?.as_array())
            .map(Vec::len)
            .sum::<usize>();
        self.work = self.work.saturating_add(inserted.values + siblings);
        if self.work > WORK_MAX {
            return Err(PatchError::TooMuchWork);
        }
        Ok(())
    }
}

/// The size of a value.
#[derive(Clone, Copy, Default)]
struct Measure {
    /// About its bytes as text.
    bytes: usize,
    /// Its values, itself included.
    values: usize,
    /// Its levels; a scalar has none.
    depth: usize,
}

/// Recursion is bounded by the depth of `value`: parsed text and results of patches keep to 128.
fn measure(value: &Value) -> Measure {
    let mut total = Measure { bytes: 2, values: 1, depth: 0 };
    let mut include = |key_len: usize, child: &Value| {
        let child = measure(child);
        total.bytes += key_len + 1 + child.bytes;
        total.values += child.values;
        total.depth = total.depth.max(child.depth + 1);
    };
    match value {
        Value::Array(items) => items.iter().for_each(|item| include(0, item)),
        Value::Object(members) => members.iter().for_each(|(key, member)| include(key.len() + 3, member)),
        Value::String(text) => total.bytes += text.len(),
        Value::Number(_) => total.bytes += 6,
        Value::Bool(_) | Value::Null => total.bytes += 3,
    }
    total
}

fn refused(operation: &PatchOperation, kind: PatchErrorKind) -> PatchError {
    let from = || source(operation).unwrap_or(operation.path()).to_string();
    match kind {
        PatchErrorKind::TestFailed => PatchError::TestFailed { path: operation.path().to_string() },
        PatchErrorKind::CannotMoveInsideItself => PatchError::MoveIntoItself { from: from() },
        PatchErrorKind::InvalidFromPointer => PatchError::NotFound { operation: name(operation), path: from() },
        _ => PatchError::NotFound { operation: name(operation), path: operation.path().to_string() },
    }
}

fn source(operation: &PatchOperation) -> Option<&Pointer> {
    match operation {
        PatchOperation::Move(moved) => Some(&moved.from),
        PatchOperation::Copy(copy) => Some(&copy.from),
        _ => None,
    }
}

const fn name(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

#[cfg(test)]
mod tests;

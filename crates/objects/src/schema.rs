//! The structural schema of a kind: pruning, defaults and validation in one walk.
//!
//! Invariant: a schema is compiled once into an arena of nodes with compiled patterns, and shared by
//! reference count; a walk clones no schema node, visits at most [`DEPTH_MAX`] levels and
//! [`VALUES_MAX`] values, and reports at most [`REPORTS_MAX`] problems of each sort. Messages and
//! field paths are those of kube-apiserver. Called by the API server on every write.

mod compile;
mod cursor;
mod format;
mod junctor;
mod leaf;
mod node;
mod number;
mod walk;

use std::sync::Arc;

use serde_json::{Map, Value};

pub use compile::{SchemaError, SchemaProblem};
pub use number::{Range, RangeOf};

use crate::field::FieldError;
use compile::Dialect;
pub use cursor::{Cursor, ListKind, Member, Sort};
pub(crate) use node::Merging;
use node::{Arena, NodeId};
use walk::{Steps, Walker};

/// Deepest nesting of objects and of inline schemas.
pub const DEPTH_MAX: usize = 128;
/// Most values of one object.
pub const VALUES_MAX: usize = 1_000_000;
/// Most unknown fields, and most errors, reported for one object.
pub const REPORTS_MAX: usize = 100;

/// A compiled schema; cloning shares it.
#[derive(Clone, Debug)]
pub struct Schema {
    arena: Arc<Arena>,
    root: NodeId,
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Paths of fields that the schema does not know; they were removed.
    pub unknown_fields: Vec<String>,
    /// Rules the object breaks.
    pub errors: Vec<FieldError>,
}

impl Schema {
    /// Compiles `schema`, OpenAPI v3 as it stands in a CustomResourceDefinition or in the published
    /// documents, whose `$ref`s lead into `components` (names to schemas of built-in types: see [`Schema::of_builtin`]).
    ///
    /// Cost: linear in the schema and the components it reaches; equal patterns are compiled once.
    pub fn from_openapi(schema: &Value, components: &Map<String, Value>) -> Result<Self, SchemaError> {
        let (arena, root) = compile::compile(schema, components, Dialect::Declared)?;
        Ok(Self { arena: Arc::new(arena), root })
    }

    /// Compiles the schema of a built-in kind whose numbers have no ranges beside their formats.
    pub fn of_builtin(schema: &Value, components: &Map<String, Value>) -> Result<Self, SchemaError> {
        Self::of_builtin_within(schema, components, |_, _| None)
    }

    /// Compiles the schema of a built-in kind. Its list types say how lists are merged, and nothing about what may stand in
    /// them: a pod may name a variable twice. Integers are written as such: `1e3` is none, as for every typed client.
    /// `range_of` says what the numbers of components may be, beside their formats.
    pub fn of_builtin_within(
        schema: &Value,
        components: &Map<String, Value>,
        range_of: RangeOf,
    ) -> Result<Self, SchemaError> {
        let (arena, root) = compile::compile(schema, components, Dialect::Builtin { range_of })?;
        Ok(Self { arena: Arc::new(arena), root })
    }

    /// Where a walk along an object begins.
    pub fn root(&self) -> Cursor<'_> {
        Cursor::new(&self.arena, self.root)
    }

    /// Prunes unknown fields, fills in defaults and validates, in one walk: what a write does.
    ///
    /// Nulls of fields that are not nullable are dropped, or give way to the default. Quantities of
    /// built-in types are brought into canonical form.
    pub fn admit(&self, object: &mut Value) -> Findings {
        self.walk(object, Steps { prune: true, complete: true, validate: true, ranges: true })
    }

    /// Removes unknown fields and says which.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        self.walk(object, Steps { prune: true, ..Steps::default() }).unknown_fields
    }

    /// Fills in defaults; nulls of fields that are not nullable are dropped or give way to them.
    pub fn apply_defaults(&self, object: &mut Value) {
        self.walk(object, Steps { complete: true, ..Steps::default() });
    }

    /// [`Schema::prune`] and [`Schema::apply_defaults`] in one walk.
    pub fn complete(&self, object: &mut Value) {
        self.walk(object, Steps { prune: true, complete: true, ..Steps::default() });
    }

    /// The unknown fields' paths. Clones `object` once; [`Schema::admit`] does not.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        self.prune(&mut object.clone())
    }

    /// The rules that `object` breaks as it is. It is not changed; the walk is the one that the others change it by.
    pub fn validate(&self, object: &mut Value) -> Vec<FieldError> {
        let steps = Steps { validate: true, ranges: true, ..Steps::default() };
        self.walk(object, steps).errors
    }

    /// The numbers of `object` that are out of their ranges, and nothing else that is wrong with it.
    pub fn out_of_range(&self, object: &mut Value) -> Vec<FieldError> {
        self.walk(object, Steps { ranges: true, ..Steps::default() }).errors
    }

    /// Whether each field of an object can be checked without the others: none must be there, and none depends on others.
    pub fn fields_are_independent(&self) -> bool {
        let root = self.arena.node(self.root);
        let rules = &root.object;
        let counts = rules.len_min.is_some() || rules.len_max.is_some();
        rules.required.is_empty() && !counts && root.junctors.is_none() && root.allowed.is_none()
    }

    fn walk(&self, object: &mut Value, steps: Steps) -> Findings {
        Walker::new(&self.arena, steps).run(self.root, object)
    }
}

#[cfg(test)]
mod tests;

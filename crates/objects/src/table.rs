//! Tables as `kubectl get` asks for: column definitions and a row of cells per object.
//!
//! Invariant: every row has as many cells as there are columns; a cell that cannot be read is null,
//! never an error. Called by the API server's content negotiation, for lists, gets and watches.

mod age;
mod crd_columns;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use age::{age, human_duration};
pub use crd_columns::ColumnError;

use crate::meta;
use crate::path::JsonPath;

/// The type of a column's cells, as OpenAPI names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ColumnType {
    /// Whole numbers.
    Integer,
    Number,
    /// Texts; other values are shown as JSON.
    String,
    Boolean,
    /// A moment, shown as the time since then.
    Date,
}

impl ColumnType {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Boolean => "boolean",
            Self::Date => "date",
        }
    }
}

/// Where a cell comes from.
#[derive(Clone, Debug)]
pub enum CellSource {
    /// The first value a path leads to.
    Path(JsonPath),
    /// Computed from the whole object, given the current time.
    Builtin(fn(&Value, Timestamp) -> Value),
}

/// One column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    pub name: String,
    pub column_type: ColumnType,
    /// The OpenAPI format, like `name` or `int32`; may be empty.
    pub format: String,
    /// What the column says.
    pub description: String,
    /// 0 is always shown; higher ones only in the wide form.
    pub priority: i32,
    /// Where the cells come from.
    pub source: CellSource,
}

impl Column {
    /// A column shown always, whose cells are computed.
    pub fn builtin(name: &str, column_type: ColumnType, cell: fn(&Value, Timestamp) -> Value) -> Self {
        Self {
            name: name.to_owned(),
            column_type,
            format: String::new(),
            description: String::new(),
            priority: 0,
            source: CellSource::Builtin(cell),
        }
    }

    /// The first column of every table: the object's name.
    pub fn name() -> Self {
        Self {
            format: "name".to_owned(),
            description: "Name must be unique within a namespace.".to_owned(),
            ..Self::builtin("Name", ColumnType::String, |object, _| meta::name(object).into())
        }
    }

    /// The column with the time since the object was made.
    pub fn age() -> Self {
        Self {
            description: "CreationTimestamp is a timestamp representing the server time when this object was created."
                .to_owned(),
            ..Self::builtin("Age", ColumnType::String, |object, now| age(meta::creation_timestamp(object), now).into())
        }
    }

    /// The same column, shown only in the wide form.
    #[must_use]
    pub fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// The cell of this column in the row of `object`; null where there is no value or it can't be read.
    pub fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let path = match &self.source {
            CellSource::Builtin(cell) => return cell(object, now),
            CellSource::Path(path) => path,
        };
        let Some(value) = path.first(object).filter(|value| !value.is_null()) else {
            return Value::Null;
        };
        match self.column_type {
            ColumnType::Integer => match value.as_f64() {
                Some(number) if !value.is_i64() && !value.is_u64() => (number as i64).into(),
                Some(_) => value.clone(),
                None => Value::Null,
            },
            ColumnType::Number if value.is_number() => value.clone(),
            ColumnType::Boolean if value.is_boolean() => value.clone(),
            ColumnType::Number | ColumnType::Boolean => Value::Null,
            ColumnType::String => value.as_str().map_or_else(|| value.to_string(), str::to_owned).into(),
            ColumnType::Date => match value.as_str().map(meta::parse_time) {
                Some(Some(moment)) => age(Some(moment), now).into(),
                Some(None) => "<invalid>".into(),
                None => Value::Null,
            },
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.column_type.as_str(),
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// How much of each object a row carries; `includeObject` of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum IncludeObject {
    None,
    /// A `PartialObjectMetadata`.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// The columns of one resource.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
}

impl Table {
    /// A table of exactly these columns.
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns }
    }

    /// A table with the columns of one version of a CustomResourceDefinition: the name, then its
    /// `additionalPrinterColumns`, or the age where it declares none.
    pub fn from_crd_version(version: &Value) -> Result<Self, ColumnError> {
        crd_columns::columns(&version["additionalPrinterColumns"]).map(Self::new)
    }

    /// The columns in the order of the cells of each row.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// One row. A row of metadata or of the whole object clones that part.
    pub fn row(&self, object: &Value, include: IncludeObject, now: Timestamp) -> Value {
        let cells: Vec<Value> = self.columns.iter().map(|column| column.cell(object, now)).collect();
        match include {
            IncludeObject::None => json!({ "cells": cells }),
            IncludeObject::Metadata => json!({
                "cells": cells,
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                },
            }),
            IncludeObject::Object => json!({ "cells": cells, "object": object }),
        }
    }

    /// The object `kind: Table` with `rows`; a watch sends the definitions with its first row only.
    pub fn to_json(&self, list_metadata: Value, rows: Vec<Value>, with_definitions: bool) -> Value {
        let definitions: Vec<Value> =
            if with_definitions { self.columns.iter().map(Column::definition).collect() } else { Vec::new() };
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": list_metadata,
            "columnDefinitions": definitions,
            "rows": rows,
        })
    }
}

#[cfg(test)]
mod tests;

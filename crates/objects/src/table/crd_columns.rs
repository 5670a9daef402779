//! Printer columns that a CustomResourceDefinition declares.

use serde_json::Value;

use super::{CellSource, Column, ColumnType};
use crate::path::{JsonPath, PathError};

/// Most columns that one version of a CustomResourceDefinition may have.
const COLUMNS_MAX: usize = 100;

/// Why declared columns cannot be shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ColumnError {
    /// The declaration is no list of objects with a name.
    #[error("additionalPrinterColumns[{index}] needs name, type and jsonPath")]
    Incomplete { index: usize },
    /// The type is none of `integer number string boolean date`.
    #[error("additionalPrinterColumns[{index}].type {name:?} must be integer, number, string, boolean or date")]
    UnknownType {
        index: usize,
        /// The type as given.
        name: String,
    },
    /// The path is malformed.
    #[error("additionalPrinterColumns[{index}].jsonPath is invalid")]
    Path {
        index: usize,
        /// What is wrong with it.
        #[source]
        source: PathError,
    },
    /// There are too many columns.
    #[error("additionalPrinterColumns has {count} entries, at most {COLUMNS_MAX} are allowed")]
    TooMany {
        /// How many there are.
        count: usize,
    },
}

/// The name, then the declared columns, or the age where there are none.
pub(super) fn columns(declared: &Value) -> Result<Vec<Column>, ColumnError> {
    let entries = declared.as_array().map_or(&[][..], Vec::as_slice);
    if entries.len() > COLUMNS_MAX {
        return Err(ColumnError::TooMany { count: entries.len() });
    }
    let mut columns = vec![Column::name()];
    for (index, entry) in entries.iter().enumerate() {
        columns.push(column(index, entry)?);
    }
    if entries.is_empty() {
        columns.push(Column::age());
    }
    Ok(columns)
}

fn column(index: usize, entry: &Value) -> Result<Column, ColumnError> {
    let text = |key: &str| entry[key].as_str();
    let (Some(name), Some(type_name), Some(path)) = (text("name"), text("type"), text("jsonPath")) else {
        return Err(ColumnError::Incomplete { index });
    };
    let column_type =
        [ColumnType::Integer, ColumnType::Number, ColumnType::String, ColumnType::Boolean, ColumnType::Date]
            .into_iter()
            .find(|column_type| column_type.as_str() == type_name)
            .ok_or_else(|| ColumnError::UnknownType { index, name: type_name.to_owned() })?;
    let path = JsonPath::parse(path).map_err(|source| ColumnError::Path { index, source })?;
    Ok(Column {
        name: name.to_owned(),
        column_type,
        format: text("format").unwrap_or_default().to_owned(),
        description: text("description").unwrap_or_default().to_owned(),
        priority: entry["priority"].as_i64().and_then(|priority| priority.try_into().ok()).unwrap_or_default(),
        source: CellSource::Path(path),
    })
}

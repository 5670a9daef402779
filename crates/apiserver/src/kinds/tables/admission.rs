//! Rows of what configures admission.

use pumice_objects::table::{Column, ColumnType, Table};
use serde_json::{Value, json};

use super::text;

/// Columns of webhook configurations.
pub(crate) fn webhooks() -> Table {
    Table::new(vec![
        Column::name(),
        Column::builtin("Webhooks", ColumnType::Integer, |object, _| {
            json!(object["webhooks"].as_array().map_or(0, Vec::len))
        }),
        Column::age(),
    ])
}

/// Columns of validating policies.
pub(crate) fn policy() -> Table {
    Table::new(vec![
        Column::name(),
        Column::builtin("Validations", ColumnType::Integer, |object, _| {
            json!(object["spec"]["validations"].as_array().map_or(0, Vec::len))
        }),
        text("ParamKind", |object, _| {
            let kind = &object["spec"]["paramKind"];
            let part = |field: &str| kind[field].as_str().unwrap_or_default();
            let shown =
                if kind.is_object() { format!("{}/{}", part("apiVersion"), part("kind")) } else { "<unset>".into() };
            json!(shown)
        }),
        Column::age(),
    ])
}

/// Columns of their bindings.
pub(crate) fn binding() -> Table {
    Table::new(vec![
        Column::name(),
        text("PolicyName", |object, _| object["spec"]["policyName"].clone()),
        text("ParamRef", |object, _| {
            let params = &object["spec"]["paramRef"];
            let part = |field: &str| params[field].as_str().unwrap_or_default();
            let shown = match (params.is_object(), part("namespace"), part("name")) {
                (false, ..) => "<unset>".to_owned(),
                (true, _, "") => "<selector>".to_owned(),
                (true, "", name) => name.to_owned(),
                (true, namespace, name) => format!("{namespace}/{name}"),
            };
            Value::String(shown)
        }),
        Column::age(),
    ])
}

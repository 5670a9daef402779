//! Rows of roles and bindings.

use pumice_objects::table::{Column, Table};
use serde_json::{Value, json};

use super::{created_at, text};

/// The one column of what is answered and not stored.
pub(crate) fn review() -> Table {
    Table::new(vec![Column::name()])
}

pub(crate) fn role() -> Table {
    Table::new(vec![Column::name(), created_at()])
}

pub(crate) fn binding() -> Table {
    Table::new(vec![
        Column::name(),
        text("Role", |object, _| {
            let part = |field: &str| object["roleRef"][field].as_str().unwrap_or_default();
            json!(format!("{}/{}", part("kind"), part("name")))
        }),
        Column::age(),
        text("Users", |object, _| json!(subjects(object, "User"))).wide(),
        text("Groups", |object, _| json!(subjects(object, "Group"))).wide(),
        text("ServiceAccounts", |object, _| json!(subjects(object, "ServiceAccount"))).wide(),
    ])
}

fn subjects(binding: &Value, kind: &str) -> String {
    let of_kind = binding["subjects"].as_array().into_iter().flatten().filter(|subject| subject["kind"] == kind);
    let names: Vec<String> = of_kind
        .map(|subject| {
            let part = |field: &str| subject[field].as_str().unwrap_or_default();
            if kind == "ServiceAccount" {
                format!("{}/{}", part("namespace"), part("name"))
            } else {
                part("name").to_owned()
            }
        })
        .collect();
    names.join(", ")
}

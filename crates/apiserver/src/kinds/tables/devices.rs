//! Rows of devices and claims to them.

use pumice_objects::meta;
use pumice_objects::table::{Column, Table};
use serde_json::{Value, json};

use super::{or_empty, text};

/// Columns of kinds that have nothing to show but their name.
pub(crate) fn named() -> Table {
    Table::new(vec![Column::name(), Column::age()])
}

/// Columns of claims to devices.
pub(crate) fn claim() -> Table {
    Table::new(vec![Column::name(), text("State", |object, _| json!(state(object))), Column::age()])
}

pub(crate) fn slice() -> Table {
    Table::new(vec![
        Column::name(),
        text("Node", |object, _| or_empty(&object["spec"]["nodeName"])),
        text("Driver", |object, _| or_empty(&object["spec"]["driver"])),
        text("Pool", |object, _| or_empty(&object["spec"]["pool"]["name"])),
        Column::age(),
    ])
}

fn state(claim: &Value) -> &'static str {
    let (status, deleted) = (&claim["status"], meta::deletion_timestamp(claim).is_some());
    let reserved = status["reservedFor"].as_array().is_some_and(|list| !list.is_empty());
    match (status["allocation"].is_object(), deleted, reserved) {
        (false, false, _) => "pending",
        (false, true, _) => "deleted",
        (true, false, false) => "allocated",
        (true, false, true) => "allocated,reserved",
        (true, true, false) => "deleted,allocated",
        (true, true, true) => "deleted,allocated,reserved",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_says_how_it_stands() {
        let time = "2026-01-01T00:00:00Z";
        for (claim, wanted) in [
            (json!({"metadata": {}}), "pending"),
            (json!({"metadata": {"deletionTimestamp": time}}), "deleted"),
            (json!({"metadata": {}, "status": {"allocation": {}, "reservedFor": [{}]}}), "allocated,reserved"),
            (json!({"metadata": {"deletionTimestamp": time}, "status": {"allocation": {}}}), "deleted,allocated"),
        ] {
            assert_eq!(state(&claim), wanted);
        }
    }
}

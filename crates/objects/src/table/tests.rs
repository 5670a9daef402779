//! Tables of custom and built-in columns.

use serde_json::{Value, json};

use super::*;

fn now() -> Timestamp {
    "2026-01-02T03:10:35Z".parse().unwrap()
}

fn version() -> Value {
    json!({"additionalPrinterColumns": [
        {"name": "STATUS", "type": "string", "jsonPath": ".status.state.phase", "description": "Phase"},
        {"name": "minAvailable", "type": "integer", "jsonPath": ".spec.minAvailable", "format": "int32"},
        {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "QUEUE", "type": "string", "jsonPath": ".spec.queue", "priority": 1},
        {"name": "RATIO", "type": "number", "jsonPath": ".status.ratio"},
        {"name": "DONE", "type": "boolean", "jsonPath": ".status.done"},
        {"name": "RAW", "type": "string", "jsonPath": ".status.state"}
    ]})
}

fn job() -> Value {
    json!({
        "metadata": {"name": "j", "creationTimestamp": "2026-01-02T03:05:05Z"},
        "spec": {"minAvailable": 3, "queue": "q"},
        "status": {"state": {"phase": "Running"}, "ratio": 0.5, "done": true}
    })
}

#[test]
fn declared_columns_make_cells_of_their_type() {
    let table = Table::from_crd_version(&version()).unwrap();
    let row = table.row(&job(), IncludeObject::None, now());
    assert_eq!(row, json!({"cells": ["j", "Running", 3, "5m30s", "q", 0.5, true, "{\"phase\":\"Running\"}"]}));
    let odd = json!({
        "metadata": {"name": "o", "creationTimestamp": "soon"},
        "spec": {"minAvailable": 2.7, "queue": null},
        "status": {"state": 5, "ratio": "x", "done": 1}
    });
    let row = table.row(&odd, IncludeObject::None, now());
    assert_eq!(row, json!({"cells": ["o", null, 2, "<invalid>", null, null, null, "5"]}));
}

#[test]
fn rows_carry_as_much_of_the_object_as_asked() {
    let table = Table::from_crd_version(&json!({})).unwrap();
    let metadata = table.row(&job(), IncludeObject::Metadata, now());
    assert_eq!(metadata["cells"], json!(["j", "5m30s"]));
    assert_eq!(metadata["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(metadata["object"]["metadata"]["name"], "j");
    let whole = table.row(&job(), IncludeObject::Object, now());
    assert_eq!(whole["object"], job());

    let json = table.to_json(json!({"resourceVersion": "7"}), vec![whole], true);
    assert_eq!(json["kind"], "Table");
    assert_eq!(json["metadata"]["resourceVersion"], "7");
    assert_eq!(json["columnDefinitions"][0]["format"], "name");
    assert_eq!(json["columnDefinitions"].as_array().unwrap().len(), 2);
    assert_eq!(table.to_json(json!({}), Vec::new(), false)["columnDefinitions"], json!([]));
}

#[test]
fn computed_columns_see_the_whole_object() {
    let ready = Column::builtin("Ready", ColumnType::String, |object, _| {
        object["spec"]["containers"].as_array().map_or(0, Vec::len).to_string().into()
    });
    let table = Table::new(vec![Column::name(), ready.wide()]);
    assert_eq!(table.columns()[1].priority, 1);
    let row = table.row(&json!({"spec": {"containers": [1, 2]}}), IncludeObject::None, now());
    assert_eq!(row, json!({"cells": ["", "2"]}));
}

#[test]
fn malformed_declarations_are_refused() {
    for (entry, message) in [
        (json!({"name": "a", "type": "string"}), "additionalPrinterColumns[0] needs name, type and jsonPath"),
        (
            json!({"name": "a", "type": "text", "jsonPath": ".a"}),
            "additionalPrinterColumns[0].type \"text\" must be integer, number, string, boolean or date",
        ),
        (json!({"name": "a", "type": "string", "jsonPath": "a"}), "additionalPrinterColumns[0].jsonPath is invalid"),
    ] {
        let error = Table::from_crd_version(&json!({"additionalPrinterColumns": [entry]})).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let many = json!({"additionalPrinterColumns": vec![json!({}); 101]});
    assert_eq!(Table::from_crd_version(&many).unwrap_err(), ColumnError::TooMany { count: 101 });
}

//! Objects printed one after the other, in one form.
//!
//! Invariant: JSON and YAML are written as the objects come, so that a list of any length needs the memory of one; the
//! whole is one `List`, as kubectl prints it. Fields that only the API server cares about (`managedFields`) are left out.
//! Called by `objects`, `pod`, `queue` and `session`.

use std::io::Write;

use serde_json::{Value, json};

use crate::error::Error;
use crate::kinds::Kind;

/// The form data is printed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Table,
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `kind.group/name`, a line each.
    Name,
}

/// A `List` that is being written.
#[derive(Debug)]
pub struct ListWriter {
    kind: Kind,
    form: Form,
    written: usize,
}

impl ListWriter {
    /// A list in the form JSON, YAML or names.
    pub fn new(kind: Kind, form: Form) -> Self {
        ListWriter { kind, form, written: 0 }
    }

    /// Writes the next object.
    pub fn item(&mut self, object: Value, out: &mut dyn Write) -> Result<(), Error> {
        let first = self.written == 0;
        self.written += 1;
        let object = whole(self.kind, object);
        let text = match self.form {
            Form::Json => {
                let text = as_json(self.kind, &object)?;
                let before = if first { "{\n    \"apiVersion\": \"v1\",\n    \"items\": [\n" } else { ",\n" };
                let indented: Vec<String> = text.lines().map(|line| format!("        {line}")).collect();
                format!("{before}{}", indented.join("\n"))
            }
            Form::Yaml => {
                let text = as_yaml(self.kind, &json!([object]))?;
                format!("{}{text}", if first { "apiVersion: v1\nitems:\n" } else { "" })
            }
            Form::Name | Form::Table | Form::Wide => format!("{}\n", self.kind.reference(name(&object))),
        };
        out.write_all(text.as_bytes()).map_err(Error::Output)
    }

    /// Closes the list. Nothing that was written before is complete without it, an empty list neither.
    pub fn end(self, out: &mut dyn Write) -> Result<(), Error> {
        let text = match (self.form, self.written) {
            (Form::Json, 0) => "{\n    \"apiVersion\": \"v1\",\n    \"items\": [],\n    \"kind\": \"List\"\n}\n",
            (Form::Json, _) => "\n    ],\n    \"kind\": \"List\"\n}\n",
            (Form::Yaml, 0) => "apiVersion: v1\nitems: []\nkind: List\n",
            (Form::Yaml, _) => "kind: List\n",
            (Form::Name | Form::Table | Form::Wide, _) => "",
        };
        out.write_all(text.as_bytes()).map_err(Error::Output)
    }
}

/// Prints one object by itself; its name where the form is a table.
pub fn print_one(kind: Kind, object: Value, form: Form, out: &mut dyn Write) -> Result<(), Error> {
    let object = whole(kind, object);
    let text = match form {
        Form::Json => format!("{}\n", as_json(kind, &object)?),
        Form::Yaml => as_yaml(kind, &object)?,
        Form::Name | Form::Table | Form::Wide => format!("{}\n", kind.reference(name(&object))),
    };
    out.write_all(text.as_bytes()).map_err(Error::Output)
}

/// The object as a manifest: with its type, which items of a list may lack, and without the API server's own notes.
fn whole(kind: Kind, mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| json!(kind.api_version()));
        fields.entry("kind").or_insert_with(|| json!(kind.title));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

fn as_json(kind: Kind, object: &Value) -> Result<String, Error> {
    let failed = |detail: String| Error::Written { what: kind.reference(name(object)), form: "JSON", detail };
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    serde::Serialize::serialize(object, &mut serializer).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(text).map_err(|error| failed(error.to_string()))
}

fn as_yaml(kind: Kind, value: &Value) -> Result<String, Error> {
    serde_saphyr::to_string(value).map_err(|error| Error::Written {
        what: kind.reference(name(value)),
        form: "YAML",
        detail: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::JOB;

    fn written(form: Form, count: usize) -> String {
        let mut out = Vec::new();
        let mut list = ListWriter::new(JOB, form);
        for index in 0..count {
            let object = json!({
                "metadata": {"name": format!("j{index}"), "managedFields": [1], "labels": {"a": "yes"}},
                "spec": {"tasks": [{"name": "main", "command": ["sh", "-c", "echo a\necho b\n"]}]},
            });
            list.item(object, &mut out).unwrap();
        }
        list.end(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_list_is_what_its_objects_are() {
        for count in [0, 1, 3] {
            let by_json: Value = serde_json::from_str(&written(Form::Json, count)).unwrap();
            let by_yaml: Value = serde_saphyr::from_str(&written(Form::Yaml, count)).unwrap();
            assert_eq!(by_json, by_yaml, "{}", written(Form::Yaml, count));
            assert_eq!((&by_json["kind"], &by_json["apiVersion"]), (&json!("List"), &json!("v1")));
            assert_eq!(by_json["items"].as_array().map(Vec::len), Some(count));
            for item in by_json["items"].as_array().into_iter().flatten() {
                assert_eq!(item["kind"], "Job");
                assert_eq!(item["apiVersion"], "batch.volcano.sh/v1alpha1");
                assert_eq!(item["spec"]["tasks"][0]["command"][2], "echo a\necho b\n");
                assert_eq!(item["metadata"]["labels"]["a"], "yes");
                assert!(item["metadata"].get("managedFields").is_none());
            }
        }
        assert_eq!(written(Form::Name, 2), "job.batch.volcano.sh/j0\njob.batch.volcano.sh/j1\n");
    }

    #[test]
    fn one_object_stands_by_itself() {
        let mut out = Vec::new();
        print_one(JOB, json!({"metadata": {"name": "x"}}), Form::Json, &mut out).unwrap();
        print_one(JOB, json!({"metadata": {"name": "x"}}), Form::Name, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap(), @r#"
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {
                "name": "x"
            }
        }
        job.batch.volcano.sh/x
        "#);
    }
}

//! Data to standard output, in the form asked for.

use std::io::Write;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::failure::Failure;

/// How data is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people
    Table,
    /// For people with wide screens
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// job/NAME
    Name,
}

/// Prints text as it is.
pub fn text(text: &str) -> Result<(), Failure> {
    bytes(text.as_bytes())
}

/// Prints bytes as they are.
pub fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Prints an object as JSON or YAML.
pub fn object(value: &Value, form: Form) -> Result<(), Failure> {
    text(&object_text(value, form)?)
}

/// An object as JSON or YAML.
pub fn object_text(value: &Value, form: Form) -> Result<String, Failure> {
    match form {
        Form::Yaml => serde_saphyr::to_string(value).map_err(|error| Failure::Machine(error.into())),
        _ => {
            let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Machine(error.into()))?;
            Ok(format!("{json}\n"))
        }
    }
}

/// The list object that clients of Kubernetes expect.
pub fn list_of(items: Vec<Value>) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

//! One record: its key and values, as JSON in a bundle and as variables of the program.
//!
//! Invariant: the JSON is canonical (names sorted, no spaces), so equal records are equal bytes. Called by `shards`,
//! `params`, and by what packs and reads bundles.

use serde_json::{Map, Value};

use super::Kind;
use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;

/// One run of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in the job, from 0.
    pub index: u32,
    /// Its key, which does not change with chunking.
    pub key: String,
    /// Names and texts of its values.
    pub values: Vec<(String, String)>,
}

/// Bytes that are no record.
#[derive(Debug, thiserror::Error)]
#[error("record {key:?} is no flat JSON object; the bundle is damaged, submit the job again")]
pub struct RecordError {
    pub key: String,
    /// What the parser says.
    #[source]
    pub source: serde_json::Error,
}

impl Failure for RecordError {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::Unknown
    }
}

impl Record {
    /// Reads a record's JSON, as [`super::Row::json`] has it.
    pub fn from_json(index: u32, key: &str, json: &[u8]) -> Result<Self, RecordError> {
        let object: Map<String, Value> =
            serde_json::from_slice(json).map_err(|source| RecordError { key: key.to_owned(), source })?;
        let values = object.into_iter().map(|(name, value)| (name, text_of(value))).collect();
        Ok(Self { index, key: key.to_owned(), values })
    }

    /// The values as canonical JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let object: Map<String, Value> =
            self.values.iter().map(|(name, text)| (name.clone(), Value::String(text.clone()))).collect();
        Value::Object(object).to_string().into_bytes()
    }

    /// The text of a value.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// The program's variables, of a job with `count` records of a kind.
    pub fn env(&self, kind: Kind, count: u32) -> Vec<(String, String)> {
        let own = [
            ("PUMICE_SHARD_KEY", self.key.clone()),
            ("PUMICE_SHARD_INDEX", self.index.to_string()),
            ("PUMICE_SHARD_COUNT", count.to_string()),
        ];
        let values = self.values.iter().map(|(name, text)| (variable(kind, name), text.clone()));
        own.map(|(name, text)| (name.to_owned(), text)).into_iter().chain(values).collect()
    }
}

/// The variable of a value: `PUMICE_PARAM_LEARNING_RATE` of a column `learning-rate`, `PUMICE_DAY` of a day.
pub(super) fn variable(kind: Kind, name: &str) -> String {
    let front = if kind == Kind::Params { "PUMICE_PARAM_" } else { "PUMICE_" };
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    front.chars().chain(name.chars().map(letter)).collect()
}

/// A value as a program sees it: text without quotes, nothing for `null`.
pub(super) fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

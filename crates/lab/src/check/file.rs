//! The file of cases: its schema, limits, and where in it something is wrong. Read by `check`.
//!
//! Invariant: a key that nothing reads is an error of its case, never ignored; the file as a whole is refused only when
//! it can't be read as cases at all.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use super::CheckError;

/// Longest file read, in bytes.
const BYTES_MAX: usize = 16 << 20;
/// Most values of one file.
const VALUES_MAX: usize = 4_000_000;
/// Most cases of one file.
const CASES_MAX: usize = 10_000;
/// The version of the schema that is understood.
const SCHEMA_VERSION: u64 = 1;

/// The objects of a list, each with its own keys.
pub(super) type Objects = Vec<Map<String, Value>>;

/// One case as it stands in the file.
pub(super) struct RawCase {
    /// The line it begins on.
    pub(super) line: u64,
    /// Its id; its place where it has none.
    pub(super) name: String,
    value: Value,
}

/// One case: a small world and what one cycle must do with it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    #[serde(default, rename = "summary")]
    _summary: Option<String>,
    pub(super) config: CaseConfig,
    #[serde(default)]
    pub(super) priority_classes: Objects,
    #[serde(default)]
    pub(super) queues: Objects,
    #[serde(default)]
    pub(super) podgroups: Objects,
    #[serde(default)]
    pub(super) nodes: Objects,
    #[serde(default)]
    pub(super) hypernodes: Objects,
    #[serde(default)]
    pub(super) pods: Objects,
    /// Raw Kubernetes objects by plural.
    #[serde(default)]
    pub(super) objects: BTreeMap<String, Objects>,
    pub(super) expect: Expect,
    /// What one run of Volcano produced; ties may fall otherwise, so it is not compared.
    #[serde(default, rename = "observed")]
    _observed: Option<Value>,
}

/// The scheduler's configuration of a case.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CaseConfig {
    pub(super) actions: Vec<String>,
    #[serde(default)]
    pub(super) tiers: Vec<Vec<CasePlugin>>,
    #[serde(default)]
    pub(super) configurations: Vec<CaseArguments>,
    #[serde(default)]
    pub(super) sharding: Option<Sharding>,
    #[serde(default)]
    pub(super) test_only_plugins: Vec<String>,
}

/// A plugin; switches that are not in `on` are off.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CasePlugin {
    pub(super) name: String,
    #[serde(default)]
    pub(super) on: Vec<String>,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
}

/// Arguments of an action.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct CaseArguments {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: Map<String, Value>,
}

/// The nodes of this scheduler's shard.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Sharding {
    pub(super) mode: String,
    #[serde(default)]
    pub(super) nodes: Vec<String>,
}

/// What must come out; what is absent is not compared.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Expect {
    pub(super) binds: Option<BTreeMap<String, String>>,
    pub(super) bind_count: Option<usize>,
    pub(super) bind_count_per_hyper_node: Option<Vec<usize>>,
    pub(super) bind_count_per_queue: Option<BTreeMap<String, usize>>,
    pub(super) evicted: Option<Vec<String>>,
    pub(super) pipelined: Option<BTreeMap<String, Vec<String>>>,
    pub(super) phases: Option<BTreeMap<String, String>>,
    pub(super) task_counts: Option<BTreeMap<String, BTreeMap<String, usize>>>,
    pub(super) deserved: Option<BTreeMap<String, BTreeMap<String, Value>>>,
    pub(super) allowed_nodes: Option<Vec<String>>,
    #[serde(default)]
    pub(super) one_per_node: bool,
    /// Where the expectation comes from.
    pub(super) basis: Option<Basis>,
}

/// Where an expectation comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Basis {
    /// Volcano's test checks it.
    Asserted,
    /// Volcano's test states it and checks something else.
    Declared,
    ObservedOnly,
    /// Right by design.
    Derived,
    /// What Volcano does although it is undesirable.
    DerivedVolcano,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    schema_version: Option<u64>,
    cases: Option<Vec<Spanned<Value>>>,
}

/// The cases of a file.
pub(super) fn read(text: &str) -> Result<Vec<RawCase>, CheckError> {
    if text.len() > BYTES_MAX {
        return Err(CheckError::TooLong { bytes: text.len(), bytes_max: BYTES_MAX });
    }
    // A node may be called n or off; only true and false are booleans.
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_events: VALUES_MAX, max_nodes: VALUES_MAX },
    };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| CheckError::Syntax {
        line: error.location().map_or(0, |location| location.line()),
        message: first_line(&error.without_snippet().to_string()),
    })?;
    if let Some(version) = file.schema_version.filter(|version| *version != SCHEMA_VERSION) {
        return Err(CheckError::SchemaVersion { version, understood: SCHEMA_VERSION });
    }
    let cases = file.cases.ok_or(CheckError::NoCases)?;
    if cases.len() > CASES_MAX {
        return Err(CheckError::TooMany { cases: cases.len(), cases_max: CASES_MAX });
    }
    let raw = |(index, case): (usize, Spanned<Value>)| RawCase {
        line: case.referenced.line(),
        name: case.value["name"].as_str().map_or_else(|| format!("case {}", index + 1), str::to_owned),
        value: case.value,
    };
    Ok(cases.into_iter().enumerate().map(raw).collect())
}

impl RawCase {
    /// Reads the case as its type; the error names its line.
    pub(super) fn typed(self) -> Result<Case, String> {
        let line = self.line;
        serde_json::from_value(self.value).map_err(|error| format!("line {line}: the case can't be read: {error}"))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().split(" at line ").next().unwrap_or_default().to_owned()
}

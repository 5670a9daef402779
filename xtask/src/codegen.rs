//! Generated files: what they are, writing them, and finding the ones that are out of date.
//!
//! Invariant: output depends only on the types and the definitions of protocols, so two runs give the same bytes. Called by
//! `cargo xtask codegen` and by the freshness test.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

mod builtin;
pub mod crd;
pub mod fleet;
mod golang;
pub mod protobuf;
mod structural;

/// A file that is generated and committed.
pub struct Output {
    /// Path from the workspace's root.
    pub path: String,
    /// Its whole content.
    pub content: String,
}

/// Everything that is generated, of the workspace at `root`.
pub fn outputs(root: &Path) -> anyhow::Result<Vec<Output>> {
    let mut outputs = crd::outputs()?;
    outputs.push(Output { path: "crates/apiserver/schemas/builtin.json".into(), content: builtin::document()? });
    outputs.extend(fleet::outputs(root)?);
    Ok(outputs)
}

/// Writes the files that differ and names them.
pub fn write(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut written = Vec::new();
    for output in outputs(root)? {
        let path = root.join(&output.path);
        if std::fs::read_to_string(&path).ok().as_deref() == Some(&output.content) {
            continue;
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        std::fs::write(&path, &output.content).with_context(|| format!("write {}", path.display()))?;
        written.push(output.path);
    }
    Ok(written)
}

/// Names the committed files that are missing or differ in any byte.
pub fn stale(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut stale = Vec::new();
    for output in outputs(root)? {
        if std::fs::read_to_string(root.join(&output.path)).ok().as_deref() != Some(&output.content) {
            stale.push(output.path);
        }
    }
    Ok(stale)
}

/// The same value with members in alphabetical order, whatever order this build of serde_json keeps.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let ordered: std::collections::BTreeMap<_, _> = members.iter().collect();
            Value::Object(ordered.into_iter().map(|(name, member)| (name.clone(), sorted(member))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

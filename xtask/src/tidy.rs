//! The rules of the house as checks over the tree and over `cargo metadata`.
//!
//! Each check is a pure function in its own file: text or packages in, violations out. This file reads the inputs and runs
//! them all. Called by `cargo xtask tidy`, which `make lint` runs.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;

mod build;
mod deny;
mod docs;
mod duplicates;
mod externals;
mod formats;
mod layers;
mod layout;
mod licences;
mod links;
mod maps;
mod modules;
mod packages;
mod source;
mod translations;
mod tree;
mod unfinished;
mod words;

pub use packages::{Dependency, Kind, Package, Packages};
pub use tree::File;

/// A broken rule: where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path from the workspace's root.
    pub file: String,
    /// Line, from 1; 0 = the file as a whole.
    pub line: usize,
    /// What is wrong and what to do.
    pub advice: String,
}

impl Violation {
    fn new(file: &str, line: usize, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, advice: advice.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.advice),
            line => write!(f, "{}:{line}: {}", self.file, self.advice),
        }
    }
}

/// The checks by name, as `cargo xtask tidy NAME` takes them.
pub const CHECKS: &[&str] = &[
    "build",
    "layers",
    "externals",
    "licences",
    "duplicates",
    "layout",
    "unfinished",
    "links",
    "maps",
    "translations",
    "modules",
    "words",
    "docs",
    "formats",
];

/// Runs the checks of these names, or every one, on the workspace at `root`; violations come sorted by file and line.
pub fn run(root: &Path, names: &[&str]) -> anyhow::Result<Vec<Violation>> {
    if let Some(name) = names.iter().find(|name| !CHECKS.contains(name)) {
        anyhow::bail!("no check is called {name}; there are {}", CHECKS.join(", "));
    }
    let files = tree::read(root)?;
    let sources = source::parse(&files);
    let packages = packages::read(root)?;
    let deny = std::fs::read_to_string(root.join(deny::FILE)).with_context(|| format!("read {}", deny::FILE))?;
    let deny = deny::Deny::parse(&deny)?;

    let mut violations = Vec::new();
    for name in CHECKS.iter().filter(|name| names.is_empty() || names.contains(name)) {
        violations.extend(match *name {
            "build" => build::check(&files, &build::read(root)?),
            "layers" => layers::check(&packages),
            "externals" => externals::check(&packages),
            "licences" => licences::check(&packages, &deny),
            "duplicates" => duplicates::check(&packages, &deny),
            "layout" => layout::check(&files),
            "unfinished" => unfinished::check(&files),
            "links" => links::check(&files, |path| root.join(path).exists()),
            "maps" => maps::check(&files),
            "translations" => translations::check(&files),
            "modules" => modules::check(&sources),
            "words" => words::check(&sources),
            "docs" => docs::check(&sources),
            _ => formats::check(&files, &sources),
        });
    }
    violations.sort();
    Ok(violations)
}

/// Writes the list of what the code spells for others, and gives its path.
pub fn write_formats(root: &Path) -> anyhow::Result<&'static str> {
    let files = tree::read(root)?;
    let list = formats::list(&files, &source::parse(&files));
    std::fs::write(root.join(formats::FILE), list).with_context(|| format!("write {}", formats::FILE))?;
    Ok(formats::FILE)
}

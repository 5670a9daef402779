//! The checks of what changed, in minutes: format, rules, clippy, the unit tests of changed crates, Python's linters.
//!
//! What is built is always chosen for the whole workspace, so that nothing is compiled with other features (decision 12);
//! of the unit tests only those of changed packages run. Called by `cargo xtask quick`, which `make quick` runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// Options of clippy, as `make lint` has them, so that both share what they compile.
const CLIPPY: &[&str] = &[
    "clippy",
    "--workspace",
    "--all-targets",
    "--features",
    "pumice-realkube/lane",
    "--quiet",
    "--",
    "-D",
    "warnings",
];
const UNIT_TESTS: &[&str] = &["test", "--workspace", "--lib", "--no-run", "--quiet", "--message-format", "json"];

/// Checks what differs from `revision`, or, without one, from where this branch left its upstream.
pub fn run(root: &Path, revision: Option<&str>) -> anyhow::Result<()> {
    let changed = changed(root, revision)?;
    println!("{} files changed", changed.len());
    step(root, "cargo", &["fmt", "--all", "--check"])?;
    let violations = crate::tidy::run(root, &[])?;
    for violation in &violations {
        eprintln!("{violation}");
    }
    ensure!(violations.is_empty(), "{} rules are broken", violations.len());
    let choice = Choice::of(&changed);
    if choice.compiles {
        step(root, "cargo", CLIPPY)?;
        for (folder, program) in unit_tests(root, &choice.folders)? {
            // Where cargo runs a package's tests, too.
            step(&root.join(folder), &program, &["--quiet"])?;
        }
    }
    if choice.python {
        step(root, "tests/python/run", &["lint"])?;
    }
    println!("what changed passes; `make test` has the tests through the real binaries");
    Ok(())
}

/// What changes ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Choice {
    /// Whether anything that the compiler reads changed.
    compiles: bool,
    python: bool,
    /// Folders of the packages whose unit tests run: `crates/engine`.
    folders: BTreeSet<String>,
}

impl Choice {
    fn of(changed: &[String]) -> Self {
        let mut choice = Self::default();
        for path in changed {
            if path.ends_with(".py") || path.ends_with(".pyi") {
                choice.python = true;
                continue;
            }
            let parts: Vec<&str> = path.split('/').collect();
            match parts.as_slice() {
                ["crates" | "bins" | "tests" | "examples", name, _, ..] => {
                    choice.folders.insert(format!("{}/{name}", parts[0]));
                }
                [name @ ("bench" | "xtask" | "python"), _, ..] => {
                    choice.folders.insert((*name).to_owned());
                }
                ["Cargo.toml" | "Cargo.lock" | "clippy.toml" | "rust-toolchain.toml"] => {}
                _ => continue,
            }
            choice.compiles = true;
        }
        choice
    }
}

/// Paths that differ from the revision in the work tree, new ones too.
fn changed(root: &Path, revision: Option<&str>) -> anyhow::Result<Vec<String>> {
    let base = match revision {
        Some(revision) => revision.to_owned(),
        None => git(root, &["merge-base", "HEAD", "@{upstream}"])
            .or_else(|_| git(root, &["rev-parse", "HEAD"]))
            .context("find what to compare with; name a revision")?,
    };
    let mut lines = git(root, &["diff", "--name-only", base.trim()])?;
    lines.push_str(&git(root, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(lines.lines().map(str::to_owned).collect())
}

fn git(root: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("git").args(arguments).current_dir(root).output().context("run git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn step(root: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    println!("{program} {}", arguments.join(" "));
    let program = if program == "cargo" { crate::cargo() } else { program.into() };
    let status = Command::new(&program).args(arguments).current_dir(root).status();
    let status = status.with_context(|| format!("run {}", program.display()))?;
    ensure!(status.success(), "{} {} failed: {status}", program.display(), arguments.join(" "));
    Ok(())
}

/// Builds the unit tests of all packages, and gives those in `folders`: folder and program.
fn unit_tests(root: &Path, folders: &BTreeSet<String>) -> anyhow::Result<Vec<(String, String)>> {
    println!("cargo {}", UNIT_TESTS.join(" "));
    let output = Command::new(crate::cargo())
        .args(UNIT_TESTS)
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("run cargo test")?;
    ensure!(output.status.success(), "the unit tests don't compile");
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?, root, folders)).collect())
}

/// Folder and test program of a message of cargo's, if its package is in one of the folders.
fn program(message: &Value, root: &Path, folders: &BTreeSet<String>) -> Option<(String, String)> {
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.strip_prefix(root).ok()?.to_str()?;
    let program = message["executable"].as_str()?;
    folders.contains(folder).then(|| (folder.to_owned(), program.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_chooses_what_is_checked() {
        let cases: &[(&[&str], bool, bool, &[&str])] = &[
            (&[], false, false, &[]),
            (&["docs/why.md", "README.md", "changes/unreleased/x.md"], false, false, &[]),
            (&["crates/engine/src/world.rs"], true, false, &["crates/engine"]),
            (&["crates/engine/Cargo.toml", "bins/jobctl/src/main.rs"], true, false, &["crates/engine", "bins/jobctl"]),
            (&["python/pumice/task.py"], false, true, &[]),
            (&["python/src/lib.rs", "tests/python/up.py"], true, true, &["python"]),
            (&["Cargo.lock"], true, false, &[]),
            (&["tests/e2e/tests/e2e/job.rs"], true, false, &["tests/e2e"]),
        ];
        for (changed, compiles, python, folders) in cases {
            let changed: Vec<String> = changed.iter().map(|path| (*path).to_owned()).collect();
            let folders = folders.iter().map(|folder| (*folder).to_owned()).collect();
            let expected = Choice { compiles: *compiles, python: *python, folders };
            assert_eq!(Choice::of(&changed), expected, "{changed:?}");
        }
    }

    #[test]
    fn clippy_looks_at_what_make_lint_looks_at() {
        let makefile = include_str!("../../Makefile");
        assert!(makefile.contains(&format!("\t$(CARGO) {}\n", CLIPPY.join(" "))));
    }

    #[test]
    fn programs_are_those_of_changed_packages() {
        let folders = BTreeSet::from(["crates/a".to_owned()]);
        let message = |folder: &str, executable: Value| {
            let manifest = format!("/x/crates/{folder}/Cargo.toml");
            serde_json::json!({ "manifest_path": manifest, "executable": executable })
        };
        let found = |message: &Value| program(message, Path::new("/x"), &folders);
        assert_eq!(found(&message("a", "/t/a-1".into())), Some(("crates/a".to_owned(), "/t/a-1".to_owned())));
        assert_eq!(found(&message("a", Value::Null)), None, "a library");
        assert_eq!(found(&message("b", "/t/b-1".into())), None);
        assert_eq!(found(&serde_json::json!({ "reason": "build-finished" })), None);
    }
}

//! What is built together, so that nothing is compiled twice.
//!
//! Cargo gives a crate the features that all packages of one call ask of it. Another choice of packages gives others, and so
//! compiles that crate anew, and all that stands on it. Two choices are made here: `cargo ship`, an alias for what ships, and
//! the whole workspace. This check sees to it that no command makes a third one, and that a crate has the same features in both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{File, Violation};

/// Verbs of cargo that compile.
const VERBS: &[&str] = &["build", "test", "bench", "run", "clippy", "check", "rustc"];
/// How a command names cargo.
const CARGO: &[&str] = &["$(CARGO)", "cargo", "\"${CARGO:-cargo}\""];
/// The file that asks for features that only tests would else have.
const UNIFIED: &str = "bins/pumice/Cargo.toml";
const CONFIG: &str = ".cargo/config.toml";

/// Crate and version -> the lists of features that it is compiled with.
pub type Features = BTreeMap<String, BTreeSet<String>>;

/// The features of both choices.
#[derive(Default)]
pub struct Choices {
    pub ship: Features,
    /// Of the whole workspace, with what its tests use.
    pub workspace: Features,
}

/// Asks cargo about both choices in the workspace at `root`.
pub fn read(root: &Path) -> anyhow::Result<Choices> {
    let config = std::fs::read_to_string(root.join(CONFIG)).with_context(|| format!("read {CONFIG}"))?;
    let alias = config.lines().find_map(|line| line.strip_prefix("ship = \"build ")?.strip_suffix('"'));
    let alias = alias.with_context(|| format!("{CONFIG} has no alias `ship = \"build …\"`"))?;
    Ok(Choices {
        ship: features(root, "normal,build", &alias.split_whitespace().collect::<Vec<_>>())?,
        workspace: features(root, "normal,build,dev", &["--workspace"])?,
    })
}

fn features(root: &Path, edges: &str, packages: &[&str]) -> anyhow::Result<Features> {
    let output = Command::new(crate::cargo())
        .args(["tree", "--edges", edges, "--prefix", "none", "--format", "{p}|{f}"])
        .args(packages)
        .current_dir(root)
        .output()
        .context("run cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines such as `syn v2.0.1 (proc-macro)|full,parsing (*)`.
fn parse(tree: &str) -> Features {
    let mut features = Features::new();
    for (package, list) in tree.lines().filter_map(|line| line.split_once('|')) {
        let name = package.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        features.entry(name).or_default().insert(list.trim_end_matches(" (*)").to_owned());
    }
    features
}

/// Finds commands that build another choice of packages, and crates that are compiled with other features by each.
pub fn check(files: &[File], choices: &Choices) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.path == "Makefile" || file.text.starts_with("#!")) {
        for (index, line) in file.text.lines().enumerate() {
            if chooses_packages(line) {
                let advice = "this builds another choice of packages, with other features: use `cargo ship`, or `--workspace` \
                              with --bin, --test, --bench or --example";
                violations.push(Violation::new(&file.path, index + 1, advice));
            }
        }
    }
    for (package, ship) in &choices.ship {
        let Some(workspace) = choices.workspace.get(package) else { continue };
        if let Some(list) = ship.difference(workspace).next() {
            let others: Vec<&str> = workspace.iter().map(String::as_str).collect();
            let advice = format!(
                "{package} is compiled with the features [{list}] for `cargo ship` and [{}] for the whole workspace, so twice: ask \
                 for the same here or in the workspace's Cargo.toml",
                others.join("], [")
            );
            violations.push(Violation::new(UNIFIED, 0, advice));
        }
    }
    violations
}

/// Whether a line calls cargo to compile packages of its own choice.
fn chooses_packages(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_call = |pair: &[&str]| CARGO.contains(&pair[0].trim_start_matches(['@', '-'])) && VERBS.contains(&pair[1]);
    words.windows(2).any(is_call) && !words.iter().any(|word| ["--workspace", "--manifest-path"].contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_builds_what_ships_or_the_whole_workspace() {
        let cases = [
            ("\t$(CARGO) ship --release", false),
            ("\t$(CARGO) build --workspace --bin pumice", false),
            ("\tFEW=1 $(CARGO) test --workspace --test api power -- --nocapture", false),
            ("\t$(CARGO) fmt --all", false),
            ("\tNONE=1 $(CARGO) check --locked --manifest-path fuzz/Cargo.toml", false),
            ("\t$(CARGO) build --release -p pumice", true),
            ("\t@$(CARGO) run --quiet -p xtask -- tidy", true),
            ("\"${CARGO:-cargo}\" build --release", true),
            ("\t$(CARGO) test -p pumice-e2e --test crash", true),
        ];
        for (line, expected) in cases {
            assert_eq!(chooses_packages(line), expected, "{line}");
        }
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = [
            file("Makefile", "up:\n\t$(CARGO) build -p a\n"),
            file("docs/a.md", "cargo build -p a"),
            file("tests/a", "#!/bin/sh\ncargo test\n"),
        ];
        let found = check(&files, &Choices::default());
        let places: Vec<(&str, usize)> = found.iter().map(|one| (one.file.as_str(), one.line)).collect();
        assert_eq!(places, [("Makefile", 2), ("tests/a", 2)]);
    }

    #[test]
    fn a_crate_has_the_same_features_in_both_choices() {
        let ship = "syn v2.0.1 (proc-macro)|full,parsing\nnix v0.31.3|fs (*)\nlibc v0.2.1|std\nonly v1.0.0|x\n";
        let workspace = "syn v2.0.1|full,parsing\nsyn v2.0.1|full\nnix v0.31.3|fs,time\nlibc v0.2.1|std (*)\n";
        let choices = Choices { ship: parse(ship), workspace: parse(workspace) };
        let found = check(&[], &choices);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].advice.starts_with("nix v0.31.3 is compiled with the features [fs] for"), "{}", found[0]);
    }
}

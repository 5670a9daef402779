//! What `cargo metadata` says of our packages and of those they use.
//!
//! Called once by `tidy::run`; the checks see only these small structs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// The platform whose dependencies count.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Why a package uses another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For what it ships.
    Normal,
    Dev,
    /// For its build script.
    Build,
}

/// One line under `[dependencies]` or its kin.
#[derive(Clone, Debug)]
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
}

/// One of our packages.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name without the prefix `pumice-`, as in the list of layers.
    pub name: String,
    /// Path of its Cargo.toml from the workspace's root.
    pub manifest: String,
    /// Text of that file, to find lines in.
    pub manifest_text: String,
    /// What it asks for itself.
    pub dependencies: Vec<Dependency>,
    /// Names of all packages it ships with, direct or not.
    pub ships_with: BTreeSet<String>,
}

impl Package {
    /// The line of the manifest that asks for `dependency`; 0 where none does.
    pub fn line_of(&self, dependency: &str) -> usize {
        let found = self
            .manifest_text
            .lines()
            .position(|line| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '=', '.'])));
        found.map_or(0, |index| index + 1)
    }
}

/// A package from a registry.
#[derive(Clone, Debug)]
pub struct Foreign {
    pub name: String,
    pub version: String,
    /// Its licence expression, if it states one.
    pub licence: Option<String>,
}

/// Everything the checks look at.
#[derive(Clone, Debug, Default)]
pub struct Packages {
    /// Members of the workspace.
    pub ours: Vec<Package>,
    /// The rest, as resolved.
    pub foreign: Vec<Foreign>,
}

/// The folder name of a package: its name without our prefix.
pub fn short(name: &str) -> &str {
    name.strip_prefix("pumice-").unwrap_or(name)
}

/// Asks cargo about the workspace at `root`.
pub fn read(root: &Path) -> anyhow::Result<Packages> {
    let output = Command::new(crate::cargo())
        .args(["metadata", "--format-version", "1", "--filter-platform", PLATFORM])
        .current_dir(root)
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    parse(&serde_json::from_slice(&output.stdout).context("read cargo metadata")?, root)
}

fn parse(metadata: &Value, root: &Path) -> anyhow::Result<Packages> {
    let mut names = BTreeMap::new();
    let mut edges = BTreeMap::new();
    for package in list(&metadata["packages"]) {
        names.insert(text(&package["id"]), text(&package["name"]));
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let shipped = list(&node["deps"]).filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()));
        edges.insert(text(&node["id"]), shipped.map(|dep| text(&dep["pkg"])).collect::<Vec<_>>());
    }
    let mut packages = Packages::default();
    for package in list(&metadata["packages"]) {
        let id = text(&package["id"]);
        if !edges.contains_key(&id) {
            continue;
        }
        if package["source"].is_null() {
            packages.ours.push(own(package, root, ships_with(&id, &edges, &names))?);
        } else {
            packages.foreign.push(Foreign {
                name: text(&package["name"]),
                version: text(&package["version"]),
                licence: package["license"].as_str().map(str::to_owned),
            });
        }
    }
    packages.ours.sort_by(|one, other| one.manifest.cmp(&other.manifest));
    Ok(packages)
}

fn own(package: &Value, root: &Path, ships_with: BTreeSet<String>) -> anyhow::Result<Package> {
    let manifest = text(&package["manifest_path"]);
    let manifest_text = std::fs::read_to_string(&manifest).with_context(|| format!("read {manifest}"))?;
    let relative = Path::new(&manifest).strip_prefix(root).map_or(manifest.clone(), |path| path.display().to_string());
    let dependencies = list(&package["dependencies"]).map(|dependency| Dependency {
        name: text(&dependency["name"]),
        kind: match dependency["kind"].as_str() {
            Some("dev") => Kind::Dev,
            Some("build") => Kind::Build,
            _ => Kind::Normal,
        },
    });
    Ok(Package {
        name: short(&text(&package["name"])).to_owned(),
        manifest: relative,
        manifest_text,
        dependencies: dependencies.collect(),
        ships_with,
    })
}

/// Names of everything reachable over normal edges.
fn ships_with(id: &str, edges: &BTreeMap<String, Vec<String>>, names: &BTreeMap<String, String>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![id.to_owned()];
    while let Some(id) = open.pop() {
        for next in edges.get(&id).into_iter().flatten() {
            if seen.insert(next.clone()) {
                open.push(next.clone());
            }
        }
    }
    seen.iter().filter_map(|id| names.get(id).cloned()).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
pub(super) mod samples {
    use super::*;

    /// A package that asks for `normal` and, in tests, for `dev`.
    pub fn package(name: &str, normal: &[&str], dev: &[&str]) -> Package {
        let dependency = |kind| move |name: &&str| Dependency { name: (*name).to_owned(), kind };
        let mut dependencies: Vec<_> = normal.iter().map(dependency(Kind::Normal)).collect();
        dependencies.extend(dev.iter().map(dependency(Kind::Dev)));
        let lines: Vec<String> = normal.iter().map(|name| format!("{name} = {{ workspace = true }}")).collect();
        Package {
            name: name.to_owned(),
            manifest: format!("crates/{name}/Cargo.toml"),
            manifest_text: format!("[dependencies]\n{}\n", lines.join("\n")),
            dependencies,
            ships_with: normal.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// A workspace of these packages.
    pub fn packages(ours: Vec<Package>) -> Packages {
        Packages { ours, foreign: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_ships_follows_normal_edges_only() {
        let folder = std::env::temp_dir();
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let metadata = json!({
            "packages": [
                { "id": "a", "name": "pumice-a", "version": "1", "source": null, "manifest_path": manifest,
                  "dependencies": [{ "name": "b", "kind": null }, { "name": "d", "kind": "dev" }] },
                { "id": "b", "name": "b", "version": "2", "source": "r", "license": "MIT" },
                { "id": "c", "name": "c", "version": "3", "source": "r", "license": null },
                { "id": "unused", "name": "u", "version": "3", "source": "r" },
            ],
            "resolve": { "nodes": [
                { "id": "a", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": null }] }, { "pkg": "d", "dep_kinds": [{ "kind": "dev" }] }] },
                { "id": "b", "deps": [{ "pkg": "c", "dep_kinds": [{ "kind": null }] }] },
                { "id": "c", "deps": [] },
            ] },
        });
        let packages = parse(&metadata, &folder).expect("parses");
        assert_eq!(packages.ours[0].name, "a");
        assert_eq!(packages.ours[0].dependencies[1].kind, Kind::Dev);
        assert_eq!(packages.ours[0].ships_with, ["b", "c"].map(str::to_owned).into());
        assert_eq!(packages.foreign.len(), 2);
        assert_eq!(packages.foreign[1].licence, None);
    }

    #[test]
    fn the_line_of_a_dependency_is_exact() {
        let package = samples::package("a", &["serde_json", "serde"], &[]);
        assert_eq!(package.line_of("serde"), 3);
        assert_eq!(package.line_of("absent"), 0);
    }
}

//! Which of our crates may use which: the layers, as data.
//!
//! A crate uses only what its row names. Components never use each other: no row of one names another.

use super::Violation;
use super::packages::{Kind, Packages, short};

/// Crate -> the crates of ours it may use in what it ships. Order is from the bottom up.
pub const LAYERS: &[(&str, &[&str])] = &[
    // pure
    ("units", &[]),
    ("metrics", &[]),
    ("objects", &["units"]),
    ("api", &["units", "objects"]),
    ("engine", &["units"]),
    ("machines", &["units", "objects", "api"]),
    ("ledger", &["units"]),
    ("translate", &["units", "objects", "api", "engine"]),
    ("fleet-model", &["units", "objects", "api", "machines", "ledger"]),
    ("fleet-scheduling", &["api", "engine", "ledger", "fleet-model"]),
    ("recording", &["units", "engine"]),
    // the fleet's protocols
    ("wire", &["objects"]),
    // engines with I/O
    ("sql", &[]),
    ("clock", &[]),
    ("linux", &[]),
    ("store", &["units", "objects"]),
    ("auth", &["units", "objects", "api", "clock", "linux"]),
    ("apiserver", &["units", "metrics", "objects", "api", "clock", "store", "auth"]),
    ("cluster", &["units", "metrics", "objects", "api"]),
    // components
    ("scheduler", &["units", "objects", "api", "engine", "translate", "recording", "clock", "cluster"]),
    ("controllers", &["units", "objects", "api", "machines", "clock", "cluster"]),
    ("admission", &["units", "objects", "api", "machines", "apiserver", "clock", "auth", "cluster"]),
    ("shim", &["units", "metrics", "clock", "linux"]),
    ("images", &["units", "clock", "linux"]),
    ("node", &["units", "metrics", "objects", "api", "clock", "linux", "cluster", "shim", "images"]),
    ("history", &["units", "objects", "api", "clock", "cluster", "sql"]),
    ("directory", &["units", "api", "machines", "clock", "cluster"]),
    ("watchdog", &["units", "objects", "api", "cluster"]),
    ("console", &["units", "objects", "api", "auth", "cluster"]),
    (
        "fleet-executor",
        &["units", "metrics", "objects", "api", "translate", "ledger", "fleet-model", "wire", "cluster"],
    ),
    (
        "fleet-server",
        &[
            "units",
            "metrics",
            "objects",
            "engine",
            "translate",
            "ledger",
            "fleet-model",
            "fleet-scheduling",
            "sql",
            "wire",
            "clock",
            "auth",
        ],
    ),
    // surfaces
    (
        "lab",
        &[
            "units",
            "objects",
            "api",
            "engine",
            "translate",
            "ledger",
            "fleet-scheduling",
            "recording",
            "wire",
            "clock",
            "cluster",
            "scheduler",
            "fleet-server",
        ],
    ),
    ("jobs", &["units", "objects", "api", "wire", "clock"]),
    ("vcctl", &["units", "objects", "api", "jobs"]),
    ("jobctl", &["units", "api", "jobs"]),
    ("python", &["jobs"]),
    ("xtask", &["api"]),
];

/// Packages that wire, show or test the whole and may use any crate.
const WIRING: &[&str] = &["pumice", "e2e", "conformance", "realkube", "bench", "example-plugin", "example-rendezvous"];
/// Only tests use them.
const TESTKITS: &[&str] = &["testkit", "faulty-disk"];
/// Packages that are nothing but tests.
const TESTS: &[&str] = &["e2e", "realkube"];

/// Finds dependencies that go against the layers.
pub fn check(packages: &Packages) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &packages.ours {
        let name = package.name.as_str();
        let row = LAYERS.iter().find(|(layer, _)| *layer == name).map(|(_, allowed)| *allowed);
        let free = WIRING.contains(&name) || TESTKITS.contains(&name);
        if row.is_none() && !free {
            let advice = format!("crate {name} has no layer; add a row to LAYERS in xtask/src/tidy/layers.rs");
            violations.push(Violation::new(&package.manifest, 0, advice));
            continue;
        }
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev) {
            let Some(target) = packages.ours.iter().find(|other| other.name == short(&dependency.name)) else {
                continue;
            };
            let line = package.line_of(&dependency.name);
            if TESTKITS.contains(&target.name.as_str()) && !TESTS.contains(&name) {
                let advice = format!("{} is for tests only; move it to [dev-dependencies]", target.name);
                violations.push(Violation::new(&package.manifest, line, advice));
            } else if let Some(allowed) = row.filter(|allowed| !allowed.contains(&target.name.as_str())) {
                let target = &target.name;
                let allowed = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
                let advice =
                    format!("{name} may not use {target}: it may use {allowed}; move the shared part down a layer");
                violations.push(Violation::new(&package.manifest, line, advice));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::samples::{package, packages};

    fn advice(ours: Vec<crate::tidy::Package>) -> Vec<String> {
        check(&packages(ours)).iter().map(Violation::to_string).collect()
    }

    #[test]
    fn a_crate_may_use_what_lies_below() {
        let ours = vec![
            package("units", &["serde"], &["pumice-testkit"]),
            package("objects", &["pumice-units"], &[]),
            package("testkit", &["pumice-objects"], &[]),
            package("pumice", &["pumice-objects", "pumice-units"], &[]),
        ];
        assert_eq!(advice(ours), Vec::<String>::new());
    }

    // INV-60
    #[test]
    fn upward_and_sideways_is_refused() {
        let ours = vec![
            package("units", &["serde", "pumice-objects"], &[]),
            package("objects", &[], &[]),
            package("scheduler", &["pumice-node"], &[]),
            package("node", &["pumice-testkit"], &[]),
            package("testkit", &[], &[]),
            package("misc", &[], &[]),
        ];
        let (_, allowed) = LAYERS.iter().find(|(name, _)| *name == "scheduler").expect("it has a row");
        let allowed = allowed.join(", ");
        assert_eq!(
            advice(ours),
            [
                "crates/units/Cargo.toml:3: units may not use objects: it may use nothing of ours; move the shared part down a layer",
                &format!(
                    "crates/scheduler/Cargo.toml:2: scheduler may not use node: it may use {allowed}; move the shared part down a layer"
                ),
                "crates/node/Cargo.toml:2: testkit is for tests only; move it to [dev-dependencies]",
                "crates/misc/Cargo.toml: crate misc has no layer; add a row to LAYERS in xtask/src/tidy/layers.rs",
            ]
        );
    }

    // INV-60
    #[test]
    fn the_layers_have_no_cycle() {
        for (index, (name, allowed)) in LAYERS.iter().enumerate() {
            for below in *allowed {
                let position = LAYERS.iter().position(|(layer, _)| layer == below);
                assert!(position.is_some_and(|position| position < index), "{name} uses {below}");
            }
        }
    }
}

//! Which libraries belong to which of our crates, and what pure crates never ship with.

use super::Violation;
use super::packages::{Kind, Packages};

/// Crates without I/O, clock, async and randomness.
pub const PURE: &[&str] =
    &["units", "metrics", "objects", "api", "engine", "machines", "ledger", "fleet-model", "fleet-scheduling"];

/// What a pure crate does not ship with, not even through others.
const IMPURE: &[&str] = &[
    "tokio",
    "mio",
    "async-std",
    "kube",
    "kube-client",
    "kube-runtime",
    "hyper",
    "reqwest",
    "redb",
    "sqlx",
    "tonic",
    "rustls",
    "nix",
];

/// What a pure crate does not ask for itself: these come along with others harmlessly.
const IMPURE_DIRECT: &[&str] = &["futures", "libc", "rand", "getrandom", "tracing", "tower", "tempfile"];

/// Library -> crates that may ask for it in what they ship.
const HOMES: &[(&str, &[&str])] = &[
    (
        "kube",
        &[
            "cluster",
            "scheduler",
            "controllers",
            "admission",
            "node",
            "history",
            "directory",
            "fleet-executor",
            "watchdog",
            "console",
            "jobs",
            "pumice",
        ],
    ),
    ("redb", &["store"]),
    ("tonic", &["fleet-executor", "fleet-server", "wire", "jobs", "lab", "testkit"]),
    ("tonic-prost", &["wire", "jobs"]),
    ("tonic-prost-build", &["xtask"]),
    ("sqlx", &["sql", "fleet-server", "history"]),
    ("ldap3", &["auth", "directory"]),
    ("openidconnect", &["auth"]),
    ("ratatui", &["jobctl"]),
];

/// Finds libraries outside their homes.
pub fn check(packages: &Packages) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in &packages.ours {
        let name = package.name.as_str();
        let mut report = |dependency: &str, advice: String| {
            violations.push(Violation::new(&package.manifest, package.line_of(dependency), advice));
        };
        let shipped: Vec<&str> =
            package.dependencies.iter().filter(|dep| dep.kind != Kind::Dev).map(|dep| dep.name.as_str()).collect();
        for (library, homes) in HOMES {
            if shipped.contains(library) && !homes.contains(&name) && !is_test_package(&package.manifest) {
                report(library, format!("{library} belongs to {} only; use what they offer", homes.join(", ")));
            }
        }
        if !PURE.contains(&name) {
            continue;
        }
        for library in IMPURE.iter().filter(|library| package.ships_with.contains(**library)) {
            report(library, format!("{name} is pure and ships with {library}; keep I/O in the shell that calls it"));
        }
        for library in IMPURE_DIRECT.iter().filter(|library| shipped.contains(library)) {
            report(library, format!("{name} is pure and asks for {library}; take the value as an argument"));
        }
    }
    violations
}

/// Packages under `tests/` and `bench/` ship nothing.
fn is_test_package(manifest: &str) -> bool {
    manifest.starts_with("tests/") || manifest.starts_with("bench/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::packages::samples::{package, packages};

    #[test]
    fn libraries_stay_at_home() {
        let mut through_others = package("api", &["serde"], &[]);
        through_others.ships_with.insert("tokio".into());
        let ours = vec![
            package("store", &["redb"], &[]),
            package("apiserver", &["redb"], &["kube"]),
            package("engine", &["rand"], &["tokio"]),
            through_others,
        ];
        let found: Vec<String> = check(&packages(ours)).iter().map(Violation::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/apiserver/Cargo.toml:2: redb belongs to store only; use what they offer",
                "crates/engine/Cargo.toml:2: engine is pure and asks for rand; take the value as an argument",
                "crates/api/Cargo.toml: api is pure and ships with tokio; keep I/O in the shell that calls it",
            ]
        );
    }
}

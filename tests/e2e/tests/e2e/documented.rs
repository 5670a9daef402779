//! The documents tell the truth: each command of their `console` blocks is run, in order.

use std::process::{Command, Stdio};

use pumice_testkit::{Platform, binary};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The commands (`$ ...`) of a document's `console` blocks.
fn commands(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(format!("{ROOT}/{document}")).unwrap();
    let mut inside = false;
    let mut commands = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(language) => inside = !inside && language == "console",
            None if inside => commands.extend(line.strip_prefix("$ ").map(str::to_owned)),
            None => {}
        }
    }
    commands
}

/// Runs a document's commands on a platform of its own, from the project's root; `seen` is what they print.
fn can_be_followed(document: &str, seen: &[&str]) {
    let commands = commands(document);
    assert!(commands.len() > 2, "{commands:?}");
    let platform = Platform::new();
    let links = platform.scratch().join("links");
    std::fs::create_dir(&links).unwrap();
    platform.run(&binary("pumice"), ["links", "--dir", links.to_str().unwrap()], None).ok();
    let bins = binary("jobctl").parent().unwrap().display().to_string();
    let path = format!("{bins}:{}:{}", links.display(), std::env::var("PATH").unwrap());
    let script = format!("set -eux\ncd {ROOT}\n{}\n", commands.join("\n"));
    let output = Command::new("bash")
        .args(["-c", &script])
        .env("PATH", path)
        .env("PUMICE_DATA_DIR", platform.data_dir())
        .env("KUBECONFIG", platform.data_dir().join("kubeconfig"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for seen in seen {
        assert!(out.contains(seen), "{seen}: {out}\n{err}");
    }
}

#[test]
fn the_readme_can_be_followed() {
    for language in ["README.md", "README.zh-CN.md"] {
        can_be_followed(language, &["hello", "job/big", "job.batch.volcano.sh/restart"]);
    }
}

#[test]
fn first_steps_can_be_followed() {
    can_be_followed("docs/first-steps.md", &["hello", "9", "Completed"]);
}

#[test]
fn flows_can_be_followed() {
    can_be_followed("docs/flows.md", &["nightly-prepare", "nightly-train", "Succeed"]);
}

#[test]
fn cron_can_be_followed() {
    can_be_followed("docs/cron.md", &["tick-", "condition met"]);
}

#[test]
fn frameworks_can_be_followed() {
    can_be_followed("docs/frameworks.md", &["condition met", "elastic"]);
}

#[test]
fn coming_from_vcctl_can_be_followed() {
    can_be_followed("docs/vcctl.md", &["run job nap successfully", "research", "kind: JobFlow", "train", "\"List\""]);
}

#[test]
fn operations_can_be_followed() {
    let seen = ["\"ready\": true", "[+]store ok", "apiserver_storage_objects{", "objects at revision"];
    can_be_followed("docs/operations.md", &seen);
}

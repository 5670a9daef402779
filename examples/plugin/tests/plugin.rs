//! The plugin decides inside the real scheduler: objects in, a cycle, binds out; and the program starts and says what
//! it lacks.

use std::process::Command;

use pumice_engine::plugin::Registry;
use pumice_lab::check::{Verdict, check_with};

/// One small open node, and a large one that is reserved for namespace `theirs`.
fn case(plugins: &str, expect: &str) -> String {
    format!(
        "schemaVersion: 1
cases:
- name: reserved
  config:
    actions: [allocate]
    tiers:
    - - {{name: gang, 'on': [enableJobReady]}}
      - {{name: nodeorder, 'on': [enableNodeOrder]}}
      {plugins}
  queues: [{{name: q, weight: 1, state: Open}}]
  podgroups:
  - {{name: ours/g, queue: q, minMember: 1, phase: Inqueue}}
  - {{name: theirs/g, queue: q, minMember: 1, phase: Inqueue}}
  nodes:
  - {{name: open, allocatable: {{cpu: '2', memory: 4Gi, pods: '10'}}}}
  - {{name: reserved, allocatable: {{cpu: '64', memory: 256Gi, pods: '10'}}, labels: {{example.org/reserved-for: theirs}}}}
  pods:
  - {{name: ours/p, group: g, phase: Pending, requests: {{cpu: '1', memory: 1Gi}}}}
  - {{name: theirs/p, group: g, phase: Pending, requests: {{cpu: '1', memory: 1Gi}}}}
  expect: {{binds: {expect}}}
"
    )
}

fn verdict(text: &str) -> Verdict {
    let mut plugins = Registry::default();
    pumice_example_plugin::register(&mut plugins);
    let mut verdicts = Vec::new();
    check_with(text, &plugins, |outcome| verdicts.push(outcome.verdict.clone())).expect("the text is a case");
    verdicts.remove(0)
}

#[test]
fn a_reserved_node_takes_pods_of_its_namespace_only() {
    let on = "- {name: reserved-nodes, 'on': [enablePredicate]}";
    assert_eq!(verdict(&case("", "{ours/p: reserved, theirs/p: reserved}")), Verdict::Pass, "without the plugin");
    assert_eq!(verdict(&case(on, "{ours/p: open, theirs/p: reserved}")), Verdict::Pass);
    let other = "- {name: reserved-nodes, 'on': [enablePredicate], arguments: {label: unused}}";
    assert_eq!(verdict(&case(other, "{ours/p: reserved, theirs/p: reserved}")), Verdict::Pass, "another label");
    let bad = "- {name: reserved-nodes, 'on': [enablePredicate], arguments: {label: 7}}";
    assert!(matches!(verdict(&case(bad, "{}")), Verdict::Fails(what) if what.contains("must be the key of a label")));
}

#[test]
fn the_program_starts_and_says_that_it_has_no_api_server() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let output = Command::new(env!("CARGO_BIN_EXE_pumice-example-plugin"))
        .env_clear()
        .env("HOME", home.path())
        .output()
        .expect("the program runs");
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no API server is configured"), "{said}");
}

//! The scheduling cases of the shared fixtures, and the table of the docs about those answered differently on purpose.

use std::path::{Path, PathBuf};

use pumice_lab::check::{CheckError, Counts, Outcome, Verdict, check, differences_table};

/// Cases that pass at least; raised as plugins land, never lowered.
const FLOOR: usize = 86;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fixture's text, or nothing where the fixtures are not there (which fails in CI).
fn cases() -> Option<String> {
    let path = root().join("../shared/fixtures/scheduling-cases/cases.yaml");
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Some(text);
    }
    #[allow(clippy::disallowed_methods, reason = "CI must not pass by skipping")]
    let ci = std::env::var("CI").is_ok();
    assert!(!ci, "{} is missing", path.display());
    println!("skipped: {} is missing", path.display());
    None
}

fn run(text: &str) -> (Vec<Outcome>, Counts) {
    let mut outcomes = Vec::new();
    let counts = check(text, |outcome| outcomes.push(outcome.clone())).expect("the text is a file of cases");
    (outcomes, counts)
}

#[test]
fn the_cases_of_the_fixtures_pass_or_differ_on_purpose() {
    let Some(text) = cases() else { return };
    let (outcomes, counts) = run(&text);
    for outcome in &outcomes {
        println!("{outcome}");
    }
    println!("{counts}");
    assert_eq!(counts.passed + counts.different + counts.failed, outcomes.len());
    assert!(counts.passed >= FLOOR, "{counts}");
    assert_eq!(counts.failed, 0, "{counts}");
}

/// One case, one node, one pod; `expect` goes in.
fn small(expect: &str) -> String {
    format!(
        "schemaVersion: 1
cases:
- name: small
  config:
    actions: [allocate]
    tiers:
    - - {{name: gang, 'on': [enableJobReady]}}
      - {{name: predicates, 'on': [enablePredicate]}}
  queues: [{{name: q, weight: 1, state: Open}}]
  podgroups: [{{name: ns/g, queue: q, minMember: 1, phase: Inqueue}}]
  nodes: [{{name: n, allocatable: {{cpu: 2, memory: 1Gi, pods: '10'}}}}]
  pods: [{{name: ns/p, group: g, phase: Pending, requests: {{cpu: '1', memory: 1G}}}}]
  expect: {expect}
"
    )
}

#[test]
fn an_answer_that_is_not_expected_fails() {
    let (outcomes, counts) = run(&small("{binds: {ns/p: n}, bindCount: 1, evicted: []}"));
    assert_eq!((counts.passed, counts.failed), (1, 0), "{outcomes:?}");
    for expect in
        ["{binds: {}}", "{binds: {ns/p: other}}", "{bindCount: 0}", "{evicted: [ns/p]}", "{phases: {ns/g: Running}}"]
    {
        let (outcomes, counts) = run(&small(expect));
        assert_eq!(counts.failed, 1, "{expect}: {outcomes:?}");
    }
}

#[test]
fn a_key_that_nothing_reads_fails_its_case_and_says_so() {
    let good = small("{bindCount: 1}");
    for (from, to, says) in [
        ("phase: Pending,", "phase: Pending, tollerations: [{}],", "tollerations"),
        ("minMember: 1,", "minMembers: 1,", "minMembers"),
        ("bindCount: 1", "bindCounts: 1", "bindCounts"),
        ("weight: 1,", "weigth: 1,", "weigth"),
        ("[enableJobReady]", "[enableJobReady, enableLuck]", "enableLuck"),
        ("actions: [allocate]", "actions: [fly]", "fly"),
    ] {
        let text = good.replace(from, to);
        assert_ne!(text, good, "{from}");
        let (outcomes, _) = run(&text);
        let Verdict::Fails(what) = &outcomes[0].verdict else { panic!("{to}: {outcomes:?}") };
        assert!(what.contains(says), "{to}: {what}");
    }
}

#[test]
fn a_file_that_is_no_file_of_cases_is_refused_with_its_line() {
    let refused = |text: &str| check(text, |_| {}).unwrap_err();
    assert!(matches!(refused("schemaVersion: 1\ncases:\n- name: [a\n"), CheckError::Syntax { line: 3.., .. }));
    assert!(matches!(refused("schemaVersion: 2\ncases: []\n"), CheckError::SchemaVersion { version: 2, .. }));
    assert!(matches!(refused("schemaVersion: 1\n"), CheckError::NoCases));
    assert!(matches!(refused(&" ".repeat(40 << 20)), CheckError::TooLong { .. }));
    let many = format!("cases:\n{}", "- {}\n".repeat(10_001));
    assert!(matches!(refused(&many), CheckError::TooMany { .. }));
}

#[test]
fn the_table_of_the_docs_is_fresh() {
    let docs = std::fs::read_to_string(root().join("docs/differences-from-volcano.md")).unwrap();
    let table = differences_table();
    assert!(docs.contains(&table), "put this table into docs/differences-from-volcano.md:\n\n{table}");
}

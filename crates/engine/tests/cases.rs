//! Runs the scheduling cases of the shared fixtures that need nothing but what this version has, and says how many.

#[path = "cases/replay.rs"]
mod replay;

use replay::{Case, Verdict};

/// Cases that are answered differently on purpose, or not yet, with the reason.
const DIFFERENT: &[(&str, &str)] =
    &[("derived-overcommit", "an impossible group is not admitted, so it holds up nobody: K3")];

#[test]
fn scheduling_cases_of_the_fixtures() {
    let Some(cases) = replay::load() else { return };
    let (mut ran, mut passed, mut skipped) = (0, 0, 0);
    let mut surprises = Vec::new();
    for case in &cases {
        let Some(verdict) = case.run() else {
            skipped += 1;
            continue;
        };
        ran += 1;
        let listed = DIFFERENT.iter().find(|(name, _)| *name == case.name());
        match (verdict, listed) {
            (Verdict::Same, None) => passed += 1,
            (Verdict::Same, Some(_)) => {
                surprises.push(format!("{}: listed as different, but it is the same", case.name()))
            }
            (Verdict::Different(what), None) => surprises.push(format!("{}: {what}", case.name())),
            (Verdict::Different(what), Some((_, reason))) => println!("{}: different ({reason}): {what}", case.name()),
        }
    }
    println!(
        "scheduling cases: {ran} ran, {passed} the same, {} different on purpose, {skipped} need later features",
        ran - passed
    );
    assert!(surprises.is_empty(), "{}", surprises.join("\n"));
    assert!(ran >= 30, "only {ran} cases ran");
}

/// The loader must not quietly lose the cases it is meant to run.
#[test]
fn known_cases_are_among_those_that_run() {
    let Some(cases) = replay::load() else { return };
    let runs = |name: &str| cases.iter().any(|case: &Case| case.name() == name && case.run().is_some());
    for name in [
        "nodeorder-001",
        "nodeorder-004",
        "derived-514",
        "derived-561",
        "derived-overcommit",
        "allocate-069",
        "allocate-shard-001",
    ] {
        assert!(runs(name), "{name}");
    }
}

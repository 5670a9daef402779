//! Rules and what they fit.

use serde_json::{Value, json};

use super::*;

fn categories(categories: Value) -> Result<Categories, String> {
    let settings = json!({ "enabled": true, "defaultCategory": "other", "defaultSubcategory": "unknown",
        "categories": categories });
    let settings: ErrorCategories = serde_json::from_value(settings).map_err(|error| error.to_string())?;
    Categories::new(&settings).map_err(|error| error.to_string())
}

fn container(name: &str, exit_code: i32, reason: &str, message: &str) -> RunContainer {
    let (name, reason, message) = (name.to_owned(), reason.to_owned(), message.to_owned());
    RunContainer { name, exit_code, reason, message, cause: 0 }
}

/// How a rule, or the default, names a failure.
fn named(rule: &Value, report: &RunReport, events: &[PodEvent]) -> String {
    let categories = categories(json!([{ "name": "kind", "rules": [rule] }])).unwrap();
    categories.of(report, events).category
}

#[test]
fn each_matcher_fits_what_it_is_for() {
    let of = |containers: &[RunContainer]| RunReport { containers: containers.to_vec(), ..RunReport::default() };
    let said = |reason: &str, message: &str| RunReport {
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..RunReport::default()
    };
    let oom = || container("main", 137, "OOMKilled", "");
    let well = || container("side", 0, "OOMKilled", "cuda");
    for (rule, report, fits) in [
        (json!({ "onConditions": ["OOMKilled"] }), of(&[oom()]), true),
        (json!({ "onConditions": ["OOMKilled"], "containerName": "side" }), of(&[oom(), well()]), false),
        (json!({ "onConditions": ["OOMKilled"] }), of(&[well()]), false),
        (json!({ "onConditions": ["OOMKilled"] }), said("OOMKilled", ""), false),
        (json!({ "onConditions": ["OOMKilled", "Evicted"] }), said("Evicted", ""), true),
        (json!({ "onConditions": ["DeadlineExceeded"] }), said("DeadlineExceeded", ""), true),
        (json!({ "onConditions": ["DeadlineExceeded"] }), said("Evicted", ""), false),
        (json!({ "onExitCodes": { "operator": "In", "values": [3, 137] } }), of(&[oom()]), true),
        (json!({ "onExitCodes": { "operator": "In", "values": [0, 3] } }), of(&[oom(), well()]), false),
        (json!({ "onExitCodes": { "operator": "NotIn", "values": [3] } }), of(&[oom()]), true),
        (json!({ "onExitCodes": { "operator": "NotIn", "values": [3] } }), of(&[well()]), false),
        (json!({ "onTerminationMessage": { "pattern": "(?i)CUDA" } }), of(&[container("m", 1, "", "a cuda")]), true),
        (json!({ "onTerminationMessage": { "pattern": "(?i)CUDA" } }), of(&[well()]), false),
        (json!({ "onTerminationMessage": { "pattern": ".*" } }), of(&[oom()]), false),
        (json!({ "onPodError": { "pattern": "no match for platform" } }), said("", "no match for platform in"), true),
        (json!({ "onPodError": { "pattern": ".*" } }), said("", ""), false),
    ] {
        let expected = if fits { "kind" } else { "other" };
        assert_eq!(named(&rule, &report, &[]), expected, "{rule} {report:?}");
    }
    let event = PodEvent { reason: "UnexpectedAdmissionError".to_owned(), message: "no device".to_owned() };
    for (changes, fits) in [
        (json!({}), true),
        (json!({ "reason": "UnexpectedAdmissionError" }), true),
        (json!({ "reason": "Unexpected" }), false),
        (json!({ "regexp": "disk" }), false),
    ] {
        let mut matcher = json!({ "regexp": "device", "type": "Warning" });
        matcher.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let rule = json!({ "onPodEvents": matcher });
        let found = named(&rule, &RunReport::default(), std::slice::from_ref(&event));
        assert_eq!(found, if fits { "kind" } else { "other" }, "{rule}");
    }
}

#[test]
fn the_first_rule_that_fits_counts() {
    let all = json!([
        { "name": "infrastructure", "action": "Delete", "rules": [
            { "onConditions": ["Evicted"], "subcategory": "eviction" },
            { "onExitCodes": { "operator": "In", "values": [137] }, "subcategory": "killed", "hint": "Ask for more." } ] },
        { "name": "user", "rules": [{ "onExitCodes": { "operator": "NotIn", "values": [1000] } }] },
    ]);
    let categories = categories(all).unwrap();
    let of = |exit_code| {
        let report = RunReport { containers: vec![container("m", exit_code, "", "")], ..RunReport::default() };
        categories.of(&report, &[])
    };
    let named = |category: &str, subcategory: &str, hint: &str, action| Named {
        category: category.to_owned(),
        subcategory: subcategory.to_owned(),
        hint: hint.to_owned(),
        action,
    };
    assert_eq!(of(137), named("infrastructure", "killed", "Ask for more.", PodAction::Delete));
    assert_eq!(of(1), named("user", "", "", PodAction::Retain));
    assert_eq!(of(0), named("other", "unknown", "", PodAction::Retain));
    let ours = RunReport { reason: "StuckTerminating".to_owned(), ..RunReport::default() };
    assert_eq!(categories.of(&ours, &[]), named("internal", "stuck-terminating", "", PodAction::Retain));
    assert_eq!(Categories::default().of(&ours, &[]).category, "internal", "it needs no rules");
    assert_eq!(Categories::default().of(&RunReport::default(), &[]), Named::default());
}

#[test]
fn rules_that_are_not_enabled_name_nothing() {
    let settings = json!({ "enabled": false, "defaultCategory": "other",
        "categories": [{ "name": "a", "rules": [{ "onExitCodes": { "operator": "NotIn", "values": [0] } }] }] });
    let categories = Categories::new(&serde_json::from_value(settings).unwrap()).unwrap();
    let report = RunReport { containers: vec![container("m", 1, "", "")], ..RunReport::default() };
    assert_eq!(categories.of(&report, &[]), Named::default());
}

#[test]
fn what_can_not_be_used_is_named() {
    let rule = |rule: Value| json!([{ "name": "a", "rules": [rule] }]);
    let codes = json!({ "operator": "In", "values": [1] });
    for (given, told) in [
        (json!([{ "name": "", "rules": [] }]), "the name \"\" is empty"),
        (json!([{ "name": "x".repeat(64), "rules": [] }]), "longer than 63 bytes"),
        (json!([{ "name": "a", "rules": [] }]), "the category a has no rules"),
        (
            json!([{ "name": "a", "rules": [{ "onExitCodes": codes }] }, { "name": "a", "rules": [{ "onExitCodes": codes }] }]),
            "the name \"a\" is empty, given twice",
        ),
        (rule(json!({})), "rule 0 of the category a has 0 matchers"),
        (rule(json!({ "onExitCodes": codes, "onConditions": ["Evicted"] })), "rule 0 of the category a has 2 matchers"),
        (
            rule(json!({ "onExitCodes": { "operator": "In", "values": [] } })),
            "rule 0 of the category a has no exit codes",
        ),
        (rule(json!({ "onExitCodes": { "operator": "Any", "values": [1] } })), "unknown variant `Any`"),
        (rule(json!({ "onConditions": ["Tired"] })), "unknown variant `Tired`"),
        (rule(json!({ "onPodError": { "pattern": "(" } })), "a pattern of the category a is none"),
        (rule(json!({ "onPodEvents": { "regexp": "a", "type": "Normal" } })), "unknown variant `Normal`"),
        (json!([{ "name": "a", "action": "Burn", "rules": [] }]), "unknown variant `Burn`"),
    ] {
        let error = categories(given.clone()).expect_err("refused");
        assert!(error.contains(told), "{given}: {error}");
    }
}

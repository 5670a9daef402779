//! HyperNodes: one case for each rule.

use super::cluster::typed;
use pumice_admission::{Findings, hyper_node};
use serde_json::{Value, json};

fn judged(members: Value) -> Findings {
    let mut findings = Findings::default();
    let hyper_node = json!({ "metadata": { "name": "h" }, "spec": { "tier": 1, "members": members } });
    hyper_node::validate(&typed(&hyper_node), &mut findings);
    findings
}

#[test]
fn members_can_be_found() {
    let member = |selector: Value| json!([{ "type": "Node", "selector": selector }]);
    let exact = json!({ "name": "n1" });
    let regex = |pattern: &str| json!({ "regexMatch": { "pattern": pattern } });
    let cases = [
        (member(json!({ "exactMatch": exact })), None),
        (member(regex("^node-[0-9]+$")), None),
        (member(json!({ "labelMatch": { "matchLabels": { "rack": "a" } } })), None),
        (json!([{ "type": "HyperNode", "selector": { "exactMatch": exact } }]), None),
        (json!([]), Some("spec.members: Required value: at least one member is required")),
        (
            member(json!({})),
            Some(
                "spec.members[0].selector: Invalid value: \"object\": Either ExactMatch or RegexMatch or LabelMatch must be specified",
            ),
        ),
        (
            member(json!({ "exactMatch": exact, "regexMatch": { "pattern": "x" } })),
            Some(
                "spec.members[0].selector: Invalid value: \"object\": Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
            ),
        ),
        (
            member(json!({ "exactMatch": { "name": "N 1" } })),
            Some("selector.exactMatch.name: Invalid value: \"N 1\": member exactMatch validate failed ["),
        ),
        (member(json!({ "exactMatch": {} })), Some("member exactMatch validate failed [")),
        (
            member(regex("a(b")),
            Some(
                "spec.members[0].selector.regexMatch.pattern: Invalid value: \"a(b\": member regexMatch pattern is invalid: error parsing regexp: unclosed group",
            ),
        ),
        (member(regex("")), Some("member regexMatch pattern is required")),
        (member(regex("(?!a)")), Some("member regexMatch pattern is invalid: ")),
        (member(regex("(((a{99}){99}){99}){99}")), Some("member regexMatch pattern is invalid: ")),
        (
            member(json!({ "labelMatch": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } })),
            Some("member labelMatch is invalid: "),
        ),
        (
            json!([{ "selector": { "exactMatch": exact } }]),
            Some("spec.members[0].type: Invalid value: \"\": unknown member type "),
        ),
        (
            json!([{ "type": "Pod", "selector": { "exactMatch": exact } }]),
            Some("spec.members[0].type: Invalid value: \"Pod\": unknown member type Pod"),
        ),
    ];
    for (members, wanted) in cases {
        let found = judged(members.clone()).refusal();
        assert_eq!(found.is_some(), wanted.is_some(), "{members}: {found:?}");
        let found = found.unwrap_or_default();
        assert!(wanted.is_none_or(|wanted| found.contains(wanted)), "{members}: {found}");
    }
}

#[test]
fn labels_select_nodes() {
    let members = json!([{ "type": "HyperNode", "selector": { "labelMatch": { "matchLabels": { "a": "b" } } } }]);
    let findings = judged(members);
    assert_eq!((findings.refusal(), findings.warnings.len()), (None, 1));
}

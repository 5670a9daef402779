//! JobFlows: one case for each rule.

use super::cluster::typed;
use pumice_admission::{Findings, job_flow};
use serde_json::{Value, json};

fn judge(flows: Value) -> Findings {
    let mut findings = Findings::default();
    job_flow::validate(&typed(&json!({ "metadata": { "name": "f" }, "spec": { "flows": flows } })), &mut findings);
    findings
}

#[test]
fn targets_are_in_the_flow_and_never_come_back() {
    let on = |name: &str, targets: &[&str]| json!({ "name": name, "dependsOn": { "targets": targets } });
    let cases = [
        (json!([]), None),
        (json!([on("a", &[]), on("b", &["a"]), on("c", &["a", "b"])]), None),
        (json!([on("b", &["a"]), on("a", &[])]), None),
        (json!([on("a", &["x"])]), Some("jobflow Flow is not DAG: vertex is not defined: x")),
        (json!([on("a", &["a"])]), Some("jobflow Flow is not DAG")),
        (json!([on("a", &["b"]), on("b", &["a"])]), Some("jobflow Flow is not DAG")),
    ];
    for (flows, refusal) in cases {
        assert_eq!(judge(flows.clone()).refusal().as_deref(), refusal, "{flows}");
    }
}

#[test]
fn what_is_not_looked_at_is_told() {
    let twice = judge(json!([{ "name": "a" }, { "name": "a" }]));
    assert_eq!(twice.warnings, ["flow a is there twice: the first counts"]);
    let probe = json!({ "tcpSocketList": [{ "taskName": "t", "port": 80 }] });
    let probed = judge(json!([{ "name": "a" }, { "name": "b", "dependsOn": { "targets": ["a"], "probe": probe } }]));
    assert!(probed.refusals.is_empty() && probed.warnings.len() == 1, "{probed:?}");
}

#[test]
fn retries_are_of_flows_and_numbers() {
    let judge = |text: &str| {
        let flow = json!({
            "metadata": { "name": "f", "annotations": { "pumice.sh/flow-retries": text } },
            "spec": { "flows": [{ "name": "a" }, { "name": "b" }] },
        });
        let mut findings = Findings::default();
        job_flow::validate(&typed(&flow), &mut findings);
        findings.refusals.len()
    };
    for (text, refusals) in [("a=3", 0), ("a=0, b=10", 0), ("c=1", 1), ("a=11", 1), ("a", 1), ("a=x,b=-1", 2), ("", 1)]
    {
        assert_eq!(judge(text), refusals, "{text:?}");
    }
}

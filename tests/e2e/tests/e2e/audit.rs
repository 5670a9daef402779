//! `pumice up --audit-log`: who did what, from the real programs.

use std::os::unix::fs::PermissionsExt;

use pumice_testkit::{Platform, Setup, binary, eventually};
use serde_json::Value;

#[test]
fn who_did_what_is_in_the_audit_log() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("audit.log");
    let flags = ["--local-node=false".to_owned(), format!("--audit-log={}", file.display())];
    let mut platform = Platform::start(Setup { flags: flags.to_vec() });
    platform.kubectl(["create", "configmap", "a", "--from-literal=password=hunter2"]).ok();
    platform.kubectl(["delete", "configmap", "a", "--as", "ann"]);
    platform.kubectl(["get", "configmap", "a"]).ok();
    assert_eq!(platform.stop(), 0);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ours = |event: &&Value| event["objectRef"]["resource"] == "configmaps" && event["objectRef"]["name"] == "a";
    let ours: Vec<&Value> = events.iter().filter(ours).collect();
    assert_eq!(ours.len(), 2, "{ours:#?}");
    assert_eq!((&ours[0]["verb"], &ours[0]["responseStatus"]["code"]), (&"create".into(), &201.into()));
    assert_eq!(ours[0]["user"]["username"], "pumice:administrator");
    assert_eq!(ours[0]["sourceIPs"], serde_json::json!(["127.0.0.1"]));
    assert!(ours[0]["userAgent"].as_str().unwrap().starts_with("kubectl/"), "{}", ours[0]);
    assert_eq!((&ours[1]["verb"], &ours[1]["responseStatus"]["code"]), (&"delete".into(), &403.into()));
    assert_eq!(ours[1]["impersonatedUser"]["username"], "ann");
    // What the components do is told, too.
    let scheduler = events.iter().any(|event| event["user"]["username"] == "system:pumice:scheduler");
    assert!(scheduler, "{text}");
}

#[test]
fn a_policy_of_ones_own_decides_and_a_wrong_one_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (file, policy) = (directory.path().join("audit.log"), directory.path().join("policy.yaml"));
    let rules = "[{level: Metadata, verbs: [get], resources: [{group: '', resources: [secrets]}]}, {level: None}]";
    std::fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: {rules}\n")).unwrap();
    let flags = |policy: &std::path::Path| {
        ["--local-node=false".to_owned(), format!("--audit-log={}", file.display())]
            .into_iter()
            .chain([format!("--audit-policy-file={}", policy.display())])
            .collect::<Vec<_>>()
    };
    let platform = Platform::start(Setup { flags: flags(&policy) });
    platform.kubectl(["create", "secret", "generic", "s"]).ok();
    platform.kubectl(["get", "secret", "s"]).ok();
    eventually("the read is told, and nothing else", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        if lines.len() == 1 && lines[0].contains("\"verb\":\"get\"") { Ok(()) } else { Err(text) }
    });
    let wrong = directory.path().join("wrong.yaml");
    std::fs::write(&wrong, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n").unwrap();
    let other = directory.path().join("other");
    let args = ["up", "--port=0", "--data-dir", other.to_str().unwrap()].map(str::to_owned).to_vec();
    let refused = platform.run(&binary("pumice"), [args, flags(&wrong)].concat(), None);
    assert!(refused.code != 0 && refused.stderr.contains("bodies are never written"), "{refused:?}");
    assert!(refused.stderr.contains("wrong.yaml"), "names the file: {refused:?}");
}

//! Retry policies in process, over a log in SQLite.

use std::sync::Arc;

use pumice_ledger::RetryPolicies;
use pumice_wire::api::retry_policy_service_server::RetryPolicyService;
use pumice_wire::api::submit_server::Submit;
use serde_json::{Value, json};
use tonic::Code;

use super::*;
use crate::api::tests::{by, code, home, queue, who};

fn policy(name: &str, rule: Value) -> Value {
    let mut full = json!({ "action": "RETRY_ACTION_RETRY", "onCategory": "oom" });
    full.as_object_mut().expect("object").extend(rule.as_object().expect("object").clone());
    json!({ "name": name, "retryLimit": 2, "defaultAction": "RETRY_ACTION_FAIL", "rules": [full] })
}

fn memory(bump: Value) -> Value {
    json!({ "mutate": { "resources": { "memory": bump } } })
}

#[test]
fn a_policy_comes_back_as_it_was_given() {
    for rule in [
        json!({}),
        json!({ "onSubcategory": "kernel", "mutate": { "affinity": { "avoidSameNode": true } } }),
        memory(json!({ "static": "512Mi" })),
        memory(json!({ "factor": 1.5 })),
    ] {
        let given = policy("a", rule);
        let read = from_wire(serde_json::from_value(given.clone()).expect("a policy")).expect("it is one");
        assert_eq!(serde_json::to_value(to_wire(&read)).expect("JSON"), given);
    }
}

#[test]
fn what_can_not_be_is_refused_by_its_field() {
    let bump = |bump: Value| policy("a", memory(bump));
    for (given, wanted) in [
        (policy("A", json!({})), "policy: name: \"A\" is none"),
        (policy("a", json!({ "onCategory": "" })), "policy: rules[0].onCategory: it is missing"),
        (policy("a", json!({ "action": "RETRY_ACTION_UNSPECIFIED" })), "rules[0].action: it is neither"),
        (json!({ "name": "a" }), "defaultAction: it is neither"),
        (policy("a", json!({ "onSubcategory": "x".repeat(TEXT_BYTES_MAX) })), "policy: it has"),
        (bump(json!({})), "rules[0].mutate.resources.memory: set one of static and factor"),
        (bump(json!({ "static": "1Gi", "factor": 2.0 })), "rules[0].mutate.resources.memory: set one of"),
        (bump(json!({ "static": "much" })), "rules[0].mutate.resources.memory: quantities must"),
        (bump(json!({ "static": "-1Gi" })), "rules[0].mutate.resources.memory: static: -1Gi adds nothing"),
        (bump(json!({ "factor": 0.5 })), "rules[0].mutate.resources.memory: factor: 0.5 is not above 1"),
        (bump(json!({ "factor": "Infinity" })), "rules[0].mutate.resources.memory: factor: inf is not above 1"),
    ] {
        let error = from_wire(serde_json::from_value(given).expect("a policy")).expect_err("refused").to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}

#[tokio::test]
async fn a_policy_is_there_as_long_as_a_queue_names_it() {
    let configured = json!({ "policies": [{ "name": "fixed", "retryLimit": 1, "defaultAction": "Fail" }],
        "defaultPolicyName": "usual" });
    let configured: RetryPolicies = serde_json::from_value(configured).unwrap();
    let home = home().await;
    let api = home.api.clone().with_policies(Arc::new(configured));
    let (admin, ada) = queue(&api).await;
    let one = || policy("often", memory(json!({ "factor": 2.0 })));
    let named = |name: &str| json!({ "name": name });
    let uses = |name: &str| json!({ "name": "r", "priorityFactor": 1, "retryPolicies": [name] });

    assert_eq!(code(api.create_retry_policy(by(&ada, one())).await), Code::PermissionDenied);
    assert_eq!(code(api.update_retry_policy(by(&admin, one())).await), Code::NotFound);
    assert_eq!(code(api.delete_retry_policy(by(&admin, named("often"))).await), Code::NotFound);
    assert_eq!(code(api.get_retry_policy(by(&ada, named("often"))).await), Code::NotFound);
    assert_eq!(code(Submit::create_queue(&api, by(&admin, uses("often"))).await), Code::NotFound);
    api.create_retry_policy(by(&admin, one())).await.unwrap();
    assert_eq!(code(api.create_retry_policy(by(&admin, one())).await), Code::AlreadyExists);
    Submit::create_queue(&api, by(&admin, uses("often"))).await.unwrap();
    assert_eq!(code(Submit::update_queue(&api, by(&admin, uses("other"))).await), Code::NotFound);

    let mut changed = one();
    changed["retryLimit"] = json!(9);
    assert_eq!(code(api.update_retry_policy(by(&ada, changed.clone())).await), Code::PermissionDenied);
    api.update_retry_policy(by(&admin, changed.clone())).await.unwrap();
    let read = api.get_retry_policy(by(&ada, named("often"))).await.unwrap().into_inner();
    assert_eq!(serde_json::to_value(read).unwrap(), changed);
    let list = api.get_retry_policies(by(&ada, json!({}))).await.unwrap().into_inner();
    let names: Vec<&str> = list.retry_policies.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(names, ["fixed", "often"]);

    // What the configuration says is changed there.
    for name in ["fixed", "usual"] {
        assert_eq!(code(api.delete_retry_policy(by(&admin, named(name))).await), Code::FailedPrecondition);
    }
    assert_eq!(code(api.create_retry_policy(by(&admin, policy("fixed", json!({})))).await), Code::FailedPrecondition);

    let refused = api.delete_retry_policy(by(&admin, named("often"))).await.expect_err("in use");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let told = "the queue r names the retry policy often: take it out of the queue's retryPolicies before";
    assert_eq!(refused.message(), told);
    Submit::update_queue(&api, by(&admin, uses("fixed"))).await.unwrap();
    let robot = who("robot", &[Permission::CreateQueue]);
    assert_eq!(code(api.delete_retry_policy(by(&robot, named("often"))).await), Code::PermissionDenied);
    api.delete_retry_policy(by(&admin, named("often"))).await.unwrap();
    let list = api.get_retry_policies(by(&ada, json!({}))).await.unwrap().into_inner();
    assert_eq!(list.retry_policies.len(), 1);
}

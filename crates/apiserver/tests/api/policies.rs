//! ValidatingAdmissionPolicies and their bindings.

use serde_json::{Value, json};

use crate::harness::{MAPS, Server, config_map, pod, server};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// A policy about ConfigMaps with this in its specification.
fn policy(name: &str, spec: &Value) -> Value {
    let mut whole = json!({
        "matchConstraints": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"] }] },
    });
    for (field, value) in spec.as_object().expect("fields") {
        whole[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name }, "spec": whole,
    })
}

fn binding(name: &str, policy: &str, spec: &Value) -> Value {
    let mut whole = json!({ "policyName": policy, "validationActions": ["Deny"] });
    for (field, value) in spec.as_object().expect("fields") {
        whole[field] = value.clone();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name }, "spec": whole,
    })
}

async fn in_force(spec: &Value, bound: &Value) -> Server {
    let server = server().await;
    server.post(POLICIES, &policy("p", spec)).await.is(201);
    server.post(BINDINGS, &binding("b", "p", bound)).await.is(201);
    server
}

#[tokio::test]
async fn a_policy_is_in_force_once_bound() {
    let server = server().await;
    let spec = json!({ "validations": [{ "expression": "object.data.a == 'x'", "message": "a must be x" }] });
    let made = server.post(POLICIES, &policy("p", &spec)).await.is(201).body;
    assert_eq!(made["spec"]["failurePolicy"], "Fail");
    server.post(MAPS, &config_map("free")).await.is(201);
    server.post(BINDINGS, &binding("b", "p", &json!({}))).await.is(201);
    let refused = server.post(MAPS, &config_map("bound")).await.is(422);
    assert_eq!(
        refused.message(),
        "configmaps \"bound\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: a must be x"
    );
    assert_eq!(refused.body["reason"], "Invalid");
    let mut right = config_map("bound");
    right["data"]["a"] = json!("x");
    server.post(MAPS, &right).await.is(201);
    server.merge(&format!("{MAPS}/bound"), &json!({ "data": { "a": "y" } })).await.is(422);
    server.post("/api/v1/namespaces/default/pods", &pod("other")).await.is(201);
    server.delete(&format!("{BINDINGS}/b"), &Value::Null).await.is(200);
    server.merge(&format!("{MAPS}/bound"), &json!({ "data": { "a": "y" } })).await.is(200);
}

#[tokio::test]
async fn expressions_see_the_request() {
    for (expression, create, delete) in [
        ("request.operation != 'DELETE'", true, false),
        ("request.operation == 'DELETE' ? oldObject.data.a == '1' : oldObject == null", true, true),
        ("object == null || object.metadata.name.startsWith('x')", true, true),
        ("request.namespace == 'default' && request.userInfo.username == 'admin'", true, true),
        ("request.resource.resource == 'configmaps' && request.kind.kind == 'ConfigMap'", true, true),
        ("namespaceObject.metadata.name == 'default'", true, true),
        ("authorizer.group('').resource('pods').namespace('default').check('delete').allowed()", true, true),
        ("authorizer.requestResource.check('get').allowed()", true, true),
        ("authorizer.serviceAccount('default', 'default').path('/metrics').check('get').allowed()", false, true),
        ("variables.half * 2 == variables.whole", true, true),
        ("variables.whole > 10", false, true),
        ("has(object.data) && 'a' in object.data", true, false),
    ] {
        let variables = json!([
            { "name": "whole", "expression": "object == null ? 20 : size(object.data) * 2" },
            { "name": "half", "expression": "variables.whole / 2" },
        ]);
        let spec = json!({ "variables": variables, "validations": [{ "expression": expression }] });
        let server = in_force(&spec, &json!({})).await;
        let made = server.post(MAPS, &config_map("x")).await;
        assert_eq!(made.code.is_success(), create, "{expression}: {}", made.text);
        if !create {
            continue;
        }
        let deleted = server.delete(&format!("{MAPS}/x"), &Value::Null).await;
        assert_eq!(deleted.code.is_success(), delete, "{expression}: {}", deleted.text);
    }
}

#[tokio::test]
async fn messages_reasons_and_actions_are_those_of_the_policy() {
    let validation = json!({
        "expression": "object.data.a == 'x'", "message": "m", "messageExpression": "'got ' + object.data.a",
        "reason": "Forbidden" });
    let server = in_force(&json!({ "validations": [validation] }), &json!({})).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(403);
    assert!(refused.message().ends_with("denied request: got 1"), "{}", refused.message());

    let server =
        in_force(&json!({ "validations": [validation] }), &json!({ "validationActions": ["Warn", "Audit"] })).await;
    let made = server.post(MAPS, &config_map("c")).await.is(201);
    let wanted = "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': got 1\"";
    assert_eq!(made.warnings, [wanted]);

    let server = in_force(&json!({ "validations": [{ "expression": "object.data.a == 'x'" }] }), &json!({})).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(422);
    assert!(refused.message().ends_with("failed expression: object.data.a == 'x'"), "{}", refused.message());
}

#[tokio::test]
async fn what_cannot_be_judged_counts_as_the_failure_policy() {
    let broken = json!([{ "expression": "object.data.none == 'x'" }]);
    let server = in_force(&json!({ "validations": broken }), &json!({})).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(422);
    assert!(refused.message().contains("resulted in error: no such key: none"), "{}", refused.message());
    let server = in_force(&json!({ "validations": broken, "failurePolicy": "Ignore" }), &json!({})).await;
    server.post(MAPS, &config_map("c")).await.is(201);
    let costly = json!([{ "expression": "lists.range(100000).all(a, lists.range(100000).all(b, a + b >= 0))" }]);
    let server = in_force(&json!({ "validations": costly }), &json!({})).await;
    let refused = server.post(MAPS, &config_map("c")).await.is(422);
    assert!(refused.message().contains("cost limit exceeded"), "{}", refused.message());
}

#[tokio::test]
async fn conditions_selectors_and_exclusions_narrow_it() {
    let never = json!([{ "expression": "false" }]);
    let rule = json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] });
    let mut named = rule.clone();
    named["resourceNames"] = json!(["c"]);
    for (spec, bound) in [
        (json!({ "matchConditions": [{ "name": "n", "expression": "object.metadata.name != 'c'" }] }), json!({})),
        (json!({ "matchConstraints": { "resourceRules": [rule], "excludeResourceRules": [named] } }), json!({})),
        (
            json!({ "matchConstraints": { "resourceRules": [rule], "objectSelector": { "matchLabels": { "a": "b" } } } }),
            json!({}),
        ),
        (
            json!({ "matchConstraints": { "resourceRules": [rule], "namespaceSelector": { "matchLabels": { "a": "b" } } } }),
            json!({}),
        ),
        (json!({}), json!({ "matchResources": { "objectSelector": { "matchLabels": { "a": "b" } } } })),
        (
            json!({}),
            json!({ "matchResources": { "resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"] }] } }),
        ),
        (json!({}), json!({ "policyName": "another" })),
    ] {
        let mut spec = spec;
        spec["validations"] = never.clone();
        let server = in_force(&spec, &bound).await;
        let made = server.post(MAPS, &config_map("c")).await;
        assert!(made.code.is_success(), "{spec} {bound}: {}", made.text);
    }
}

#[tokio::test]
async fn parameters_are_found_by_name_and_by_label() {
    let spec = json!({
        "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" },
        "matchConditions": [{ "name": "no-limits", "expression": "!object.metadata.name.startsWith('limit')" }],
        "validations": [{
            "expression": "size(object.data) <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most" }],
    });
    let limit = |name: &str, most: &str| {
        let mut map = config_map(name);
        map["data"] = json!({ "most": most });
        map["metadata"]["labels"] = json!({ "limits": "maps" });
        map
    };
    let server = server().await;
    server.post(MAPS, &limit("limit", "0")).await.is(201);
    server.post(POLICIES, &policy("p", &spec)).await.is(201);
    let by_name = json!({ "paramRef": { "name": "limit", "parameterNotFoundAction": "Deny" } });
    server.post(BINDINGS, &binding("b", "p", &by_name)).await.is(201);
    let refused = server.post(MAPS, &config_map("c")).await.is(422);
    assert!(refused.message().ends_with("at most 0"), "{}", refused.message());
    server.merge(&format!("{MAPS}/limit"), &json!({ "data": { "most": "5" } })).await.is(200);
    server.post(MAPS, &config_map("c")).await.is(201);
    let by_label = json!({ "paramRef": { "selector": { "matchLabels": { "limits": "maps" } }, "parameterNotFoundAction": "Deny" } });
    server.post(BINDINGS, &binding("c", "p", &by_label)).await.is(201);
    server.post(MAPS, &limit("limit-two", "0")).await.is(201);
    server.post(MAPS, &config_map("d")).await.is(422);
    server.delete(&format!("{BINDINGS}/c"), &Value::Null).await.is(200);
    server.delete(&format!("{BINDINGS}/b"), &Value::Null).await.is(200);
    let absent = |action: &str| json!({ "paramRef": { "name": "none", "parameterNotFoundAction": action } });
    server.post(BINDINGS, &binding("e", "p", &absent("Allow"))).await.is(201);
    server.post(MAPS, &config_map("e")).await.is(201);
    server.post(BINDINGS, &binding("f", "p", &absent("Deny"))).await.is(201);
    let refused = server.post(MAPS, &config_map("f")).await.is(422);
    assert!(refused.message().contains("no params found"), "{}", refused.message());
}

#[tokio::test]
async fn mistakes_are_refused() {
    let server = server().await;
    let good = json!([{ "expression": "true" }]);
    for (spec, wanted) in [
        (json!({}), "spec.validations: Required value"),
        (json!({ "validations": [{ "expression": "object.a ==" }] }), "spec.validations[0].expression: Invalid value"),
        (json!({ "validations": [{ "expression": "nothing.a" }] }), "undeclared reference to 'nothing'"),
        (json!({ "validations": [{ "expression": "params.a" }] }), "undeclared reference to 'params'"),
        (json!({ "validations": [{ "expression": "variables.a" }] }), "undefined field 'a'"),
        (json!({ "validations": good, "failurePolicy": "Never" }), "spec.failurePolicy: Unsupported value"),
        (json!({ "validations": [{ "expression": "true", "reason": "Odd" }] }), "reason: Unsupported value"),
        (
            json!({ "validations": good, "variables": [{ "name": "a-b", "expression": "1" }] }),
            "not a valid CEL identifier",
        ),
        (
            json!({ "validations": good, "matchConditions": [{ "name": "", "expression": "1" }] }),
            "matchConditions[0].name",
        ),
        (json!({ "validations": good, "matchConstraints": {} }), "spec.matchConstraints.resourceRules: Required value"),
    ] {
        let refused = server.post(POLICIES, &policy("p", &spec)).await.is(422);
        assert!(refused.message().contains(wanted), "{spec}: {}", refused.message());
    }
    for (spec, wanted) in [
        (json!({ "validationActions": ["Deny", "Warn"] }), "must not contain both Deny and Warn"),
        (json!({ "validationActions": ["Shout"] }), "Unsupported value"),
        (json!({ "paramRef": { "name": "a" } }), "parameterNotFoundAction: Required value"),
        (json!({ "paramRef": { "parameterNotFoundAction": "Deny" } }), "one of name or selector"),
    ] {
        let refused = server.post(BINDINGS, &binding("b", "p", &spec)).await.is(422);
        assert!(refused.message().contains(wanted), "{spec}: {}", refused.message());
    }
}

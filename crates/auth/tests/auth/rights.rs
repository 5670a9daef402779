//! The traps of role-based rights, one line each.

use std::sync::Arc;

use pumice_auth::{Attributes, Decision, Grant, Identity, Policy, Role, Rule, Scope, Subject, Target};

/// `verb group/resource[/subresource] [namespace|-] [name]`, or `verb /path`.
fn parse(request: &str) -> Attributes<'_> {
    let mut words = request.split(' ');
    let verb = words.next().unwrap();
    let what = words.next().unwrap();
    if what.starts_with('/') {
        return Attributes { verb, target: Target::Path(what) };
    }
    let mut parts = what.split(':');
    let group = parts.next().unwrap();
    let resource = parts.next().unwrap();
    let subresource = parts.next();
    let namespace = words.next().filter(|word| *word != "-");
    let name = words.next();
    Attributes { verb, target: Target::Resource { group, resource, subresource, namespace, name } }
}

fn list(text: &str) -> Vec<String> {
    text.split(',').filter(|item| !item.is_empty()).map(|item| item.trim_matches('\'').to_owned()).collect()
}

fn resource_rule(verbs: &str, groups: &str, resources: &str, names: &str) -> Rule {
    Rule {
        verbs: list(verbs),
        api_groups: list(groups),
        resources: list(resources),
        resource_names: list(names),
        ..Rule::default()
    }
}

fn path_rule(verbs: &str, paths: &str) -> Rule {
    Rule { verbs: list(verbs), non_resource_urls: list(paths), ..Rule::default() }
}

fn policy(rule: Rule, scope: Scope) -> Policy {
    let role = Arc::new(Role { name: "tested".to_owned(), rules: vec![rule] });
    Policy::new(vec![Grant { subject: Subject::User("ann".to_owned()), role, scope }])
}

fn check(rule: Rule, scope: Scope, allowed: &[&str], denied: &[&str]) {
    let policy = policy(rule.clone(), scope.clone());
    for (requests, expected) in [(allowed, true), (denied, false)] {
        for request in requests {
            let decision = policy.decide(&Identity::new("ann", ["team"]), &parse(request));
            assert_eq!(decision.is_allowed(), expected, "{request} by {rule:?} in {scope:?}");
            let stranger = policy.decide(&Identity::new("bob", ["ann"]), &parse(request));
            assert!(!stranger.is_allowed(), "a stranger may {request}");
        }
    }
}

#[test]
fn a_resource_is_not_its_subresources() {
    check(
        resource_rule("get", "''", "pods", ""),
        Scope::Cluster,
        &["get :pods a x", "get :pods b y"],
        &["get :pods:log a x", "get :pods:status a x", "list :pods a", "get apps:pods a x", "get :nodes - x"],
    );
    check(
        resource_rule("get", "''", "pods/log", ""),
        Scope::Cluster,
        &["get :pods:log a x"],
        &["get :pods a x", "get :pods:status a x", "get :jobs:log a x"],
    );
}

#[test]
fn star_slash_is_a_pattern_and_slash_star_is_not() {
    check(
        resource_rule("update", "*", "*/status", ""),
        Scope::Cluster,
        &["update :pods:status a x", "update batch.volcano.sh:jobs:status a x"],
        &["update :pods a x", "update :pods:scale a x"],
    );
    check(resource_rule("get", "''", "pods/*", ""), Scope::Cluster, &[], &["get :pods a x", "get :pods:log a x"]);
    check(
        resource_rule("get", "*", "*", ""),
        Scope::Cluster,
        &["get :pods a x", "get :pods:log a x", "get any.group:things:part - x"],
        &["get /healthz", "list :pods a"],
    );
}

#[test]
fn names_never_match_what_has_no_name() {
    check(
        resource_rule("*", "''", "configmaps", "settings"),
        Scope::Cluster,
        &["get :configmaps a settings", "delete :configmaps a settings", "list :configmaps a settings"],
        &["create :configmaps a", "list :configmaps a", "deletecollection :configmaps a", "get :configmaps a other"],
    );
}

#[test]
fn verbs_match_whole() {
    check(
        resource_rule("delete", "''", "pods", ""),
        Scope::Cluster,
        &["delete :pods a x"],
        &["deletecollection :pods a", "DELETE :pods a x", "* :pods a x"],
    );
    check(resource_rule("", "''", "pods", ""), Scope::Cluster, &[], &["get :pods a x"]);
    check(resource_rule("get", "", "pods", ""), Scope::Cluster, &[], &["get :pods a x"]);
}

#[test]
fn a_namespaced_grant_ends_at_its_namespace() {
    let here = || Scope::Namespace("here".to_owned());
    check(
        resource_rule("*", "*", "*", ""),
        here(),
        &["get :pods here x", "list :pods here", "create :pods here"],
        &["get :pods there x", "list :pods -", "list :nodes -", "get :nodes - x"],
    );
    check(path_rule("*", "*"), here(), &[], &["get /healthz", "get /"]);
}

#[test]
fn paths_match_whole_or_by_a_star_at_the_end() {
    check(
        path_rule("get", "/healthz,/apis/*,/logs*"),
        Scope::Cluster,
        &["get /healthz", "get /apis/", "get /apis/batch/v1", "get /logs", "get /logsfile"],
        &["get /healthz/", "get /apis", "post /healthz", "get /", "get :pods a x"],
    );
    check(path_rule("*", "*"), Scope::Cluster, &["get /", "post /anything"], &["get :pods a x"]);
    check(path_rule("get", "/*/x"), Scope::Cluster, &[], &["get /a/x"]);
    check(path_rule("get", "/a/*/x"), Scope::Cluster, &["get /a/*/x"], &["get /a/b/x"]);
}

#[test]
fn groups_service_accounts_and_masters() {
    let role = Arc::new(Role { name: "reader".to_owned(), rules: vec![resource_rule("get", "''", "pods", "")] });
    let grant = |subject| Grant { subject, role: role.clone(), scope: Scope::Cluster };
    let team = Policy::new(vec![grant(Subject::Group("team".to_owned()))]);
    let request = parse("get :pods a x");
    let allowed = |policy: &Policy, identity: &Identity| policy.decide(identity, &request).is_allowed();
    assert!(allowed(&team, &Identity::new("ann", ["team"])));
    assert!(!allowed(&team, &Identity::new("team", ["other"])));

    let account = Identity::new("system:serviceaccount:ns:robot", ["system:serviceaccounts"]);
    assert!(!allowed(&team, &account));
    assert!(allowed(&team.with([grant(Subject::service_account("ns", "robot"))]), &account));

    let root = Identity::new("admin", ["system:masters"]);
    for request in ["delete any:thing - x", "post /anything"] {
        let by = Policy::default().decide(&root, &parse(request));
        assert_eq!(by, Decision::Allow { by: "group system:masters".to_owned() });
    }
    let by = team.decide(&Identity::new("ann", ["team"]), &request);
    assert_eq!(by, Decision::Allow { by: "role reader".to_owned() });
}

#[test]
fn refusals_read_as_upstream() {
    let cases = [
        ("list :pods default", r#"User "ann" cannot list resource "pods" in API group "" in the namespace "default""#),
        ("list :pods -", r#"User "ann" cannot list resource "pods" in API group "" at the cluster scope"#),
        (
            "update batch.volcano.sh:jobs:status a x",
            r#"User "ann" cannot update resource "jobs/status" in API group "batch.volcano.sh" in the namespace "a""#,
        ),
        ("get /metrics", r#"User "ann" cannot get path "/metrics""#),
    ];
    for (request, expected) in cases {
        let decision = Policy::default().decide(&Identity::new("ann", ["team"]), &parse(request));
        assert_eq!(decision, Decision::Deny { reason: expected.to_owned() });
    }
}

#[test]
fn rules_read_as_upstream_writes_them() {
    let text = r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"],"resourceNames":["x"]}"#;
    let rule: Rule = serde_json::from_str(text).unwrap();
    assert_eq!(rule, resource_rule("get", "''", "pods", "x"));
    assert_eq!(serde_json::to_string(&rule).unwrap(), text);
    let rule: Rule = serde_json::from_str(r#"{"verbs":["get"],"nonResourceURLs":["/a"]}"#).unwrap();
    assert_eq!(rule, path_rule("get", "/a"));
}

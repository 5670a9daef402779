//! Questions about rights and identities, and acting for somebody else.

use serde_json::{Value, json};

use crate::harness::{Answer, MAPS, Server, server};
use crate::rights::{at, binding, user};

const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";
const AUTHORIZATION: &str = "/apis/authorization.k8s.io/v1";

async fn with_a_viewer(name: &str) -> Server {
    let server = server().await;
    let given = binding("RoleBinding", "viewer", "ClusterRole", "view", &user(name));
    server.post(&at("rolebindings"), &given).await.is(201);
    server
}

fn attributes(verb: &str, resource: &str) -> Value {
    json!({"verb": verb, "resource": resource, "namespace": "default"})
}

async fn can(server: &Server, attributes: Value) -> bool {
    let review = json!({"spec": {"resourceAttributes": attributes}});
    let answer = server.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), &review).await.is(201);
    assert_eq!(answer.body["kind"], "SelfSubjectAccessReview");
    answer.body["status"]["allowed"].as_bool().expect("an answer")
}

#[tokio::test]
async fn everybody_may_ask_what_he_may() {
    let server = with_a_viewer("ann").await;
    let ann = server.as_user("ann");
    assert!(can(&ann, attributes("list", "pods")).await);
    assert!(!can(&ann, attributes("create", "pods")).await);
    assert!(!can(&ann, json!({"verb": "list", "resource": "pods"})).await);
    assert!(can(&server, json!({"verb": "*", "resource": "*", "group": "*"})).await);
    let path = json!({"spec": {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}});
    let answer = ann.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), &path).await.is(201);
    assert_eq!(answer.body["status"], json!({"allowed": false}));
    ann.post(&format!("{AUTHORIZATION}/selfsubjectaccessreviews"), &json!({"spec": {}})).await.is(400);

    let asked = json!({"spec": {"namespace": "default"}});
    let rules = ann.post(&format!("{AUTHORIZATION}/selfsubjectrulesreviews"), &asked).await.is(201).body;
    let listed = rules["status"]["resourceRules"].as_array().expect("rules");
    assert!(listed.iter().any(|rule| rule["resources"].to_string().contains("configmaps")), "{rules}");
    assert!(!rules["status"]["nonResourceRules"].as_array().expect("paths").is_empty());

    let me = ann.post(&format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await.is(201).body;
    assert_eq!(me["status"]["userInfo"], json!({"username": "ann", "groups": ["system:authenticated"]}));
    server.get(&format!("{AUTHENTICATION}/selfsubjectreviews")).await.is(405);
}

#[tokio::test]
async fn only_some_may_ask_about_others() {
    let server = with_a_viewer("ann").await;
    let about = |fields: Value| {
        let mut spec = fields;
        spec["resourceAttributes"] = attributes("list", "pods");
        json!({"spec": spec})
    };
    let path = format!("{AUTHORIZATION}/subjectaccessreviews");
    server.as_user("ann").post(&path, &about(json!({"user": "ann"}))).await.is(403);
    for (asked, allowed) in [("ann", true), ("bob", false)] {
        let answer = server.post(&path, &about(json!({"user": asked}))).await.is(201);
        assert_eq!(answer.body["status"]["allowed"], allowed, "{asked}");
    }
    let masters = server.post(&path, &about(json!({"groups": ["system:masters"]}))).await.is(201);
    assert_eq!(masters.body["status"]["allowed"], true);
    server.post(&path, &about(json!({}))).await.is(400);
    let local = format!("{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews");
    server.post(&local, &about(json!({"user": "ann"}))).await.is(201);
    let elsewhere = format!("{AUTHORIZATION}/namespaces/kube-system/localsubjectaccessreviews");
    server.post(&elsewhere, &about(json!({"user": "ann"}))).await.is(400);
}

#[tokio::test]
async fn a_token_is_told_whose_it_is() {
    let server = server().await;
    let made = server.post("/api/v1/namespaces/default/serviceaccounts/default/token", &json!({})).await.is(201).body;
    let review = |token: &str| json!({"spec": {"token": token}});
    let path = format!("{AUTHENTICATION}/tokenreviews");
    let token = made["status"]["token"].as_str().expect("a token");
    let told = server.post(&path, &review(token)).await.is(201).body;
    assert_eq!(told["status"]["authenticated"], true);
    assert_eq!(told["status"]["user"]["username"], "system:serviceaccount:default:default");
    let told = server.post(&path, &review("x.y.z")).await.is(201).body;
    assert!(told["status"]["authenticated"].is_null() && told["status"]["error"].is_string(), "{told}");
    server.as_user("ann").post(&path, &review(token)).await.is(403);
}

async fn acting(server: &Server, headers: &[(&str, &str)]) -> Answer {
    server.raw(http::Method::GET, MAPS, headers, "").await
}

#[tokio::test]
async fn who_acts_for_another_has_his_rights_and_the_right_to() {
    let server = with_a_viewer("ann").await;
    acting(&server, &[("impersonate-user", "ann")]).await.is(200);
    acting(&server, &[("impersonate-user", "bob")]).await.is(403);
    acting(&server, &[("impersonate-user", "bob"), ("impersonate-group", "system:masters")]).await.is(200);
    acting(&server, &[("impersonate-group", "team")]).await.is(400);
    acting(&server, &[("impersonate-user", "ann"), ("impersonate-extra-x", "y")]).await.is(400);
    acting(&server, &[("impersonate-user", "system:anonymous")]).await.is(403);

    let ann = server.as_user("ann");
    let refused = acting(&ann, &[("impersonate-user", "admin")]).await.is(403);
    let text = "users \"admin\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the \
                cluster scope";
    assert_eq!(refused.message(), text);
    let robot = "system:serviceaccount:default:default";
    acting(&ann, &[("impersonate-user", robot)]).await.is(403);
    let editor = binding("RoleBinding", "editor", "ClusterRole", "edit", &user("ann"));
    server.post(&at("rolebindings"), &editor).await.is(201);
    let refused = acting(&ann, &[("impersonate-user", robot)]).await.is(403);
    assert!(
        refused.message().contains("User \"system:serviceaccount:default:default\" cannot list"),
        "{}",
        refused.text
    );
    acting(&ann, &[("impersonate-user", robot), ("impersonate-group", "system:masters")]).await.is(403);
}

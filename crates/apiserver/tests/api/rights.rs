//! Roles and bindings: what they give, when, and what nobody can give himself.

use std::sync::Arc;

use http::StatusCode;
use pumice_apiserver::{AdmitAll, NoNodes};
use serde_json::{Value, json};

use crate::harness::{MAPS, PODS, Server, config_map, over, server};

const RIGHTS: &str = "/apis/rbac.authorization.k8s.io/v1";
const GROUP: &str = "rbac.authorization.k8s.io";

/// A collection of the group, of `default` where it lives in namespaces.
pub fn at(plural: &str) -> String {
    let place = if plural.starts_with("cluster") { "" } else { "/namespaces/default" };
    format!("{RIGHTS}{place}/{plural}")
}

pub fn role(kind: &str, name: &str, verbs: &[&str], resources: &[&str]) -> Value {
    let rules = json!([{"verbs": verbs, "apiGroups": [""], "resources": resources}]);
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}, "rules": rules})
}

pub fn binding(kind: &str, name: &str, role_kind: &str, role: &str, subject: &Value) -> Value {
    let reference = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "roleRef": reference, "subjects": [subject]})
}

pub fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name})
}

/// Makes `ann` one who may write roles and bindings in `default` and read its ConfigMaps.
async fn lets_ann_give_rights(server: &Server) {
    let mut writes = role("Role", "writes-rights", &["get", "list"], &["configmaps"]);
    let rule = json!({"verbs": ["*"], "apiGroups": [GROUP], "resources": ["rolebindings"]});
    let roles = json!({"verbs": ["create", "update", "patch", "get"], "apiGroups": [GROUP], "resources": ["roles"]});
    writes["rules"].as_array_mut().expect("rules").extend([rule, roles]);
    server.post(&at("roles"), &writes).await.is(201);
    let given = binding("RoleBinding", "ann", "Role", "writes-rights", &user("ann"));
    server.post(&at("rolebindings"), &given).await.is(201);
}

#[tokio::test]
async fn a_binding_holds_from_its_answer_to_its_end_and_in_its_namespace() {
    let server = server().await;
    let ann = server.as_user("ann");
    let refused = ann.get(MAPS).await.is(403);
    let text = "User \"ann\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\"";
    assert!(refused.message().ends_with(text), "{}", refused.message());
    server.post(&at("clusterroles"), &role("ClusterRole", "reader", &["get", "list"], &["configmaps"])).await.is(201);
    let given = binding("RoleBinding", "ann", "ClusterRole", "reader", &user("ann"));
    let made = server.post(&at("rolebindings"), &given).await.is(201).body;
    assert_eq!(made["subjects"][0]["apiGroup"], GROUP, "as upstream fills it in");
    ann.get(MAPS).await.is(200);
    ann.post(MAPS, &config_map("a")).await.is(403);
    ann.get("/api/v1/namespaces/kube-system/configmaps").await.is(403);
    ann.get("/api/v1/configmaps").await.is(403);

    let wider = role("ClusterRole", "reader", &["get", "list", "create"], &["configmaps"]);
    server.put(&format!("{}/reader", at("clusterroles")), &wider).await.is(200);
    ann.post(MAPS, &config_map("a")).await.is(201);

    server.delete(&format!("{}/ann", at("rolebindings")), &Value::Null).await.is(200);
    ann.get(MAPS).await.is(403);
    let given = binding("ClusterRoleBinding", "ann", "ClusterRole", "reader", &user("ann"));
    server.post(&at("clusterrolebindings"), &given).await.is(201);
    ann.get("/api/v1/configmaps").await.is(200);
    server.delete(&format!("{}/reader", at("clusterroles")), &Value::Null).await.is(200);
    ann.get("/api/v1/configmaps").await.is(403);
}

// INV-58
#[tokio::test]
async fn nobody_gives_more_than_he_has() {
    let server = server().await;
    lets_ann_give_rights(&server).await;
    let ann = server.as_user("ann");
    ann.post(&at("roles"), &role("Role", "own", &["get"], &["configmaps"])).await.is(201);
    let refused =
        ann.post(&at("roles"), &role("Role", "more", &["get", "delete"], &["configmaps", "pods"])).await.is(403);
    assert_eq!(
        refused.message(),
        "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"ann\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n\
         {APIGroups:[\"\"], Resources:[\"configmaps\"], Verbs:[\"delete\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"get\" \"delete\"]}"
    );
    let words: Vec<String> = (0..200).map(|number| format!("w{number}")).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let refused = ann.post(&at("roles"), &role("Role", "many", &words, &words)).await.is(400);
    assert!(refused.message().starts_with("the rules are 40000 rights"), "{}", refused.message());
    let more = json!({"rules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]});
    ann.merge(&format!("{}/own", at("roles")), &more).await.is(403);
    ann.merge(&format!("{}/writes-rights", at("roles")), &more).await.is(403);

    let bob = |kind: &str, role: &str| binding("RoleBinding", "bob", kind, role, &user("bob"));
    let refused = ann.post(&at("rolebindings"), &bob("ClusterRole", "edit")).await.is(403);
    assert!(refused.message().contains("not currently held"), "{}", refused.message());
    ann.post(&at("rolebindings"), &bob("ClusterRole", "absent")).await.is(404);
    ann.post(&at("rolebindings"), &bob("Role", "own")).await.is(201);
    server.as_user("bob").get(MAPS).await.is(403);
    server.as_user("bob").get(&format!("{MAPS}/none")).await.is(404);

    // Unless he is told that he may.
    let mut wider = role("Role", "may-bind", &["bind"], &["clusterroles"]);
    wider["rules"][0]["apiGroups"] = json!([GROUP]);
    wider["rules"][0]["resourceNames"] = json!(["view"]);
    server.post(&at("roles"), &wider).await.is(201);
    let given = binding("RoleBinding", "ann-binds", "Role", "may-bind", &user("ann"));
    server.post(&at("rolebindings"), &given).await.is(201);
    let viewer = |role: &str| binding("RoleBinding", "carl", "ClusterRole", role, &user("carl"));
    ann.post(&at("rolebindings"), &viewer("edit")).await.is(403);
    ann.post(&at("rolebindings"), &viewer("view")).await.is(201);
    server.as_user("carl").get(PODS).await.is(200);
    server.as_user("carl").get("/api/v1/namespaces/default/secrets").await.is(403);
}

#[tokio::test]
async fn what_a_binding_binds_stays() {
    let server = server().await;
    let path = at("rolebindings");
    server.post(&path, &binding("RoleBinding", "b", "ClusterRole", "view", &user("ann"))).await.is(201);
    let changed = json!({"roleRef": {"name": "edit"}});
    let refused = server.merge(&format!("{path}/b"), &changed).await.is(422);
    assert!(refused.message().ends_with("cannot change roleRef"), "{}", refused.message());
    let broken = binding("RoleBinding", "c", "Robot", "view", &json!({"kind": "Robot", "name": "x"}));
    let refused = server.post(&path, &broken).await.is(422);
    assert_eq!(refused.body["details"]["causes"].as_array().map(Vec::len), Some(2), "{}", refused.text);
    // Colons are for the system's.
    server.post(&at("clusterroles"), &role("ClusterRole", "system:mine", &["get"], &["pods"])).await.is(201);
    server.get(&format!("{}/system:mine", at("clusterroles"))).await.is(200);
}

#[tokio::test]
async fn labels_add_to_the_roles_that_every_cluster_has() {
    let server = server().await;
    let given = binding("RoleBinding", "ann", "ClusterRole", "edit", &user("ann"));
    server.post(&at("rolebindings"), &given).await.is(201);
    let ann = server.as_user("ann");
    let things = "/apis/batch.example.com/v1/namespaces/default/things";
    ann.get(things).await.is(403);
    let mut more = role("ClusterRole", "things", &["list"], &["things"]);
    more["rules"][0]["apiGroups"] = json!(["batch.example.com"]);
    more["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    server.post(&at("clusterroles"), &more).await.is(201);
    ann.get(things).await.is(404);
}

#[tokio::test]
async fn roles_of_an_older_version_grow_at_a_start_unless_somebody_forbids_it() {
    let store = pumice_store::Store::in_memory(pumice_store::Options::default()).expect("store");
    let start = || over(store.clone(), Arc::new(AdmitAll), Arc::new(NoNodes));
    let path = |name: &str| format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}");
    let server = start().await;
    let old = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    let whole = server.get(&path("view")).await.body["rules"].clone();
    for (name, kept) in [("view", "true"), ("edit", "false")] {
        let change = json!({"rules": old,
            "metadata": {"annotations": {"rbac.authorization.kubernetes.io/autoupdate": kept}}});
        assert_eq!(server.merge(&path(name), &change).await.code, StatusCode::OK);
    }
    let later = start().await;
    let grown = later.get(&path("view")).await.body;
    let rules = grown["rules"].as_array().expect("rules");
    assert_eq!(rules[0], old[0], "what was there stays");
    assert!(whole.as_array().expect("rules").iter().all(|rule| rules.contains(rule)), "{grown}");
    assert_eq!(later.get(&path("edit")).await.body["rules"], old);
    // Once is enough.
    assert_eq!(start().await.get(&path("view")).await.body, grown);
}

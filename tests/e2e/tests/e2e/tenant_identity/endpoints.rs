//! Every endpoint of the API server, and what a tenant's user may do there: in her namespace, in another's, in the cluster.
//!
//! `endpoints.txt` has a line for each; one that is new fails the test until somebody has said what it is to a tenant. `UPDATE=1` writes
//! the file anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pumice_testkit::{Peer, Platform, TlsStream};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::make_namespace;

const EXPECTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/tenant_identity/endpoints.txt");
/// Where paths that are no resources are served.
const PATHS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/apiserver/src/handlers/non_resource.rs"));
/// What of those the tenant's user gets, and does not.
const OPEN_PATHS: [&str; 7] = ["api", "apis", "healthz", "livez", "openapi", "readyz", "version"];
const CLOSED_PATHS: [(&str, &str); 2] = [("metrics", "/metrics"), ("pumice", "/pumice/backup")];

type Connection = TlsStream<TcpStream>;

async fn get(connection: &mut Connection, path: &str) -> (u16, Value) {
    let (code, _, body) = Peer::ask(connection, "GET", path, "").await.unwrap();
    (code, serde_json::from_str(&body).unwrap_or_default())
}

/// The verbs of each resource of each group, with whether it is in namespaces.
async fn resources(connection: &mut Connection) -> BTreeMap<(String, String), (bool, BTreeSet<String>, String)> {
    let mut places = vec![(String::new(), "/api/v1".to_owned())];
    let (_, groups) = get(connection, "/apis").await;
    for group in groups["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let place = version["groupVersion"].as_str().unwrap();
            places.push((group["name"].as_str().unwrap().to_owned(), format!("/apis/{place}")));
        }
    }
    let mut all = BTreeMap::new();
    for (group, place) in places {
        let (_, list) = get(connection, &place).await;
        for one in list["resources"].as_array().unwrap() {
            let name = one["name"].as_str().unwrap().to_owned();
            let verbs = one["verbs"].as_array().into_iter().flatten().map(|verb| verb.as_str().unwrap().to_owned());
            let entry = all.entry((group.clone(), name)).or_insert((false, BTreeSet::new(), place.clone()));
            entry.0 = one["namespaced"] == true;
            entry.1.extend(verbs);
        }
    }
    all
}

async fn may(connection: &mut Connection, group: &str, name: &str, verb: &str, namespace: &str) -> bool {
    let (resource, subresource) = name.split_once('/').unwrap_or((name, ""));
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": group, "resource": resource, "subresource": subresource, "verb": verb,
            "namespace": namespace}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, _, body) = Peer::ask(connection, "POST", path, &review.to_string()).await.unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    assert_eq!(code, 201, "{body}");
    answer["status"]["allowed"] == true
}

#[test]
fn every_endpoint_has_a_tenants_case() {
    let platform = Platform::new();
    make_namespace(&platform, "alice", &json!({"pumice.sh/tenant": "alice"}));
    make_namespace(&platform, "bob", &json!({"pumice.sh/tenant": "bob"}));
    let binding = ["create", "rolebinding", "edits", "-n", "alice", "--clusterrole=edit", "--user=alice"];
    platform.kubectl(binding).ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found = runtime.block_on(async {
        let mut connection = platform.peer(Some(("alice", &[]))).connect().await.unwrap();
        paths(&mut connection).await;
        table(&mut connection).await
    });
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(EXPECTED, &found).unwrap();
    }
    let expected = std::fs::read_to_string(EXPECTED).unwrap_or_default();
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (found, expected) = (lines(&found), lines(&expected));
    let new: Vec<_> = found.difference(&expected).collect();
    let gone: Vec<_> = expected.difference(&found).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "say what these endpoints are to a tenant, then UPDATE=1: new {new:#?}, gone {gone:#?}"
    );
}

/// Paths that are no resources, by their first words in the source of the server.
async fn paths(connection: &mut Connection) {
    let arms = PATHS
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("[\""))
        .map(|rest| rest.split_once('"').unwrap());
    let mut words: BTreeSet<&str> = arms.map(|(first, _)| first).collect();
    words.extend(["livez", "readyz"]);
    let known: BTreeSet<&str> = OPEN_PATHS.into_iter().chain(CLOSED_PATHS.map(|(word, _)| word)).collect();
    assert_eq!(words, known, "say whether a tenant's user may read it");
    for (_, path) in CLOSED_PATHS {
        assert_eq!(get(connection, path).await.0, 403, "{path}");
    }
    for path in ["/", "/debug/pprof", "/logs", "/../metrics", "//metrics", "/metrics/", "/api/v1/nodes/n/proxy/pods"] {
        let (code, _) = get(connection, path).await;
        assert!([301, 400, 403, 404].contains(&code), "{path}: {code}");
    }
}

/// A line for each resource and each set of verbs that have the same answers; whatever can be read in another's namespace is asked for.
async fn table(connection: &mut Connection) -> String {
    let mut text = String::new();
    for ((group, name), (namespaced, verbs, place)) in resources(connection).await {
        let mut answers: BTreeMap<[bool; 3], Vec<&str>> = BTreeMap::new();
        for verb in &verbs {
            let mut answer = [false; 3];
            for (index, namespace) in ["alice", "bob", ""].into_iter().enumerate() {
                answer[index] = may(connection, &group, &name, verb, namespace).await;
            }
            assert!(!answer[1] || answer[2], "{group}/{name} {verb} in another's namespace");
            answers.entry(answer).or_default().push(verb);
        }
        if namespaced && verbs.contains("list") && !name.contains('/') {
            for path in [
                format!("{place}/namespaces/bob/{name}"),
                format!("{place}/{name}"),
                format!("{place}/namespaces/bob/{name}/x"),
            ] {
                assert_eq!(get(connection, &path).await.0, 403, "{path}");
            }
        }
        for (answer, verbs) in answers {
            let [own, other, cluster] = answer.map(|yes| if yes { "yes" } else { "no" });
            let group = if group.is_empty() { "core" } else { &group };
            writeln!(text, "{group}/{name} {}: own {own}, another's {other}, cluster {cluster}", verbs.join(" "))
                .unwrap();
        }
    }
    text
}

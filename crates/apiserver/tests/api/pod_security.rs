//! Pod Security: what namespaces enforce, warn of and have noted, by their labels.

use http::Method;
use pumice_apiserver::{ApiServer, AuditLog, AuditOptions, AuditPolicy};
use pumice_auth::{Policy, built_in};
use pumice_objects::pod_security::{LATEST_MINOR, Profile};
use pumice_store::{Options, Store};
use serde_json::{Value, json};

use crate::harness::{Answer, Server, administrator, pod, server};

const NAMESPACES: &str = "/api/v1/namespaces";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const AUDIT: &str = "pod-security.kubernetes.io/audit";
const WARN: &str = "pod-security.kubernetes.io/warn";
/// What is wrong for `baseline` with [`privileged`].
const PRIVILEGED: &str = r#"privileged (container "main" must not set securityContext.privileged=true)"#;
/// What is wrong for `restricted` with a pod that says nothing.
const BARE: &str = r#"allowPrivilegeEscalation != false (container "main" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "main" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "main" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "main" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;

async fn namespace(server: &Server, name: &str, labels: Value) {
    let made = server.post(NAMESPACES, &json!({"metadata": {"name": name, "labels": labels}})).await.is(201);
    assert_eq!(made.warnings, [""; 0], "{name}");
}

fn pods(namespace: &str) -> String {
    format!("{NAMESPACES}/{namespace}/pods")
}

fn privileged(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    pod
}

/// A pod that `restricted` allows.
fn confined(name: &str) -> Value {
    let mut pod = pod(name);
    pod["spec"]["securityContext"] =
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "Localhost", "localhostProfile": "p"}});
    pod["spec"]["containers"][0]["securityContext"] =
        json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    pod
}

/// The texts of all warnings.
fn texts(answer: &Answer) -> Vec<String> {
    let texts = answer.warnings.iter().map(|warning| warning.replace("\\\"", "\""));
    texts.filter_map(|text| Some(text.strip_prefix("299 - \"")?.strip_suffix('"')?.to_owned())).collect()
}

/// Those of pods and templates.
fn warned(answer: &Answer) -> Vec<String> {
    texts(answer).into_iter().filter(|text| text.starts_with("would violate PodSecurity")).collect()
}

#[tokio::test]
async fn the_latest_controls_are_those_of_the_version_that_is_served() {
    assert_eq!(server().await.get("/version").await.is(200).body["minor"], LATEST_MINOR.to_string());
}

#[tokio::test]
async fn pods_beyond_what_is_enforced_are_refused_in_upstreams_words() {
    let server = server().await;
    namespace(&server, "base", json!({ENFORCE: "baseline"})).await;
    namespace(&server, "strict", json!({ENFORCE: "restricted"})).await;
    namespace(&server, "pinned", json!({ENFORCE: "baseline", "pod-security.kubernetes.io/enforce-version": "v1.30"}))
        .await;
    for (place, object, refused) in [
        ("base", privileged("p"), Some(format!("violates PodSecurity \"baseline:latest\": {PRIVILEGED}"))),
        ("base", pod("plain"), None),
        ("strict", pod("p"), Some(format!("violates PodSecurity \"restricted:latest\": {BARE}"))),
        ("strict", confined("confined"), None),
        ("pinned", privileged("p"), Some(format!("violates PodSecurity \"baseline:v1.30\": {PRIVILEGED}"))),
        ("default", privileged("p"), None),
    ] {
        let answer = server.post(&pods(place), &object).await;
        match refused {
            None => assert_eq!(warned(&answer.is(201)), [""; 0]),
            Some(text) => {
                let answer = answer.is(403);
                assert_eq!(answer.message(), format!("pods \"p\" is forbidden: {text}"));
                assert_eq!(
                    (&answer.body["reason"], &answer.body["details"]["kind"]),
                    (&json!("Forbidden"), &json!("pods"))
                );
            }
        }
    }
    // Every container counts, and a dry run is refused as the pod would be.
    let mut with_init = pod("i");
    with_init["spec"]["initContainers"] =
        json!([{"name": "first", "image": "i", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]);
    let refused = server.post(&format!("{}?dryRun=All", pods("base")), &with_init).await.is(403);
    assert!(refused.message().contains(r#"container "first" must not include "SYS_ADMIN""#), "{}", refused.message());
}

#[tokio::test]
async fn a_pod_is_judged_again_when_an_image_changes_and_not_with_every_label() {
    let server = server().await;
    namespace(&server, "n", json!({})).await;
    server.post(&pods("n"), &privileged("p")).await.is(201);
    let labels = json!({"metadata": {"labels": {ENFORCE: "baseline"}}});
    server.merge(&format!("{NAMESPACES}/n"), &labels).await.is(200);
    let path = format!("{}/p", pods("n"));
    server.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.is(200);
    server.merge(&format!("{path}/status"), &json!({"status": {"phase": "Running"}})).await.is(200);
    let image = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "busybox:2"}]);
    let json_patch = [("content-type", "application/json-patch+json")];
    let refused = server.raw(Method::PATCH, &path, &json_patch, image.to_string()).await.is(403);
    assert!(refused.message().contains(PRIVILEGED), "{}", refused.message());
}

#[tokio::test]
async fn who_makes_pods_and_templates_is_warned() {
    let server = server().await;
    for definition in pumice_api::crds::all() {
        server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await.is(201);
    }
    namespace(&server, "n", json!({ENFORCE: "baseline", WARN: "restricted"})).await;
    namespace(&server, "quiet", json!({ENFORCE: "baseline", WARN: "privileged"})).await;
    let made = server.post(&pods("n"), &pod("p")).await.is(201);
    assert_eq!(warned(&made), [format!("would violate PodSecurity \"restricted:latest\": {BARE}")]);
    // What is refused is not warned of as well.
    assert_eq!(server.post(&pods("n"), &privileged("q")).await.is(403).warnings, [""; 0]);

    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("t")["spec"]});
    let mut once = template.clone();
    once["spec"]["restartPolicy"] = json!("Never");
    let selector = json!({"matchLabels": {"a": "b"}});
    let job = json!({ "template": once });
    for (group, resource, spec) in [
        ("apps/v1", "deployments", json!({"selector": selector, "template": template})),
        ("apps/v1", "replicasets", json!({"selector": selector, "template": template})),
        ("apps/v1", "statefulsets", json!({"selector": selector, "template": template, "serviceName": "s"})),
        ("batch/v1", "jobs", job.clone()),
        ("batch/v1", "cronjobs", json!({"schedule": "@daily", "jobTemplate": {"spec": job}})),
        (
            "batch.volcano.sh/v1alpha1",
            "jobs",
            json!({"minAvailable": 1, "tasks": [
                {"name": "a", "replicas": 1, "template": template}, {"name": "b", "replicas": 1, "template": template}]}),
        ),
    ] {
        for (place, count) in [("n", 1), ("quiet", 0)] {
            let path = format!("/apis/{group}/namespaces/{place}/{resource}");
            let made = server.post(&path, &json!({"metadata": {"name": "w"}, "spec": spec})).await.is(201);
            let text = format!("would violate PodSecurity \"restricted:latest\": {BARE}");
            assert_eq!(warned(&made), vec![text; count], "{path}");
        }
    }
    // Again when the template changes, and not before.
    let path = "/apis/apps/v1/namespaces/n/deployments/w";
    let scaled = json!({"metadata": {"labels": {"x": "y"}}, "spec": {"replicas": 2}});
    assert_eq!(warned(&server.merge(path, &scaled).await.is(200)), [""; 0]);
    let host = json!({"spec": {"template": {"spec": {"hostPID": true}}}});
    let changed = warned(&server.merge(path, &host).await.is(200));
    let [text] = &changed[..] else { panic!("{changed:?}") };
    assert!(text.contains("host namespaces (hostPID=true), allowPrivilegeEscalation"), "{text}");
}

#[tokio::test]
async fn what_is_beyond_a_profile_is_noted_in_the_audit_log() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("audit.log");
    let options = AuditOptions { path: path.clone(), bytes_max: 1 << 30, backups: 1 };
    let log = AuditLog::open(options, AuditPolicy::default()).expect("log");
    let store = Store::in_memory(Options::default()).expect("store");
    let api = ApiServer::builder(store, Policy::new(built_in())).audit(log.clone()).build().await.expect("build");
    let server = Server::of(api, administrator());
    namespace(&server, "n", json!({ENFORCE: "baseline", AUDIT: "restricted"})).await;
    server.post(&pods("n"), &pod("p")).await.is(201);
    server.post(&pods("n"), &privileged("q")).await.is(403);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod("t")["spec"]});
    let deployment = json!({"metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}});
    server.post("/apis/apps/v1/namespaces/n/deployments", &deployment).await.is(201);
    server.post(&pods("default"), &pod("p")).await.is(201);
    log.flush().await;
    let text = std::fs::read_to_string(path).expect("log");
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let notes = |index: usize| {
        let note = |key: &str| events[index]["annotations"][format!("pod-security.kubernetes.io/{key}")].clone();
        (note("enforce-policy"), note("audit-violations"))
    };
    let would = |text: &str| json!(format!("would violate PodSecurity \"restricted:latest\": {text}"));
    assert_eq!(notes(0), (Value::Null, Value::Null), "a namespace");
    assert_eq!(notes(1), (json!("baseline:latest"), would(BARE)));
    assert_eq!(events[2]["responseStatus"]["code"], 403);
    assert_eq!(
        notes(2),
        (json!("baseline:latest"), would(&BARE.replacen("allow", &format!("{PRIVILEGED}, allow"), 1)))
    );
    assert_eq!(notes(3), (Value::Null, would(BARE)), "templates are enforced by their pods");
    assert_eq!(notes(4), (json!("privileged:latest"), Value::Null));
}

#[tokio::test]
async fn a_tightened_namespace_names_the_pods_that_it_would_refuse() {
    let server = server().await;
    namespace(&server, "n", json!({})).await;
    for name in ["b", "a", "c"] {
        server.post(&pods("n"), &privileged(name)).await.is(201);
    }
    let mut on_host = privileged("h");
    on_host["spec"]["hostNetwork"] = json!(true);
    server.post(&pods("n"), &on_host).await.is(201);
    server.post(&pods("n"), &pod("plain")).await.is(201);
    let path = format!("{NAMESPACES}/n");
    let enforce = async |profile: Value| {
        let changed = server.merge(&path, &json!({"metadata": {"labels": {ENFORCE: profile}}})).await.is(200);
        texts(&changed)
    };
    assert_eq!(
        enforce(json!("baseline")).await,
        [
            "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 2 other pods): privileged",
            "h: host namespaces, privileged",
        ]
    );
    assert_eq!(enforce(json!("baseline")).await, [""; 0], "nothing has changed");
    assert_eq!(enforce(json!("privileged")).await, [""; 0], "what is looser forbids nothing new");
    assert_eq!(enforce(json!("restricted")).await.len(), 4);
    assert_eq!(enforce(json!("baseline")).await, [""; 0]);
    assert_eq!(enforce(Value::Null).await, [""; 0]);
}

#[tokio::test]
async fn labels_that_name_no_profile_are_refused() {
    let server = server().await;
    let labels = json!({ENFORCE: "strict", "pod-security.kubernetes.io/warn-version": "latest-ish"});
    let refused = server.post(NAMESPACES, &json!({"metadata": {"name": "n", "labels": labels}})).await.is(422);
    assert_eq!(
        refused.message(),
        "Namespace \"n\" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of \
         privileged, baseline, restricted, metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"latest-ish\": \
         must be \"latest\" or \"v1.x\"]"
    );
    namespace(&server, "n", json!({ENFORCE: "baseline"})).await;
    let strict = json!({"metadata": {"labels": {ENFORCE: "strict"}}});
    server.merge(&format!("{NAMESPACES}/n"), &strict).await.is(422);
}

#[tokio::test]
async fn a_default_profile_is_for_the_namespaces_of_people() {
    let store = Store::in_memory(Options::default()).expect("store");
    let builder = ApiServer::builder(store, Policy::new(built_in())).default_pod_security(Profile::Baseline);
    let server = Server::of(builder.build().await.expect("build"), administrator());
    namespace(&server, "team", json!({})).await;
    namespace(&server, "open", json!({ENFORCE: "privileged"})).await;
    for (place, code) in [("team", 403), ("default", 403), ("open", 201), ("kube-system", 201)] {
        server.post(&pods(place), &privileged("p")).await.is(code);
        server.post(&pods(place), &pod("plain")).await.is(201);
    }
    let strict = json!({"metadata": {"labels": {ENFORCE: "restricted"}}});
    server.merge(&format!("{NAMESPACES}/kube-system"), &strict).await.is(200);
    server.post(&pods("kube-system"), &pod("q")).await.is(403);
}

#[tokio::test]
async fn hosts_of_probes_are_warned_of_where_nothing_is_enforced() {
    let server = server().await;
    namespace(&server, "pinned", json!({ENFORCE: "baseline", "pod-security.kubernetes.io/enforce-version": "v1.33"}))
        .await;
    let mut asking = pod("p");
    asking["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"host": "10.0.0.1", "port": 1}});
    let made = server.post(&pods("default"), &asking).await.is(201);
    assert_eq!(
        warned(&made),
        [
            "would violate PodSecurity \"baseline:latest\": probe or lifecycle host (container \"main\" uses probe or lifecycle host \
             \"10.0.0.1\"); it is asked from within the pod's network"
        ]
    );
    assert_eq!(warned(&server.post(&pods("pinned"), &asking).await.is(201)), [""; 0]);
}

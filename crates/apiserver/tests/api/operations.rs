//! What an administrator asks: health, metrics, the audit log, backups.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use pumice_apiserver::{ApiServer, AuditLog, AuditOptions, AuditPolicy};
use pumice_auth::{Identity, Policy, built_in};
use pumice_store::{BackupDecoder, BackupFrame, Options, Store};
use serde_json::{Value, json};

use crate::harness::{Server, administrator, server};

/// A server that tells what it is asked in a file.
struct Audited {
    server: Server,
    log: AuditLog,
    directory: tempfile::TempDir,
}

async fn audited(policy: AuditPolicy) -> Audited {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("audit.log");
    let log = AuditLog::open(AuditOptions { path, bytes_max: 1 << 30, backups: 1 }, policy).expect("log");
    let store = Store::in_memory(Options::default()).expect("store");
    let api = ApiServer::builder(store, Policy::new(built_in())).audit(log.clone()).build().await.expect("build");
    Audited { server: Server::of(api, administrator()), log, directory }
}

async fn told(log: &AuditLog, directory: &tempfile::TempDir) -> Vec<Value> {
    log.flush().await;
    let text = std::fs::read_to_string(directory.path().join("audit.log")).expect("log");
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[tokio::test]
async fn a_write_is_told_in_upstreams_words_without_its_body() {
    let Audited { server, log, directory } = audited(AuditPolicy::default()).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"password": "hunter2"}});
    let headers = [("user-agent", "curl/8"), ("authorization", "Bearer topsecret")];
    let path = "/api/v1/namespaces/default/secrets?fieldManager=me";
    server.raw(Method::POST, path, &headers, secret.to_string()).await.is(201);
    server.get("/api/v1/namespaces/default/secrets/s").await.is(200);
    server.get("/api/v1/namespaces/default/configmaps").await.is(200);
    let impersonated = [("impersonate-user", "ann"), ("impersonate-group", "team")];
    server.raw(Method::DELETE, "/api/v1/namespaces/default/secrets/s", &impersonated, "").await.is(403);
    let ann = server.as_user("ann");
    ann.raw(Method::POST, path, &[("impersonate-user", "admin")], "{}").await.is(403);
    let events = told(&log, &directory).await;
    assert_eq!(events.len(), 4, "of reads only those of Secrets are told: {events:#?}");
    assert_eq!(events[3]["user"]["username"], "ann", "who may not act for another");
    let (made, read, refused) = (&events[0], &events[1], &events[2]);
    assert_eq!((&read["verb"], &read["objectRef"]["name"]), (&json!("get"), &json!("s")), "{read:#}");
    for (field, wanted) in [
        ("/kind", json!("Event")),
        ("/apiVersion", json!("audit.k8s.io/v1")),
        ("/level", json!("Metadata")),
        ("/stage", json!("ResponseComplete")),
        ("/requestURI", json!("/api/v1/namespaces/default/secrets?fieldManager=me")),
        ("/verb", json!("create")),
        ("/user/username", json!("admin")),
        ("/user/groups", json!(["system:masters", "system:authenticated"])),
        ("/userAgent", json!("curl/8")),
        ("/objectRef/resource", json!("secrets")),
        ("/objectRef/namespace", json!("default")),
        ("/objectRef/name", json!("s")),
        ("/objectRef/apiVersion", json!("v1")),
        ("/responseStatus/code", json!(201)),
    ] {
        assert_eq!(made.pointer(field), Some(&wanted), "{field}: {made:#}");
    }
    assert!(made["annotations"]["apiserver.latency.k8s.io/total"].is_string());
    let (received, stage) = (&made["requestReceivedTimestamp"], &made["stageTimestamp"]);
    assert!(received.as_str() <= stage.as_str() && received.as_str().is_some_and(|at| at.len() == 27), "{made:#}");
    assert_eq!(refused["user"]["username"], "admin");
    assert_eq!(refused["impersonatedUser"]["username"], "ann");
    assert_eq!(refused["responseStatus"]["code"], 403);
    let text = json!(events).to_string();
    assert!(!text.contains("hunter2") && !text.contains("topsecret"), "{text}");
}

#[tokio::test]
async fn what_goes_on_is_told_when_it_begins_and_when_it_ends() {
    let policy =
        "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [watch]}, {level: None}]\n";
    let Audited { server, log, directory } = audited(AuditPolicy::parse(policy).expect("policy")).await;
    let stages = async || {
        let events = told(&log, &directory).await;
        events.iter().map(|event| event["stage"].as_str().expect("stage").to_owned()).collect::<Vec<_>>()
    };
    let watch = server.watch("/api/v1/pods?watch=1").await;
    assert_eq!(stages().await, ["ResponseStarted"]);
    let page = server.get("/metrics").await.text;
    assert!(page.contains("apiserver_longrunning_requests{") && page.contains("verb=\"WATCH\""), "{page}");
    drop(watch);
    assert_eq!(stages().await, ["ResponseStarted", "ResponseComplete"]);
    let page = server.get("/metrics").await.text;
    assert!(!page.contains("apiserver_longrunning_requests{"), "{page}");
    assert!(page.contains("apiserver_audit_event_total 2\n"), "{page}");
}

#[tokio::test]
async fn a_stranger_is_told_too() {
    use http_body_util::Full;
    use tower::Service as _;
    let Audited { server, log, directory } = audited(AuditPolicy::default()).await;
    let request = http::Request::post("/api/v1/namespaces/default/pods").body(Full::new(bytes::Bytes::new()));
    let answer = server.api.clone().call(request.expect("request")).await.expect("infallible");
    assert_eq!(answer.status(), 401);
    let events = told(&log, &directory).await;
    assert_eq!((events.len(), &events[0]["responseStatus"]["code"]), (1, &json!(401)));
    assert_eq!(events[0]["user"], json!({}));
}

#[tokio::test]
async fn metrics_have_upstreams_names_and_are_for_those_who_may() {
    let server = server().await;
    server.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}})).await.is(201);
    server.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "a"}})).await.is(409);
    server.get("/api/v1/namespaces/default/configmaps").await.is(200);
    server.get("/apis/made.up/v1/things").await.is(404);
    let page = server.get("/metrics").await;
    assert!(page.headers["content-type"].to_str().expect("text").starts_with("text/plain; version=0.0.4"));
    let count = |code: u16, resource: &str, scope: &str, verb: &str| {
        let line = format!(
            "apiserver_request_total{{code=\"{code}\",component=\"apiserver\",dry_run=\"\",group=\"\",\
             resource=\"{resource}\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\"}} 1\n"
        );
        assert!(page.text.contains(&line), "{line}: {}", page.text);
    };
    count(201, "configmaps", "resource", "POST");
    count(409, "configmaps", "resource", "POST");
    count(200, "configmaps", "namespace", "LIST");
    assert!(!page.text.contains("made.up"), "{}", page.text);
    for line in [
        "# TYPE apiserver_request_duration_seconds histogram\n",
        "apiserver_storage_objects{resource=\"configmaps\"} ",
        "apiserver_storage_objects{resource=\"clusterroles.rbac.authorization.k8s.io\"} ",
        "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0\n",
        "pumice_store_commits_total ",
    ] {
        assert!(page.text.contains(line), "{line}: {}", page.text);
    }
    // Each name once, as a reader of the format wants it.
    let mut heads: Vec<&str> = page.text.lines().filter(|line| line.starts_with("# TYPE")).collect();
    let all = heads.len();
    heads.sort_unstable();
    heads.dedup();
    assert_eq!(heads.len(), all);
    server.as_user("ann").get("/metrics").await.is(403);
    let monitor = Server::of(server.api.clone(), Identity::new("prometheus", ["system:monitoring"]));
    monitor.get("/metrics").await.is(200);
    monitor.get("/readyz?verbose").await.is(200);
}

#[tokio::test]
async fn what_is_only_told_fails_nothing() {
    let store = Store::in_memory(Options::default()).expect("store");
    let builder = ApiServer::builder(store, Policy::new(built_in()));
    let api =
        builder.informational_check("history", || Err("its disk is full".to_owned())).build().await.expect("build");
    let server = Server::of(api, administrator());
    let answer = server.get("/readyz?verbose").await;
    let page = "[+]ping ok\n[+]store ok\n[+]store-writes ok\n[+]store-room ok\n[-]history failed: its disk is full\nreadyz check passed\n";
    assert_eq!((answer.code.as_u16(), answer.text.as_str()), (200, page));
    server.get("/readyz").await.is(200);
    server.get("/readyz/history").await.is(500);
}

#[tokio::test]
async fn health_is_told_check_by_check() {
    let well = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let look = Arc::clone(&well);
    let store = Store::in_memory(Options::default()).expect("store");
    let api = ApiServer::builder(store, Policy::new(built_in()))
        .ready_check("scheduler", move || {
            if look.load(std::sync::atomic::Ordering::Relaxed) { Ok(()) } else { Err("it does not run".to_owned()) }
        })
        .build()
        .await
        .expect("build");
    let server = Server::of(api, administrator());
    let stranger = Server::of(server.api.clone(), Identity::anonymous());
    let told = async |server: &Server, path: &str| {
        let answer = server.get(path).await;
        (answer.code.as_u16(), answer.text)
    };
    let said = |code: u16, text: &str| (code, text.to_owned());
    assert_eq!(told(&server, "/livez").await, said(200, "ok"));
    let page = "[+]ping ok\n[+]store ok\nlivez check passed\n";
    assert_eq!(told(&stranger, "/livez?verbose").await, said(200, page));
    let page = |reason: &str| {
        format!(
            "[+]ping ok\n[+]store ok\n[+]store-writes ok\n[+]store-room ok\n[-]scheduler failed: {reason}\nreadyz check failed\n"
        )
    };
    assert_eq!(told(&stranger, "/readyz").await, said(500, &page("reason withheld")));
    assert_eq!(told(&server, "/readyz").await, said(500, &page("it does not run")));
    assert_eq!(told(&stranger, "/readyz/scheduler").await, said(500, "internal server error: reason withheld\n"));
    assert_eq!(told(&stranger, "/readyz/store").await, said(200, "ok"));
    assert_eq!(told(&server, "/readyz/nothing").await.0, 404);
    assert_eq!(told(&server, "/readyz?exclude=scheduler").await, said(200, "ok"));
    let excluded = told(&server, "/readyz?verbose&exclude=scheduler&exclude=x").await.1;
    assert!(
        excluded
            .contains("[+]scheduler excluded: ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\n")
    );
    well.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(told(&stranger, "/readyz").await, said(200, "ok"));
    server.api.store().close().await.expect("close");
    assert_eq!(told(&server, "/livez/store").await.0, 500);
    assert_eq!(told(&server, "/healthz").await.0, 500);
}

#[tokio::test]
async fn a_backup_is_everything_at_one_revision_and_for_administrators() {
    let server = server().await;
    for name in ["a", "b"] {
        server.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": name}})).await.is(201);
    }
    server.as_user("ann").get("/pumice/backup").await.is(403);
    let snapshot = server.api.store().snapshot();
    use http_body_util::BodyExt as _;
    let request = http::Request::get("/pumice/backup").body(http_body_util::Full::new(bytes::Bytes::new()));
    let response = server.send(request.expect("request")).await;
    assert_eq!(response.status(), 200);
    // What is written while it is read is not in it.
    server.post("/api/v1/namespaces/default/configmaps", &json!({"metadata": {"name": "late"}})).await.is(201);
    let bytes = response.into_body().collect().await.expect("body").to_bytes();
    let mut decoder = BackupDecoder::default();
    decoder.push(&bytes);
    let (mut names, mut revision) = (Vec::new(), 0);
    while let Some(frame) = decoder.next_frame().expect("frame") {
        match frame {
            BackupFrame::Header(header) => revision = header.revision,
            BackupFrame::Object(object) => names.push(object.key.to_string()),
            _ => {}
        }
    }
    decoder.finish().expect("whole");
    assert!(names.len() >= snapshot.objects.len() && revision >= snapshot.revision);
    assert!(names.iter().any(|name| name == "configmaps/default/b") && !names.iter().any(|name| name.contains("late")));
}

/// `cargo test --workspace --release --test api -- --ignored --nocapture cost_of`
#[tokio::test]
#[ignore = "a measurement"]
async fn cost_of_the_audit_log_per_request() {
    const REQUESTS: u32 = 20_000;
    let none = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n";
    let all = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";
    let plain = server().await;
    let off = audited(AuditPolicy::parse(none).expect("policy")).await;
    let on = audited(AuditPolicy::parse(all).expect("policy")).await;
    let time = async |server: &Server| {
        let begun = tokio::time::Instant::now();
        for _ in 0..REQUESTS {
            server.get("/api/v1/namespaces/default").await.is(200);
        }
        begun.elapsed() / REQUESTS
    };
    for round in 0..3 {
        let (plain, off, on) = (time(&plain).await, time(&off.server).await, time(&on.server).await);
        println!("round {round}: a get takes {plain:?}, with a policy that tells nothing {off:?}, told {on:?}");
    }
    let begun = tokio::time::Instant::now();
    on.log.flush().await;
    println!("written {:?} after the last", begun.elapsed().max(Duration::ZERO));
}

//! The HTTPS server beside an API server: its paths, its certificate, its registration.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pumice_admission::VolcanoAdmission;
use pumice_admission::server::{CertificateFiles, Endpoint, Options, Rotation, Server, Source, enabled};
use pumice_api::names::{ADMISSION_SECRET, NAMESPACE_SYSTEM, USER_ADMISSION};
use pumice_apiserver::ApiServer;
use pumice_auth::{Ca, Identity, MASTERS, Policy, built_in, client_config};
use pumice_cluster::{client_over, install_definitions};
use pumice_store::Store;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

const KINDS: [(&str, &str); 2] = [
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
];
/// Longest wait for a state.
const DEADLINE: Duration = Duration::from_secs(60);

/// An API server without rules of its own, which asks whoever is registered; servers of admission with their own rights.
struct Cluster {
    api: ApiServer,
    administrator: Client,
    servers: JoinSet<()>,
    /// Where the API server finds admission: the first server.
    port: Option<u16>,
}

impl Cluster {
    async fn start() -> Cluster {
        let store = Store::in_memory(pumice_store::Options::default()).expect("store");
        let api = ApiServer::builder(store, Policy::new(built_in())).build().await.expect("server");
        let administrator = client_over(api.client_service(Identity::new("root", [MASTERS])));
        install_definitions(&administrator, pumice_api::crds::all()).await.expect("definitions");
        let cluster = Cluster { api, administrator, servers: JoinSet::new(), port: None };
        cluster.create("", "v1", "Namespace", "namespaces", json!({"metadata": {"name": NAMESPACE_SYSTEM}})).await;
        cluster.queue("default").await;
        cluster
    }

    async fn create(&self, group: &str, version: &str, kind: &str, plural: &str, mut object: Value) {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        let api: Api<DynamicObject> = Api::all_with(self.administrator.clone(), &resource);
        object["apiVersion"] = resource.api_version.clone().into();
        object["kind"] = kind.into();
        let object = serde_json::from_value(object).expect("an object");
        api.create(&Default::default(), &object).await.expect("created");
    }

    async fn queue(&self, name: &str) {
        let object = json!({"metadata": {"name": name}, "spec": {"weight": 1}});
        self.create("scheduling.volcano.sh", "v1beta1", "Queue", "queues", object).await;
    }

    /// Another server, with a certificate of its own; gives its port.
    async fn server(&mut self, paths: &str, rotation: Rotation) -> u16 {
        let (namespace, name) = (NAMESPACE_SYSTEM.to_owned(), ADMISSION_SECRET.to_owned());
        self.server_with(paths, Source::Secret { namespace, name, rotation }).await
    }

    async fn server_with(&mut self, paths: &str, certificate: Source) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let registered = *self.port.get_or_insert(port);
        let server: Server = Options {
            client: client_over(self.api.client_service(Identity::new(USER_ADMISSION, [""; 0]))),
            admission: VolcanoAdmission::default(),
            endpoint: Endpoint::Url(format!("https://127.0.0.1:{registered}/")),
            routes: enabled(paths).expect("paths"),
            resource_groups: None,
            certificate,
            drain: Duration::from_secs(1),
        }
        .build()
        .expect("a server");
        self.servers.spawn(async move { server.run(listener, CancellationToken::new()).await.expect("it runs") });
        port
    }

    async fn registration(&self, (kind, plural): (&str, &str)) -> Option<Value> {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::all_with(self.administrator.clone(), &resource);
        api.get_opt("pumice-admission").await.expect("an answer").map(|object| object.data)
    }

    /// Whom an API server would trust, once it is told.
    async fn trusted(&self) -> String {
        let found = eventually(async || self.registration(KINDS[1]).await).await;
        let bundle = found["webhooks"][0]["clientConfig"]["caBundle"].as_str().expect("a bundle").to_owned();
        String::from_utf8(STANDARD.decode(bundle).expect("base64")).expect("PEM")
    }
}

async fn eventually<T>(mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.expect("a state that does not come")
}

/// One request over a connection of its own, by one who trusts `trusted`.
async fn send(
    trusted: &str,
    port: u16,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let config = client_config(trusted, None).map_err(|error| words(&error))?;
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let socket = TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| words(&error))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.map_err(|error| words(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| words(&error))?;
    let request = Request::builder().method(method).uri(path).header("host", "admission");
    let request = request.body(Full::<bytes::Bytes>::from(body)).expect("a request");
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| words(&error))?;
        let code = response.status();
        let body = response.into_body().collect().await.map_err(|error| words(&error))?;
        Ok((code, body.to_bytes().to_vec()))
    };
    tokio::select! {
        answer = answered => answer,
        ended = connection => Err(format!("the connection ended: {ended:?}")),
    }
}

fn review(queue: &str) -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
        "resource": {"group": "batch.volcano.sh", "version": "v1alpha1", "resource": "jobs"},
        "name": "n", "namespace": "default", "operation": "CREATE", "userInfo": {"username": "ann"},
        "object": {"metadata": {"name": "n"}, "spec": {"queue": queue, "minAvailable": 1, "tasks": [
            {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
        ]}},
    }})
    .to_string()
    .into_bytes()
}

fn allowed(answer: &(StatusCode, Vec<u8>)) -> bool {
    assert_eq!(answer.0, StatusCode::OK, "{}", String::from_utf8_lossy(&answer.1));
    let body: Value = serde_json::from_slice(&answer.1).expect("JSON");
    body["response"]["allowed"].as_bool().expect("a verdict")
}

#[tokio::test]
async fn paths_answer_and_whatever_comes_has_an_answer() {
    let mut cluster = Cluster::start().await;
    let port = cluster.server("/jobs/validate,/queues/validate", Rotation::default()).await;
    let trusted = cluster.trusted().await;
    let ask = async |method: Method, path: &str, body: Vec<u8>| {
        let (code, body) = send(&trusted, port, method, path, body).await.expect("an answer");
        (code.as_u16(), String::from_utf8_lossy(&body).into_owned())
    };
    eventually(async || (ask(Method::GET, "/healthz", Vec::new()).await.0 == 200).then_some(())).await;
    for (method, path, body, code) in [
        (Method::POST, "/jobs/mutate", review("default"), 404),
        (Method::GET, "/jobs/validate", Vec::new(), 405),
        (Method::POST, "/jobs/validate", b"{".to_vec(), 400),
        (Method::POST, "/queues/validate", review("default"), 400),
        (Method::POST, "/jobs/validate", vec![b' '; 3 * 1024 * 1024 + 1], 413),
    ] {
        let answer = ask(method, path, body).await;
        assert_eq!(answer.0, code, "{path}: {}", answer.1);
    }
    for round in 0..20 {
        let name = format!("new-{round}");
        let asked = send(&trusted, port, Method::POST, "/jobs/validate", review(&name)).await.expect("an answer");
        assert!(!allowed(&asked), "there is no queue {name}");
        cluster.queue(&name).await;
        let asked = send(&trusted, port, Method::POST, "/jobs/validate", review(&name)).await.expect("an answer");
        assert!(allowed(&asked), "the queue is there, whatever the watch has told");
    }
    let (_, page) = ask(Method::GET, "/metrics", Vec::new()).await;
    for (outcome, count) in [("admitted", 20), ("refused", 20), ("failed", 2)] {
        let line = format!("path=\"/jobs/validate\",outcome=\"{outcome}\"}} {count}\n");
        assert!(page.contains(&line), "{line}{page}");
    }
}

/// The embedded API server asks admission over HTTPS as a real one does: what is registered is filled in and refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_api_server_asks_what_is_registered() {
    let mut cluster = Cluster::start().await;
    let port = cluster.server("", Rotation::default()).await;
    for registered in KINDS {
        eventually(async || cluster.registration(registered).await).await;
    }
    let trusted = cluster.trusted().await;
    let healthy = async || send(&trusted, port, Method::GET, "/healthz", Vec::new()).await.is_ok_and(|it| it.0 == 200);
    eventually(async || healthy().await.then_some(())).await;
    let gvk = GroupVersionKind::gvk("batch.volcano.sh", "v1alpha1", "Job");
    let jobs: Api<DynamicObject> = Api::namespaced_with(
        cluster.administrator.clone(),
        "default",
        &ApiResource::from_gvk_with_plural(&gvk, "jobs"),
    );
    let job = |name: &str, least: Value| -> DynamicObject {
        let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}]}});
        serde_json::from_value(json!({
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": name},
            "spec": {"minAvailable": least, "tasks": [{"replicas": 2, "template": template}]},
        }))
        .expect("a job")
    };
    let made = jobs.create(&Default::default(), &job("filled", Value::Null)).await.expect("created");
    let spec = &made.data["spec"];
    assert_eq!(
        (&spec["minAvailable"], &spec["queue"], &spec["tasks"][0]["name"]),
        (&json!(2), &json!("default"), &json!("default0")),
        "the mutating webhook filled it in"
    );
    let refused = jobs.create(&Default::default(), &job("greedy", json!(9))).await.expect_err("refused").to_string();
    let wanted = "denied the request: job 'minAvailable' should not be greater than total replicas in tasks";
    assert!(refused.contains("admission webhook \"") && refused.contains(wanted), "{refused}");
}

#[tokio::test]
async fn the_registration_says_what_is_sent() {
    let mut cluster = Cluster::start().await;
    let port = cluster.server("", Rotation::default()).await;
    cluster.trusted().await;
    for (kind, plural) in KINDS {
        let registration = eventually(async || cluster.registration((kind, plural)).await).await;
        let hooks = registration["webhooks"].as_array().expect("webhooks");
        // Tenants are judged, and nothing is filled in.
        assert_eq!(hooks.len(), if kind.starts_with("Validating") { 8 } else { 7 }, "{kind}");
        for hook in hooks {
            let name = hook["name"].as_str().expect("a name");
            let url = hook["clientConfig"]["url"].as_str().expect("an address");
            assert!(url.starts_with(&format!("https://127.0.0.1:{port}/")) && !url[8..].contains("//"), "{url}");
            let outside = &hook["namespaceSelector"]["matchExpressions"][0];
            assert_eq!(
                (&outside["operator"], &outside["values"]),
                (&"NotIn".into(), &json!(["kube-system", "volcano-system"]))
            );
            let is_of_pods = hook["rules"][0]["resources"] == json!(["pods"]);
            assert_eq!(hook["failurePolicy"], if is_of_pods { "Ignore" } else { "Fail" }, "{name}");
            assert_eq!(
                hook["matchConditions"].is_array(),
                is_of_pods || hook["rules"][0]["operations"] == json!(["CREATE", "UPDATE"]),
                "{name}"
            );
            assert_eq!((&hook["timeoutSeconds"], &hook["sideEffects"]), (&10.into(), &"None".into()));
        }
    }
}

/// Two instances want to replace it; whoever trusts what is registered is answered by both, at any moment.
#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_without_a_failure() {
    let mut cluster = Cluster::start().await;
    let rotation = Rotation { every: Duration::from_secs(3), settle: Duration::from_secs(2) };
    let ports = [cluster.server("", rotation).await, cluster.server("", rotation).await];
    let mut bundles = vec![cluster.trusted().await];
    for port in ports {
        eventually(async || send(&bundles[0], port, Method::GET, "/healthz", Vec::new()).await.ok()).await;
    }
    let mut failures = Vec::new();
    eventually(async || {
        let trusted = cluster.trusted().await;
        for port in ports {
            if let Err(error) = send(&trusted, port, Method::POST, "/jobs/validate", review("default")).await {
                failures.push(error);
            }
        }
        if bundles.last() != Some(&trusted) {
            bundles.push(trusted);
        }
        // A change is announced, then the former is forgotten: two bundles for each.
        (bundles.len() >= 5).then_some(())
    })
    .await;
    assert_eq!(failures, Vec::<String>::new());
    assert!(bundles.iter().all(|bundle| (1..=2).contains(&bundle.matches("BEGIN").count())), "{bundles:?}");
}

/// A certificate of somebody else's, in files: whoever trusts what is registered is answered, before and after it is replaced,
/// and while the files don't fit each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_files_is_shown_and_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ca = Ca::open_or_create(&directory.path().join("pki"), now()).expect("an authority");
    let file = |name: &str| directory.path().join(name);
    let issue = || ca.issue_server(&["127.0.0.1".to_owned()], now()).expect("a certificate");
    let (first, second) = (issue(), issue());
    std::fs::write(file("tls.crt"), &first.certificate_pem).expect("write");
    std::fs::write(file("tls.key"), &first.key_pem).expect("write");
    std::fs::write(file("ca.crt"), ca.pem()).expect("write");
    let files =
        CertificateFiles { certificate: file("tls.crt"), key: file("tls.key"), authority: Some(file("ca.crt")) };
    let mut cluster = Cluster::start().await;
    let port = cluster.server_with("", Source::Files(files)).await;
    let trusted = cluster.trusted().await;
    assert_eq!(trusted, ca.pem());
    let asked = send(&trusted, port, Method::POST, "/jobs/validate", review("default")).await.expect("an answer");
    assert!(allowed(&asked));
    assert_eq!(shown(&trusted, port).await, first.certificate.as_ref());

    // One file after the other: what fits goes on being shown.
    std::fs::write(file("tls.crt"), &second.certificate_pem).expect("write");
    assert_eq!(shown(&trusted, port).await, first.certificate.as_ref());
    std::fs::write(file("tls.key"), &second.key_pem).expect("write");
    eventually(async || (shown(&trusted, port).await == second.certificate.as_ref()).then_some(())).await;

    // Another authority is told to the API server.
    let other = Ca::open_or_create(&directory.path().join("other"), now()).expect("an authority");
    std::fs::write(file("ca.crt"), format!("{}{}", ca.pem(), other.pem())).expect("write");
    eventually(async || (cluster.trusted().await == format!("{}{}", ca.pem(), other.pem())).then_some(())).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.administrator.clone(), NAMESPACE_SYSTEM);
    assert!(secrets.get_opt(ADMISSION_SECRET).await.expect("an answer").is_none(), "none of its own is made");
}

/// The certificate that a server shows.
async fn shown(trusted: &str, port: u16) -> Vec<u8> {
    let config = client_config(trusted, None).expect("a configuration");
    let name = ServerName::try_from("127.0.0.1").expect("an address");
    let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("a handshake");
    let certificates = stream.get_ref().1.peer_certificates().expect("a certificate");
    certificates[0].as_ref().to_vec()
}

#[allow(clippy::disallowed_methods)] // a test's own clock
fn now() -> jiff::Timestamp {
    jiff::Timestamp::now()
}

//! The webhook server under a steady rate of pods, as an API server sends them: over a few connections, trusting what is
//! registered. What is registered is heard of late, as by an API server's watch.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use pumice_admission::VolcanoAdmission;
use pumice_admission::server::{Endpoint, Options, Rotation, Source, enabled};
use pumice_api::names::{ADMISSION_CONFIGURATION, ADMISSION_SECRET, NAMESPACE_SYSTEM, USER_ADMISSION};
use pumice_apiserver::ApiServer;
use pumice_auth::{Identity, MASTERS, Policy, built_in, client_config};
use pumice_bench::figures::Figures;
use pumice_bench::load::{self, Call};
use pumice_bench::setting::Setting;
use pumice_cluster::{Client, client_over, install_definitions};
use pumice_store::Store;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use super::demanding;

/// Reviews a second.
const RATE: usize = 1000;
/// Who sends them.
const SENDERS: usize = 8;
/// A sender begins a new connection after so many reviews, so that handshakes meet every moment of a change.
const REVIEWS_OF_A_CONNECTION: usize = 50;
/// How late senders hear of what is registered.
const HEARD_AFTER: Duration = Duration::from_millis(250);
const ROTATION: Rotation = Rotation { every: Duration::from_secs(3), settle: Duration::from_secs(1) };
const PATHS: [&str; 2] = ["/pods/mutate", "/pods/validate"];
const REGISTERED: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// What senders trust, and how often that has changed.
#[derive(Default)]
struct Trusted(Mutex<(String, usize)>);

impl Trusted {
    fn get(&self) -> (String, usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn hear(&self, bundle: String) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.0 != bundle {
            *held = (bundle, held.1 + 1);
        }
    }
}

/// What one sender saw.
#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    failures: Vec<String>,
}

/// 1,000 reviews a second for half a minute; every one of them has to be answered with yes.
pub async fn steady(setting: &Setting, figures: &mut Figures) -> anyhow::Result<()> {
    let store = Store::in_memory(pumice_store::Options::default())?;
    let api = ApiServer::builder(store, Policy::new(built_in())).build().await?;
    let administrator = client_over(api.client_service(Identity::new("bench", [MASTERS])));
    install_definitions(&administrator, pumice_api::crds::all()).await?;
    install_definitions(&administrator, vec![definition("Mutating"), definition("Validating")]).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE_SYSTEM}});
    load::run(&administrator, 1, vec![Call::create("/api/v1/namespaces", &namespace)]).await?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let server = Options {
        client: client_over(api.client_service(Identity::new(USER_ADMISSION, [""; 0]))),
        admission: VolcanoAdmission::default(),
        endpoint: Endpoint::Url(format!("https://127.0.0.1:{port}")),
        routes: enabled("")?,
        resource_groups: None,
        certificate: Source::Secret {
            namespace: NAMESPACE_SYSTEM.to_owned(),
            name: ADMISSION_SECRET.to_owned(),
            rotation: ROTATION,
        },
        drain: Duration::from_secs(1),
    }
    .build()?;
    let stop = CancellationToken::new();
    let (mut running, trusted) = (JoinSet::new(), Arc::new(Trusted::default()));
    let token = stop.clone();
    running.spawn(async move {
        if let Err(error) = server.run(listener, token).await {
            eprintln!("{error}");
        }
    });
    while trusted.get().0.is_empty() {
        hear(&administrator, &trusted).await;
    }
    let (hearing, heard) = (administrator.clone(), Arc::clone(&trusted));
    running.spawn(async move {
        loop {
            hear(&hearing, &heard).await;
        }
    });
    let seen = load(setting.size(30 * RATE), port, &trusted).await?;
    stop.cancel();
    running.shutdown().await;
    api.stop().await;
    seen.failures.iter().take(5).for_each(|failure| eprintln!("{failure}"));
    figures.times("webhook/review", &seen.times);
    figures.add("webhook/failures", seen.failures.len() as f64, "reviews", seen.times.len() + seen.failures.len());
    // A certificate is announced, and the one before is forgotten.
    figures.add("webhook/certificates", (trusted.get().1 / 2) as f64, "changes", 1);
    Ok(())
}

/// Learns, late, what is registered.
async fn hear(client: &Client, trusted: &Trusted) {
    let found = async {
        let request = Request::get(format!("{REGISTERED}/{ADMISSION_CONFIGURATION}")).body(Vec::new().into()).ok()?;
        let body = client.send(request).await.ok()?.into_body().collect().await.ok()?.to_bytes();
        let object: Value = serde_json::from_slice(&body).ok()?;
        let bundle = STANDARD.decode(object["webhooks"][0]["clientConfig"]["caBundle"].as_str()?).ok()?;
        String::from_utf8(bundle).ok()
    };
    let found = found.await;
    tokio::time::sleep(HEARD_AFTER).await;
    found.into_iter().for_each(|bundle| trusted.hear(bundle));
}

async fn load(count: usize, port: u16, trusted: &Arc<Trusted>) -> anyhow::Result<Seen> {
    let mut senders = JoinSet::new();
    let begin = Instant::now();
    for sender in 0..SENDERS {
        let trusted = Arc::clone(trusted);
        senders.spawn(async move {
            let mut seen = Seen::default();
            let mut connection: Option<(SendRequest<Full<Bytes>>, String)> = None;
            for (sent, index) in (sender..count).step_by(SENDERS).enumerate() {
                let due = begin + Duration::from_secs_f64(index as f64 / RATE as f64);
                tokio::time::sleep_until(due.into()).await;
                let now = trusted.get().0;
                if sent % REVIEWS_OF_A_CONNECTION == 0 || connection.as_ref().is_none_or(|(_, by)| *by != now) {
                    connection = None;
                }
                let started = Instant::now();
                match review(&mut connection, port, now, PATHS[index % 2]).await {
                    Ok(()) => seen.times.push(started.elapsed()),
                    Err(error) => {
                        connection = None;
                        seen.failures.push(format!("{error:#}"));
                    }
                }
            }
            seen
        });
    }
    let mut all = Seen::default();
    while let Some(seen) = senders.join_next().await {
        let seen = seen?;
        all.times.extend(seen.times);
        all.failures.extend(seen.failures);
    }
    Ok(all)
}

async fn review(
    connection: &mut Option<(SendRequest<Full<Bytes>>, String)>,
    port: u16,
    trusted: String,
    path: &str,
) -> anyhow::Result<()> {
    if connection.is_none() {
        let config = client_config(&trusted, None)?;
        let socket = TcpStream::connect(("127.0.0.1", port)).await.context("connect")?;
        socket.set_nodelay(true)?;
        let name = "127.0.0.1".try_into()?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.context("handshake")?;
        let (sender, talking) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends with its sender.
        #[allow(clippy::disallowed_methods)]
        tokio::spawn(talking);
        *connection = Some((sender, trusted));
    }
    let Some((sender, _)) = connection else { anyhow::bail!("no connection") };
    let request = Request::post(path).header("host", "admission").body(Full::from(body()))?;
    let response = sender.send_request(request).await.context("send")?;
    let code = response.status();
    let body = response.into_body().collect().await.context("answer")?.to_bytes();
    anyhow::ensure!(code == StatusCode::OK, "{code}: {}", String::from_utf8_lossy(&body));
    let answer: Value = serde_json::from_slice(&body)?;
    anyhow::ensure!(answer["response"]["allowed"] == true, "{answer}");
    Ok(())
}

fn body() -> Vec<u8> {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "p", "namespace": "default", "operation": "CREATE", "userInfo": {"username": "bench"},
        "object": demanding("p"),
    }})
    .to_string()
    .into_bytes()
}

/// Webhook configurations, of which our API server knows nothing by itself.
fn definition(phase: &str) -> Value {
    let (kind, singular) =
        (format!("{phase}WebhookConfiguration"), format!("{}webhookconfiguration", phase.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{singular}s.admissionregistration.k8s.io")},
        "spec": {
            "group": "admissionregistration.k8s.io", "scope": "Cluster",
            "names": {"kind": kind, "plural": format!("{singular}s"), "singular": singular, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}],
        },
    })
}

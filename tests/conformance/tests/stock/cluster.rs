//! A server on a free port with Volcano's definitions, and credentials for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use pumice_admission::{Rules, VolcanoAdmission};
use pumice_apiserver::ApiServer;
use pumice_auth::{Ca, MASTERS, Policy, built_in, client_config, kubeconfig, server_config};
use pumice_store::{Options, Store};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::wire::Wire;

/// Longest wait for a state that must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Cluster {
    url: String,
    ca: Ca,
    pub directory: TempDir,
    pub kubeconfig: PathBuf,
    pub wire: Wire,
    serving: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Cluster {
    pub async fn start() -> Self {
        Self::over(Options::default()).await
    }

    pub async fn over(options: Options) -> Self {
        let store = Store::in_memory(options).expect("store");
        let api = ApiServer::builder(store, Policy::new(built_in()))
            .admission(Arc::new(VolcanoAdmission::new(Rules::default())))
            .bookmark_every(Duration::from_millis(200))
            .build()
            .await
            .expect("build");
        let directory = tempfile::tempdir().expect("directory");
        let ca = Ca::open_or_create(&directory.path().join("pki"), now()).expect("authority");
        let issued = ca.issue_server(&["127.0.0.1".to_owned()], now()).expect("certificate");
        let tls = server_config(&ca, &issued).expect("tls");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("port");
        let url = format!("https://127.0.0.1:{}", listener.local_addr().expect("address").port());
        let mut serving = JoinSet::new();
        let shutdown = CancellationToken::new();
        let ends = shutdown.clone();
        serving.spawn(async move { api.serve(listener, tls, ends).await });
        let text = admin_config(&url, &ca);
        let path = directory.path().join("kubeconfig");
        std::fs::write(&path, &text).expect("kubeconfig");
        let wire = Wire::new(client_of(&text).await);
        for definition in pumice_api::crds::all() {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            wire.post(path, &definition).await.is(201);
        }
        Self { url, ca, directory, kubeconfig: path, wire, serving, shutdown }
    }

    /// A client that owns a certificate for this user.
    pub async fn user(&self, name: &str, groups: &[&str]) -> Wire {
        self.user_of(self, name, groups).await
    }

    /// A client of this server whose certificate another one has signed.
    pub async fn user_of(&self, other: &Cluster, name: &str, groups: &[&str]) -> Wire {
        let issued = other.ca.issue_client(name, groups, now()).expect("certificate");
        Wire::new(client_of(&kubeconfig(&self.url, &self.ca, &issued)).await)
    }

    /// A bare TLS connection of this user.
    pub async fn tls(&self, name: &str, groups: &[&str]) -> TlsStream<TcpStream> {
        let issued = self.ca.issue_client(name, groups, now()).expect("certificate");
        let config = client_config(self.ca.pem(), Some(&issued)).expect("tls");
        let socket = TcpStream::connect(self.address()).await.expect("connect");
        let server = "127.0.0.1".try_into().expect("an address");
        TlsConnector::from(Arc::new(config)).connect(server, socket).await.expect("handshake")
    }

    /// Where the server listens.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("https://")
    }

    /// Ends serving, and waits for it.
    pub async fn stop(&mut self) {
        self.shutdown.cancel();
        while self.serving.join_next().await.is_some() {}
    }

    /// A client without a certificate.
    pub fn nobody(&self) -> Wire {
        let mut config = kube::Config::new(self.url.parse().expect("url"));
        config.root_cert = Some(vec![self.ca.certificate().to_vec()]);
        Wire::new(kube::Client::try_from(config).expect("client"))
    }
}

fn admin_config(url: &str, ca: &Ca) -> String {
    kubeconfig(url, ca, &ca.issue_client("admin", &[MASTERS], now()).expect("certificate"))
}

async fn client_of(text: &str) -> kube::Client {
    let parsed = Kubeconfig::from_yaml(text).expect("kubeconfig");
    let mut config =
        kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.expect("kubeconfig");
    config.read_timeout = Some(PATIENCE);
    // A test wants to see a 504, not to wait until it goes away.
    config.default_retry = false;
    kube::Client::try_from(config).expect("client")
}

#[allow(clippy::disallowed_methods)] // certificates hold for today
fn now() -> Timestamp {
    Timestamp::now()
}

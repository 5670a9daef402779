//! An open way to the API: client, namespace, and where it was found.
//!
//! Invariant: cheap to clone; reopening reads the target anew, so that followers find an `up` that
//! came back on another port.

use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::names::{self, NameError};
use crate::target::{Target, TargetError};

/// How long to wait for a TCP and TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A client with the namespace that commands use if none is named.
#[derive(Clone)]
pub struct Connection {
    client: kube::Client,
    namespace: String,
    url: String,
    /// Where to find the API again; `None` for a client that was given.
    target: Option<Target>,
}

/// Why no connection could be set up. Nothing was sent yet.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The target is not there.
    #[error(transparent)]
    Locate(#[from] TargetError),
    /// The kubeconfig can't be used.
    #[error("cannot use the kubeconfig {path}")]
    ReadKubeconfig {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// The certificates in the kubeconfig can't be used.
    #[error("cannot use the credentials of the kubeconfig {path}")]
    BuildClient {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The namespace is not a name.
    #[error(transparent)]
    Namespace(#[from] NameError),
}

impl Connection {
    /// Finds the target and makes a client for it. Must run inside a Tokio runtime. Nothing is sent.
    pub async fn open(target: Target, namespace: Option<&str>) -> Result<Self, ConnectError> {
        if let Some(namespace) = namespace {
            names::check("namespace", namespace, 63)?;
        }
        let (path, context) = target.locate()?;
        let shown = path.display().to_string();
        let unusable = |source| ConnectError::ReadKubeconfig { path: shown.clone(), source: Box::new(source) };
        let kubeconfig = Kubeconfig::read_from(&path).map_err(unusable)?;
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // The client's own retries would repeat a POST with generateName.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        let client = kube::Client::try_from(config)
            .map_err(|source| ConnectError::BuildClient { path: shown, source: Box::new(source) })?;
        Ok(Connection { client, namespace, url, target: Some(target) })
    }

    /// Uses a client that is there already, for example one without a socket.
    pub fn with_client(client: kube::Client, namespace: &str) -> Self {
        Connection { client, namespace: namespace.to_owned(), url: "the given client".to_owned(), target: None }
    }

    /// The same namespace over a new client, found anew; a given client stays.
    pub async fn reopen(&self) -> Result<Self, ConnectError> {
        match &self.target {
            Some(target) => Connection::open(target.clone(), Some(&self.namespace)).await,
            None => Ok(self.clone()),
        }
    }

    /// The client.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The namespace commands work in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The server's URL, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }
}

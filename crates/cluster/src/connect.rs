//! Clients without a socket, and waiting for what a start-up needs.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::follow::WatchScope;
use crate::watch::{Change, watch};

/// Why something did not appear.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// It took too long.
    #[error("{what} did not appear within {limit:?}")]
    TooLate {
        /// What was waited for.
        what: String,
        limit: Duration,
    },
}

/// A client whose requests go straight to `service`. Needs a tokio runtime.
pub fn client_over<S, B>(service: S) -> Client
where
    S: tower::Service<http::Request<kube::client::Body>, Response = http::Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<tower::BoxError>,
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<tower::BoxError>,
{
    Client::new(service, "default")
}

/// A client in whose place another can be put while it is used, as when its certificate was renewed. Watches that go on stay with
/// the one that they began with.
#[derive(Clone)]
pub struct ReplaceableClient(Arc<RwLock<Client>>);

impl ReplaceableClient {
    /// Begins with this one.
    pub fn new(client: Client) -> Self {
        Self(Arc::new(RwLock::new(client)))
    }

    /// A client that is always the one of now. Needs a tokio runtime.
    pub fn client(&self) -> Client {
        let cell = Arc::clone(&self.0);
        let service = tower::service_fn(move |request| {
            let client = cell.read().unwrap_or_else(PoisonError::into_inner).clone();
            async move { client.send(request).await }
        });
        let namespace = self.now().default_namespace().to_owned();
        Client::new(service, namespace)
    }

    /// The one of now.
    pub fn now(&self) -> Client {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Uses this one from now on.
    pub fn replace(&self, client: Client) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = client;
    }
}

/// Why no client could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig can't be used.
    #[error("the kubeconfig can't be used; check --kubeconfig, $KUBECONFIG and its current context")]
    Kubeconfig(#[source] Box<kube::config::KubeconfigError>),
    /// There is neither a kubeconfig nor a service account of a pod.
    #[error("no API server is configured; give --kubeconfig, or run in a pod with a service account")]
    NoConfig(#[source] Box<kube::config::InferConfigError>),
    /// The address is none.
    #[error("{address:?} is no address of an API server; try https://127.0.0.1:6443")]
    Address { address: String },
    /// TLS or the credentials can't be set up.
    #[error("no client could be made from the configuration")]
    Client(#[source] Box<kube::Error>),
}

/// A client from a kubeconfig file, else from what Kubernetes' clients look at by themselves: `$KUBECONFIG`, the home
/// directory's file, the service account of a pod. `address` replaces the server's address.
pub async fn client_from(kubeconfig: Option<&Path>, address: Option<&str>) -> Result<Client, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let refused = |error| ConnectError::Kubeconfig(Box::new(error));
            let file = kube::config::Kubeconfig::read_from(path).map_err(refused)?;
            kube::Config::from_custom_kubeconfig(file, &Default::default()).await.map_err(refused)?
        }
        None => kube::Config::infer().await.map_err(|error| ConnectError::NoConfig(Box::new(error)))?,
    };
    if let Some(address) = address {
        config.cluster_url = address.parse().map_err(|_| ConnectError::Address { address: address.to_owned() })?;
    }
    Client::try_from(config).map_err(|error| ConnectError::Client(Box::new(error)))
}

/// Waits until a node says that it is ready.
pub async fn node_ready(client: &Client, name: &str, limit: Duration) -> Result<(), WaitError> {
    let ready = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
    };
    until(Api::all(client.clone()), name, ready, format!("node {name}"), limit).await
}

/// Waits until a queue of Volcano is there.
pub async fn queue_exists(client: &Client, name: &str, limit: Duration) -> Result<(), WaitError> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("scheduling.volcano.sh", "v1beta1", "Queue"));
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    until(queues, name, |_| true, format!("queue {name}"), limit).await
}

async fn until<K>(
    api: Api<K>,
    name: &str,
    is_met: impl Fn(&K) -> bool,
    what: String,
    limit: Duration,
) -> Result<(), WaitError>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let mut changes = std::pin::pin!(watch(api, WatchScope::fields(format!("metadata.name={name}"))));
    let met = async {
        while let Some(change) = changes.next().await {
            let is_met = match &change {
                Change::Replace(all) => all.iter().any(&is_met),
                Change::Applied(object) => is_met(object),
                Change::Deleted(_) => false,
            };
            if is_met {
                break;
            }
        }
    };
    tokio::time::timeout(limit, met).await.map_err(|_| WaitError::TooLate { what, limit })
}

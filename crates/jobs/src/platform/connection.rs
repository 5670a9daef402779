//! An open way to the API: client, namespace, and where it was found.
//!
//! Invariant: cheap to clone; reopening reads the target anew, so that followers find an `up` that
//! came back on another port.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::task::JoinSet;

use super::call::CallError;
use super::{NAME_ONE, expiry, local_socket, whoami};
use crate::error::{Failure, Remedy};
use crate::exit_code::Exit;
use crate::fleet::FleetError;
use crate::names::{self, NameError};
use crate::platform::login::{self, LoginError};
use crate::platform::target::{Located, Target, TargetError};

/// How long to wait for a TCP and TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The namespace of pods in a fleet's clusters where nobody says another.
const FLEET_NAMESPACE: &str = "default";
/// The namespace of who is no tenant.
const USUAL_NAMESPACE: &str = "default";
/// The author of changes unless another program says so.
const MANAGER: &str = "jobctl";

/// A client with the namespace that commands use if none is named.
#[derive(Clone)]
pub struct Connection {
    client: kube::Client,
    namespace: String,
    url: String,
    /// Where to find the API again; `None` for a client that was given.
    target: Option<Target>,
    /// What the server writes down as the author of changes.
    manager: &'static str,
    /// Refreshes the token of a login for as long as somebody has the connection.
    _login: Option<Arc<JoinSet<()>>>,
    /// When the certificate ends that is shown.
    certificate_until: Option<Timestamp>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("url", &self.url).field("namespace", &self.namespace).finish_non_exhaustive()
    }
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
        path: String,
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// The certificates in the kubeconfig can't be used.
    #[error("cannot use the credentials of the kubeconfig {path}")]
    BuildClient {
        path: String,
        #[source]
        source: Box<kube::Error>,
    },
    /// There is neither a kubeconfig nor a service account of a pod.
    #[error("no API server is configured: start `pumice up`, or name a kubeconfig by --kubeconfig or $KUBECONFIG")]
    NoServer(#[source] Box<kube::config::InferConfigError>),
    /// A pod has no token, or not all that belongs to it.
    #[error("this pod has no token to reach its cluster's API; was automountServiceAccountToken switched off?")]
    NoToken(#[source] Box<kube::config::InClusterError>),
    /// The address is none.
    #[error("{address:?} is no address of an API server; try https://127.0.0.1:6443")]
    Address { address: String },
    /// The namespace is not a name.
    #[error(transparent)]
    Namespace(#[from] NameError),
    /// The login that leads there can't be used.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The fleet can't be asked.
    #[error(transparent)]
    Fleet(#[from] FleetError),
    /// The platform does not say who the user is.
    #[error(transparent)]
    Whoami(#[from] CallError),
    /// Only a platform's API can be used like this.
    #[error("{url} is a fleet, and this needs a platform's own API; name a kubeconfig")]
    NoKubernetes { url: String },
}

impl Failure for ConnectError {
    fn exit(&self) -> Exit {
        match self {
            ConnectError::Locate(error) => error.exit(),
            ConnectError::Login(error) => error.exit(),
            ConnectError::Whoami(error) => error.exit(),
            _ => Exit::Usage,
        }
    }

    fn remedy(&self) -> Remedy {
        match self {
            ConnectError::Locate(error) => error.remedy(),
            ConnectError::Login(error) => error.remedy(),
            ConnectError::Namespace(error) => error.remedy(),
            ConnectError::Whoami(error) => error.remedy(),
            ConnectError::Fleet(FleetError::Identity { .. }) => Remedy::Unknown,
            ConnectError::Fleet(_) => Remedy::from_text("jobctl context show"),
            _ => Remedy::from_text(NAME_ONE),
        }
    }
}

impl Connection {
    /// Finds the target and makes a client for it. Must run inside a Tokio runtime. Nothing is sent, but over a local socket, which
    /// has no kubeconfig, the platform is asked whose namespace is meant where `namespace` is none.
    pub async fn open(target: Target, namespace: Option<&str>) -> Result<Self, ConnectError> {
        if let Some(namespace) = namespace {
            names::check("namespace", namespace, 63)?;
        }
        if let Target::Fleet(fleet) = &target {
            let (client, url) = (fleet.client()?, fleet.url.clone());
            let namespace = namespace.unwrap_or(FLEET_NAMESPACE).to_owned();
            let manager = MANAGER;
            let (target, certificate_until, _login) = (Some(target), None, None);
            return Ok(Connection { client, namespace, url, target, manager, certificate_until, _login });
        }
        if let Target::Socket(path) = &target {
            let (client, url) = (local_socket::client(path, USUAL_NAMESPACE), local_socket::url(path));
            let target = Some(target);
            let connection = Connection {
                client,
                namespace: USUAL_NAMESPACE.to_owned(),
                url,
                target,
                manager: MANAGER,
                _login: None,
                certificate_until: None,
            };
            let namespace = match namespace {
                Some(namespace) => namespace.to_owned(),
                None => connection.own_namespace().await?,
            };
            return Ok(Connection { namespace, ..connection });
        }
        let Found { config, path, login } = config_of(&target).await?;
        let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
        let refreshing = login.map(|files| Arc::new(JoinSet::from_iter([login::keep_fresh(files, pumice_clock::now)])));
        let connection = Self::with_config(config, path, namespace, Some(target))?;
        Ok(Connection { _login: refreshing, ..connection })
    }

    /// Finds the API as Kubernetes' clients do where no target is given: `$KUBECONFIG`, the home directory's file, the
    /// service account of a pod. `address` stands in for the server's address. Nothing is sent.
    pub async fn open_like_kubernetes(target: Option<Target>, address: Option<&str>) -> Result<Self, ConnectError> {
        let url = |address: &str| {
            address
                .parse::<http::Uri>()
                .ok()
                .filter(|url| url.host().is_some() && url.scheme().is_some())
                .ok_or_else(|| ConnectError::Address { address: address.to_owned() })
        };
        let address = address.map(url).transpose()?;
        let (mut config, shown) = match (&target, &address) {
            (Some(target), _) => {
                let found = config_of(target).await?;
                (found.config, found.path)
            }
            (None, address) => match (kube::Config::infer().await, address) {
                (Ok(config), _) => (config, "in use".to_owned()),
                (Err(_), Some(address)) => (kube::Config::new(address.clone()), "in use".to_owned()),
                (Err(error), None) => return Err(ConnectError::NoServer(Box::new(error))),
            },
        };
        if let Some(address) = address {
            config.cluster_url = address;
        }
        let namespace = config.default_namespace.clone();
        Self::with_config(config, shown, namespace, target)
    }

    /// The API of the cluster that this process is a pod of, as the pod's service account. Nothing is sent.
    pub fn of_this_pod() -> Result<Self, ConnectError> {
        let config = kube::Config::incluster().map_err(|error| ConnectError::NoToken(Box::new(error)))?;
        let namespace = config.default_namespace.clone();
        Self::with_config(config, "of this pod".to_owned(), namespace, None)
    }

    /// The namespace of the tenant that the user is, else the usual one.
    async fn own_namespace(&self) -> Result<String, CallError> {
        let who = whoami::of(self).await?;
        Ok(who.namespace().unwrap_or(USUAL_NAMESPACE).to_owned())
    }

    /// The namespace that a target's kubeconfig says; over a local socket that of the user. Only there something is sent.
    pub async fn namespace_of(target: &Target) -> Result<String, ConnectError> {
        match target {
            Target::Socket(_) => Ok(Connection::open(target.clone(), None).await?.namespace),
            Target::Fleet(_) => Ok(FLEET_NAMESPACE.to_owned()),
            _ => Ok(config_of(target).await?.config.default_namespace),
        }
    }

    fn with_config(
        mut config: kube::Config,
        shown: String,
        namespace: String,
        target: Option<Target>,
    ) -> Result<Self, ConnectError> {
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // The client's own retries would repeat a POST with generateName.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let certificate_until = config.auth_info.client_certificate_data.as_deref().and_then(end_of);
        let client = kube::Client::try_from(config)
            .map_err(|source| ConnectError::BuildClient { path: shown, source: Box::new(source) })?;
        let manager = MANAGER;
        Ok(Connection { client, namespace, url, target, manager, certificate_until, _login: None })
    }

    /// Uses a client that is there already, for example one without a socket.
    pub fn with_client(client: kube::Client, namespace: &str) -> Self {
        Connection {
            client,
            namespace: namespace.to_owned(),
            url: "the given client".to_owned(),
            target: None,
            manager: MANAGER,
            _login: None,
            certificate_until: None,
        }
    }

    /// The same namespace over a new client, found anew; a given client stays.
    pub async fn reopen(&self) -> Result<Self, ConnectError> {
        match &self.target {
            // Its address stays, and its connections are opened anew by themselves.
            Some(Target::Fleet(_)) => Ok(self.clone()),
            Some(target) => Connection::open(target.clone(), Some(&self.namespace)).await,
            None => Ok(self.clone()),
        }
    }

    /// The same found anew, if the server is now elsewhere.
    pub async fn moved(&self) -> Option<Self> {
        Box::pin(self.reopen()).await.ok().filter(|there| there.url != self.url)
    }

    /// Whether a fleet is at the other end.
    pub fn is_fleet(&self) -> bool {
        matches!(self.target, Some(Target::Fleet(_)))
    }

    /// The client that all requests go through. A fleet's answers as Kubernetes' API does.
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The namespace commands work in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The same for another program, which the server writes down as the author of changes.
    #[must_use]
    pub fn of_program(mut self, manager: &'static str) -> Self {
        self.manager = manager;
        self
    }

    /// Who the server is told to be the author of changes.
    pub fn manager(&self) -> &str {
        self.manager
    }

    /// When the certificate ends that is shown, if one is.
    pub fn certificate_until(&self) -> Option<Timestamp> {
        self.certificate_until
    }

    /// The server's URL, for messages.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// When the certificate of a kubeconfig ends: base64 of PEM.
fn end_of(data: &str) -> Option<Timestamp> {
    let decode = |text: String| serde_json::from_value::<ByteString>(text.into()).ok();
    let ByteString(pem) = decode(data.to_owned())?;
    let pem = String::from_utf8(pem).ok()?;
    let (_, body) = pem.split_once("-----BEGIN CERTIFICATE-----")?;
    let (body, _) = body.split_once("-----END")?;
    let ByteString(certificate) = decode(body.split_whitespace().collect())?;
    expiry::not_after(&certificate)
}

/// What a target's kubeconfig says.
struct Found {
    config: kube::Config,
    /// The file, as messages name it.
    path: String,
    /// The login that it leads to, whose token is fresh.
    login: Option<login::Files>,
}

async fn config_of(target: &Target) -> Result<Found, ConnectError> {
    let (path, context) = match target.locate()? {
        Located::Kubeconfig(path, context) => (path, context),
        Located::Fleet(fleet) => return Err(ConnectError::NoKubernetes { url: fleet.url.clone() }),
        Located::Socket(path) => return Err(ConnectError::NoKubernetes { url: local_socket::url(path) }),
    };
    let shown = path.display().to_string();
    let unusable = |source| ConnectError::ReadKubeconfig { path: shown.clone(), source: Box::new(source) };
    let mut kubeconfig = Kubeconfig::read_from(&path).map_err(unusable)?;
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let login = login::login_of(&mut kubeconfig, &options);
    if let Some(files) = &login {
        login::fresh(files, pumice_clock::now).await?;
    }
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?;
    Ok(Found { config, path: shown, login })
}

#[cfg(test)]
mod tests {
    use pumice_auth::{Ca, kubeconfig};

    use super::*;

    #[test]
    fn the_end_of_a_kubeconfigs_certificate_is_known() {
        let now: Timestamp = "2026-12-01T04:00:00Z".parse().unwrap();
        let ca = Ca::passing(now).unwrap();
        let issued = ca.issue_client("ann", &[], now).unwrap();
        let text = kubeconfig("https://h", &ca, &issued);
        let data = text.lines().find_map(|line| line.trim().strip_prefix("client-certificate-data: ")).unwrap();
        assert_eq!(end_of(data), Some(issued.not_after));
        assert_eq!(end_of("AAAA"), None);
    }
}

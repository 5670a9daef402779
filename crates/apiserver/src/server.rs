//! The server: its parts, how it is built, and the tower services that answer requests.
//!
//! Invariant: a request is answered from one registry and one identity, both fixed when it arrives. Built by `pumice up`
//! and by tests; called by the listener and by in-process clients.

mod bootstrap;
mod exposure;
mod listener;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use pumice_auth::{Identity, Policy, TokenKey, TokenKeyError, TokenKeys};
use pumice_clock::{Clock, SystemClock};
use pumice_metrics::Page;
use pumice_objects::pod_security::Profile;
use pumice_store::{ApplyError, Store};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::admission::dynamic::DynamicAdmission;
use crate::admission::submission_rate::SubmissionRates;
use crate::admission::tenants::TenantsCell;
use crate::admission::{Admission, AdmitAll};
use crate::audit::AuditLog;
use crate::authn::local_users::TenantUsersCell;
use crate::authn::logins::{LoginOptions, Logins, PasswordCheck};
use crate::authn::service_accounts::Accounts;
use crate::authz::RightsCell;
use crate::context::{ShowMetrics, State};
use crate::handlers::{metrics_api, pipeline, retained_logs};
use crate::health::{Check, Health, Weight};
use crate::http::body::Body;
use crate::http::connections::ConnectionLimits;
use crate::http::flow::Flow;
use crate::http::request_metrics::RequestMetrics;
use crate::kinds::aggregated::AggregatedApi;
use crate::kinds::registry::RegistryCell;
use crate::nodes::{NoNodes, NodeProxy};
use crate::storage::Storage;
use crate::webhooks::Webhooks;
use crate::workers::event_expiry::EventLimits;
use crate::workers::service_accounts;
use crate::workers::{disruption, ended_access, endpoints, event_expiry, gc, quota_status, volumes};

pub use exposure::Exposure;

/// How much should be free on the store's disk, unless the builder says otherwise.
pub const WARN_ROOM_BYTES: u64 = 1 << 30;
/// How often a quiet watch gets a bookmark, unless the builder says otherwise.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Why a server can't be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The namespaces and priority classes that every cluster has can't be stored.
    #[error("cannot store the objects that every cluster has")]
    Bootstrap(#[source] ApplyError),
    /// There is no key for tokens.
    #[error("cannot sign tokens of service accounts")]
    Key(#[source] TokenKeyError),
}

/// Puts a server together. Made by [`ApiServer::builder`].
#[must_use]
pub struct Builder {
    store: Store,
    policy: Policy,
    accounts: Option<(Arc<TokenKeys>, String)>,
    logins: Option<LoginOptions>,
    passwords: Option<Arc<dyn PasswordCheck>>,
    admission: Arc<dyn Admission>,
    node_proxy: Arc<dyn NodeProxy>,
    clock: Arc<dyn Clock>,
    aggregated: Vec<AggregatedApi>,
    metrics: bool,
    retained_logs: bool,
    more_metrics: Option<ShowMetrics>,
    bookmark_every: Duration,
    checks: Vec<Check>,
    warn_room_bytes: u64,
    audit: Option<AuditLog>,
    connections: Arc<ConnectionLimits>,
    events: EventLimits,
    default_pod_security: Profile,
}

impl Builder {
    /// What a namespace enforces whose labels say nothing about it; nothing by default. Those of the system, such as
    /// `kube-system`, enforce only what their labels say.
    pub fn default_pod_security(mut self, profile: Profile) -> Self {
        self.default_pod_security = profile;
        self
    }

    /// Where requests are told; nowhere by default.
    pub fn audit(mut self, log: AuditLog) -> Self {
        self.audit = Some(log);
        self
    }

    /// How much should be free on the store's disk: with less, the check `store-room` says so; 1 GiB by default. Of a disk
    /// smaller than ten times that it is a tenth.
    pub fn warn_room(mut self, bytes: u64) -> Self {
        self.warn_room_bytes = bytes;
        self
    }

    /// How long Events stay; an hour by default.
    pub fn events(mut self, limits: EventLimits) -> Self {
        self.events = limits;
        self
    }

    /// Adds a check to `/readyz`: `look` says why the part `name` isn't well. It must not wait.
    pub fn ready_check(
        mut self,
        name: &'static str,
        look: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check { name, look: Box::new(look), weight: Weight::Needed });
        self
    }

    /// Tells on `/readyz` of a part that work goes on without: it is shown there, and its failing fails nothing.
    pub fn informational_check(
        mut self,
        name: &'static str,
        look: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check { name, look: Box::new(look), weight: Weight::Informational });
        self
    }

    /// Who changes and refuses objects; nobody by default.
    pub fn admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission = admission;
        self
    }

    /// Who reaches the nodes; nobody by default.
    pub fn node_proxy(mut self, node_proxy: Arc<dyn NodeProxy>) -> Self {
        self.node_proxy = node_proxy;
        self
    }

    /// What tokens of service accounts are signed with, and the authorities' certificates (PEM) that pods find in each
    /// namespace. By default tokens end with the server, and there is no certificate.
    pub fn service_accounts(mut self, keys: impl Into<Arc<TokenKeys>>, root_certificates: impl Into<String>) -> Self {
        self.accounts = Some((keys.into(), root_certificates.into()));
        self
    }

    /// Whose tokens are taken besides those of service accounts, and how people get one; nobody's by default.
    pub fn logins(mut self, options: LoginOptions) -> Self {
        self.logins = Some(options);
        self
    }

    /// Who knows passwords, with which users of Tenants get tokens of this server; nobody by default.
    pub fn passwords(mut self, check: Arc<dyn PasswordCheck>) -> Self {
        self.passwords = Some(check);
        self
    }

    /// Where timestamps come from; the machine's clock by default.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a group that another component answers.
    pub fn aggregate(mut self, api: AggregatedApi) -> Self {
        self.aggregated.push(api);
        self
    }

    /// Serves `logs.pumice.sh`: logs of pods that are gone, which the nodes retain.
    pub fn retained_logs(mut self) -> Self {
        self.retained_logs = true;
        self
    }

    /// Serves `metrics.k8s.io`, by asking the nodes for their `/stats/summary`.
    pub fn metrics(mut self) -> Self {
        self.metrics = true;
        self
    }

    /// Adds to what `/metrics` shows. It must not wait.
    pub fn more_metrics(mut self, show: impl Fn(&mut Page) + Send + Sync + 'static) -> Self {
        self.more_metrics = Some(Box::new(show));
        self
    }

    /// Limits of the connections of all its listeners: 4,096 by default.
    pub fn connections(mut self, limits: ConnectionLimits) -> Self {
        self.connections = Arc::new(limits);
        self
    }

    /// How often a quiet watch gets a bookmark; a minute by default.
    pub fn bookmark_every(mut self, period: Duration) -> Self {
        self.bookmark_every = period;
        self
    }

    /// Stores what every cluster has, and starts the collector and the sweep of old events. Needs a tokio runtime.
    pub fn build(mut self) -> BoxFuture<'static, Result<ApiServer, BuildError>> {
        Box::pin(async move {
            if self.metrics {
                let (nodes, clock) = (Arc::clone(&self.node_proxy), Arc::clone(&self.clock));
                self.aggregated.push(metrics_api::api(self.store.clone(), nodes, clock));
            }
            if self.retained_logs {
                self.aggregated.push(retained_logs::api(self.store.clone(), Arc::clone(&self.node_proxy)));
            }
            let certificate = self.accounts.as_ref().map(|(_, certificate)| certificate.as_str());
            let logins = Logins::new(self.logins, self.passwords, certificate);
            let accounts = match self.accounts {
                Some((keys, root_certificates)) => Accounts::new(keys, Some(root_certificates)),
                None => Accounts::new(Arc::new(TokenKey::passing().map_err(BuildError::Key)?.into()), None),
            };
            let webhooks = Arc::new(Webhooks::new(&self.store));
            let storage = Arc::new(Storage {
                registry: RegistryCell::new(&self.store, self.aggregated),
                dynamic: DynamicAdmission::new(&self.store, Arc::clone(&webhooks)),
                webhooks,
                rights: RightsCell::new(self.policy),
                accounts,
                logins,
                tenants: TenantsCell::default(),
                tenant_users: TenantUsersCell::default(),
                clock: self.clock,
                store: self.store,
            });
            let state = Arc::new(State {
                health: Health::new(&storage.store, self.warn_room_bytes, self.checks),
                storage: Arc::clone(&storage),
                quotas: Arc::default(),
                submissions: SubmissionRates::default(),
                admission: self.admission,
                node_proxy: self.node_proxy,
                bookmark_every: self.bookmark_every,
                requests: RequestMetrics::default(),
                audit: self.audit,
                default_pod_security: self.default_pod_security,
                connections: self.connections,
                more_metrics: self.more_metrics,
                flow: Flow::default(),
            });
            let stop = CancellationToken::new();
            bootstrap::run(&storage).await.map_err(BuildError::Bootstrap)?;
            let companions =
                service_accounts::start(Arc::clone(&storage), stop.clone()).await.map_err(BuildError::Bootstrap)?;
            let tasks = TaskTracker::new();
            tasks.spawn(gc::run(Arc::clone(&storage), stop.clone()));
            tasks.spawn(companions);
            tasks.spawn(endpoints::run(Arc::clone(&storage), stop.clone()));
            tasks.spawn(event_expiry::run(Arc::clone(&storage), self.events, stop.clone()));
            tasks.spawn(disruption::run(Arc::clone(&storage), stop.clone()));
            tasks.spawn(quota_status::run(Arc::clone(&storage), Arc::clone(&state.quotas), stop.clone()));
            tasks.spawn(volumes::run(Arc::clone(&storage), stop.clone()));
            tasks.spawn(ended_access::run(Arc::clone(&storage), stop.clone()));
            tasks.close();
            let background = Arc::new(Background { tasks, _stop_on_drop: stop.clone().drop_guard(), stop });
            Ok(ApiServer { state, background })
        })
    }
}

/// Tasks that end with the last handle to the server.
struct Background {
    tasks: TaskTracker,
    stop: CancellationToken,
    _stop_on_drop: DropGuard,
}

/// A Kubernetes API server over a store. Cheap to clone.
///
/// As a tower service it takes the caller's [`Identity`] from the request's extensions and answers 401 without one:
/// whoever calls it must have made sure who the caller is. [`ApiServer::serve`] and [`ApiServer::client_service`] do.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) state: Arc<State>,
    background: Arc<Background>,
}

impl ApiServer {
    /// Starts a server's description.
    pub fn builder(store: Store, policy: Policy) -> Builder {
        Builder {
            store,
            policy,
            accounts: None,
            logins: None,
            passwords: None,
            admission: Arc::new(AdmitAll),
            node_proxy: Arc::new(NoNodes),
            clock: Arc::new(SystemClock),
            aggregated: Vec::new(),
            metrics: false,
            retained_logs: false,
            more_metrics: None,
            bookmark_every: BOOKMARK_EVERY,
            checks: Vec::new(),
            warn_room_bytes: WARN_ROOM_BYTES,
            audit: None,
            connections: Arc::default(),
            events: EventLimits::default(),
            default_pod_security: Profile::default(),
        }
    }

    /// A service that acts as `identity`, for `kube::Client::new` without a socket.
    pub fn client_service(&self, identity: Identity) -> ClientService {
        ClientService { server: self.clone(), identity }
    }

    /// Answers a request that carries its caller's [`Identity`].
    pub(crate) fn answer(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(pipeline::answer(Arc::clone(&self.state), request))
    }

    /// Has pods of all namespaces trust these authorities (PEM), and ends connections whose client shows a certificate that
    /// `takes` does not take any more.
    pub fn trust<'a>(
        &'a self,
        root_certificates: &'a str,
        takes: &'a (dyn Fn(&[u8]) -> bool + Sync),
    ) -> BoxFuture<'a, Result<(), ApplyError>> {
        Box::pin(async move {
            self.state.connections.end_untrusted(takes);
            self.state.storage.accounts.trust(root_certificates);
            self.state.storage.logins.trust(root_certificates);
            service_accounts::complete(&self.state.storage).await
        })
    }

    /// Stops the tasks behind the server and waits for them. Requests are still answered.
    pub async fn stop(&self) {
        self.background.stop.cancel();
        self.background.tasks.wait().await;
        if let Some(audit) = &self.state.audit {
            audit.flush().await;
        }
    }

    /// The store that it serves. What is written past the server meets no check and no hook.
    pub fn store(&self) -> &Store {
        &self.state.storage.store
    }
}

impl<B> Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        Box::pin(self.answer(request.map(Body::new)).map(Ok))
    }
}

/// Answers requests of one identity, whatever they claim.
#[derive(Clone)]
pub struct ClientService {
    server: ApiServer,
    identity: Identity,
}

impl<B> Service<Request<B>> for ClientService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(self.identity.clone());
        self.server.call(request)
    }
}

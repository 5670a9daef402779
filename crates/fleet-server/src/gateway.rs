//! What answers the fleet's listener: Armada's services over gRPC and plain HTTP, and the streams of executors.
//!
//! Invariant: a request is somebody's or nobody's before anything reads its message; nobody may ask for health alone. Who
//! shows a certificate of the fleet's authority is whom it names; a name with a password, or a token, in the request itself
//! counts more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use http_body_util::Limited;
use pumice_auth::{Authenticated, Identity, IdentityError, OidcToken, Unknown};
use pumice_clock as clock;
use pumice_metrics::Page;
use pumice_wire::api::{
    event_server::EventServer, executor_server::ExecutorServer, jobs_server::JobsServer, node_server::NodeServer,
    queue_service_server::QueueServiceServer, retry_policy_service_server::RetryPolicyServiceServer,
    submit_server::SubmitServer,
};
use pumice_wire::binoculars::binoculars_server::BinocularsServer;
use pumice_wire::client::ANSWER_BYTES_MAX;
use pumice_wire::executor::executors_server::ExecutorsServer;
use pumice_wire::job_sets::job_sets_server::JobSetsServer;
use pumice_wire::schedulerobjects::scheduler_reporting_server::SchedulerReportingServer;
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service as _;

use crate::api::{self, Api, Permission, Who};
use crate::binoculars::Binoculars;
use crate::database::DatabaseHealth;
use crate::executor_commands::ExecutorCommands;
use crate::executor_streams::{ExecutorName, ExecutorStreams};
use crate::health;
use crate::leader::Input;
use crate::metrics::{CallKey, Metrics};
use crate::reports::Reports;

mod access;
mod body_timeout;
mod cors;
mod rest;
mod status_pages;
mod users;

pub use access::{Access, Gate, ReportsFor};
use body_timeout::Prompt;
pub use cors::Origins;
pub use users::{Denied, HashError, Hashed, Known, User, Users, UsersError, UsersFile, hash_password, hash_token};

/// The group of those who may do everything.
pub const ADMINISTRATORS: &str = "pumice:administrators";
/// The group of executors: each may speak for the one of its own name.
pub const EXECUTORS: &str = "pumice:executors";

/// Largest request. A job takes some kB, and there are at most 10,000 in a request.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Passwords that are checked at once.
const CHECKS_MAX: usize = 2;

/// For the whole of a request. On a line on which it does not come by then, it had better come in parts.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Bytes of a request of whom nobody knows, who may ask for nothing but health.
const STRANGER_BYTES_MAX: usize = 4 << 10;

/// Writes what a listener counts on a page of metrics.
pub type ShowListener = Arc<dyn Fn(&mut Page) + Send + Sync>;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Which groups have which permissions everywhere.
pub type PermissionGroups = BTreeMap<Permission, BTreeSet<String>>;

/// What a connection's certificate says of who is at its other end.
#[derive(Debug, Clone, Default)]
pub struct Peer {
    identity: Option<Arc<Identity>>,
}

/// Answers requests; cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    api: Api,
    submit: SubmitServer<Api>,
    queues: QueueServiceServer<Api>,
    policies: RetryPolicyServiceServer<Api>,
    events: EventServer<Api>,
    jobs: JobsServer<Api>,
    clusters: ExecutorServer<Api>,
    nodes: NodeServer<Api>,
    job_sets: JobSetsServer<Api>,
    executors: ExecutorsServer<ExecutorStreams>,
    reports: SchedulerReportingServer<Reports>,
    reports_in_json: Reports,
    looking: Binoculars,
    binoculars: BinocularsServer<Binoculars>,
    gate: Arc<Gate>,
    origins: Arc<Origins>,
    checks: Arc<Semaphore>,
    leader: mpsc::Sender<Input>,
    metrics: Arc<Metrics>,
    /// Writes what the listener counts.
    listener: Option<ShowListener>,
    /// How the database did when it was last looked at.
    looked: Arc<tokio::sync::Mutex<Option<(Instant, DatabaseHealth)>>>,
}

/// A generated server with the limits of this listener, which count what a message takes once it is unpacked. Armada's clients in Go
/// compress whatever they send.
macro_rules! limited {
    ($server:ident, $service:expr) => {
        $server::new($service)
            .max_decoding_message_size(REQUEST_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip)
    };
}

impl Gateway {
    /// Answers with these services, for people whom certificates name or whom the gate knows. What only the leader knows or takes goes
    /// to `leader`.
    pub fn new(api: Api, leader: mpsc::Sender<Input>, gate: Arc<Gate>) -> Self {
        let commands = ExecutorCommands::new(leader.clone());
        let of_executors = commands.clone();
        let api = api.asking(move || {
            let commands = of_executors.clone();
            async move { commands.executors().await }.boxed()
        });
        let looking = Binoculars::new(api.clone(), commands.clone());
        Self {
            submit: limited!(SubmitServer, api.clone()),
            queues: limited!(QueueServiceServer, api.clone()),
            policies: limited!(RetryPolicyServiceServer, api.clone()),
            events: limited!(EventServer, api.clone()),
            jobs: limited!(JobsServer, api.clone()),
            clusters: limited!(ExecutorServer, api.clone()),
            nodes: limited!(NodeServer, api.clone()),
            job_sets: limited!(JobSetsServer, api.clone()),
            executors: limited!(ExecutorsServer, ExecutorStreams::new(leader.clone(), commands)),
            reports: limited!(SchedulerReportingServer, Reports::new(api.clone(), leader.clone())),
            reports_in_json: Reports::new(api.clone(), leader.clone()),
            binoculars: limited!(BinocularsServer, looking.clone()),
            looking,
            api,
            gate,
            origins: Arc::default(),
            checks: Arc::new(Semaphore::new(CHECKS_MAX)),
            leader,
            metrics: Arc::default(),
            listener: None,
            looked: Arc::default(),
        }
    }

    /// Counts requests where the leader counts, too, and shows all of it.
    pub fn counting(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Lets pages of these origins ask, too, but for what is asked over gRPC.
    pub fn allowing(self, origins: Origins) -> Self {
        Self { origins: Arc::new(origins), ..self }
    }

    /// Shows what its listener counts, too.
    pub fn showing_listener(self, show: ShowListener) -> Self {
        Self { listener: Some(show), ..self }
    }

    /// Who is at the other end of a connection, by the certificate (DER) that TLS has verified, if one was shown.
    ///
    /// # Errors
    /// A certificate that names nobody.
    pub fn peer(&self, certificate: Option<&[u8]>) -> Result<Peer, IdentityError> {
        let identity = certificate.map(pumice_auth::identity_of).transpose()?;
        Ok(Peer { identity: identity.map(Arc::new) })
    }

    /// Answers one request of a connection.
    pub fn answer<B>(self, peer: Peer, request: Request<B>) -> BoxFuture<'static, Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.answer_to(peer, request.map(Body::new))
    }

    /// Knows no types of its callers, so that all services are compiled here only and not by each of them.
    fn answer_to(self, peer: Peer, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let metrics = Arc::clone(&self.metrics);
            let spoken = is_grpc(&request);
            let asked = CallKey::of(spoken, request.method().as_str(), request.uri().path());
            let began = clock::monotonic();
            let origin = if spoken { None } else { self.origins.of(request.headers()) };
            let mut response = if origin.is_some() && cors::is_preflight(&request) {
                cors::preflight()
            } else {
                self.respond(peer, request).await
            };
            if let Some(origin) = origin {
                cors::show(&mut response, origin);
            }
            metrics.answered(asked, status_pages::code(spoken, &response), began.elapsed());
            response
        })
    }

    async fn respond(self, peer: Peer, mut request: Request<Body>) -> Response<Body> {
        let said = request.headers().get(AUTHORIZATION).cloned();
        let is_in_request = said.is_some();
        let who = match self.asks(&peer, said).await {
            Ok(who) => who,
            Err(status) => return refusal(&request, status),
        };
        if let Some(who) = &who {
            request.extensions_mut().insert(who.clone());
        }
        let shown = match &who {
            Some(who) if is_in_request => Some(Authenticated(who.name.clone())),
            _ => None,
        };
        let mut response = self.dispatch(who, request).await;
        if let Some(shown) = shown {
            response.extensions_mut().insert(shown);
        }
        response
    }

    /// Answers a request of whom that is known, if it is.
    async fn dispatch(self, who: Option<Arc<Who>>, mut request: Request<Body>) -> Response<Body> {
        let service = request.uri().path().trim_start_matches('/').split('/').next().unwrap_or_default();
        // The generated servers answer always: their error is that there is none.
        macro_rules! served {
            ($by:ident, $request:expr) => {{
                let mut server = self.$by;
                server.call($request).await.unwrap_or_else(|never| match never {})
            }};
            ($by:ident) => {
                match of_people(request, who.as_deref()) {
                    Ok(request) => served!($by, request),
                    Err(status) => status.into_http(),
                }
            };
        }
        match service {
            "api.Submit" => served!(submit),
            "api.QueueService" => served!(queues),
            "api.RetryPolicyService" => served!(policies),
            "api.Event" => served!(events),
            "api.Jobs" => served!(jobs),
            "api.Executor" => served!(clusters),
            "api.Node" => served!(nodes),
            "pumice.job_sets.v1.JobSets" => served!(job_sets),
            "schedulerobjects.SchedulerReporting" => served!(reports),
            "binoculars.Binoculars" => served!(binoculars),
            "pumice.fleet.v1.Executors" => match executor(who.as_deref()) {
                Ok(name) => {
                    request.extensions_mut().insert(name);
                    served!(executors, request)
                }
                Err(status) => status.into_http(),
            },
            "metrics" if !is_grpc(&request) => self.metrics_page(who.as_deref(), &request.method().clone()).await,
            "pumice" if request.uri().path() == health::PATH => {
                self.standing_page(who.as_deref(), &request.method().clone()).await
            }
            "health" => Response::new(Body::new(http_body_util::Full::from("ok\n"))),
            _ if is_grpc(&request) => {
                Status::unimplemented(format!("this server has no service {service:?}")).into_http()
            }
            _ => rest::answer(&self.api, &self.reports_in_json, &self.looking, who, request).await,
        }
    }

    /// Who makes a request: what it says itself counts more than the certificate.
    async fn asks(&self, peer: &Peer, said: Option<HeaderValue>) -> Result<Option<Arc<Who>>, Status> {
        let access = self.gate.access();
        let Some(header) = said else {
            return Ok(peer.identity.as_deref().map(|identity| access.of_certificate(identity)));
        };
        let header = header.to_str().map_err(|_| Status::unauthenticated("the authorization is no text"))?;
        let known = match (access.users.known(header), &access.issuer, token(header)) {
            (Err(_), Some(issuer), Some(token)) => {
                let identified = issuer.identify(token, clock::now()).await;
                let identity = identified.map_err(|unknown| match unknown {
                    Unknown::Away => Status::unavailable(unknown.to_string()),
                    Unknown::Token(_) => Status::unauthenticated(unknown.to_string()),
                })?;
                let Identity { user, groups } = identity.identity;
                Known { name: user, groups: groups.into_iter().collect() }
            }
            (Err(denied), ..) => return Err(refused(denied)),
            (Ok(Some(known)), ..) => known,
            (Ok(None), ..) => self.check(Arc::clone(&access), header.to_owned()).await?,
        };
        Ok(Some(access.who(known.name, known.groups)))
    }

    /// Checking a password takes long on purpose: whoever guesses many does not keep others from their work.
    async fn check(&self, access: Arc<Access>, header: String) -> Result<Known, Status> {
        let broken = || Status::internal("the authorization could not be checked");
        let _turn = self.checks.acquire().await.map_err(|_| broken())?;
        let checked = tokio::task::spawn_blocking(move || access.users.check(&header)).await;
        checked.map_err(|_| broken())?.map_err(refused)
    }
}

/// A call with one message, which is read only for whom it may be answered, and not for ever.
fn of_people(request: Request<Body>, who: Option<&Who>) -> Result<Request<Body>, Status> {
    if who.is_some() {
        return Ok(request.map(|body| Body::new(Prompt::new(body, BODY_TIME))));
    }
    if !request.uri().path().ends_with("/Health") {
        return Err(api::Error::Nobody.into());
    }
    let small = |body| Prompt::new(Body::new(Limited::new(body, STRANGER_BYTES_MAX)), BODY_TIME);
    Ok(request.map(|body| Body::new(small(body))))
}

fn refused(denied: Denied) -> Status {
    Status::unauthenticated(denied.to_string())
}

/// A token of an issuer in a header, if it has the form of one.
fn token(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim_start();
    (scheme.eq_ignore_ascii_case("bearer") && OidcToken::is_one(token)).then_some(token)
}

/// For which executor somebody may speak.
fn executor(who: Option<&Who>) -> Result<ExecutorName, Status> {
    let who = who.ok_or_else(|| Status::unauthenticated("executors have to say who they are: give an identity"))?;
    if !who.permissions.contains(&Permission::ExecuteJobs) {
        let permission = Permission::ExecuteJobs.word();
        return Err(Status::permission_denied(format!("{} is no executor: {permission} allows it", who.name)));
    }
    Ok(ExecutorName(who.name.clone()))
}

fn is_grpc<B>(request: &Request<B>) -> bool {
    let kind = request.headers().get(http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

fn refusal(request: &Request<Body>, status: Status) -> Response<Body> {
    if is_grpc(request) { status.into_http() } else { rest::refused(status) }
}

#[cfg(test)]
mod tests;

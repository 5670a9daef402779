//! Admission as an HTTPS server that a real API server asks.
//!
//! Invariant: a request is judged by the same code as in process ([`crate::review`]); a request that can't be judged gets no
//! answer but an error, so that the API server's failure policy decides; nothing that comes in ends the server. Run by
//! `pumice admission run`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{HeaderValue, Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use kube::Client;
use pumice_apiserver::{Body, ConnectionError, Handler, serve_connections};
use pumice_auth::{ServingCertificate, TlsError, changing_server_config};
use pumice_clock::now;
use pumice_cluster::Vitals;
use pumice_units::with_causes;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::VolcanoAdmission;
use crate::review::{BadReview, REVIEW_BYTES_MAX, Request, Verdict};

mod certificate;
mod configuration;
mod files;
mod groups;
mod metrics;
mod objects;
mod reconciler;

pub use crate::routes::{Phase, ROUTES, Route, UnknownPath, enabled, route};
pub use certificate::Rotation;
pub use configuration::Endpoint;
pub use files::{CertificateFiles, CertificateFilesError};
pub use groups::{GroupsError, GroupsFile};

use configuration::{Registration, TIMEOUT_SECONDS};
use metrics::{Metrics, Outcome};
use objects::Objects;
use reconciler::Reconciler;

/// Most requests that are judged at a time; more wait.
const REQUESTS_MAX: usize = 256;
/// Most bytes of requests in memory; more are refused.
const REQUESTS_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Longest time for a request: then the API server has given up.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(TIMEOUT_SECONDS);

/// What the server needs.
pub struct Options {
    /// The API, with the rights of `system:pumice:admission`.
    pub client: Client,
    pub admission: VolcanoAdmission,
    /// Where the API server finds this server.
    pub endpoint: Endpoint,
    /// Paths that are answered, and asked for.
    pub routes: Vec<&'static Route>,
    /// File of resource groups; with one, pods of all schedulers are sent.
    pub resource_groups: Option<PathBuf>,
    /// What is shown to API servers.
    pub certificate: Source,
    /// How long requests under way may take after the shutdown.
    pub drain: Duration,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It is made and replaced here, and kept in a Secret that all replicas share.
    Secret {
        /// Namespace of the Secret.
        namespace: String,
        name: String,
        /// When there is a new certificate.
        rotation: Rotation,
    },
    /// Somebody else does that.
    Files(CertificateFiles),
}

/// Admission, ready to run.
pub struct Server {
    answers: Arc<Answers>,
    reconciler: Reconciler,
    groups: Option<GroupsFile>,
    drain: Duration,
}

/// Why there is no server, or no server any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address of the endpoint is none.
    #[error("{url:?} is no address of a webhook; try https://10.0.0.1:8443")]
    Endpoint { url: String },
    /// The certificate can't be used.
    #[error("the certificate can't be used")]
    Files(#[from] CertificateFilesError),
    /// The resource groups can't be used.
    #[error("the resource groups can't be used")]
    Groups(#[from] GroupsError),
    /// TLS can't be set up.
    #[error("TLS can't be set up")]
    Tls(#[source] TlsError),
    /// A watch ended, which it never does by itself.
    #[error("the watches of admission ended")]
    WatchEnded,
}

/// What a request is answered from.
struct Answers {
    admission: VolcanoAdmission,
    routes: Vec<&'static Route>,
    objects: Objects,
    serving: Arc<ServingCertificate>,
    metrics: Metrics,
    room: Semaphore,
    memory: Semaphore,
}

/// Why a review is not answered.
#[derive(Debug, thiserror::Error)]
enum Unanswerable {
    #[error(transparent)]
    Bad(#[from] BadReview),
    #[error("the request broke off")]
    Broken(#[source] ConnectionError),
    #[error("there are too many requests")]
    Full,
    #[error(transparent)]
    Read(#[from] objects::ReadError),
    #[error("no answer within {REQUEST_TIMEOUT:?}")]
    TooLate,
}

impl Options {
    /// Builds the server; nothing runs yet.
    pub fn build(self) -> Result<Server, Error> {
        let names = names_of(&self.endpoint)?;
        let rules = self.admission.rules();
        let groups = self.resource_groups.map(|path| GroupsFile::load(&path, &rules)).transpose()?;
        let serving = Arc::new(ServingCertificate::default());
        if let Source::Files(files) = &self.certificate {
            files.show(&files.read()?, &serving)?;
        }
        let registration = Registration {
            endpoint: self.endpoint,
            schedulers: rules.get().scheduler_names.clone(),
            any_pod: groups.is_some(),
            trusted: String::new(),
        };
        let reconciler = Reconciler {
            client: self.client.clone(),
            certificate: self.certificate,
            names,
            registration,
            routes: self.routes.clone(),
            serving: Arc::clone(&serving),
        };
        let answers = Answers {
            admission: self.admission,
            routes: self.routes,
            objects: Objects::new(self.client),
            serving,
            metrics: Metrics::default(),
            room: Semaphore::new(REQUESTS_MAX),
            memory: Semaphore::new(REQUESTS_BYTES_MAX),
        };
        Ok(Server { answers: Arc::new(answers), reconciler, groups, drain: self.drain })
    }
}

/// What a certificate for `endpoint` has to be good for.
fn names_of(endpoint: &Endpoint) -> Result<BTreeSet<String>, Error> {
    match endpoint {
        Endpoint::Service { namespace, name } => Ok(BTreeSet::from([format!("{name}.{namespace}.svc")])),
        Endpoint::Url(url) => {
            let parsed = url.parse::<http::Uri>().ok().filter(|uri| uri.scheme_str() == Some("https"));
            let host = parsed.as_ref().and_then(http::Uri::host).ok_or_else(|| Error::Endpoint { url: url.clone() })?;
            Ok(BTreeSet::from([host.trim_start_matches('[').trim_end_matches(']').to_owned()]))
        }
    }
}

/// Asks admission what it has counted; cheap to clone.
#[derive(Clone)]
pub struct Handle(Arc<Answers>);

impl Vitals for Handle {
    fn metrics(&self) -> String {
        self.0.metrics.page()
    }

    fn is_well(&self) -> bool {
        self.0.is_ready()
    }
}

impl Server {
    /// Tells what it does, also while it runs.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.answers))
    }

    /// Answers on `listener` until `shutdown`, keeping certificate and registration. The registration stays: other replicas
    /// may go on.
    pub fn run(self, listener: TcpListener, shutdown: CancellationToken) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            let tls = changing_server_config(Arc::clone(&self.answers.serving)).map_err(Error::Tls)?;
            let answers = self.answers;
            let address = listener.local_addr().ok();
            tracing::info!(address = address.map(|address: SocketAddr| address.to_string()), "admission listens");
            let serving = async {
                let answers = Arc::clone(&answers);
                let handlers = move |_: SocketAddr, _: Option<&CertificateDer<'static>>| {
                    let answers = Arc::clone(&answers);
                    let handler: Handler = Box::new(move |request| {
                        let answers = Arc::clone(&answers);
                        Box::pin(async move { answers.respond(request).await.map(Body::new) })
                    });
                    Ok(handler)
                };
                serve_connections(listener, tls, Arc::default(), shutdown, self.drain, handlers).await;
            };
            let grouping = async {
                match self.groups {
                    Some(file) => file.follow(answers.admission.rules()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = serving => Ok(()),
                () = grouping => Ok(()),
                () = answers.objects.follow() => Err(Error::WatchEnded),
                () = Box::pin(self.reconciler.run()) => Err(Error::WatchEnded),
            }
        })
    }
}

impl Answers {
    async fn respond(&self, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        let enabled = self.routes.iter().find(|route| route.path == path);
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match (enabled, path) {
            (Some(route), _) if *request.method() == Method::POST => self.review(route, request).await,
            (Some(_), _) => text(StatusCode::METHOD_NOT_ALLOWED, "send a review by POST\n"),
            (None, "/healthz" | "/readyz") if is_read => match self.is_ready() {
                true => text(StatusCode::OK, "ok"),
                false => text(StatusCode::SERVICE_UNAVAILABLE, "queues and namespaces are not listed yet\n"),
            },
            (None, "/livez") if is_read => text(StatusCode::OK, "ok"),
            (None, "/metrics") if is_read => text(StatusCode::OK, self.metrics.page()),
            _ => text(StatusCode::NOT_FOUND, "not found, or not in --enabled-admission\n"),
        }
    }

    fn is_ready(&self) -> bool {
        self.serving.is_shown() && self.objects.is_complete()
    }

    async fn review(&self, route: &Route, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
        let begin = Instant::now();
        let judged = tokio::time::timeout(REQUEST_TIMEOUT, self.judge(route, request)).await;
        let (outcome, response) = match judged.unwrap_or(Err(Unanswerable::TooLate)) {
            Ok((outcome, body)) => (outcome, json(body)),
            Err(error) => {
                let code = error.code();
                let words = with_causes(&error);
                tracing::warn!(path = route.path, error = words, "a review is not answered");
                (Outcome::Failed, text(code, format!("{words}\n")))
            }
        };
        self.metrics.count(route, outcome, begin.elapsed());
        response
    }

    async fn judge(&self, route: &Route, request: HttpRequest<Incoming>) -> Result<(Outcome, Vec<u8>), Unanswerable> {
        // A body that does not come holds up no other.
        let (body, _memory) = self.read(request.into_body()).await?;
        let _permit = self.room.acquire().await;
        let request = Request::read(&body, route)?;
        let verdict = self.objects.judged(
            |judged: &Result<Verdict, BadReview>| judged.as_ref().is_ok_and(Verdict::is_refusal),
            |objects| request.judge(&self.admission, route.phase, objects, now()),
        );
        let verdict = verdict.await??;
        let outcome = if verdict.is_refusal() { Outcome::Refused } else { Outcome::Admitted };
        Ok((outcome, request.answer(verdict)))
    }

    /// Reads a body, and the memory that it takes.
    async fn read(&self, body: Incoming) -> Result<(BytesMut, Option<SemaphorePermit<'_>>), Unanswerable> {
        let mut body = Limited::new(body, REVIEW_BYTES_MAX);
        let (mut whole, mut memory) = (BytesMut::new(), None::<SemaphorePermit<'_>>);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
                true => Unanswerable::Bad(BadReview::TooLong),
                false => Unanswerable::Broken(error),
            })?;
            let Ok(data) = frame.into_data() else { continue };
            let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let more = self.memory.try_acquire_many(length).map_err(|_| Unanswerable::Full)?;
            match &mut memory {
                Some(memory) => memory.merge(more),
                none => *none = Some(more),
            }
            whole.extend_from_slice(&data);
        }
        Ok((whole, memory))
    }
}

impl Unanswerable {
    fn code(&self) -> StatusCode {
        match self {
            Self::Bad(BadReview::TooLong) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Bad(BadReview::Crash) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Bad(_) | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Read(_) | Self::Full => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLate => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

fn json(body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn text(code: StatusCode, text: impl Into<String>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text.into())));
    *response.status_mut() = code;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

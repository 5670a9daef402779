//! Calls for one repository of one registry: tokens, redirects, pauses.
//!
//! Invariant: a credential is shown to the registry's own host, and to hosts of tokens that the settings name. It follows no
//! redirect. From TLS there is no way to a plain connection.

mod answers;
mod content;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RANGE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use pumice_units::Backoff;

use crate::registry::credentials::Credential;
use crate::registry::error::RegistryError;
use crate::registry::settings::Endpoint;
use crate::registry::transport::{Body, Transport};
use answers::{Refusal, retry_after};
pub(crate) use answers::{is_passing, next};
pub(crate) use content::{Content, Upload};
use tokens::secret_header;

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// Largest part of a refusal that is read, in bytes.
const REFUSAL_BYTES_MAX: u64 = 16 << 10;
/// How many times as long as for another answer a registry may take to look at what it was sent.
const LOOK_AT_UPLOAD: u32 = 4;

/// How long a registry is waited for.
#[derive(Debug, Clone)]
pub struct Patience {
    /// For the head of an answer.
    pub answer: Duration,
    /// Within each such time [`Patience::bytes`] must come.
    pub window: Duration,
    pub bytes: u64,
    /// Calls of one kind that may fail, before the pull does.
    pub tries: u32,
    /// Between them, unless the registry names a pause.
    pub pause: Backoff,
    /// The longest pause that a registry may name.
    pub longest_pause: Duration,
    /// For another pull that brings the same layer.
    pub others: Duration,
    /// What it must bring within each [`Patience::window`] to be waited for.
    pub others_bytes: u64,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            answer: Duration::from_secs(30),
            window: Duration::from_secs(30),
            bytes: 16 << 10,
            tries: 5,
            pause: Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(10) },
            longest_pause: Duration::from_secs(60),
            others: Duration::from_mins(10),
            others_bytes: 1 << 20,
        }
    }
}

/// One repository of one registry, with at most one credential.
pub(crate) struct Session {
    pub(crate) transport: Arc<Transport>,
    pub(crate) endpoint: Endpoint,
    pub(crate) repository: String,
    pub(crate) credential: Option<Credential>,
    pub(crate) patience: Patience,
    right: Right,
    /// The header that the registry takes, once it has asked for one.
    authorization: Mutex<Option<HeaderValue>>,
}

/// What a session does with its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    Pull,
    /// Also with content of another repository of the same registry, to which it may pull.
    Push {
        from: Option<String>,
    },
}

/// What is asked for.
pub(crate) struct Call<'c> {
    pub method: Method,
    /// Below the repository: `manifests/latest`.
    pub path: String,
    /// Where the registry itself said to go on with it.
    pub address: Option<Uri>,
    pub accept: Option<&'c str>,
    /// The first byte that is wanted.
    pub from: u64,
    pub content: Content,
}

impl Call<'_> {
    /// For all of what is at this path.
    pub(crate) fn new(method: Method, path: String) -> Self {
        Call { method, path, address: None, accept: None, from: 0, content: Content::None }
    }
}

/// The address that an answer came from, after redirects.
#[derive(Debug, Clone)]
pub(crate) struct Final(pub Uri);

impl Session {
    pub(crate) fn new(
        transport: Arc<Transport>,
        endpoint: Endpoint,
        repository: String,
        credential: Option<Credential>,
        patience: Patience,
    ) -> Session {
        let authorization = match &credential {
            Some(Credential::Bearer(token)) => secret_header(&format!("Bearer {token}")),
            _ => None,
        };
        let authorization = Mutex::new(authorization);
        Session { transport, endpoint, repository, credential, patience, right: Right::Pull, authorization }
    }

    /// The same, with another right.
    pub(crate) fn with_right(self, right: Right) -> Session {
        Session { right, ..self }
    }

    /// What a call is for, as people know it: `team/app:1`.
    fn what(&self, call: &Call<'_>) -> String {
        let (kind, version) = call.path.split_once('/').unwrap_or(("", &call.path));
        if version.starts_with("uploads/") {
            return self.repository.clone();
        }
        let joint = if kind == "manifests" && !version.contains(':') { ':' } else { '@' };
        format!("{}{joint}{version}", self.repository)
    }

    pub(crate) fn host(&self) -> String {
        self.endpoint.host.clone()
    }

    /// Asks, again where that may help, and returns an answer that is a success.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Response<Incoming>, RegistryError> {
        let (mut asked_for_rights, mut failures) = (false, 0);
        loop {
            let pause = self.patience.pause.pause(failures);
            failures += 1;
            let answer = match self.follow(call).await {
                Err(error) if error.is_passing() && failures < self.patience.tries => {
                    sleep(pause).await;
                    continue;
                }
                answer => answer?,
            };
            let status = answer.status();
            if status.is_success() {
                return Ok(answer);
            } else if status == StatusCode::UNAUTHORIZED && !asked_for_rights {
                (asked_for_rights, failures) = (true, failures - 1);
                self.authorize(answer.headers(), &self.what(call)).await?;
            } else if is_passing(status.as_u16()) && failures < self.patience.tries {
                sleep(self.named_pause(answer.headers()).unwrap_or(pause)).await;
            } else if status == StatusCode::TOO_MANY_REQUESTS {
                return Err(RegistryError::Busy { host: self.host(), tries: failures });
            } else {
                return Err(self.refusal(call, answer).await);
            }
        }
    }

    /// One answer, whatever it says; credentials are shown where they are asked for.
    pub(crate) async fn attempt(&self, call: &Call<'_>) -> Result<Response<Incoming>, RegistryError> {
        let answer = self.follow(call).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        self.authorize(answer.headers(), &self.what(call)).await?;
        self.follow(call).await
    }

    /// Asks for something small, again where its connection ended, and reads all of it.
    pub(crate) async fn get(&self, call: &Call<'_>, limit: u64) -> Result<(HeaderMap, Vec<u8>), RegistryError> {
        let mut failures = 0;
        loop {
            let answer = self.call(call).await?;
            let headers = answer.headers().clone();
            let pause = self.patience.pause.pause(failures);
            failures += 1;
            match self.read(answer, limit, &self.what(call)).await {
                Err(error) if error.is_passing() && failures < self.patience.tries => sleep(pause).await,
                read => return read.map(|bytes| (headers, bytes)),
            }
        }
    }

    /// The pause that an answer names, as long as it may be.
    pub(crate) fn named_pause(&self, headers: &HeaderMap) -> Option<Duration> {
        retry_after(headers).map(|named| named.min(self.patience.longest_pause))
    }

    /// One request, and those that it is redirected to.
    async fn follow(&self, call: &Call<'_>) -> Result<Response<Incoming>, RegistryError> {
        let first =
            format!("{}://{}/v2/{}/{}", self.endpoint.scheme(), self.endpoint.address, self.repository, call.path);
        let refused = |to: &str, problem| RegistryError::Redirect {
            host: self.host(),
            what: self.what(call),
            to: to.chars().take(200).collect(),
            problem,
        };
        let mut uri: Uri = first.parse().map_err(|_| refused(&first, "it is no address"))?;
        let mut is_own = true;
        if let Some(named) = &call.address {
            is_own = is_same_host(&uri, named);
            if leaves_tls(&uri, named) {
                return Err(refused(&named.to_string(), "it has no TLS"));
            }
            uri = named.clone();
        }
        for _ in 0..=REDIRECTS_MAX {
            let header = if is_own { self.authorization.lock().await.clone() } else { None };
            let request = request(call, &uri, header).map_err(|_| refused(&uri.to_string(), "it is no address"))?;
            let mut answer = self.send(request, call.content.upload()).await?;
            let status = answer.status();
            if status == StatusCode::UNAUTHORIZED && !is_own {
                // What another host asks for is not the registry's to give.
                let host = uri.authority().map_or_else(|| self.host(), ToString::to_string);
                let (what, message) = (self.what(call), String::new());
                return Err(RegistryError::Answer { host, what, status: status.as_u16(), message });
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                answer.extensions_mut().insert(Final(uri));
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let is_same_request = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if !is_same_request && !matches!(call.method, Method::GET | Method::HEAD) {
                return Err(refused(to, "what is sent would be left behind"));
            }
            let next = next(&uri, to).ok_or_else(|| refused(to, "it is no address"))?;
            if leaves_tls(&uri, &next) {
                return Err(refused(to, "it has no TLS"));
            }
            is_own = is_own && is_same_host(&uri, &next);
            uri = next;
        }
        Err(refused(&uri.to_string(), "there were too many"))
    }

    /// Sends a request, and waits for the head of the answer; with an upload as long as it goes on.
    async fn send(&self, request: Request<Body>, upload: Option<&Upload>) -> Result<Response<Incoming>, RegistryError> {
        // Whoever was reached is who has a certificate or none.
        let host = request.uri().authority().map_or_else(|| self.host(), ToString::to_string);
        let host = if host == self.endpoint.address { self.host() } else { host };
        let mut sent = Box::pin(self.transport.send(&host, self.endpoint.authority.as_ref(), request));
        let patience = &self.patience;
        let mut before = 0;
        while let Some(upload) = upload.filter(|upload| !upload.is_sent()) {
            match timeout(patience.window, &mut sent).await {
                Ok(Err(RegistryError::Reach { host, source } | RegistryError::Proxy { host, source, .. }))
                    if upload.taken() > 0 =>
                {
                    return Err(RegistryError::CutUpload { host, sent: upload.taken(), source });
                }
                Ok(answer) => return answer,
                Err(_) if upload.taken().saturating_sub(before) < patience.bytes && !upload.is_sent() => {
                    let (sent, seconds) = (upload.taken(), patience.window.as_secs());
                    return Err(RegistryError::SlowToTake { host: host.clone(), sent, seconds });
                }
                Err(_) => before = upload.taken(),
            }
        }
        let limit = if upload.is_some() { patience.answer * LOOK_AT_UPLOAD } else { patience.answer };
        timeout(limit, sent).await.unwrap_or_else(|_| Err(RegistryError::Silent { host, seconds: limit.as_secs() }))
    }

    /// All of a small answer.
    pub(crate) async fn read(
        &self,
        answer: Response<Incoming>,
        limit: u64,
        what: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let (mut body, mut bytes) = (answer.into_body(), Vec::new());
        let seconds = self.patience.answer.as_secs();
        let read = async {
            while let Some(frame) = body.frame().await {
                let received = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                let frame = frame.map_err(|source| RegistryError::Cut { host: self.host(), received, source })?;
                let Ok(data) = frame.into_data() else { continue };
                if received.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX)) > limit {
                    return Err(RegistryError::TooLarge { host: self.host(), what: what.to_owned(), limit });
                }
                bytes.extend_from_slice(&data);
            }
            Ok(())
        };
        match timeout(self.patience.answer, read).await {
            Ok(read) => read.map(|()| bytes),
            Err(_) => Err(RegistryError::Slow {
                host: self.host(),
                received: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
                seconds,
            }),
        }
    }

    /// What an answer that is no success says.
    pub(crate) async fn refusal(&self, call: &Call<'_>, answer: Response<Incoming>) -> RegistryError {
        let (host, status, what) = (self.host(), answer.status(), self.what(call));
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return self.denied(&what, answer).await;
        }
        if call.method == Method::GET || call.method == Method::HEAD {
            if status == StatusCode::NOT_FOUND {
                return RegistryError::NotFound { host, what };
            }
            let message = self.refused(answer).await.message();
            return RegistryError::Answer { host, what, status: status.as_u16(), message };
        }
        let refusal = self.refused(answer).await;
        let is_of_digest = refusal.has_code("DIGEST_INVALID");
        let message = refusal.message();
        match status {
            StatusCode::NOT_FOUND => RegistryError::NoRepository { host, what, message },
            StatusCode::PAYLOAD_TOO_LARGE => RegistryError::SizeRefused { host, what, message },
            StatusCode::INSUFFICIENT_STORAGE => RegistryError::NoRoom { host, what, message },
            _ if is_of_digest => RegistryError::DigestRefused { host, what, message },
            _ => RegistryError::Answer { host, what, status: status.as_u16(), message },
        }
    }

    async fn denied(&self, what: &str, answer: Response<Incoming>) -> RegistryError {
        let message = self.refused(answer).await.message();
        RegistryError::Denied {
            host: self.host(),
            what: what.to_owned(),
            with_credential: self.credential.is_some(),
            right: self.right.clone(),
            message,
        }
    }

    async fn refused(&self, answer: Response<Incoming>) -> Refusal {
        Refusal::read(&self.read(answer, REFUSAL_BYTES_MAX, "a refusal").await.unwrap_or_default())
    }
}

fn request(call: &Call<'_>, uri: &Uri, authorization: Option<HeaderValue>) -> Result<Request<Body>, http::Error> {
    let mut request = Request::builder().method(call.method.clone()).uri(uri).header(USER_AGENT, "pumice");
    if let Some(accept) = call.accept {
        request = request.header(ACCEPT, accept);
    }
    if call.from > 0 {
        request = request.header(RANGE, format!("bytes={}-", call.from));
    }
    if let Some(header) = authorization {
        request = request.header(AUTHORIZATION, header);
    }
    if !matches!(call.method, Method::GET | Method::HEAD) {
        request = request.header(CONTENT_LENGTH, call.content.length());
    }
    if let Some(kind) = call.content.kind() {
        request = request.header(CONTENT_TYPE, kind);
    }
    request.body(call.content.body())
}

fn is_same_host(one: &Uri, other: &Uri) -> bool {
    one.authority() == other.authority() && one.scheme() == other.scheme()
}

fn leaves_tls(from: &Uri, to: &Uri) -> bool {
    from.scheme_str() == Some("https") && to.scheme_str() != Some("https")
}

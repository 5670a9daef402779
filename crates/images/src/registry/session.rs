//! Calls for one repository of one registry: tokens, redirects, pauses.
//!
//! Invariant: a credential is shown to the registry's own host, and to hosts of tokens that the settings name. It follows no
//! redirect. From TLS there is no way to a plain connection.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, LOCATION, RANGE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};

use pumice_units::Backoff;

use crate::registry::challenge::{Challenge, challenges};
use crate::registry::credentials::Credential;
use crate::registry::error::RegistryError;
use crate::registry::settings::Endpoint;
use crate::registry::transport::Transport;

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// Largest answer with a token, in bytes.
const TOKEN_BYTES_MAX: u64 = 1 << 20;
/// Largest part of a refusal that is read, in bytes.
const REFUSAL_BYTES_MAX: u64 = 16 << 10;
/// Longest part of a refusal that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

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
    /// The header that the registry takes, once it has asked for one.
    authorization: Mutex<Option<HeaderValue>>,
}

/// What is asked for.
pub(crate) struct Call<'c> {
    pub method: Method,
    /// Below the repository: `manifests/latest`.
    pub path: String,
    pub accept: Option<&'c str>,
    /// The first byte that is wanted.
    pub from: u64,
}

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
        Session { transport, endpoint, repository, credential, patience, authorization: Mutex::new(authorization) }
    }

    /// What a call is for, as people know it: `team/app:1`.
    fn what(&self, call: &Call<'_>) -> String {
        let (kind, version) = call.path.split_once('/').unwrap_or(("", &call.path));
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
            } else if is_passing(status) && failures < self.patience.tries {
                sleep(self.named_pause(answer.headers()).unwrap_or(pause)).await;
            } else if status == StatusCode::TOO_MANY_REQUESTS {
                return Err(RegistryError::Busy { host: self.host(), tries: failures });
            } else {
                return Err(self.refusal(call, answer).await);
            }
        }
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
    fn named_pause(&self, headers: &HeaderMap) -> Option<Duration> {
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
        for _ in 0..=REDIRECTS_MAX {
            let mut request = Request::builder().method(call.method.clone()).uri(&uri).header(USER_AGENT, "pumice");
            if let Some(accept) = call.accept {
                request = request.header(ACCEPT, accept);
            }
            if call.from > 0 {
                request = request.header(RANGE, format!("bytes={}-", call.from));
            }
            if is_own && let Some(header) = self.authorization.lock().await.clone() {
                request = request.header(AUTHORIZATION, header);
            }
            let request = request.body(Full::default()).map_err(|_| refused(&uri.to_string(), "it is no address"))?;
            let answer = self.send(request).await?;
            let status = answer.status();
            if status == StatusCode::UNAUTHORIZED && !is_own {
                // What another host asks for is not the registry's to give.
                let host = uri.authority().map_or_else(|| self.host(), ToString::to_string);
                let (what, message) = (self.what(call), String::new());
                return Err(RegistryError::Answer { host, what, status: status.as_u16(), message });
            }
            if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
                return Ok(answer);
            }
            let to = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let next = next(&uri, to).ok_or_else(|| refused(to, "it is no address"))?;
            if uri.scheme_str() == Some("https") && next.scheme_str() != Some("https") {
                return Err(refused(to, "it has no TLS"));
            }
            is_own = is_own && next.authority() == uri.authority() && next.scheme() == uri.scheme();
            uri = next;
        }
        Err(refused(&uri.to_string(), "there were too many"))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, RegistryError> {
        let limit = self.patience.answer;
        // Whoever was reached is who has a certificate or none.
        let host = request.uri().authority().map_or_else(|| self.host(), ToString::to_string);
        let host = if host == self.endpoint.address { self.host() } else { host };
        let sent = self.transport.send(&host, self.endpoint.authority.as_ref(), request);
        timeout(limit, sent).await.unwrap_or_else(|_| Err(RegistryError::Silent { host, seconds: limit.as_secs() }))
    }

    /// Gets what the registry asks for.
    async fn authorize(&self, headers: &HeaderMap, what: &str) -> Result<(), RegistryError> {
        let denied = || RegistryError::Denied {
            host: self.host(),
            what: what.to_owned(),
            with_credential: self.credential.is_some(),
            message: String::new(),
        };
        for challenge in challenges(headers) {
            let header = match (challenge, &self.credential) {
                (Challenge::Basic, Some(credential @ Credential::Password { .. })) => basic(credential),
                (Challenge::Bearer { realm, service, .. }, _) => {
                    let token = self.token(&realm, service.as_deref(), what).await?;
                    secret_header(&format!("Bearer {token}"))
                }
                (Challenge::Basic, _) => continue,
            };
            *self.authorization.lock().await = Some(header.ok_or_else(denied)?);
            return Ok(());
        }
        Err(denied())
    }

    /// A token to pull with. The right that is asked for is our own choice, whatever the registry proposes.
    async fn token(&self, realm: &str, service: Option<&str>, what: &str) -> Result<String, RegistryError> {
        let not_one = || RegistryError::Realm { host: self.host(), realm: realm.chars().take(200).collect() };
        let uri: Uri = realm.parse().map_err(|_| not_one())?;
        let authority = uri.authority().ok_or_else(not_one)?.to_string();
        let is_own = authority == self.endpoint.address;
        match uri.scheme_str() {
            Some("https") => {}
            Some("http") if self.endpoint.plain_http => {}
            _ => return Err(not_one()),
        }
        if self.credential.is_some() && !is_own && !self.endpoint.token_hosts.contains(&authority) {
            return Err(RegistryError::TokenHost { host: self.host(), realm: authority });
        }
        let failed = |problem: String| RegistryError::Token { host: self.host(), realm: authority.clone(), problem };
        let mut failures = 0;
        let answer = loop {
            let pause = self.patience.pause.pause(failures);
            failures += 1;
            let may_try = failures < self.patience.tries;
            match self.ask_for_token(&uri, service).await {
                Ok(answer) if answer.status().is_success() => break answer,
                Ok(answer) if is_passing(answer.status()) && may_try => {
                    sleep(self.named_pause(answer.headers()).unwrap_or(pause)).await;
                }
                Err(error) if error.is_passing() && may_try => sleep(pause).await,
                Ok(answer) if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                    return Err(self.denied(what, answer).await);
                }
                // A redirect as well: it would take the credential along.
                Ok(answer) => return Err(failed(answer.status().to_string())),
                Err(error) => return Err(error),
            }
        };
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let body = self.read(answer, TOKEN_BYTES_MAX, "a token").await?;
        let token: Token = serde_json::from_slice(&body).map_err(|_| failed("with no token".to_owned()))?;
        let given = token.token.or(token.access_token).filter(|token| !token.is_empty());
        given.ok_or_else(|| failed("with no token".to_owned()))
    }

    async fn ask_for_token(&self, uri: &Uri, service: Option<&str>) -> Result<Response<Incoming>, RegistryError> {
        let scope = format!("repository:{}:pull", self.repository);
        let mut pairs: Vec<_> = service.map(|service| ("service", service)).into_iter().collect();
        pairs.push(("scope", &scope));
        let request = match &self.credential {
            Some(Credential::Identity(token)) => {
                pairs.extend([("grant_type", "refresh_token"), ("client_id", "pumice"), ("refresh_token", token)]);
                let kind = "application/x-www-form-urlencoded";
                let request = Request::post(uri).header(CONTENT_TYPE, kind);
                request.body(Full::from(form(&pairs)))
            }
            credential => {
                let joint = if uri.query().is_some() { '&' } else { '?' };
                let mut request = Request::get(format!("{uri}{joint}{}", form(&pairs)));
                if let Some(header) = credential.as_ref().and_then(basic) {
                    request = request.header(AUTHORIZATION, header);
                }
                request.body(Full::default())
            }
        };
        let not_one =
            |_| RegistryError::Realm { host: self.host(), realm: uri.to_string().chars().take(200).collect() };
        self.send(request.map_err(not_one)?).await
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

    async fn refusal(&self, call: &Call<'_>, answer: Response<Incoming>) -> RegistryError {
        let (host, status, what) = (self.host(), answer.status(), self.what(call));
        match status {
            StatusCode::NOT_FOUND => RegistryError::NotFound { host, what },
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => self.denied(&what, answer).await,
            _ => RegistryError::Answer { host, what, status: status.as_u16(), message: self.message(answer).await },
        }
    }

    async fn denied(&self, what: &str, answer: Response<Incoming>) -> RegistryError {
        let message = self.message(answer).await;
        RegistryError::Denied {
            host: self.host(),
            what: what.to_owned(),
            with_credential: self.credential.is_some(),
            message,
        }
    }

    async fn message(&self, answer: Response<Incoming>) -> String {
        message(&self.read(answer, REFUSAL_BYTES_MAX, "a refusal").await.unwrap_or_default())
    }
}

/// Whether it may be another answer in a while.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

fn form(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

fn basic(credential: &Credential) -> Option<HeaderValue> {
    let Credential::Password { user, password } = credential else { return None };
    secret_header(&format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
}

/// A header that is left out where headers are shown.
fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// Where a redirect from `uri` leads.
fn next(uri: &Uri, to: &str) -> Option<Uri> {
    let address = match to.strip_prefix("//") {
        Some(rest) => format!("{}://{rest}", uri.scheme_str()?),
        None if to.starts_with('/') => format!("{}://{}{to}", uri.scheme_str()?, uri.authority()?),
        None => to.to_owned(),
    };
    let next: Uri = address.parse().ok()?;
    (matches!(next.scheme_str(), Some("http" | "https")) && next.authority().is_some()).then_some(next)
}

/// In seconds; a date says no more than that it is busy.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The first message of a registry's error, or nothing; as one line that can be shown.
fn message(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Refusal>,
    }
    #[derive(Deserialize)]
    struct Refusal {
        message: Option<String>,
        code: Option<String>,
    }
    let errors: Option<Errors> = serde_json::from_slice(body).ok();
    let first = errors.and_then(|errors| errors.errors.into_iter().next());
    let text = first.and_then(|refusal| refusal.message.or(refusal.code)).unwrap_or_default();
    text.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_to_addresses_alone() {
        let from: Uri = "https://h:1/v2/a".parse().unwrap();
        let cases = [
            ("/x?y", Some("https://h:1/x?y")),
            ("//other/x", Some("https://other/x")),
            ("http://h/x", Some("http://h/x")),
            ("file:///etc/passwd", None),
            ("x", None),
            ("", None),
        ];
        for (to, expected) in cases {
            assert_eq!(next(&from, to).map(|uri| uri.to_string()).as_deref(), expected, "{to}");
        }
    }

    #[test]
    fn a_registrys_message_is_one_line() {
        assert_eq!(message(br#"{"errors": [{"code": "X", "message": "a\nb\u001b[1m"}]}"#), "ab[1m");
        assert_eq!(message(br#"{"errors": [{"code": "X"}]}"#), "X");
        assert_eq!(message(b"<html>"), "");
    }
}

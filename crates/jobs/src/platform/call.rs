//! One request to the API and what its failure means.
//!
//! Invariant: a [`CallError`] already says in which class it falls, so that exit codes and retries
//! are decided in one place, and its text is the server's own, without the client's wrapping.
//! Objects travel as JSON, so that fields this version doesn't know survive `get -o json`.

use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::connection::Connection;
use crate::error::{CORRECT, Failure, Remedy};
use crate::exit_code::Exit;
use crate::fleet::NOT_HERE;
use crate::json::text_at;

/// A plain request that takes longer has failed; watches and logs are not bounded by this.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for what is submitted to a fleet: a job is as many requests there as its pods need, each with a limit of its own.
const FLEET_SUBMIT_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a request in all is sent again where the server says when it may come: a tenant submits so many jobs a minute.
const TOO_MANY_WAIT_MAX: Duration = Duration::from_secs(600);
/// Objects asked for in one page of a list.
const PAGE_ITEMS: u32 = 500;
/// Pages read before a list counts as endless (a million objects).
const PAGES_MAX: u32 = 2000;
/// The server's own table of what was asked for.
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A request that did not give what was asked.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub struct CallError {
    /// What was being done, as in "create job x".
    pub doing: String,
    #[source]
    pub cause: CallCause,
}

impl Failure for CallError {
    fn exit(&self) -> Exit {
        match self.class() {
            FailureClass::Invalid => Exit::Usage,
            FailureClass::NotFound => Exit::NotFound,
            FailureClass::Denied => Exit::Denied,
            FailureClass::Conflict => Exit::Conflict,
            FailureClass::Expired | FailureClass::Unreachable => Exit::Unreachable,
        }
    }

    fn remedy(&self) -> Remedy {
        // Its sentence says what to do.
        if matches!(&self.cause, CallCause::Refused { reason, .. } if reason == NOT_HERE) {
            return Remedy::Unknown;
        }
        match self.class() {
            FailureClass::Unreachable => Remedy::Reach { answers: matches!(self.cause, CallCause::Refused { .. }) },
            FailureClass::Denied => Remedy::OtherUser,
            FailureClass::NotFound | FailureClass::Conflict => Remedy::from_text("jobctl list --all-namespaces"),
            FailureClass::Invalid => Remedy::from_text(CORRECT),
            FailureClass::Expired => Remedy::Unknown,
        }
    }
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum CallCause {
    /// The server refused it.
    #[error("{message}")]
    Refused {
        code: u16,
        /// The machine-readable reason, such as `AlreadyExists`.
        reason: String,
        /// The server's sentence.
        message: String,
    },
    /// There was no answer.
    #[error("no answer from {url}: {detail}")]
    Unreachable {
        /// Where it was sent.
        url: String,
        detail: String,
    },
    /// The answer made no sense.
    #[error("the answer of {url} cannot be read: {detail}")]
    Unreadable {
        /// Where it came from.
        url: String,
        /// What was wrong with it.
        detail: String,
    },
}

/// What a caller should do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The request itself is wrong.
    Invalid,
    /// The thing does not exist.
    NotFound,
    /// Not allowed.
    Denied,
    /// It exists already or changed meanwhile.
    Conflict,
    /// The watch fell behind; list again.
    Expired,
    /// Trying again makes sense.
    Unreachable,
}

impl CallError {
    /// In which class this failure falls.
    pub fn class(&self) -> FailureClass {
        match &self.cause {
            CallCause::Refused { code, .. } => class_of_code(*code),
            CallCause::Unreachable { .. } => FailureClass::Unreachable,
            CallCause::Unreadable { .. } => FailureClass::Invalid,
        }
    }

    /// Translates the client's error; `url` is the server's.
    pub(crate) fn new(doing: impl Into<String>, url: &str, error: &kube::Error) -> Self {
        let cause = match error {
            kube::Error::Api(status) => CallCause::Refused {
                code: status.code,
                reason: status.reason.clone(),
                message: if status.message.is_empty() {
                    format!("HTTP status {}", status.code)
                } else {
                    status.message.clone()
                },
            },
            kube::Error::SerdeError(cause) => CallCause::Unreadable { url: url.to_owned(), detail: cause.to_string() },
            other => CallCause::Unreachable { url: url.to_owned(), detail: innermost(other) },
        };
        CallError { doing: doing.into(), cause }
    }

    pub(crate) fn timed_out(doing: impl Into<String>, url: &str, limit: Duration) -> Self {
        Self::unreachable(doing, url, format!("nothing came in {} s", limit.as_secs()))
    }

    pub(crate) fn unreachable(doing: impl Into<String>, url: &str, detail: impl Into<String>) -> Self {
        CallError { doing: doing.into(), cause: CallCause::Unreachable { url: url.to_owned(), detail: detail.into() } }
    }

    /// An answer, or an object, that can't be read or written.
    pub fn unreadable(doing: impl Into<String>, url: &str, detail: impl ToString) -> Self {
        CallError {
            doing: doing.into(),
            cause: CallCause::Unreadable { url: url.to_owned(), detail: detail.to_string() },
        }
    }
}

fn class_of_code(code: u16) -> FailureClass {
    match code {
        401 | 403 => FailureClass::Denied,
        404 => FailureClass::NotFound,
        409 => FailureClass::Conflict,
        410 => FailureClass::Expired,
        429 | 500..=599 => FailureClass::Unreachable,
        _ => FailureClass::Invalid,
    }
}

/// The last error of a chain: "Connection refused" rather than "ServiceError: client error".
fn innermost(error: &kube::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    // Bounded: a chain of causes this long is a loop.
    for _ in 0..32 {
        match last.source() {
            Some(source) => last = source,
            None => break,
        }
    }
    last.to_string()
}

/// GET of one object.
pub async fn get(connection: &Connection, path: &str, doing: &str) -> Result<Value, CallError> {
    send(connection, Method::GET, path, None, doing).await
}

/// GET of one object as a row of the server's own table.
pub async fn get_row(connection: &Connection, path: &str, doing: &str) -> Result<Value, CallError> {
    send(connection, Method::GET, path, Some(Sent::Accept(TABLE)), doing).await
}

/// DELETE of one object; what depends on it goes in the background.
pub async fn delete(connection: &Connection, path: &str, doing: &str) -> Result<Value, CallError> {
    send(connection, Method::DELETE, path, None, doing).await
}

/// The same as `DeleteOptions` say.
pub async fn delete_as(connection: &Connection, path: &str, options: &Value, doing: &str) -> Result<Value, CallError> {
    send(connection, Method::DELETE, path, Some(Sent::Body(options)), doing).await
}

/// POST of a new object. Unknown fields are refused, as kubectl asks for too: a misspelt
/// `minAvailable` must not be dropped silently.
pub async fn create(connection: &Connection, path: &str, object: &Value, doing: &str) -> Result<Value, CallError> {
    let path = format!("{path}?fieldManager={}&fieldValidation=Strict", connection.manager());
    send(connection, Method::POST, &path, Some(Sent::Body(object)), doing).await
}

/// POST of an object that is judged and filled in like a new one, and not kept.
pub async fn try_create(connection: &Connection, path: &str, object: &Value, doing: &str) -> Result<Value, CallError> {
    send(connection, Method::POST, &format!("{path}?dryRun=All"), Some(Sent::Body(object)), doing).await
}

/// The path of a group's version, `v1` or `GROUP/VERSION`.
pub(crate) fn root_path(api_version: &str) -> String {
    if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") }
}

/// Merge patch of an object.
pub async fn merge(connection: &Connection, path: &str, patch: &Value, doing: &str) -> Result<Value, CallError> {
    let path = format!("{path}?fieldManager={}&fieldValidation=Strict", connection.manager());
    send(connection, Method::PATCH, &path, Some(Sent::Body(patch)), doing).await
}

/// A whole list: the items and the list's resource version.
pub async fn list(
    connection: &Connection,
    path: &str,
    query: &str,
    doing: &str,
) -> Result<(Vec<Value>, String), CallError> {
    let mut items = Vec::new();
    let mut revision = String::new();
    let mut pages = Pages::new(connection, path, query, doing);
    while let Some(mut page) = pages.next().await? {
        if let Some(Value::Array(page_items)) = page.get_mut("items").map(Value::take) {
            items.extend(page_items);
        }
        revision = text_at(&page, "/metadata/resourceVersion").to_owned();
    }
    Ok((items, revision))
}

/// One page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Page<T> {
    #[serde(default)]
    metadata: PageMetadata,
    items: Option<Vec<T>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    r#continue: Option<String>,
}

/// A list read page by page, so that one of any length needs the memory of a page.
#[derive(Debug)]
pub struct Pages<'c> {
    connection: &'c Connection,
    /// Path and query without the place to go on from.
    path: String,
    doing: String,
    tables: bool,
    /// Where to go on; `None` after the last page.
    token: Option<String>,
    read: u32,
}

impl<'c> Pages<'c> {
    /// The pages of a collection; `query` is empty or begins with `&`.
    pub fn new(connection: &'c Connection, path: &str, query: &str, doing: &str) -> Self {
        let path = format!("{path}?limit={PAGE_ITEMS}{query}");
        Pages { connection, path, doing: doing.to_owned(), tables: false, token: Some(String::new()), read: 0 }
    }

    /// The same as the server's own tables: a row for each object instead of the object.
    #[must_use]
    pub fn as_tables(mut self) -> Self {
        self.tables = true;
        self
    }

    /// The next page, `None` after the last one. Not cancellation safe: a page may be lost.
    pub async fn next(&mut self) -> Result<Option<Value>, CallError> {
        let Some(page) = self.page::<Value>().await? else { return Ok(None) };
        self.go_on(text_at(&page, "/metadata/continue").to_owned());
        Ok(Some(page))
    }

    /// The items of the next page, of which only what `T` holds is kept; otherwise like [`Pages::next`].
    pub async fn next_items<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>, CallError> {
        let Some(page) = self.page::<Page<T>>().await? else { return Ok(None) };
        self.go_on(page.metadata.r#continue.unwrap_or_default());
        Ok(Some(page.items.unwrap_or_default()))
    }

    fn go_on(&mut self, token: String) {
        self.token = Some(token).filter(|token| !token.is_empty());
    }

    async fn page<T: DeserializeOwned>(&mut self) -> Result<Option<T>, CallError> {
        let Some(token) = self.token.take() else { return Ok(None) };
        if self.read >= PAGES_MAX {
            let detail = format!("a list of more than {PAGES_MAX} pages");
            return Err(CallError::unreadable(&self.doing, self.connection.url(), detail));
        }
        self.read += 1;
        let going_on = if token.is_empty() { String::new() } else { format!("&continue={}", query_value(&token)) };
        let path = format!("{}{going_on}", self.path);
        let accept = self.tables.then_some(Sent::Accept(TABLE));
        send(self.connection, Method::GET, &path, accept, &self.doing).await.map(Some)
    }
}

/// Escapes a value for a query string.
pub fn query_value(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// What goes with a request beside its path.
enum Sent<'b> {
    Body(&'b Value),
    /// The form the answer is wanted in.
    Accept(&'static str),
}

/// Sends a request; where its server moved meanwhile, as a restarted `up` may have, one that only reads goes there too.
async fn send<T: DeserializeOwned>(
    connection: &Connection,
    method: Method,
    path: &str,
    sent: Option<Sent<'_>>,
    doing: &str,
) -> Result<T, CallError> {
    let text = ask(connection, method, path, sent, doing).await?;
    serde_json::from_str(&text).map_err(|error| CallError::unreadable(doing, connection.url(), error))
}

/// When a request that was refused, as there were too many, may come again.
fn comes_again(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if status.code == 429 && seconds > 0 { Some(Duration::from_secs(u64::from(seconds))) } else { None }
}

/// Knows no type of its callers, so that a request is compiled here only and not by each of them.
fn ask<'a>(
    connection: &'a Connection,
    method: Method,
    path: &'a str,
    sent: Option<Sent<'a>>,
    doing: &'a str,
) -> BoxFuture<'a, Result<String, CallError>> {
    Box::pin(async move {
        let answer = ask_at(connection, &method, path, sent.as_ref(), doing).await;
        match answer {
            Err(error) if method == Method::GET && error.class() == FailureClass::Unreachable => {
                match connection.moved().await {
                    Some(there) => ask_at(&there, &method, path, sent.as_ref(), doing).await,
                    None => Err(error),
                }
            }
            answer => answer,
        }
    })
}

async fn ask_at(
    connection: &Connection,
    method: &Method,
    path: &str,
    sent: Option<&Sent<'_>>,
    doing: &str,
) -> Result<String, CallError> {
    let content_type = match *method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut waited = Duration::ZERO;
    loop {
        let mut request = Request::builder().method(method.clone()).uri(path);
        let mut bytes = Vec::new();
        match sent {
            Some(Sent::Body(body)) => {
                bytes =
                    serde_json::to_vec(body).map_err(|error| CallError::unreadable(doing, connection.url(), error))?;
                request = request.header(http::header::CONTENT_TYPE, content_type);
            }
            Some(Sent::Accept(form)) => request = request.header(http::header::ACCEPT, *form),
            None => {}
        }
        let request = request.body(bytes).map_err(|error| CallError::unreadable(doing, connection.url(), error))?;
        let limit = if connection.is_fleet() && *method == Method::POST { FLEET_SUBMIT_TIMEOUT } else { CALL_TIMEOUT };
        match tokio::time::timeout(limit, connection.client().request_text(request)).await {
            Ok(Ok(text)) => return Ok(text),
            Ok(Err(error)) => match comes_again(&error).filter(|pause| waited + *pause <= TOO_MANY_WAIT_MAX) {
                Some(pause) => {
                    tokio::time::sleep(pause).await;
                    waited += pause;
                }
                None => return Err(CallError::new(doing, connection.url(), &error)),
            },
            Err(_) => return Err(CallError::timed_out(doing, connection.url(), limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_fall_in_classes() {
        for (code, class) in [
            (400, FailureClass::Invalid),
            (401, FailureClass::Denied),
            (403, FailureClass::Denied),
            (404, FailureClass::NotFound),
            (409, FailureClass::Conflict),
            (410, FailureClass::Expired),
            (413, FailureClass::Invalid),
            (422, FailureClass::Invalid),
            (429, FailureClass::Unreachable),
            (500, FailureClass::Unreachable),
            (507, FailureClass::Unreachable),
        ] {
            assert_eq!(class_of_code(code), class, "{code}");
        }
    }

    #[test]
    fn whoever_is_told_when_to_come_again_does() {
        let refused = |code: u16, seconds: u32| {
            let status = serde_json::json!({"code": code, "details": {"retryAfterSeconds": seconds}});
            let status: kube::core::Status = serde_json::from_value(status).unwrap();
            comes_again(&kube::Error::Api(status.boxed()))
        };
        assert_eq!(refused(429, 3), Some(Duration::from_secs(3)));
        assert_eq!(refused(429, 0), None, "an eviction that a budget refuses says nothing of when");
        assert_eq!(refused(500, 3), None);
    }

    #[test]
    fn the_servers_sentence_is_the_cause() {
        let mut status = kube::core::Status::failure("jobs \"x\" already exists", "AlreadyExists");
        status.code = 409;
        let error = CallError::new("create job x", "https://h", &kube::Error::Api(status.boxed()));
        assert_eq!(error.to_string(), "cannot create job x");
        assert_eq!(error.cause.to_string(), "jobs \"x\" already exists");
        assert_eq!(error.class(), FailureClass::Conflict);
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(query_value("a=b,c d/é"), "a%3Db%2Cc%20d%2F%C3%A9");
    }
}

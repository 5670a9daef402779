//! Who did what: one line a request, in upstream's words (`audit.k8s.io/v1`, level Metadata).
//!
//! Beside it stands what judges of the request noted ([`Annotations`]): what Pod Security found.
//!
//! Invariant: no body, header or token is ever written, nor the words of a command that is run in a pod. A request never
//! waits for its line: where lines can't be written as fast as they come, some are lost, which is counted and said. Fed by
//! the pipeline through [`crate::handlers::request_log`].

mod log;
mod policy;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Request, Response, header};
use jiff::Timestamp;
use pumice_auth::{Identity, named};
use pumice_metrics::Page;
use serde::{Deserialize, Serialize};

use crate::authn::Caller;
use crate::http::body::Body;
use crate::http::request::Target;

pub use log::{AuditError, AuditOptions};
pub use policy::{AuditPolicy, AuditPolicyError};

use log::Log;
use policy::Attributes;

/// Longest URI and user agent that are written, in bytes.
const URI_BYTES_MAX: usize = 2048;
const AGENT_BYTES_MAX: usize = 256;
/// Longest note beside a request, in bytes.
const ANNOTATION_BYTES_MAX: usize = 4096;
/// Most groups that are written of one caller.
const GROUPS_MAX: usize = 32;

/// Where a request comes from, as the listener knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source(pub(crate) std::net::IpAddr);

/// A log of requests. Cheap to clone; made once, for one server.
#[derive(Clone, Debug)]
pub struct AuditLog {
    policy: Arc<AuditPolicy>,
    log: Log,
}

/// What is known of a request so far.
pub(crate) struct Entry {
    event: Event,
    received: Timestamp,
    /// Whether the answer tells the name of what was made.
    makes: bool,
    annotations: Annotations,
}

/// Notes beside a request, by whoever judges it. Clones are of the same request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Annotations(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Annotations {
    /// Notes `text`, in place of what was noted under that key. Of a long one the beginning is kept.
    pub(crate) fn set(&self, key: &'static str, mut text: String) {
        text.truncate(cut(&text, ANNOTATION_BYTES_MAX).len());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, text);
    }

    fn all(&self) -> BTreeMap<&'static str, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl AuditLog {
    /// Opens the log, which is appended to. Starts a thread that writes it.
    pub fn open(options: AuditOptions, policy: AuditPolicy) -> Result<Self, AuditError> {
        Ok(Self { policy: Arc::new(policy), log: Log::open(options)? })
    }

    /// Waits until everything so far is written.
    pub async fn flush(&self) {
        self.log.flush().await;
    }

    /// Opens the file anew by its name, as after it was moved away. What was given before goes to the old one.
    pub fn reopen(&self) {
        self.log.reopen();
    }

    /// Begins an entry for a request that the policy wants told. `caller` is an error of one who was refused: with who he is,
    /// if he has shown it.
    pub(crate) fn begin(
        &self,
        now: Timestamp,
        target: &Target,
        caller: Result<&Caller, Option<&Identity>>,
        request: &Request<Body>,
    ) -> Option<Box<Entry>> {
        let nobody = Identity { user: String::new(), groups: Vec::new() };
        let (asks, acted_for) = match caller {
            Err(refused) => (refused.unwrap_or(&nobody), None),
            Ok(Caller { identity, by: None, .. }) => (identity, None),
            Ok(Caller { identity, by: Some(by), .. }) => (by, Some(identity)),
        };
        let asked = Attributes::new(asks, target, request.method());
        if !self.policy.wants(&asked) {
            return None;
        }
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
        let source = request.extensions().get::<Source>().map(|source| source.0.to_canonical().to_string());
        let event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "Metadata",
            audit_id: uuid::Uuid::now_v7().to_string(),
            stage: "",
            request_uri: told_uri(request.uri()),
            verb: asked.verb.to_owned(),
            user: user(asks),
            impersonated_user: acted_for.map(user),
            source_ips: source.into_iter().collect(),
            user_agent: agent.map(|agent| cut(agent, AGENT_BYTES_MAX).to_owned()),
            object_ref: object_ref(target),
            response_status: None,
            request_received_timestamp: micros(now),
            stage_timestamp: String::new(),
            annotations: None,
        };
        let makes = asked.verb == "create" && event.object_ref.as_ref().is_some_and(|object| object.name.is_none());
        Some(Box::new(Entry { event, received: now, makes, annotations: Annotations::default() }))
    }

    /// Writes what is counted of the log.
    pub(crate) fn show(&self, page: &mut Page) {
        let counts = self.log.counts();
        page.counter("apiserver_audit_event_total", "Lines given to the audit log", counts.given);
        let name = "apiserver_audit_error_total";
        page.head(name, "counter", "Lines of the audit log that were lost, as the disk was too slow or full");
        page.line(name, &[("plugin", "log")], counts.lost);
    }

    fn write(&self, event: &Event) {
        match serde_json::to_vec(event) {
            Ok(mut line) => {
                line.push(b'\n');
                self.log.give(line);
            }
            Err(error) => tracing::warn!(%error, "a line of the audit log can't be written"),
        }
    }
}

impl Entry {
    /// Where whoever judges the request notes what it finds.
    pub(crate) fn annotations(&self) -> Annotations {
        self.annotations.clone()
    }

    /// The answer is there; its body may go on.
    pub(crate) fn answered(&mut self, response: &Response<Body>) {
        self.event.response_status = Some(ResponseStatus { metadata: Empty {}, code: response.status().as_u16() });
        let made = if self.makes && response.status().is_success() { response.body().whole() } else { None };
        let made = made.and_then(|body| serde_json::from_slice::<Made>(body).ok());
        if let (Some(made), Some(object)) = (made, &mut self.event.object_ref) {
            object.name = made.metadata.name;
            object.uid = made.metadata.uid;
        }
    }

    /// Tells that an answer has begun that goes on.
    pub(crate) fn started(&self, audit: &AuditLog, now: Timestamp) {
        self.tell(audit, now, "ResponseStarted");
    }

    /// Tells that all is over.
    pub(crate) fn complete(&self, audit: &AuditLog, now: Timestamp) {
        self.tell(audit, now, "ResponseComplete");
    }

    fn tell(&self, audit: &AuditLog, now: Timestamp, stage: &'static str) {
        let took = now.duration_since(self.received).as_micros().max(0);
        let latency = format!("{}.{:03}ms", took / 1000, took % 1000);
        let annotations = EventAnnotations { latency, noted: self.annotations.all() };
        let event = Event { stage, stage_timestamp: micros(now), annotations: Some(annotations), ..self.event.clone() };
        audit.write(&event);
    }
}

/// Upstream's event, as far as the level Metadata goes.
#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    kind: &'static str,
    api_version: &'static str,
    level: &'static str,
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: &'static str,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    #[serde(skip_serializing_if = "Option::is_none")]
    impersonated_user: Option<User>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "Vec::is_empty")]
    source_ips: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_ref: Option<ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_status: Option<ResponseStatus>,
    request_received_timestamp: String,
    stage_timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<EventAnnotations>,
}

#[derive(Clone, Serialize)]
struct User {
    #[serde(skip_serializing_if = "String::is_empty")]
    username: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<String>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectRef {
    resource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_group: Option<String>,
    api_version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<String>,
}

#[derive(Clone, Serialize)]
struct ResponseStatus {
    metadata: Empty,
    code: u16,
}

#[derive(Clone, Serialize)]
struct Empty {}

#[derive(Clone, Serialize)]
struct EventAnnotations {
    #[serde(rename = "apiserver.latency.k8s.io/total")]
    latency: String,
    #[serde(flatten)]
    noted: BTreeMap<&'static str, String>,
}

/// What an answer tells of an object that was made.
#[derive(Deserialize)]
struct Made {
    metadata: MadeMetadata,
}

#[derive(Deserialize)]
struct MadeMetadata {
    name: Option<String>,
    uid: Option<String>,
}

fn user(identity: &Identity) -> User {
    User { username: identity.user.clone(), groups: identity.groups.iter().take(GROUPS_MAX).cloned().collect() }
}

fn object_ref(target: &Target) -> Option<ObjectRef> {
    let Target::Resource(wanted) = target else { return None };
    let filled = |text| named(text).map(str::to_owned);
    Some(ObjectRef {
        resource: wanted.resource.clone(),
        namespace: filled(&wanted.namespace),
        name: filled(&wanted.name),
        uid: None,
        api_group: filled(&wanted.group),
        api_version: wanted.version.clone(),
        subresource: filled(&wanted.subresource),
    })
}

/// Path and query, without the words of commands.
fn told_uri(uri: &http::Uri) -> String {
    let Some(query) = uri.query() else { return cut(uri.path(), URI_BYTES_MAX).to_owned() };
    let told: Vec<&str> =
        query.split('&').map(|part| if part.starts_with("command=") { "command=..." } else { part }).collect();
    cut(&format!("{}?{}", uri.path(), told.join("&")), URI_BYTES_MAX).to_owned()
}

/// The beginning of `text`, at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_not_told_and_long_uris_are_cut() {
        let uri = |text: &str| told_uri(&text.parse().expect("uri"));
        assert_eq!(
            uri("/api/v1/namespaces/a/pods/p/exec?command=login&command=hunter2&stdin=true"),
            "/api/v1/namespaces/a/pods/p/exec?command=...&command=...&stdin=true"
        );
        assert_eq!(uri("/api/v1/pods?limit=5"), "/api/v1/pods?limit=5");
        assert_eq!(uri(&format!("/{}", "a".repeat(9000))).len(), URI_BYTES_MAX);
    }
}

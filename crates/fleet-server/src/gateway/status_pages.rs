//! `/metrics` and how the fleet does, to whoever is known; and what answers come to.
//!
//! Invariant: it waits for the leader, and for no longer than it is asked again; without one it says what it has.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Response, StatusCode, header};
use pumice_clock as clock;
use pumice_ledger::TimeMs;
use pumice_metrics::Page;
use pumice_units::with_causes;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::{Code, Status};

use super::{Gateway, rest};
use crate::api::Who;
use crate::database::DatabaseHealth;
use crate::health::{Asker, FleetHealth};
use crate::leader::Input;
use crate::metrics::Snapshot;
use crate::sessions::FORMAT;

/// Longest wait for the leader, which may wait for its database.
const LEADER_MAX: Duration = Duration::from_secs(3);
/// For how long an answer of the database is good: each look is a write, and anybody who is known may look.
const DATABASE_AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for the database.
const DATABASE_MAX: Duration = Duration::from_secs(5);
const JSON: &str = "application/json";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

impl Gateway {
    /// The page of metrics. Names of queues and clusters are in it: strangers don't get it.
    pub(super) async fn metrics_page(&self, who: Option<&Who>, method: &Method) -> Response<Body> {
        if let Some(refused) = refused(who, method) {
            return refused;
        }
        let snapshot = self.measured().await;
        let mut page = self.metrics.page(self.api.head(), snapshot.as_deref());
        if let Some(show) = &self.listener {
            let mut more = Page::default();
            show(&mut more);
            page.push_str(&more.into_text());
        }
        text(page, TEXT)
    }

    /// How the fleet does, for `pumice fleet doctor`.
    pub(super) async fn standing_page(&self, who: Option<&Who>, method: &Method) -> Response<Body> {
        if let Some(refused) = refused(who, method) {
            return refused;
        }
        let (database, database_error) = match self.database().await {
            Ok(database) => (database, String::new()),
            Err(error) => (DatabaseHealth::default(), error),
        };
        let asker = who.map(|who| Asker {
            name: who.name.clone(),
            groups: who.groups.clone(),
            permissions: who.permissions.iter().map(|permission| permission.word().to_owned()).collect(),
        });
        let standing = FleetHealth {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT,
            now_ms: TimeMs(clock::now_ms()).0,
            who: asker.unwrap_or_default(),
            leads_since_ms: self.metrics.leads_since().map(|since| since.0),
            database,
            database_error,
            priority_classes: self.api.classes().cloned().collect(),
            leader: self.measured().await.map(|snapshot| snapshot.known()),
        };
        match serde_json::to_string(&standing) {
            Ok(json) => text(json, JSON),
            Err(error) => rest::refused(Status::internal(error.to_string())),
        }
    }

    /// How the database does, or did a moment ago; else why it does not answer.
    async fn database(&self) -> Result<DatabaseHealth, String> {
        let mut last = self.looked.lock().await;
        if let Some((_, found)) = last.as_ref().filter(|(at, _)| at.elapsed() < DATABASE_AGAIN) {
            return Ok(found.clone());
        }
        let found = tokio::time::timeout(DATABASE_MAX, self.api.log().probe()).await;
        let found = found.map_err(|_| format!("no answer within {} s", DATABASE_MAX.as_secs()))?;
        let found = found.map_err(|error| with_causes(&error))?;
        *last = Some((clock::monotonic(), found.clone()));
        Ok(found)
    }

    /// What the leader counts, where this server leads.
    async fn measured(&self) -> Option<Arc<Snapshot>> {
        let (answer, measured) = oneshot::channel();
        let asking = async {
            self.leader.send(Input::Measure { answer }).await.ok()?;
            measured.await.ok()
        };
        tokio::time::timeout(LEADER_MAX, asking).await.ok().flatten()
    }
}

fn refused(who: Option<&Who>, method: &Method) -> Option<Response<Body>> {
    let status = if who.is_none() {
        Status::unauthenticated("this is for those who say who they are")
    } else if !matches!(*method, Method::GET | Method::HEAD) {
        Status::unimplemented("this can only be read")
    } else {
        return None;
    };
    Some(rest::refused(status))
}

fn text(body: String, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::from(body)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// With what an answer began: what goes wrong later in a stream is not in it.
pub(super) fn code(is_grpc: bool, response: &Response<Body>) -> Code {
    if is_grpc {
        let said = response.headers().get("grpc-status");
        return said.map_or(Code::Ok, |said| Code::from_bytes(said.as_bytes()));
    }
    match response.status() {
        status if status.is_success() => Code::Ok,
        StatusCode::BAD_REQUEST => Code::InvalidArgument,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::AlreadyExists,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        StatusCode::NOT_IMPLEMENTED | StatusCode::METHOD_NOT_ALLOWED => Code::Unimplemented,
        StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
        StatusCode::GATEWAY_TIMEOUT => Code::DeadlineExceeded,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    }
}

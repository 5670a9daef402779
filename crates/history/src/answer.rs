//! `history.pumice.sh/v1alpha1` as an aggregated API. Called by whoever wires it into an API server, which has looked at the
//! rights of who asks.
//!
//! Invariant: a path of a namespace is answered with rows of that namespace alone.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use pumice_api::history::{GROUP, PageMeta, VERSION};
use pumice_clock as clock;
use pumice_units::with_causes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::query::{self, QueryError};
use crate::{Database, DatabaseError, Handle, LastRuns};

impl Handle {
    /// Answers a GET of `.../jobs`, `.../namespaces/NS/jobs` or `.../namespaces/NS/jobs/NAME`, below
    /// `/apis/history.pumice.sh/v1alpha1`, with the parameters of `docs/history.md`; and of that path itself, where no API server
    /// of ours has answered it before.
    pub async fn answer(&self, path: &str, query: &str) -> Response<Bytes> {
        let prefix = format!("/apis/{GROUP}/{VERSION}/");
        if path.trim_end_matches('/') == prefix.trim_end_matches('/') {
            return json_response(StatusCode::OK, resources().to_string());
        }
        let parts: Vec<&str> =
            path.strip_prefix(&prefix).unwrap_or_default().trim_end_matches('/').split('/').collect();
        let database = match self.database() {
            Ok(database) => database,
            Err(why) => return unavailable(&format!("there is no history: {why}; it is tried again")),
        };
        let answered = match parts[..] {
            ["jobs"] => list(&database, query, None).await,
            ["namespaces", namespace, "jobs"] => list(&database, query, Some(namespace)).await,
            ["namespaces", namespace, "jobs", name] => one(&database, query, namespace, name).await,
            _ => return status(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
        };
        match answered {
            Ok(body) => json_response(StatusCode::OK, body.to_string()),
            Err(error) => refusal(&error),
        }
    }

    /// How long the last jobs of each kind ran, by their pods that succeeded in the last `days` days; for a scheduler that starts.
    ///
    /// # Errors
    /// When there is no database yet, or it does not answer in time.
    pub async fn last_runs(&self, days: u32) -> Result<Vec<LastRuns>, String> {
        let since = clock::now().as_millisecond() - i64::from(days) * 24 * 3_600 * 1_000;
        query::last_runs(&self.database()?, since).await.map_err(|error| with_causes(&error))
    }
}

async fn list(database: &Database, query: &str, namespace: Option<&str>) -> Result<Value, QueryError> {
    let question = query::parse(query, namespace)?;
    match question.group {
        Some(by) => {
            let groups = query::groups(database, &question, by, clock::now().as_millisecond()).await?;
            Ok(page("GroupHistoryList", &groups, &PageMeta::default()))
        }
        None => {
            let (jobs, meta) = query::jobs(database, &question).await?;
            let items: Vec<Value> = jobs.iter().map(object).collect();
            Ok(page("JobHistoryList", &items, &meta))
        }
    }
}

async fn one(database: &Database, query: &str, namespace: &str, name: &str) -> Result<Value, QueryError> {
    let parameters = form_urlencoded::parse(query.as_bytes());
    let uid = parameters.into_iter().find(|(name, value)| name == "uid" && !value.is_empty()).map(|(_, uid)| uid);
    Ok(object(&query::job(database, namespace, name, uid.as_deref()).await?))
}

/// What there is, for discovery.
fn resources() -> Value {
    let jobs = json!({"name": "jobs", "singularName": "job", "namespaced": true, "kind": "JobHistory", "verbs": ["get", "list"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{GROUP}/{VERSION}"), "resources": [jobs]})
}

/// What to answer while there is no history to ask.
pub fn not_ready() -> Response<Bytes> {
    unavailable("the history is starting; ask again in a moment")
}

fn unavailable(message: &str) -> Response<Bytes> {
    status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", message)
}

fn object(record: &impl Serialize) -> Value {
    let mut value = json!(record);
    value["kind"] = json!("JobHistory");
    value["apiVersion"] = json!(format!("{GROUP}/{VERSION}"));
    value
}

fn page(kind: &str, items: &impl Serialize, metadata: &PageMeta) -> Value {
    json!({"kind": kind, "apiVersion": format!("{GROUP}/{VERSION}"), "metadata": metadata, "items": items})
}

fn refusal(error: &QueryError) -> Response<Bytes> {
    let (code, reason) = match error {
        QueryError::Parameter { .. } => (StatusCode::BAD_REQUEST, "BadRequest"),
        QueryError::NoJob { .. } => (StatusCode::NOT_FOUND, "NotFound"),
        QueryError::Database(DatabaseError::TooLong) => (StatusCode::GATEWAY_TIMEOUT, "Timeout"),
        QueryError::Database(error) => {
            tracing::warn!(error = error as &dyn std::error::Error, "a question to the history failed");
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
        }
    };
    status(code, reason, &with_causes(error))
}

fn status(code: StatusCode, reason: &str, message: &str) -> Response<Bytes> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    json_response(code, body.to_string())
}

fn json_response(code: StatusCode, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

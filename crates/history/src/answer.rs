//! `history.pumice.sh/v1alpha1` as an aggregated API. Called by whoever wires it into an API server, which has looked at the
//! rights of who asks.
//!
//! Invariant: a path of a namespace is answered with rows of that namespace alone.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use pumice_api::history::{GROUP, PageMeta, VERSION};
use serde::Serialize;
use serde_json::{Value, json};

use crate::query::{self, QueryError};
use crate::{DatabaseError, Handle, LastRuns, clock};

impl Handle {
    /// Answers a GET of `.../jobs`, `.../namespaces/NS/jobs` or `.../namespaces/NS/jobs/NAME`, below
    /// `/apis/history.pumice.sh/v1alpha1`, with the parameters of `docs/history.md`.
    pub async fn answer(&self, path: &str, query: &str) -> Response<Bytes> {
        let prefix = format!("/apis/{GROUP}/{VERSION}/");
        let parts: Vec<&str> =
            path.strip_prefix(&prefix).unwrap_or_default().trim_end_matches('/').split('/').collect();
        let answered = match parts[..] {
            ["jobs"] => self.list(query, None).await,
            ["namespaces", namespace, "jobs"] => self.list(query, Some(namespace)).await,
            ["namespaces", namespace, "jobs", name] => self.one(query, namespace, name).await,
            _ => return status(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
        };
        match answered {
            Ok(body) => json_response(StatusCode::OK, body.to_string()),
            Err(error) => refusal(&error),
        }
    }

    /// How long the last pods of each kind ran, of those that succeeded in the last `days` days; for a scheduler that starts.
    ///
    /// # Errors
    /// When the database does not answer in time.
    pub async fn last_runs(&self, days: u32) -> Result<Vec<LastRuns>, QueryError> {
        let since = clock::now().as_millisecond() - i64::from(days) * 24 * 3_600 * 1_000;
        query::last_runs(&self.database, since).await
    }

    async fn list(&self, query: &str, namespace: Option<&str>) -> Result<Value, QueryError> {
        let question = query::parse(query, namespace)?;
        match question.group {
            Some(by) => {
                let groups = query::groups(&self.database, &question, by, clock::now().as_millisecond()).await?;
                Ok(page("GroupHistoryList", &groups, &PageMeta::default()))
            }
            None => {
                let (jobs, meta) = query::jobs(&self.database, &question).await?;
                let items: Vec<Value> = jobs.iter().map(object).collect();
                Ok(page("JobHistoryList", &items, &meta))
            }
        }
    }

    async fn one(&self, query: &str, namespace: &str, name: &str) -> Result<Value, QueryError> {
        let parameters = form_urlencoded::parse(query.as_bytes());
        let uid = parameters.into_iter().find(|(name, value)| name == "uid" && !value.is_empty()).map(|(_, uid)| uid);
        Ok(object(&query::job(&self.database, namespace, name, uid.as_deref()).await?))
    }
}

/// What to answer while there is no history to ask.
pub fn not_ready() -> Response<Bytes> {
    status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the history is starting; ask again in a moment")
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
    status(code, reason, &error.to_string())
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

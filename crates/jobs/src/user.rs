//! Whose jobs are the user's: what the platform would write down as the submitter of one.
//!
//! Admission writes the annotation [`USER`] from the request, whatever the request says. So who asks is told by a job that is
//! not kept: it needs no more than the right to submit, and is right behind a proxy that logs users in, too.

use pumice_api::names::USER;
use serde_json::{Value, json};

use crate::call;
use crate::connection::Connection;
use crate::error::Error;
use crate::select::jobs_path;

/// The name under which the platform knows who uses this connection. Nothing is submitted.
pub async fn of(connection: &Connection) -> Result<String, Error> {
    let path = jobs_path(Some(connection.namespace()));
    let answer = call::try_create(connection, &path, &probe(), "ask whose jobs are yours").await?;
    match answer.pointer("/metadata/annotations").and_then(|all| all.get(USER)).and_then(Value::as_str) {
        Some(user) => Ok(user.to_owned()),
        None => Err(Error::NoUsers { url: connection.url().to_owned() }),
    }
}

/// The smallest job that is one.
fn probe() -> Value {
    let container = json!({"name": "main", "image": "host"});
    json!({
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"generateName": "who-"},
        "spec": {"tasks": [{"name": "task", "replicas": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}]}
    })
}

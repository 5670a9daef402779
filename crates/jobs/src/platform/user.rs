//! Whose jobs are the user's: what the platform would write down as the submitter of one.
//!
//! Admission writes the annotation [`USER`] from the request, whatever the request says. So who asks is told by a job that is
//! not kept: it needs no more than the right to submit, and is right behind a proxy that logs users in, too.

use pumice_api::names::USER;
use serde_json::{Value, json};

use crate::error::{Error, Failure, Remedy};
use crate::exit_code::Exit;
use crate::job::jobs_path;
use crate::platform::call;
use crate::platform::connection::Connection;

/// Jobs don't say whose they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url} does not write down who submits a job")]
pub struct NoUsers {
    pub url: String,
}

impl Failure for NoUsers {
    fn exit(&self) -> Exit {
        Exit::Usage
    }

    fn remedy(&self) -> Remedy {
        Remedy::from_text("jobctl list")
    }
}

/// The name under which the platform knows who uses this connection. Nothing is submitted.
pub async fn of(connection: &Connection) -> Result<String, Error> {
    let path = jobs_path(Some(connection.namespace()));
    let answer = call::try_create(connection, &path, &probe(), "ask whose jobs are yours").await?;
    match answer.pointer("/metadata/annotations").and_then(|all| all.get(USER)).and_then(Value::as_str) {
        Some(user) => Ok(user.to_owned()),
        None => Err(NoUsers { url: connection.url().to_owned() }.into()),
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
